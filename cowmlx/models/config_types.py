"""Values of a config that are of another type than its architecture says.

Architectures are not exact about types, and a config may hold values that nothing reads. So no
value is refused for its type alone. Errors name it when a network cannot be made, or fails later.
"""

from __future__ import annotations

import sys
import types
import typing
from contextlib import suppress

from cowmlx import failures
from cowmlx.errors import BadFormat, CowMlxError
from cowmlx.networks import architectures

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_SHOWN = 60
_FIELDS = "__dataclass_fields__"
_NAMES = {float: "a number", int: "an integer", bool: "true or false", str: "a string"}
_KINDS = {list: "an array", tuple: "an array", dict: "an object"}
_ROTATIONS = ("rope_scaling", "rope_parameters")
# Exceptions of code that reads such a value.
_OF_VALUES = (TypeError, ValueError, AttributeError, LookupError, ArithmeticError)


def odd_value(config: dict[str, Any], arguments: Any, nulls: bool = True) -> str:
    """Name the first value that is of another type than an architecture says, "" if none is.

    Args:
        config: what ``config.json`` says.
        arguments: the architecture's ``ModelArgs``.
        nulls: whether to name an unexpected null, or 2.0 for 2, if no other value is odd.
    """
    parts = list(_parts(config, arguments, _classes(arguments), ""))
    for exactly in (False, True) if nulls else (False,):
        for prefix, part, kind in parts:
            for name, field, hint in _fields(kind):
                if name in part and not _is_usual(part[name], field, hint, exactly):
                    return f"{prefix}{name} is {shown(part[name])}, not {_kind_name(hint)}"
    return next(_odd_rotations(config, ""), "")


def blamed(error: BaseException, config: dict[str, Any], network: Any) -> BaseException:
    """Return the error to report for an exception of a network's code.

    Args:
        error: the exception; one of other code is returned as it is.
        config: what ``config.json`` says.
        network: the network.
    """
    if isinstance(error, CowMlxError) or not isinstance(error, _OF_VALUES):
        return error
    module = type(network).__module__
    if failures.translate(error) is not error or not _passes_through(error, module):
        return error
    odd = odd_value(config, getattr(sys.modules.get(module), "ModelArgs", object))
    if not odd:
        return error
    return BadFormat(
        f"config.json: {odd}, as {config['model_type']} needs",
        reason="invalid_config",
        file="config.json",
    )


def shown(value: Any) -> str:
    """Return a value of a config for a message, of bounded length."""
    text = "null" if value is None else repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _passes_through(error: BaseException, module: str) -> bool:
    """Whether code of a network's package has raised an error."""
    package = f"{module.rpartition('.')[0]}."
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__", "").startswith(package):
            return True
        trace = trace.tb_next
    return False


def _classes(arguments: Any) -> list[type]:
    """Return the classes of arguments that an architecture's module has, or the modules it uses."""
    module = sys.modules.get(getattr(arguments, "__module__", ""))
    found: dict[type, None] = {}
    for value in list(vars(module).values()) if module is not None else ():
        near = value if isinstance(value, types.ModuleType) else None
        if isinstance(value, type):
            near = sys.modules.get(value.__module__)
            found |= {value: None} if hasattr(value, _FIELDS) else {}
        own = vars(near).get("ModelArgs") if near is not None else None
        found |= {own: None} if isinstance(own, type) and hasattr(own, _FIELDS) else {}
    return list(found)


def _parts(
    part: dict[str, Any], kind: Any, classes: list[type], prefix: str
) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """Yield a config and the objects in it, each with the class that is made of it."""
    if kind is not None:
        yield prefix, part, kind
    for name, value in part.items():
        if isinstance(value, dict) and name not in _ROTATIONS:
            yield from _parts(value, _class_of(value, classes), classes, f"{prefix}{name}.")


def _class_of(part: dict[str, Any], classes: list[type]) -> type | None:
    """Return the class that has most of the keys of an object, if it has half of them."""
    if isinstance(part.get("model_type"), str):
        with suppress(CowMlxError):  # no architecture has this name
            own: Any = getattr(architectures.load(architectures.name(part)), "ModelArgs", None)
            classes = [*classes, own] if hasattr(own, _FIELDS) else classes
    shared = [len(part.keys() & getattr(kind, _FIELDS)) for kind in classes]
    most = max(shared, default=0)
    return classes[shared.index(most)] if most and 2 * most >= len(part) else None


def _fields(kind: Any) -> list[tuple[str, Any, Any]]:
    """Return the names, fields and types of a class of arguments."""
    try:
        hints = typing.get_type_hints(kind)
    except Exception:  # names that are not there when the program runs
        return []
    fields = getattr(kind, _FIELDS, {})
    return [(name, fields.get(name), hint) for name, hint in hints.items()]


def _is_usual(value: Any, field: Any, hint: Any, exactly: bool) -> bool:
    """Whether a value is of a field's type; null is, unless ``exactly``."""
    if not exactly:
        return value is None or _fits(value, hint)
    if value is None:
        return _fits(None, hint) or getattr(field, "default", None) is None
    return not isinstance(value, float) or hint is not int


def _fits(value: Any, hint: Any) -> bool:
    """Whether a value parsed from JSON is of an annotation's type."""
    if hint in (typing.Any, object):
        return True
    kind = typing.get_origin(hint) or hint
    parts = typing.get_args(hint)
    if kind in (typing.Union, types.UnionType):
        return any(_fits(value, part) for part in parts)
    if kind is types.NoneType:
        return value is None
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return (isinstance(value, int) and not isinstance(value, bool)) or (
            isinstance(value, float) and value.is_integer()
        )
    if hasattr(kind, _FIELDS):
        return isinstance(value, dict)
    if kind in (bool, str, dict):
        return isinstance(value, kind)
    if kind in (list, tuple):
        return isinstance(value, list) and all(
            item is None or _fits(item, part) for part in parts[:1] for item in value
        )
    return value is not None


def _kind_name(hint: Any) -> str:
    kind = typing.get_origin(hint) or hint
    if kind in (typing.Union, types.UnionType):
        known = [_kind_name(part) for part in typing.get_args(hint) if part is not types.NoneType]
        return " or ".join(dict.fromkeys(known))
    if hasattr(kind, _FIELDS):
        return _KINDS[dict]
    return _NAMES.get(kind) or _KINDS.get(kind) or str(hint)


def _odd_rotations(part: dict[str, Any], prefix: str) -> Iterator[str]:
    """Yield what is no number in the settings of rotary positions."""
    for name, value in part.items():
        if isinstance(value, dict):
            yield from _odd_rotations(value, f"{prefix}{name}.")
        elif any(f"{rotation}." in prefix for rotation in _ROTATIONS):
            is_text = isinstance(value, str) and not name.endswith("type")
            if value is None or is_text or isinstance(value, list):
                yield f"{prefix}{name} is {shown(value)}, not a number"
