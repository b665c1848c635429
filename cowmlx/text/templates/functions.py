"""The functions of templates, those of jinja2's sandbox and of transformers, and their tests."""

from __future__ import annotations

from datetime import datetime
from functools import partial

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.utils import Cycler, Joiner, Namespace, pass_environment

from cowmlx.text.templates import operators
from cowmlx.text.templates.budget import MAX_RANGE, Budget, OverBudget
from cowmlx.text.templates.values import (
    ENTRY_BYTES,
    ITEM_BYTES,
    LARGE_OBJECT_BYTES,
    NUMBERS,
    SIZED,
    Operation,
    Stream,
    iterate,
    new_dict,
    soft_text,
    text,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


_ITERABLE = (*SIZED, Stream, LoopContext)
_SEQUENCES = (str, list, tuple, dict, range, Undefined)
_COMPARISONS = {
    "eq": ("==", "eq", "equalto"),
    "ne": ("!=", "ne"),
    "gt": (">", "gt", "greaterthan"),
    "gteq": (">=", "ge"),
    "lt": ("<", "lt", "lessthan"),
    "lteq": ("<=", "le"),
    "in": ("in",),
}


def _compare(sign: str, environment: Any, value: Any, other: Any) -> Any:
    return operators.compare(environment.budget, sign, value, other)


def _divisible(environment: Any, value: Any, number: Any) -> bool:
    return bool(operators.arithmetic(environment.budget, "%", value, number) == 0)


def _has(table: str, environment: Any, value: Any) -> bool:
    return isinstance(value, str) and value in getattr(environment, table)


def _letters(name: str, environment: Any, value: Any) -> bool:
    given = text(environment.budget, soft_text(environment.budget, value))
    environment.budget.step(len(given) >> 8)
    return bool(getattr(given, name)())


def _simple(check: Callable[[Any], bool], environment: Any, value: Any) -> bool:
    environment.budget.step()
    return check(value)


_SIMPLE: dict[str, Callable[[Any], bool]] = {
    "boolean": lambda value: value is True or value is False,
    "callable": lambda value: isinstance(value, (Operation, Macro, Undefined)),
    "defined": lambda value: not isinstance(value, Undefined),
    "escaped": lambda value: hasattr(value, "__html__"),
    "false": lambda value: value is False,
    "float": lambda value: isinstance(value, float),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "iterable": lambda value: isinstance(value, _ITERABLE),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": lambda value: isinstance(value, NUMBERS),
    "sequence": lambda value: isinstance(value, _SEQUENCES),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
    "undefined": lambda value: isinstance(value, Undefined),
}


def _sameas(environment: Any, value: Any, other: Any) -> bool:
    environment.budget.step()
    return value is other


def _parity(rest: int, environment: Any, value: Any) -> bool:
    return bool(operators.arithmetic(environment.budget, "%", value, 2) == rest)


def tests() -> dict[str, Callable[..., Any]]:
    """Return the tests by name, as jinja2 calls them."""
    made: dict[str, Callable[..., Any]] = {
        "divisibleby": _divisible,
        "even": partial(_parity, 0),
        "odd": partial(_parity, 1),
        "filter": partial(_has, "filters"),
        "test": partial(_has, "tests"),
        "lower": partial(_letters, "islower"),
        "upper": partial(_letters, "isupper"),
        "sameas": _sameas,
    }
    made.update({name: partial(_simple, check) for name, check in _SIMPLE.items()})
    for sign, names in _COMPARISONS.items():
        made.update(dict.fromkeys(names, partial(_compare, sign)))
    return {name: pass_environment(partial(run)) for name, run in made.items()}
