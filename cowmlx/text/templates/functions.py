"""The functions that templates find: those of jinja2's sandbox and those of transformers."""

from __future__ import annotations

from datetime import datetime

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.utils import Cycler, Joiner, Namespace

from cowmlx.text.templates.budget import MAX_RANGE, Budget, OverBudget
from cowmlx.text.templates.values import (
    ENTRY_BYTES,
    ITEM_BYTES,
    LARGE_OBJECT_BYTES,
    Operation,
    iterate,
    new_dict,
    soft_text,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_MAX_DATE = 256
_MAX_NUMBER = 1 << 62


class PlainNamespace(Namespace):
    """A namespace without names that begin with an underscore."""

    def __setitem__(self, name: str, value: Any) -> None:
        check_name(name)
        super().__setitem__(name, value)


def check_name(name: object) -> None:
    """Refuse names that lead into Python."""
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespaces take no name like {name[:40]!r}")


def _pairs(budget: Budget, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[Any]:
    if len(args) > 1:
        raise TypeError(f"expected at most 1 argument, got {len(args)}")
    for given in (*args, kwargs):
        if isinstance(given, dict):
            yield from given.items()
            continue
        for entry in iterate(budget, given):
            key, value = iterate(budget, entry)
            yield key, value


def _dict(budget: Budget, *args: Any, **kwargs: Any) -> dict[Any, Any]:
    return new_dict(budget, _pairs(budget, args, kwargs))


def from_keys(budget: Budget, keys: Any, value: Any = None) -> dict[Any, Any]:
    """Return an object with those keys and one value: ``dict.fromkeys``."""
    return new_dict(budget, ((key, value) for key in iterate(budget, keys)))


def _namespace(budget: Budget, *args: Any, **kwargs: Any) -> Namespace:
    values = _dict(budget, *args, **kwargs)
    budget.make(LARGE_OBJECT_BYTES + ENTRY_BYTES * len(values))
    for name in values:
        check_name(name)
    return PlainNamespace(values)


def _range(budget: Budget, *args: int) -> range:
    if any(isinstance(value, int) and abs(value) > _MAX_NUMBER for value in args):
        raise OverBudget("the chat template takes a range of integers of more than 62 bits")
    made = range(*args)
    if len(made) > MAX_RANGE:
        raise OverBudget(f"the chat template takes a range of more than {MAX_RANGE} items")
    budget.make(ITEM_BYTES)
    return made


def _cycler(budget: Budget, *items: Any) -> Cycler:
    budget.make(LARGE_OBJECT_BYTES)
    return Cycler(*items)


def _joiner(budget: Budget, sep: Any = ", ") -> Joiner:
    budget.make(LARGE_OBJECT_BYTES)
    return Joiner(sep)


def _raise_exception(budget: Budget, message: Any) -> None:
    raise TemplateError(text(budget, message))


def _strftime_now(budget: Budget, pattern: Any) -> str:
    pattern = soft_text(budget, pattern)
    if len(pattern) > _MAX_DATE:
        raise OverBudget(f"the chat template writes a date of more than {_MAX_DATE} characters")
    budget.step(len(pattern))
    return budget.made(datetime.now().strftime(pattern))


FUNCTIONS = {
    name: Operation(name, run)
    for name, run in (
        ("cycler", _cycler),
        ("dict", _dict),
        ("joiner", _joiner),
        ("namespace", _namespace),
        ("raise_exception", _raise_exception),
        ("range", _range),
        ("strftime_now", _strftime_now),
    )
}
FROM_KEYS = Operation("fromkeys", from_keys)
