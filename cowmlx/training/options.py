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
_MAX_NAMES = 1 << 16
REQUIRED = object()
"""The default of an option that must be given."""


@dataclass(frozen=True)
class Number:
    """A number with bounds."""

    accepted: str  # the bounds in words, for messages
    low: float = -math.inf  # the least
    high: float = math.inf  # the most
    open_low: bool = False  # whether the least itself is refused
    open_high: bool = False  # whether the most itself is refused
    integer: bool = False  # whether it has no fraction
    default: Any = None  # its value if it is not given; ``REQUIRED``: it must be given

    def read(self, value: object, place: str) -> float | int:
        """Return a number within the bounds, or raise InvalidArgument."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise wrong_type(place, value, self.accepted)
        is_low = value < self.low or (self.open_low and value == self.low)
        is_high = value > self.high or (self.open_high and value == self.high)
        is_huge = isinstance(value, int) and abs(value) >= 2**63
        if is_huge or is_low or is_high or not math.isfinite(value):
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
    accepted = "true or false"

    def read(self, value: object, place: str) -> bool:
        """Return a flag, or raise InvalidArgument."""
        if not isinstance(value, bool):
            raise wrong_type(place, value, self.accepted)
        return value


@dataclass(frozen=True)
class Pair:
    """A list of two numbers."""

    of: Number
    default: tuple[float, float]

    @property
    def accepted(self) -> str:
        """What it must be."""
        return f"a list of two numbers, each {self.of.accepted}"

    def read(self, value: object, place: str) -> list[float]:
        """Return the two numbers, or raise InvalidArgument."""
        if not isinstance(value, list) or len(value) != 2:
            raise wrong_type(place, value, self.accepted)
        return [self.of.read(item, f"{place}[{at}]") for at, item in enumerate(value)]


@dataclass(frozen=True)
class Choice:
    """One of some words."""

    words: tuple[str, ...]
    default: str

    @property
    def accepted(self) -> str:
        """What it must be."""
        return "one of " + ", ".join(f'"{word}"' for word in self.words)

    def read(self, value: object, place: str) -> str:
        """Return one of the words, or raise InvalidArgument."""
        if not isinstance(value, str):
            raise wrong_type(place, value, self.accepted)
        if value not in self.words:
            raise out_of_range(place, value, self.accepted)
        return value


@dataclass(frozen=True)
class Names:
    """A list of names, or null."""

    default: None = None
    accepted = f"null, or a list of 1 to {_MAX_NAMES} names"

    def read(self, value: object, place: str) -> tuple[str, ...] | None:
        """Return the names, or raise InvalidArgument."""
        if value is None:
            return None
        if not isinstance(value, list) or not 0 < len(value) <= _MAX_NAMES:
            raise wrong_type(place, value, self.accepted)
        for index, name in enumerate(value):
            if not isinstance(name, str) or not name:
                raise wrong_type(f"{place}[{index}]", name, "a name")
        return tuple(value)


Option = Number | Flag | Pair | Choice | Names


def wrong_type(place: str, value: object, accepted: str) -> InvalidArgument:
    """Return the error of a value of another type."""
    text = f"{place} is {shown(value)}, must be {accepted}"
    return InvalidArgument(text, reason="wrong_type", argument=place, accepted=accepted)


def out_of_range(place: str, value: object, accepted: str) -> InvalidArgument:
    """Return the error of a value that is not accepted."""
    text = f"{place} is {shown(value)}, must be {accepted}"
    return InvalidArgument(text, argument=place, value=shown(value), accepted=accepted)


def missing(place: str) -> InvalidArgument:
    """Return the error of an option that must be given."""
    return InvalidArgument(f"{place} is missing", reason="missing", argument=place)


def parse(text: str, place: str) -> Any:
    """Return the value of a JSON text.

    Raises:
        InvalidArgument: it is not JSON, or is too long.
    """
    if len(text) > MAX_BYTES:
        why = f"{place} has {len(text)} characters, must have at most {MAX_BYTES}"
        raise InvalidArgument(
            why, reason="limit_exceeded", argument=place, needed=len(text), limit=MAX_BYTES
        )
    try:
        return json_text.parse(text)
    except json_text.Malformed as error:
        message = f"{place} is no JSON that is read here: {error}"
        raise InvalidArgument(
            message, reason="invalid_json", argument=place, **error.place
        ) from error


def read(
    value: object, place: str, known: Mapping[str, Option], others: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Return the known options of a JSON object, with defaults; the caller reads ``others``.

    Raises:
        InvalidArgument: it is no object, has an unknown key, or a value is wrong.
    """
    accepted = ", ".join([*others, *known])
    if not isinstance(value, dict):
        raise wrong_type(place, value, f"an object with {accepted}")
    for key in value:
        if key not in known and key not in others:
            name = key[:MAX_SHOWN]
            raise InvalidArgument(
                f"{place}.{name} is no option here; they are {accepted}",
                reason="unknown_option",
                argument=f"{place}.{name}",
                value=name,
                accepted=accepted,
            )
    options: dict[str, Any] = {}
    for key, option in known.items():
        if key in value:
            options[key] = option.read(value[key], f"{place}.{key}")
        elif option.default is REQUIRED:
            raise missing(f"{place}.{key}")
        else:
            options[key] = list(option.default) if isinstance(option, Pair) else option.default
    return options
