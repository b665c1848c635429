"""A program's text as objects and lists whose keys, types and sizes are checked."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

from cowmlx import json_text
from cowmlx.programs.bounds import MAX_BYTES, MAX_NAME, Pace, Steps
from cowmlx.programs.failure import ProgramError, refused, shown, too_many
from cowmlx.steps import finished


def read(text: str | bytes, what: str) -> dict[str, Any]:
    """Return the JSON object that a short text is, as :func:`read_steps`."""
    return finished(read_steps(text, what))


def read_steps(text: str | bytes, what: str) -> Steps[dict[str, Any]]:
    """Return the JSON object that a text is.

    Args:
        text: UTF-8.
        what: it is, for messages.
    """
    if len(text) > MAX_BYTES:
        raise too_many(what, len(text), "bytes", MAX_BYTES, ": pass large arrays as inputs")
    try:
        value = yield from json_text.parse_steps(text, _unique)
    except json_text.Malformed as error:
        raise ProgramError(
            "invalid_json", f"{what} is no JSON that is read here: {error}", **error.place
        ) from error
    if not isinstance(value, dict):
        raise ProgramError(
            "wrong_type", f"{what} is {_kind(value)}, must be a JSON object", value=_kind(value)
        )
    yield from _require_finite(value, what)
    return value


def section(value: object, what: str, keys: Collection[str], needed: Collection[str] = ()) -> Any:
    """Return a JSON object of known keys."""
    if not isinstance(value, dict):
        raise refused(what, value, f"an object with {', '.join(keys)}")
    for key in value:
        if key not in keys:
            raise ProgramError(
                "unknown_option",
                f"{what} has the key {shown(key)}, must be one of {', '.join(keys)}",
                argument=key[:MAX_NAME],
                accepted=", ".join(keys),
            )
    for key in needed:
        if key not in value:
            raise ProgramError("missing", f"{what} needs {key!r}", argument=key)
    return value


def listed(value: object, what: str, limit: int) -> list[Any]:
    """Return a list of bounded length."""
    if not isinstance(value, list):
        raise refused(what, value, "a list")
    if len(value) > limit:
        raise too_many(what, len(value), "elements", limit)
    return value


def name(value: object, what: str) -> str:
    """Return a name: 1 to 256 characters that can be printed."""
    accepted = f"a text of 1 to {MAX_NAME} characters that can be printed"
    if not isinstance(value, str):
        raise refused(what, value, accepted)
    if not (1 <= len(value) <= MAX_NAME and value.isprintable()):
        raise refused(what, value, accepted, "out_of_range")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise json_text.Malformed(f"an object has the key {shown(key)} twice")
            seen.add(key)
    return entries


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else shown(value)


def _require_finite(value: object, what: str) -> Steps[None]:
    """Refuse 1e400, which Python reads as infinity, and names of numbers that JSON lacks."""
    waiting = [value]
    pace = Pace()
    looked = 0
    while waiting:
        here = waiting.pop()
        looked += 1
        if not looked % 4096:
            yield from pace.rest()
        if isinstance(here, dict):
            waiting.extend(here.values())
        elif isinstance(here, list):
            waiting.extend(here)
        elif isinstance(here, float) and not math.isfinite(here):
            raise ProgramError(
                "out_of_range",
                f"{what} has a number that no float64 holds; infinities and NaN are the texts "
                '"inf", "-inf" and "nan"',
                accepted='numbers within float64, "inf", "-inf", "nan"',
            )
