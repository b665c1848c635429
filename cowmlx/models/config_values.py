"""Values of a config that no network can use."""

from __future__ import annotations

import types
import typing

from cowmlx.errors import BadFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 3.4e38  # of float32, in which mlx computes with a config's numbers
_MAX_INTEGER = 2**63 - 1
_SHOWN = 60
_NAMES = {float: "a number", int: "an integer", bool: "true or false", str: "a string"}
_KINDS = {list: "an array", tuple: "an array", dict: "an object"}


def is_number(value: object) -> bool:
    """Whether a value is a number that mlx can compute with."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def check_numbers(config: dict[str, Any], arguments: Any) -> None:
    """Refuse numbers that mlx cannot compute with.

    Infinity is one of them, but in an array, where it stands for a limit that is none.

    Args:
        config: what ``config.json`` says.
        arguments: the architecture's ``ModelArgs``; keys that it does not have do no harm.

    Raises:
        BadFormat: the message names the key.
    """
    known = getattr(arguments, "__dataclass_fields__", config)
    for name, value in config.items():
        if name in known:
            _check(name, value)


def odd_value(config: dict[str, Any], arguments: Any) -> str:
    """Name the first value that is of another type than an architecture says, "" if none is.

    Only for telling why a network cannot be made: architectures are not exact about their types.
    """
    try:
        hints = typing.get_type_hints(arguments)
    except Exception:  # names that are not there when the program runs
        return ""
    for name, hint in hints.items():
        if name in config and not _fits(config[name], hint):
            return f"{name} is {_shown(config[name])}, not {_told(hint)}"
    return ""


def _check(where: str, value: Any) -> None:
    if isinstance(value, dict):
        for name, part in value.items():
            _check(f"{where}.{name}", part)
    elif isinstance(value, list):
        for part in value:
            if isinstance(part, dict) or _is_unusable(part):
                _check(f"{where}[]", part)
    elif isinstance(value, int | float) and not isinstance(value, bool) and not is_number(value):
        raise BadFormat(
            f"config.json: {where} is {_shown(value)}, not a number within {LARGEST:g} of 0",
            reason="invalid_config",
            file="config.json",
            key=where,
        )


def _is_unusable(value: object) -> bool:
    """Whether a value is a number that is not even a limit."""
    if isinstance(value, float):
        return value != value
    return isinstance(value, int) and abs(value) > _MAX_INTEGER


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value parsed from JSON is of an annotation's type; None always is."""
    if value is None or hint in (typing.Any, object):
        return True
    kind = typing.get_origin(hint) or hint
    parts = typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if kind in (bool, str, dict):
        return isinstance(value, kind)
    if kind in (list, tuple):
        return isinstance(value, list) and all(
            _fits(item, part) for part in parts[:1] for item in value
        )
    return True


def _told(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if kind in (typing.Union, types.UnionType):
        known = [_told(part) for part in typing.get_args(hint) if part is not type(None)]
        return " or ".join(dict.fromkeys(known))
    return _NAMES.get(kind) or _KINDS.get(kind) or str(hint)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
