"""How accurate operations are with float64."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import specs_of
from cowmlx.programs.operations.row import Example, Operation, OperationError


def float64_error(row: Operation) -> float | None:
    """Return the bound of errors with float64, or None for an operation that has no float64.

    It holds for results and their gradients, relative to the largest absolute value of each.
    """
    takes = any(_takes(row, example) for example in row.examples)
    return row.float64_error if takes else None


def _takes(row: Operation, example: Example) -> bool:
    wide = {each.name: "float64" for each in row.attributes if each.kind == "dtype"}
    texts = [
        None if given is None else replace(given, dtype="float64") if _is_float(given) else given
        for given in specs_of(example)
    ]
    if not wide and texts == specs_of(example):
        return False
    given: dict[str, Any] = {**example.attributes, **wide}
    try:
        row.infer(row.arranged(texts), attributes_of(row, given))
    except OperationError:
        return False
    return True


def _is_float(given: Any) -> bool:
    return bool(given.dtype == "float32")
