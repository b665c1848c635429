"""The one table of operations that programs and ``array_apply`` take theirs from.

A row (:class:`~cowmlx.programs.operations.row.Operation`) says all about an operation: its inputs
and attributes, the shapes and dtypes of its results, how mlx computes it, what of it can be
differentiated. Names and attributes are mlx's; other systems' names are aliases.
"""

from __future__ import annotations

import difflib
from typing import Any

from cowmlx.programs.operations import (
    activations,
    arithmetic,
    convolutions,
    creation,
    elementary,
    fourier,
    indexing,
    joining,
    linear_algebra,
    logic,
    losses,
    normalizations,
    products,
    quantized,
    random,
    reductions,
    shapes,
    slicing,
    sorting,
)
from cowmlx.programs.operations.examples import float64_error
from cowmlx.programs.operations.row import REQUIRED, Attribute, Operation, OperationError

FAMILIES: dict[str, tuple[Operation, ...]] = {
    "arithmetic": arithmetic.ROWS,
    "exponentials and logarithms": elementary.EXPONENTIALS,
    "trigonometry": elementary.TRIGONOMETRY,
    "comparison and logic": logic.ROWS,
    "reductions": reductions.ROWS,
    "scans": reductions.SCANS,
    "sorting": sorting.ROWS,
    "shapes": shapes.ROWS,
    "joining, parting and padding": joining.ROWS,
    "diagonals": slicing.DIAGONALS,
    "slices": slicing.ROWS,
    "indexing": indexing.ROWS,
    "scatter": indexing.SCATTER,
    "creation": creation.ROWS,
    "products": products.ROWS,
    "linear algebra": (*linear_algebra.ROWS, *linear_algebra.DECOMPOSITIONS),
    "convolutions and pooling": convolutions.ROWS,
    "Fourier transforms": fourier.ROWS,
    "random numbers": random.ROWS,
    "normalizations and attention": normalizations.ROWS,
    "activations": activations.ROWS,
    "losses": losses.ROWS,
    "quantized weights": quantized.ROWS,
}
"""The rows, in the order of the docs' page."""

ROWS: tuple[Operation, ...] = tuple(row for rows in FAMILIES.values() for row in rows)

VIEWS = frozenset(
    {
        "broadcast_arrays",
        "broadcast_to",
        "expand_dims",
        "flatten",
        "moveaxis",
        "reshape",
        "slice",
        "split",
        "squeeze",
        "stop_gradient",
        "swapaxes",
        "transpose",
        "unflatten",
    }
)
"""Operations whose results lie in the memory of their first input, as a rule."""


def _by_name() -> dict[str, Operation]:
    operations: dict[str, Operation] = {}
    for row in ROWS:
        for name in (row.name, *row.aliases):
            if name in operations:
                raise ValueError(f"{operations[name].name} and {row.name} are both called {name}")
            operations[name] = row
    return operations


OPERATIONS: dict[str, Operation] = _by_name()
"""Rows by name and alias."""


def find(name: str) -> Operation:
    """Return the operation of a name or alias."""
    row = OPERATIONS.get(name)
    if row is not None:
        return row
    shown = name[:64]
    near = difflib.get_close_matches(shown.lower(), OPERATIONS, n=3, cutoff=0.6)
    hint = f", is it {' or '.join(near)}?" if near else ""
    raise OperationError(
        "unknown_option",
        f"there is no operation {shown!r}{hint}",
        argument="op",
        value=shown,
        accepted=", ".join(near) or None,
    )


def table() -> list[dict[str, Any]]:
    """Return the table as JSON has it, for ``operations_info`` and all that is generated of it."""
    return [
        {
            "name": row.name,
            "aliases": list(row.aliases),
            "family": family,
            "summary": row.summary,
            "formula": row.formula,
            "source": row.source,
            "inputs": [
                {
                    "name": place.name,
                    "optional": place.optional,
                    "variadic": place.variadic,
                    "differentiable": place.name in row.differentiable,
                    "about": place.about,
                }
                for place in row.inputs
            ],
            "attributes": [attribute_as_json(attribute) for attribute in row.attributes],
            "outputs": list(row.outputs),
            "outputs_vary": row.outputs_vary,
            "vectorisable": True,
            "cpu_only": row.cpu_only,
            "float64_error": float64_error(row),
            "examples": [
                {"inputs": list(example.inputs), "attributes": example.attributes}
                for example in row.examples
            ],
        }
        for family, rows in FAMILIES.items()
        for row in rows
    ]


def attribute_as_json(attribute: Attribute) -> dict[str, Any]:
    """Return an attribute as JSON has it."""
    required = attribute.default is REQUIRED
    described: dict[str, Any] = {
        "name": attribute.name,
        "kind": attribute.kind,
        "required": required,
        "about": attribute.about,
    }
    if not required:
        described["default"] = attribute.default
    if attribute.takes_null:
        described["nullable"] = True
    if attribute.choices:
        described["choices"] = list(attribute.choices)
    for name, bound in (("low", attribute.low), ("high", attribute.high)):
        if bound is not None:
            described[name] = bound
    return described
