"""Attributes of a node, from JSON: types, ranges, defaults."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from cowmlx.programs import dimensions
from cowmlx.programs.dimensions import Dim, DimensionError
from cowmlx.programs.operations.row import (
    REQUIRED,
    Attribute,
    Attributes,
    Operation,
    OperationError,
)
from cowmlx.programs.operations.rules import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.generated.reasons import Reason

Check = Callable[[Attribute, object], Any]

MAX_INT = 2**31 - 1
"""mlx takes axes, shapes and counts as int32."""
MAX_SEED = 2**63 - 1
MAX_LIST = 64
MAX_CHARACTERS = 256


def attributes_of(operation: Operation, given: Mapping[str, Any]) -> Attributes:
    """Return all attributes of an operation, checked, with defaults for those not given.

    Kinds give: int → int; float → float; number → int or float, as written; bool → bool; text and
    choice → str; axis → int; axes → tuple of int; "axis or axes" → int or tuple of int; shape →
    tuple of dimensions (-1 where the operation finds one out); dtype → its name; ints → tuple of
    int; "int or ints" → int or tuple of int; pairs → int or tuple of pairs of int. Null is None,
    taken where it is the default.

    Args:
        operation: whose they are.
        given: what JSON has.
    """
    known = {attribute.name: attribute for attribute in operation.attributes}
    for name in given:
        if name not in known:
            accepted = ", ".join(known) or "none"
            raise OperationError(
                "unknown_option",
                f"{operation.name} has no attribute {name[:80]!r}, must be one of: {accepted}"
                if known
                else f"{operation.name} has no attributes, but {name[:80]!r} is given",
                op=operation.name,
                argument=name[:80],
                accepted=accepted,
            )
    checked: Attributes = {}
    for name, attribute in known.items():
        if name in given:
            checked[name] = _checked(operation, attribute, given[name])
        elif attribute.default is REQUIRED:
            raise OperationError(
                "missing",
                f"{operation.name} needs the attribute {name!r}: {_accepted(attribute)}",
                op=operation.name,
                argument=name,
                accepted=_accepted(attribute),
            )
        else:
            checked[name] = attribute.default
    return checked


def concrete_attributes(
    operation: Operation, attributes: Attributes, values: Mapping[str, int]
) -> Attributes:
    """Return attributes with the dimensions of shapes as numbers, for the values of names."""
    concrete = dict(attributes)
    for attribute in operation.attributes:
        if attribute.kind == "shape" and concrete[attribute.name] is not None:
            concrete[attribute.name] = tuple(
                dimension if isinstance(dimension, int) else dimensions.evaluate(dimension, values)
                for dimension in concrete[attribute.name]
            )
    return concrete


def names_in(operation: Operation, attributes: Attributes) -> set[str]:
    """Return the names of dimensions that attributes have."""
    shapes = [attribute.name for attribute in operation.attributes if attribute.kind == "shape"]
    return set().union(*(dimensions.names_of(attributes[name] or ()) for name in shapes))


def _checked(operation: Operation, attribute: Attribute, value: object) -> Any:
    if value is None and attribute.takes_null:
        return None
    try:
        return _KINDS[attribute.kind][0](attribute, value)
    except _Refused as refused:
        reason: Reason = refused.reason
        shown = _shown(value)
        raise OperationError(
            reason,
            f"{operation.name}: {attribute.name} is {shown}, must be {_accepted(attribute)}"
            + (f" ({refused.why})" if refused.why else ""),
            op=operation.name,
            argument=attribute.name,
            value=shown,
            accepted=_accepted(attribute),
        ) from None


class _Refused(Exception):
    """A value that an attribute does not take."""

    def __init__(self, reason: Reason = "wrong_type", why: str = "") -> None:
        super().__init__(why)
        self.reason: Reason = reason
        self.why = why


def _shown(value: object) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) < 2**64 else "a huge number"
    return text if len(text) <= 80 else text[:79] + "…"


def _accepted(attribute: Attribute) -> str:
    if attribute.kind == "choice":
        accepted = " or ".join(repr(choice) for choice in attribute.choices)
    else:
        accepted = _KINDS[attribute.kind][1]
        low, high = attribute.low, attribute.high
        if low is not None and high is not None:
            accepted += f" from {low:g} to {high:g}"
        elif low is not None:
            accepted += f" from {low:g}"
        elif high is not None:
            accepted += f" of at most {high:g}"
    return accepted + (" or null" if attribute.takes_null else "")


def _in_range(attribute: Attribute, value: float) -> None:
    low, high = attribute.low, attribute.high
    if (low is not None and value < low) or (high is not None and value > high):
        raise _Refused("out_of_range")


def _whole(value: object, limit: int = MAX_INT) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Refused
    if not -limit - 1 <= value <= limit:
        raise _Refused(
            "out_of_range", f"it does not fit {'int32' if limit == MAX_INT else 'int64'}"
        )
    return value


def _int(attribute: Attribute, value: object) -> int:
    number = _whole(value, MAX_SEED if (attribute.high or 0) > MAX_INT else MAX_INT)
    _in_range(attribute, number)
    return number


def _finite(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused
    if isinstance(value, int) and abs(value) > MAX_SEED:
        raise _Refused("out_of_range", "it does not fit int64")
    return value


def _number(attribute: Attribute, value: object) -> int | float | bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _NOT_FINITE:
        return float(value)
    number = _finite(value)
    _in_range(attribute, number)
    return number


def _float(attribute: Attribute, value: object) -> float:
    if isinstance(value, bool):
        raise _Refused
    number = float(_number(attribute, value))
    is_bounded = attribute.low is not None or attribute.high is not None
    if is_bounded and math.isnan(number):
        raise _Refused("out_of_range")
    _in_range(attribute, number)
    return number


def _bool(attribute: Attribute, value: object) -> bool:
    if not isinstance(value, bool):
        raise _Refused
    return value


def _text(attribute: Attribute, value: object) -> str:
    if not isinstance(value, str):
        raise _Refused
    if len(value) > MAX_CHARACTERS:
        raise _Refused("limit_exceeded", f"at most {MAX_CHARACTERS} characters")
    return value


def _choice(attribute: Attribute, value: object) -> str:
    if not isinstance(value, str):
        raise _Refused
    if value not in (attribute.choices or DTYPES):
        raise _Refused("out_of_range")
    return value


def _listed(value: object) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise _Refused
    if len(value) > MAX_LIST:
        raise _Refused("limit_exceeded", f"at most {MAX_LIST} elements")
    return list(value)


def _axis(attribute: Attribute, value: object) -> int:
    return _whole(value)


def _all(check: Check) -> Check:
    """Return the check of a list."""
    return lambda attribute, value: tuple(check(attribute, item) for item in _listed(value))


def _one_or_all(check: Check, element: Check | None = None) -> Check:
    """Return the check of one value or a list, whose elements may have another check."""
    several = _all(element or check)
    return lambda attribute, value: (several if isinstance(value, list | tuple) else check)(
        attribute, value
    )


def _pair(attribute: Attribute, value: object) -> tuple[int, ...]:
    pair: tuple[int, ...] = _all(_int)(attribute, value)
    if len(pair) != 2:
        raise _Refused("out_of_range", "each pair is [before, after]")
    return pair


def _shape(attribute: Attribute, value: object) -> tuple[Dim, ...]:
    lengths: list[Dim] = []
    for item in _listed(value):
        if isinstance(item, str):
            try:
                read = dimensions.parse(item)
            except DimensionError as error:
                raise _Refused(error.reason, str(error)) from None
            if isinstance(read, int) and read < 0:
                raise _Refused("out_of_range", f"it has a dimension of {read}")
            lengths.append(read)
        elif isinstance(item, dimensions.Symbolic):
            lengths.append(item)
        else:
            number = _whole(item)
            if number < (-1 if attribute.low == -1 else 0):
                raise _Refused("out_of_range", f"it has a dimension of {number}")
            lengths.append(number)
    try:
        dimensions.check_shape(tuple(each for each in lengths if each != -1))
    except DimensionError as error:
        raise _Refused(error.reason, str(error)) from None
    return tuple(lengths)


_NOT_FINITE = ("nan", "inf", "-inf")
_KINDS: dict[str, tuple[Check, str]] = {
    "int": (_int, "an integer"),
    "float": (_float, "a number"),
    "number": (_number, "a number, true or false"),
    "bool": (_bool, "true or false"),
    "text": (_text, "a text"),
    "choice": (_choice, ""),
    "axis": (_axis, "an axis (an integer)"),
    "axes": (_all(_axis), "a list of axes (integers)"),
    "axis or axes": (_one_or_all(_axis), "an axis or a list of axes (integers)"),
    "shape": (_shape, "a list of dimensions (numbers or names)"),
    "dtype": (_choice, f"one of {', '.join(DTYPES)}"),
    "ints": (_all(_int), "a list of integers"),
    "int or ints": (_one_or_all(_int), "an integer or a list of integers"),
    "pairs": (_one_or_all(_int, _pair), "an integer or a list of [before, after]"),
}
"""The check of each kind, and words for what it takes."""
