"""The filters of templates that work on texts and numbers: ``value | trim``.

Those that only make sense for web pages (``urlize``, ``striptags``, ``xmlattr``), and ``pprint``,
``wordwrap`` and ``filesizeformat``, are left out.
"""

from __future__ import annotations

import json
import random

from jinja2 import filters
from jinja2.exceptions import FilterArgumentError
from jinja2.runtime import Undefined
from jinja2.utils import pass_environment, url_quote
from markupsafe import Markup, escape

from cowmlx.text.templates import listing, methods, operators
from cowmlx.text.templates.budget import MAX_DIGITS
from cowmlx.text.templates.values import (
    ITEM_BYTES,
    NUMBERS,
    SIZED,
    check_integer,
    iterate,
    measure,
    soft_text,
    text,
    type_name,
    unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.text.templates.budget import Budget

_ESCAPED = 6
_MAX_PLACES = 400
# What a value takes while JSON is put together: a piece of text in a list.
_JSON_PIECES = 160


def _by_method(name: str) -> Callable[..., Any]:
    """Make a filter of a method of texts."""
    run = methods.METHODS[str][name]

    def apply(budget: Budget, value: Any, *args: Any) -> Any:
        return run(budget, soft_text(budget, value), *args)

    return apply


def _trim(budget: Budget, value: Any, chars: Any = None) -> Any:
    return methods.METHODS[str]["strip"](budget, soft_text(budget, value), chars)


def _center(budget: Budget, value: Any, width: int = 80) -> Any:
    return methods.METHODS[str]["center"](budget, soft_text(budget, value), width)


def _replace(budget: Budget, value: Any, old: Any, new: Any, count: int | None = None) -> str:
    return methods.replace(
        budget,
        text(budget, value),
        text(budget, old),
        text(budget, new),
        -1 if count is None else count,
    )


def _title(budget: Budget, value: Any) -> str:
    given = soft_text(budget, value)
    budget.step(len(given) >> 2)
    budget.reserve(len(given) * methods.PIECE_BYTES)
    return budget.made(filters.do_title(given))


def _indent(
    budget: Budget, value: Any, width: Any = 4, first: bool = False, blank: bool = False
) -> Any:
    given = soft_text(budget, value)
    added = len(width) * 4 if isinstance(width, str) else width
    if not isinstance(added, int):
        raise TypeError(f"indent takes a number or a string, not {type_name(width)!r}")
    lines = methods.lines_of(budget, given)
    budget.step(lines)
    budget.reserve(lines * (methods.PIECE_BYTES + max(added, 0)) + len(given) * unit(given) * 3)
    return budget.made(filters.do_indent(given, width, first, blank))


def _truncate(
    environment: Any,
    value: Any,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int | None = None,
) -> str:
    given, behind = soft_text(environment.budget, value), soft_text(environment.budget, end)
    environment.budget.reserve(len(given) * unit(given) + len(behind) * 4)
    made = filters.do_truncate(environment, given, length, killwords, behind, leeway)
    return environment.budget.made(made)


def _wordcount(budget: Budget, value: Any) -> int:
    given = soft_text(budget, value)
    budget.step(len(given) >> 3)
    budget.reserve(len(given) * methods.PIECE_BYTES // 2)
    return filters.do_wordcount(given)


def _escape(budget: Budget, value: Any) -> Markup:
    given = soft_text(budget, value)
    budget.reserve(len(given) * unit(given) * _ESCAPED)
    budget.step(len(given) >> 6)
    result = escape(given)
    budget.made(result)
    return result


def _force_escape(budget: Budget, value: Any) -> Markup:
    return _escape(budget, text(budget, value))


def _safe(budget: Budget, value: Any) -> Markup:
    given = soft_text(budget, value)
    budget.make(ITEM_BYTES + len(given) * unit(given))
    return Markup(given)


def _urlencode(budget: Budget, value: Any) -> str:
    def quote(part: Any, for_qs: bool = False) -> str:
        given = text(budget, part)
        budget.step(1 + (len(given) >> 2))
        budget.reserve(len(given) * unit(given) * 16)
        return budget.made(url_quote(given, for_qs=for_qs))

    if isinstance(value, str) or not isinstance(value, SIZED):
        return quote(value)
    pairs = value.items() if isinstance(value, dict) else value
    texts = []
    for key, entry in iterate(budget, pairs):
        texts.append(f"{quote(key, True)}={quote(entry, True)}")
    return operators.join(budget, "&", texts)


def _format(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise FilterArgumentError("can't handle positional and keyword arguments together")
    return operators.printf(budget, soft_text(budget, value), kwargs or args)


def _tojson(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    tree = measure(budget, value)
    level = len(indent) if isinstance(indent, str) else indent or 0
    between = 4
    if isinstance(separators, (list, tuple)):
        between += sum(len(part) for part in separators if isinstance(part, str))
    if not isinstance(level, int):
        raise TypeError(f"indent is a number or a string, not {type_name(indent)!r}")
    each = _JSON_PIECES + between * 4 + max(level, 0) * (tree.depth + 1) * 4
    wide = 1 if tree.is_ascii else 4
    budget.reserve(tree.items * each + tree.characters * 6 * wide)
    budget.step(tree.items * (4 if sort_keys else 1) + (tree.characters >> 6))
    return budget.made(
        json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )
    )


def _default(budget: Budget, value: Any, default: Any = "", boolean: bool = False) -> Any:
    if isinstance(value, Undefined) or (boolean and not value):
        return default
    return value


def _check_digits(budget: Budget, value: Any) -> None:
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        budget.integer(4 * len(value))
    check_integer(budget, value)


def _int(budget: Budget, value: Any, default: Any = 0, base: int = 10) -> Any:
    _check_digits(budget, value)
    return filters.do_int(value, default, base) if _is_scalar(value) else default


def _float(budget: Budget, value: Any, default: Any = 0.0) -> Any:
    _check_digits(budget, value)
    return filters.do_float(value, default) if _is_scalar(value) else default


def _is_scalar(value: object) -> bool:
    return isinstance(value, (str, Undefined, *NUMBERS))


def _abs(budget: Budget, value: Any) -> Any:
    check_integer(budget, value)
    if not isinstance(value, (Undefined, *NUMBERS)):
        raise TypeError(f"bad operand type for abs(): {type_name(value)!r}")
    return abs(value)


def _round(budget: Budget, value: Any, precision: int = 0, method: Any = "common") -> Any:
    check_integer(budget, value)
    if not isinstance(value, (Undefined, int, float)):
        raise TypeError(f"type {type_name(value)} doesn't define __round__ method")
    if isinstance(precision, int) and abs(precision) > _MAX_PLACES:
        budget.integer(4 * abs(precision) + MAX_DIGITS * 4)
    number: Any = value
    return filters.do_round(number, precision, method)


def _length(budget: Budget, value: Any) -> int:
    if not isinstance(value, SIZED):
        raise TypeError(f"object of type {type_name(value)!r} has no len()")
    return len(value)


def _random(budget: Budget, value: Any) -> Any:
    if not isinstance(value, (str, list, tuple, range)):
        raise TypeError(f"{type_name(value)!r} object has no items to draw from")
    return random.Random().choice(value) if value else Undefined("No random item, it was empty.")


def _attr(environment: Any, value: Any, name: Any) -> Any:
    return environment.attribute(value, text(environment.budget, name))


_OF_BUDGET: dict[str, Callable[..., Any]] = {
    "abs": _abs,
    "capitalize": _by_method("capitalize"),
    "center": _center,
    "count": _length,
    "d": _default,
    "default": _default,
    "e": _escape,
    "escape": _escape,
    "float": _float,
    "forceescape": _force_escape,
    "format": _format,
    "indent": _indent,
    "int": _int,
    "length": _length,
    "lower": _by_method("lower"),
    "random": _random,
    "replace": _replace,
    "round": _round,
    "safe": _safe,
    "string": soft_text,
    "title": _title,
    "tojson": _tojson,
    "trim": _trim,
    "upper": _by_method("upper"),
    "urlencode": _urlencode,
    "wordcount": _wordcount,
}
_OF_ENVIRONMENT: dict[str, Callable[..., Any]] = {"attr": _attr, "truncate": _truncate}


def _with_budget(run: Callable[..., Any]) -> Callable[..., Any]:
    def apply(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment.budget.step()
        return run(environment.budget, value, *args, **kwargs)

    return pass_environment(apply)


def _with_environment(run: Callable[..., Any]) -> Callable[..., Any]:
    def apply(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment.budget.step()
        return run(environment, value, *args, **kwargs)

    return pass_environment(apply)


def table() -> dict[str, Callable[..., Any]]:
    """Return the filters by name, as jinja2 calls them."""
    found = {name: _with_budget(run) for name, run in _OF_BUDGET.items()}
    for name, run in (*_OF_ENVIRONMENT.items(), *listing.OF_ENVIRONMENT.items()):
        found[name] = _with_environment(run)
    return {**found, **listing.OF_CONTEXT}
