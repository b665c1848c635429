"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.making import Result, example, row
from cowmlx.programs.operations.promotion import DTYPES as ALL_DTYPES
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    axes_of,
    reduced,
    require_dtype,
    require_elements,
    spec,
)

AXES = Attribute("axis", "axis or axes", None, "The axes to reduce; null is all.")
KEEPDIMS = Attribute("keepdims", "bool", False, "Whether reduced axes stay, with length 1.")


def summed(dtype: str) -> str:
    """Return the dtype of mlx's sums and products: small integers and bool become int32."""
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


def reduction(
    name: str,
    function: Callable[..., mx.array],
    result: Result,
    summary: str,
    formula: str,
    *,
    accepted: Sequence[str] = ALL_DTYPES,
    attributes: Sequence[Attribute] = (),
    aliases: Sequence[str] = (),
    differentiable: bool = False,
    of_nothing: bool = True,
    vectorisable: bool = True,
    examples: Sequence[Example] | None = None,
) -> Operation:
    """Return the row of a reduction along axes.

    Args:
        name: the row's.
        function: takes the array, then attributes by name.
        result: the result's dtype, for the input's.
        summary: one sentence.
        formula: what it computes.
        accepted: the input's dtypes.
        attributes: beside ``axis`` and ``keepdims``.
        aliases: other names.
        differentiable: whether a gradient goes through it.
        of_nothing: whether it is something of no elements, as a sum is 0.
        vectorisable: whether mlx can vectorise it.
        examples: if not the usual ones.
    """

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype(name, "a", given, accepted)
        axes = axes_of(name, attributes["axis"], len(given.shape))
        if not of_nothing:
            require_elements(name, given, axes)
        shape = reduced(given.shape, axes, attributes["keepdims"])
        return [spec(name, shape, result(given.dtype))]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        return [function(*arrays, **attributes)]

    kind = "float32" if "float32" in accepted else "bool"
    if examples is None:
        examples = [
            example(f"{kind}[2,3]", axis=1),
            example(f"{kind}[2,3]"),
            example(f"{kind}[2,3,4]", axis=[0, -1], keepdims=True),
            example(f"{kind}[3]", axis=-1),
            example(f"{kind}[]"),
            *([example(f"{kind}[0,3]", axis=0), example(f"{kind}[0]")] if of_nothing else []),
            example(f"{kind}[0,3]", axis=1),
        ]
    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        examples,
        aliases=aliases,
        attributes=(AXES, KEEPDIMS, *attributes),
        differentiable=("a",) if differentiable else (),
        vectorisable=vectorisable,
    )


ROWS = (
    reduction(
        "sum",
        mx.sum,
        summed,
        "The sum along axes; of nothing it is 0. Integers below 32 bits and bool become 32 bits.",
        "out = sum over axes of a",
        aliases=("reduce_sum",),
        differentiable=True,
    ),
)
