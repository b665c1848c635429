"""The filters of templates: ``value | trim``.

Those that only make sense for web pages (``urlize``, ``striptags``, ``xmlattr``), and ``pprint``,
``wordwrap`` and ``filesizeformat``, are left out.
"""

from __future__ import annotations

import inspect
import json
import random

from jinja2 import filters
from jinja2.exceptions import FilterArgumentError
from jinja2.runtime import Undefined
from jinja2.utils import pass_context, pass_environment, url_quote
from markupsafe import Markup, escape

from cowmlx.text.templates import callables, operators
from cowmlx.text.templates.budget import MAX_DIGITS, OverBudget
from cowmlx.text.templates.values import (
    ITEM_BYTES,
    NUMBERS,
    SIZED,
    SLOT_BYTES,
    Stream,
    check_integer,
    is_plain_key,
    iterate,
    listed,
    measure,
    pay_for_entry,
    size_of,
    soft_text,
    text,
    type_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cowmlx.text.templates.budget import Budget

    Filter = Callable[..., Any]

_MAX_ATTRIBUTE = 1000


def _getter(environment: Any, attribute: Any, default: Any = None) -> Callable[[Any], Any]:
    """Return a function that follows a path of attributes and items: ``"a.b.0"``."""
    _check_attribute(attribute)
    if isinstance(attribute, str):
        environment.budget.make(ITEM_BYTES * (1 + attribute.count(".")))
    return filters.make_attrgetter(environment, attribute, default=default)


def _check_attribute(attribute: Any) -> None:
    if isinstance(attribute, str) and len(attribute) > _MAX_ATTRIBUTE:
        raise OverBudget(
            f"the chat template follows an attribute of more than {_MAX_ATTRIBUTE} characters"
        )


def _by_order(run: Callable[..., Any]) -> Callable[..., Any]:
    """Make a filter of jinja2's own that compares items, all of which are paid for before."""
    parameters = inspect.signature(run)

    def apply(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = environment.budget
        items = listed(budget, value)
        given = parameters.bind(environment, items, *args, **kwargs).arguments
        _check_attribute(given.get("attribute"))
        get = filters.make_multi_attrgetter(environment, given.get("attribute"))
        budget.make(ITEM_BYTES * len(items))
        _pay_for_order(budget, [get(item) for item in items])
        return run(environment, items, *args, **kwargs)

    return apply


def _dictsort(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> list[Any]:
    if not isinstance(value, dict):
        raise TypeError(f"only objects can be sorted by key, not {type_name(value)!r}")
    budget.make(2 * ITEM_BYTES * len(value))
    _pay_for_order(budget, list(value.items()))
    return filters.do_dictsort(value, *args, **kwargs)


def _pay_for_order(budget: Budget, keys: list[Any]) -> None:
    """Pay for comparing keys with each other, and for their lower case."""
    tree = measure(budget, keys)
    rounds = max(len(keys), 1).bit_length()
    budget.step((tree.items + (tree.characters >> 8)) * rounds >> 2)
    budget.make(4 * ITEM_BYTES * len(keys))
    budget.reserve(tree.characters * (2 if tree.is_ascii else 12))


def _unique(
    environment: Any, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> Stream:
    budget = environment.budget
    get = _getter(environment, attribute)

    def found() -> Iterator[Any]:
        seen: set[Any] = set()
        for item in iterate(budget, value):
            key = get(item)
            if isinstance(key, str) and not case_sensitive:
                key = callables.METHODS[str]["lower"](budget, key)
            pay_for_entry(budget, key, 0 if is_plain_key(key) else len(seen))
            if key not in seen:
                seen.add(key)
                yield item

    return Stream(budget, found(), value)


def _sum(environment: Any, value: Any, attribute: Any = None, start: Any = 0) -> Any:
    if isinstance(start, str):
        raise TypeError("sum() can't sum strings [use ''.join(seq) instead]")
    budget, total = environment.budget, start
    get = _getter(environment, attribute)
    for item in iterate(budget, value):
        total = operators.arithmetic(budget, "+", total, get(item))
    return total


def _join(environment: Any, value: Any, d: Any = "", attribute: Any = None) -> str:
    budget = environment.budget
    separator = text(budget, d)
    get = _getter(environment, attribute)
    texts = []
    for item in iterate(budget, value):
        budget.make(SLOT_BYTES)
        texts.append(text(budget, get(item)))
    return operators.join(budget, separator, texts)


def _items(budget: Budget, value: Any) -> Stream:
    if not isinstance(value, (dict, Undefined)):
        raise TypeError("Can only get item pairs from a mapping.")
    return Stream(budget, iterate(budget, value.items() if isinstance(value, dict) else ()))


def _first(environment: Any, value: Any) -> Any:
    for item in iterate(environment.budget, value):
        return item
    return environment.undefined("No first item, sequence was empty.")


def _last(environment: Any, value: Any) -> Any:
    if type(value) is Stream:
        raise TypeError("'generator' object is not reversible")
    iterate(environment.budget, value)
    for item in reversed(value):
        return item
    return environment.undefined("No last item, sequence was empty.")


def _reverse(budget: Budget, value: Any) -> Any:
    if isinstance(value, str):
        return operators.cut(budget, value, None, None, -1)
    if type(value) is Stream:
        items = listed(budget, value)
        items.reverse()
        return items
    iterate(budget, value)
    return Stream(budget, iter(reversed(value)))


def _batch(budget: Budget, value: Any, linecount: Any, fill_with: Any = None) -> Stream:
    if fill_with is not None and isinstance(linecount, int):
        budget.make(SLOT_BYTES * max(linecount, 0))
    return Stream(budget, filters.do_batch(_kept(budget, value), linecount, fill_with), value)


def _slice(budget: Budget, value: Any, slices: Any, fill_with: Any = None) -> Stream:
    items = listed(budget, value)
    budget.make(SLOT_BYTES * len(items))
    return Stream(budget, _kept(budget, filters.sync_do_slice(items, slices, fill_with)))


def _kept(budget: Budget, items: Any) -> Iterator[Any]:
    """Pay for items that are kept in lists."""
    for item in items if hasattr(items, "gi_frame") else iterate(budget, items):
        budget.make(ITEM_BYTES)
        yield item


def _by_item(run: Any, name_at: int = 0) -> Callable[..., Any]:
    """Make a filter of jinja2's own that applies a filter or a test to each item.

    Args:
        run: jinja2's.
        name_at: which argument names the filter or the test.
    """

    @pass_context
    def apply(context: Any, value: Any, *args: Any, **kwargs: Any) -> Stream:
        budget: Budget = context.environment.budget
        for given in (kwargs.get("attribute"), *args[:name_at]):
            _check_attribute(given)
        if len(args) > name_at and not isinstance(args[name_at], str):
            raise FilterArgumentError("the name of a filter or a test is a string")
        items = iterate(budget, value) if value else iter(())
        return Stream(budget, run(context, items, *args, **kwargs), value)

    return apply


_ESCAPED = 6
_MAX_PLACES = 400
# What a value takes while JSON is put together: a piece of text in a list.
_JSON_PIECES = 160

# --------------------------------------------------------------------- Strings


def _by_method(name: str) -> Filter:
    """Make a filter of a method of strings."""
    run = callables.METHODS[str][name]

    def apply(budget: Budget, value: Any, *args: Any) -> Any:
        return run(budget, value if type(value) is str else soft_text(budget, value), *args)

    return apply


_strip, _center, _replaced = map(_by_method, ("strip", "center", "replace"))


def _by_filter(run: Filter, shift: int, size: int) -> Filter:
    """Make a filter of jinja2's own for strings.

    Args:
        run: jinja2's.
        shift: a step pays for ``1 << shift`` characters.
        size: bytes that it makes of a character.
    """

    def apply(budget: Budget, value: Any) -> Any:
        given = soft_text(budget, value)
        budget.step(len(given) >> shift)
        budget.reserve(len(given) * size)
        result = run(given)
        return budget.made(result) if isinstance(result, str) else result

    return apply


_escape = _by_filter(escape, 6, 4 * _ESCAPED)


def _safe(budget: Budget, value: Any) -> Markup:
    given = soft_text(budget, value)
    budget.make(ITEM_BYTES + size_of(given))
    return Markup(given)


def _replace(budget: Budget, value: Any, old: Any, new: Any, count: int | None = None) -> Any:
    texts = text(budget, value), text(budget, old), text(budget, new)
    return _replaced(budget, *texts, -1 if count is None else count)


def _indent(
    budget: Budget, value: Any, width: Any = 4, first: bool = False, blank: bool = False
) -> Any:
    given = soft_text(budget, value)
    added = len(width) * 4 if isinstance(width, str) else width
    if not isinstance(added, int):
        raise TypeError(f"indent takes a number or a string, not {type_name(width)!r}")
    budget.step(len(given) >> 6)
    lines = callables.line_count(given)
    budget.step(lines)
    budget.reserve(lines * (callables.PIECE_BYTES + max(added, 0)) + size_of(given) * 3)
    return budget.made(filters.do_indent(given, width, first, blank))


def _truncate(
    environment: Any,
    value: Any,
    length: int = 255,
    killwords: bool = False,
    end: str = "...",
    leeway: int | None = None,
) -> Any:
    budget = environment.budget
    behind = soft_text(budget, end)
    if not isinstance(value, str):  # jinja2 returns a short list as it is and refuses a long one
        budget.reserve(len(value) * ITEM_BYTES)
        return filters.do_truncate(environment, value, length, killwords, behind, leeway)
    budget.reserve(size_of(value) + len(behind) * 4)
    return budget.made(filters.do_truncate(environment, value, length, killwords, behind, leeway))


def _urlencode(budget: Budget, value: Any) -> Any:
    def quote(part: Any, for_qs: bool = False) -> Any:
        given = text(budget, part)
        budget.step(1 + (len(given) >> 2))
        budget.reserve(size_of(given) * 16)
        return budget.made(url_quote(given, for_qs=for_qs))

    if isinstance(value, str) or not isinstance(value, SIZED):
        return quote(value)
    pairs = iterate(budget, value.items() if isinstance(value, dict) else value)
    return operators.join(
        budget, "&", [f"{quote(key, True)}={quote(entry, True)}" for key, entry in pairs]
    )


def _format(budget: Budget, value: Any, *args: Any, **kwargs: Any) -> str:
    if args and kwargs:
        raise FilterArgumentError("can't handle positional and keyword arguments together")
    return operators.printf(budget, soft_text(budget, value), kwargs or args)


# ---------------------------------------------------------------- Other values


def _tojson(
    budget: Budget,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> Any:
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


def _default(budget: Budget, value: Any, default_value: Any = "", boolean: bool = False) -> Any:
    return default_value if isinstance(value, Undefined) or (boolean and not value) else value


def _number(run: Filter, budget: Budget, value: Any, default: Any, *base: int) -> Any:
    if isinstance(value, str) and len(value) > MAX_DIGITS:
        budget.integer(4 * len(value))
    check_integer(budget, value)
    is_scalar = isinstance(value, (str, Undefined, *NUMBERS))
    return run(value, default, *base) if is_scalar else default


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
        raise TypeError(f"{type_name(value)!r} object has no items to choose from")
    return random.Random().choice(value) if value else Undefined("No random item, it was empty.")


def _attr(environment: Any, value: Any, name: Any) -> Any:
    return environment.attribute(value, text(environment.budget, name))


# Filters by name; those of a budget, of an environment and of a context.
_OF_BUDGET: dict[str, Filter] = {
    "abs": _abs,
    "batch": _batch,
    "capitalize": _by_method("capitalize"),
    "center": lambda budget, value, width=80: _center(budget, value, width),
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _dictsort,
    "e": _escape,
    "escape": _escape,
    "float": lambda budget, value, default=0.0: _number(filters.do_float, budget, value, default),
    "forceescape": lambda budget, value: _escape(budget, text(budget, value)),
    "format": _format,
    "indent": _indent,
    "int": lambda budget, value, default=0, base=10: _number(
        filters.do_int, budget, value, default, base
    ),
    "items": _items,
    "length": _length,
    "list": listed,
    "lower": _by_method("lower"),
    "random": _random,
    "replace": _replace,
    "reverse": _reverse,
    "round": _round,
    "safe": _safe,
    "slice": _slice,
    "string": soft_text,
    "title": _by_filter(filters.do_title, 2, callables.PIECE_BYTES),
    "tojson": _tojson,
    "trim": lambda budget, value, chars=None: _strip(budget, value, chars),
    "upper": _by_method("upper"),
    "urlencode": _urlencode,
    "wordcount": _by_filter(filters.do_wordcount, 3, callables.PIECE_BYTES // 2),
}
_OF_ENVIRONMENT: dict[str, Filter] = {
    "attr": _attr,
    "first": _first,
    "groupby": _by_order(filters.sync_do_groupby),
    "join": _join,
    "last": _last,
    "max": _by_order(filters.do_max),
    "min": _by_order(filters.do_min),
    "sort": _by_order(filters.do_sort),
    "sum": _sum,
    "truncate": _truncate,
    "unique": _unique,
}
_OF_CONTEXT: dict[str, Filter] = {
    "map": _by_item(filters.sync_do_map),
    "reject": _by_item(filters.sync_do_reject),
    "rejectattr": _by_item(filters.sync_do_rejectattr, 1),
    "select": _by_item(filters.sync_do_select),
    "selectattr": _by_item(filters.sync_do_selectattr, 1),
}


def _paid(run: Filter) -> Filter:
    def apply(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        environment.budget.step()
        return run(environment, value, *args, **kwargs)

    return pass_environment(apply)


def _paid_by_budget(run: Filter) -> Filter:
    def apply(environment: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
        budget: Budget = environment.budget
        budget.step()
        return run(budget, value, *args, **kwargs)

    return pass_environment(apply)


def table() -> dict[str, Filter]:
    """Return the filters by name, as jinja2 calls them."""
    made = {name: _paid_by_budget(run) for name, run in _OF_BUDGET.items()}
    return {**made, **{name: _paid(run) for name, run in _OF_ENVIRONMENT.items()}, **_OF_CONTEXT}
