"""Options as JSON: objects of known keys, whose values are checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cowmlx import json_text
from cowmlx.errors import InvalidArgument
from cowmlx.programs.failure import shown

MAX_BYTES = 1 << 20
MAX_SHOWN = 80


@dataclass(frozen=True)
class Number:
    """A number with bounds.

    Args:
        accepted: what it must be, for messages.
        low: the least.
        high: the most.
        open_low: whether the least itself is refused.
        open_high: whether the most itself is refused.
        integer: whether it has no fraction.
        default: what it is where it is not given; ``REQUIRED``: it has to be.
    """

    accepted: str
    low: float = -math.inf
    high: float = math.inf
    open_low: bool = False
    open_high: bool = False
    integer: bool = False
    default: Any = None

    def read(self, value: object, place: str) -> float | int:
        """Return the number that a value is.

        Raises:
            InvalidArgument: it is none, or out of bounds.
        """
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(place, value, self.accepted)
        if isinstance(value, int) and abs(value) >= 2**63:
            raise out_of_range(place, value, self.accepted)
        is_low = value < self.low or (self.open_low and value == self.low)
        is_high = value > self.high or (self.open_high and value == self.high)
        if is_low or is_high or not math.isfinite(value):
            raise out_of_range(place, value, self.accepted)
        if not self.integer:
            return value
        if value != int(value):
            raise out_of_range(place, value, self.accepted)
        return int(value)


@dataclass(frozen=True)
class Flag:
    """True or false."""

    default: bool

    def read(self, value: object, place: str) -> bool:
        """Return the flag that a value is.

        Raises:
            InvalidArgument: it is none.
        """
        if not isinstance(value, bool):
            raise wrong_type(place, value, "true or false")
        return value


@dataclass(frozen=True)
class Pair:
    """A list of two numbers."""

    of: Number
    default: tuple[float, float]

    def read(self, value: object, place: str) -> list[float]:
        """Return the two numbers.

        Raises:
            InvalidArgument: it is no list of two, or one of them is out of bounds.
        """
        if not isinstance(value, list) or len(value) != 2:
            raise wrong_type(place, value, f"a list of two numbers, each {self.of.accepted}")
        return [self.of.read(each, f"{place}[{at}]") for at, each in enumerate(value)]


REQUIRED = object()
"""The default of an option that has to be given."""

Option = Number | Flag | Pair


def wrong_type(place: str, value: object, accepted: str) -> InvalidArgument:
    """Return the error of a value of another type."""
    return InvalidArgument(
        f"{place} is {shown(value)}, must be {accepted}",
        reason="wrong_type",
        argument=place,
        accepted=accepted,
    )


def out_of_range(place: str, value: object, accepted: str) -> InvalidArgument:
    """Return the error of a value that is not accepted."""
    return InvalidArgument(
        f"{place} is {shown(value)}, must be {accepted}",
        reason="out_of_range",
        argument=place,
        value=shown(value),
        accepted=accepted,
    )


def parse(text: str, place: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidArgument: it is none, or is too long.
    """
    if len(text) > MAX_BYTES:
        raise InvalidArgument(
            f"{place} has {len(text)} characters, must have at most {MAX_BYTES}",
            reason="limit_exceeded",
            argument=place,
            needed=len(text),
            limit=MAX_BYTES,
        )
    try:
        return json_text.parse(text)
    except json_text.Malformed as error:
        raise InvalidArgument(
            f"{place} is no JSON that is read here: {error}",
            reason="invalid_json",
            argument=place,
            **error.place,
        ) from error


def read(
    value: object, place: str, known: Mapping[str, Option], others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the options of a JSON object, with defaults for those that it lacks.

    Args:
        value: the object.
        place: what it is, for messages.
        known: the options by name.
        others: keys that somebody else reads.

    Raises:
        InvalidArgument: it is no object, has a key that nobody reads, or a value is wrong.
    """
    accepted = ", ".join([*others, *known])
    if not isinstance(value, dict):
        raise wrong_type(place, value, f"an object with {accepted}")
    for key in value:
        if key not in known and key not in others:
            raise InvalidArgument(
                f"{place}.{key[:MAX_SHOWN]} is no option here; they are {accepted}",
                reason="unknown_option",
                argument=f"{place}.{key[:MAX_SHOWN]}",
                value=key[:MAX_SHOWN],
                accepted=accepted,
            )
    found: dict[str, Any] = {}
    for key, option in known.items():
        if key in value:
            found[key] = option.read(value[key], f"{place}.{key}")
        elif option.default is REQUIRED:
            raise InvalidArgument(
                f"{place}.{key} is missing", reason="missing", argument=f"{place}.{key}"
            )
        elif isinstance(option, Pair):
            found[key] = list(option.default)
        else:
            found[key] = option.default
    return found
