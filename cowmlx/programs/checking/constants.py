"""Constants of a program: nested lists as arrays."""

from __future__ import annotations

from itertools import chain
from typing import Any

from cowmlx.programs.bounds import MAX_CONSTANT
from cowmlx.programs.checking import numbers
from cowmlx.programs.dimensions import MAX_RANK
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.graph import Constant
from cowmlx.programs.operations.row import Spec


def read(name: str, dtype: str, value: object) -> Constant:
    """Return the constant of a JSON value.

    Args:
        name: its name.
        dtype: its dtype's name.
        value: a number, true, false, a text such as "nan", or nested lists of them.

    Raises:
        ProgramError: lists of different lengths, too many dimensions, or what the dtype does not
            hold.
    """
    shape, flat = _flat(name, value)
    try:
        data = numbers.encode(flat, dtype)
    except numbers.Unfit as unfit:
        bad = next(each for each in flat if not _fits(each, dtype))
        raise ProgramError(
            "wrong_type" if unfit.wrong_type else "out_of_range",
            f"constant {shown(name)} of {dtype} has {shown(bad)}, must be {unfit}",
            argument=name,
            value=shown(bad),
            accepted=str(unfit),
        ) from None
    return Constant(name, Spec(tuple(shape), dtype), numbers.array_of(data, dtype, shape))


def _fits(value: object, dtype: str) -> bool:
    try:
        numbers.encode([value], dtype)
    except numbers.Unfit:
        return False
    return True


def _flat(name: str, value: object) -> tuple[list[int], list[Any]]:
    """Return the shape of nested lists, and what is in them."""
    shape: list[int] = []
    level: list[Any] = [value]
    while any(isinstance(each, list) for each in level):
        lengths = {len(each) if isinstance(each, list) else -1 for each in level}
        if len(lengths) > 1:
            raise ProgramError(
                "conflict",
                f"constant {shown(name)} has lists of different lengths beside each other in "
                f"dimension {len(shape)}, must be all alike",
                argument=name,
            )
        if len(shape) == MAX_RANK:
            raise ProgramError(
                "limit_exceeded",
                f"constant {shown(name)} has more than {MAX_RANK} dimensions",
                argument=name,
                limit=MAX_RANK,
            )
        shape.append(lengths.pop())
        if len(level) * shape[-1] > MAX_CONSTANT:
            raise ProgramError(
                "limit_exceeded",
                f"constant {shown(name)} has more than {MAX_CONSTANT} elements: pass large arrays "
                "as inputs",
                argument=name,
                limit=MAX_CONSTANT,
            )
        level = list(chain.from_iterable(level))
    return shape, level
