"""What ``program_info`` tells of a program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cowmlx.programs.dimensions import (
    MAX_DIMENSION,
    Dim,
    Shape,
    evaluate_shape,
    names_of,
)
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.forms.form import Form
from cowmlx.programs.graph import Graph, Library
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.pace import Pace, Steps
from cowmlx.programs.running.concrete import concrete
from cowmlx.programs.running.cost import Costs
from cowmlx.programs.running.memory import Needs, bytes_of


def information(form: Form, dimensions: Mapping[str, int] | None) -> Steps[dict[str, Any]]:
    """Return what is known of a form, and for given dimensions what a run of it takes; in steps.

    Shapes are lists of numbers and texts such as "2*batch". Multiplications are those of the
    program as it is written; what is derived of it takes a small multiple.

    Args:
        form: the form.
        dimensions: values of all its dimensions, or None.

    Raises:
        ProgramError: a value that is missing, unknown or out of range, or shapes that cannot meet.
    """
    library = form.library
    found: dict[str, Any] = {
        "inputs": [
            {"name": each.name, **_spec(each.spec)} for each in form.inputs if not each.parameter
        ],
        "parameters": [
            {
                "name": each.name,
                **_spec(each.spec),
                "init": None if each.init is None else {"name": each.init[0], **each.init[1]},
            }
            for each in form.inputs
            if each.parameter
        ],
        "outputs": [{"name": each.name, **_spec(each.spec)} for each in form.outputs],
        "dimensions": sorted(_names(form) - set(form.fixed)),
        "bound_dimensions": dict(form.fixed),
        "derived": list(form.steps),
        "nodes": (yield from _nodes(library.main)),
        "functions": [],
    }
    for graph in library.functions.values():
        found["functions"].append(
            {
                "name": graph.name,
                "inputs": [{"name": each.name, **_spec(each.spec)} for each in graph.declared],
                "outputs": [{"name": name, **_spec(graph.specs[name])} for name in graph.outputs],
                "nodes": (yield from _nodes(graph)),
            }
        )
    if dimensions is not None:
        values = _checked(form, dimensions)
        found["run"] = {
            "dimensions": dict(dimensions),
            **_run((yield from concrete(library, values)), form, values),
        }
    return found


def _names(form: Form) -> set[str]:
    shapes = [each.spec.shape for each in (*form.inputs, *form.library.main.declared)]
    return set().union(*(names_of(shape) for shape in shapes)) if shapes else set()


def _checked(form: Form, given: Mapping[str, int]) -> dict[str, int]:
    known = _names(form) - set(form.fixed)
    accepted = ", ".join(sorted(known)) or "none"
    for name, value in given.items():
        if name not in known:
            raise ProgramError(
                "unknown_option",
                f"there is no dimension {shown(name)}, must be one of {accepted}",
                argument=name,
                accepted=accepted,
            )
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_DIMENSION:
            raise ProgramError(
                "out_of_range",
                f"dimension {shown(name)} is {shown(value)}, must be 0 to {MAX_DIMENSION}",
                argument=name,
                value=shown(value),
                accepted=f"0 to {MAX_DIMENSION}",
            )
    missing = sorted(known - set(given))
    if missing:
        raise ProgramError(
            "missing", f"dimension {shown(missing[0])} has no value", argument=missing[0]
        )
    return {**form.fixed, **given}


def _run(library: Library, form: Form, values: Mapping[str, int]) -> dict[str, Any]:
    results = [
        Spec(evaluate_shape(each.spec.shape, values), each.spec.dtype) for each in form.outputs
    ]
    inputs = [
        Spec(evaluate_shape(each.spec.shape, values), each.spec.dtype) for each in form.inputs
    ]
    main = library.main
    return {
        "input_bytes": sum(bytes_of(each) for each in inputs),
        "constant_bytes": sum(
            bytes_of(each.spec)
            for graph in (main, *library.functions.values())
            for each in graph.constants.values()
        ),
        "output_bytes": sum(bytes_of(each) for each in results),
        "intermediate_bytes": Needs(library).of_run(form.levels, form.copies(values)),
        "multiplications": Costs(library).multiplications(main),
    }


def _nodes(graph: Graph) -> Steps[list[dict[str, Any]]]:
    found = []
    pace = Pace()
    for node in graph.nodes:
        yield from pace.rest()
        found.append(
            {
                "name": node.name,
                "op": node.op,
                "inputs": list(node.inputs),
                "outputs": [{"name": name, **_spec(graph.specs[name])} for name in node.outputs],
            }
        )
    return found


def _spec(spec: Spec) -> dict[str, Any]:
    return {"dtype": spec.dtype, "shape": _shape(spec.shape)}


def _shape(shape: Shape) -> list[int | str]:
    return [_dimension(each) for each in shape]


def _dimension(dimension: Dim) -> int | str:
    return dimension if isinstance(dimension, int) else str(dimension)
