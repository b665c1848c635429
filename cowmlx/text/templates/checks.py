"""The tests of templates: ``value is odd``."""

from __future__ import annotations

from functools import partial

from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.utils import pass_environment

from cowmlx.text.templates import operators
from cowmlx.text.templates.values import NUMBERS, SIZED, Operation, Stream, soft_text, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

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


def table() -> dict[str, Callable[..., Any]]:
    """Return the tests by name, as jinja2 calls them."""
    tests: dict[str, Callable[..., Any]] = {
        "divisibleby": _divisible,
        "even": partial(_parity, 0),
        "odd": partial(_parity, 1),
        "filter": partial(_has, "filters"),
        "test": partial(_has, "tests"),
        "lower": partial(_letters, "islower"),
        "upper": partial(_letters, "isupper"),
        "sameas": _sameas,
    }
    tests.update({name: partial(_simple, check) for name, check in _SIMPLE.items()})
    for sign, names in _COMPARISONS.items():
        tests.update(dict.fromkeys(names, partial(_compare, sign)))
    return {name: pass_environment(partial(run)) for name, run in tests.items()}
