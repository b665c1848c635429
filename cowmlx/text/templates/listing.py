"""The filters of templates that work on lists and objects: ``values | map('upper')``."""

from __future__ import annotations

from itertools import groupby

from jinja2 import filters
from jinja2.exceptions import FilterArgumentError
from jinja2.runtime import Undefined
from jinja2.utils import pass_context

from cowmlx.text.templates import callables, operators
from cowmlx.text.templates.budget import OverBudget
from cowmlx.text.templates.values import (
    ITEM_BYTES,
    SLOT_BYTES,
    Stream,
    is_plain_key,
    iterate,
    listed,
    measure,
    pay_for_entry,
    text,
    type_name,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cowmlx.text.templates.budget import Budget

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


def _folded(budget: Budget, key: Any, case_sensitive: bool) -> Any:
    if case_sensitive or not isinstance(key, str):
        return key
    return callables.METHODS[str]["lower"](budget, key)


def _pay_for_sort(budget: Budget, keys: list[Any]) -> None:
    tree = measure(budget, keys)
    rounds = max(len(keys), 1).bit_length()
    budget.step((tree.items + (tree.characters >> 8)) * rounds >> 2)
    budget.make(4 * SLOT_BYTES * len(keys))


def _sorted(budget: Budget, items: list[Any], keys: list[Any], reverse: bool) -> list[Any]:
    _pay_for_sort(budget, keys)
    order = sorted(range(len(items)), key=keys.__getitem__, reverse=reverse)
    return [items[index] for index in order]


def _keys(
    environment: Any, items: list[Any], attribute: Any, case_sensitive: bool, default: Any = None
) -> list[Any]:
    get = _getter(environment, attribute, default)
    environment.budget.make(SLOT_BYTES * len(items))
    return [_folded(environment.budget, get(item), case_sensitive) for item in items]


def _sort(
    environment: Any,
    value: Any,
    reverse: bool = False,
    case_sensitive: bool = False,
    attribute: Any = None,
) -> list[Any]:
    budget = environment.budget
    items = listed(budget, value)
    _check_attribute(attribute)
    paths = attribute.split(",") if isinstance(attribute, str) else [attribute]
    if len(paths) > 1:
        columns = [_keys(environment, items, path, case_sensitive) for path in paths]
        keys: list[Any] = list(zip(*columns, strict=True))
        budget.make(ITEM_BYTES * len(keys))
    else:
        keys = _keys(environment, items, attribute, case_sensitive)
    return _sorted(budget, items, keys, reverse)


def _dictsort(
    environment: Any,
    value: Any,
    case_sensitive: bool = False,
    by: str = "key",
    reverse: Any = False,
) -> list[Any]:
    budget = environment.budget
    if by not in ("key", "value"):
        raise FilterArgumentError('You can only sort by either "key" or "value"')
    if not isinstance(value, dict):
        raise TypeError(f"only objects can be sorted by key, not {type_name(value)!r}")
    items = listed(budget, value.items())
    at = 0 if by == "key" else 1
    keys = [_folded(budget, item[at], case_sensitive) for item in items]
    return _sorted(budget, items, keys, reverse)


def _groupby(
    environment: Any,
    value: Any,
    attribute: Any,
    default: Any = None,
    case_sensitive: bool = False,
) -> list[Any]:
    budget = environment.budget
    items = listed(budget, value)
    keys = _keys(environment, items, attribute, case_sensitive, default)
    pairs = _sorted(budget, list(zip(keys, items, strict=True)), keys, False)
    budget.make(2 * ITEM_BYTES * len(pairs))
    get = _getter(environment, attribute, default)
    groups = []
    for key, found in groupby(pairs, key=lambda pair: pair[0]):
        members = [item for _, item in found]
        budget.make(2 * ITEM_BYTES)
        groups.append(filters._GroupTuple(key if case_sensitive else get(members[0]), members))
    return groups


def _extreme(choose: Callable[..., int]) -> Callable[..., Any]:
    def run(
        environment: Any, value: Any, case_sensitive: bool = False, attribute: Any = None
    ) -> Any:
        items = listed(environment.budget, value)
        if not items:
            return environment.undefined("No aggregated item, sequence was empty.")
        keys = _keys(environment, items, attribute, case_sensitive)
        _pay_for_sort(environment.budget, keys)
        return items[choose(range(len(items)), key=keys.__getitem__)]

    return run


def _unique(
    environment: Any, value: Any, case_sensitive: bool = False, attribute: Any = None
) -> Stream:
    budget = environment.budget
    get = _getter(environment, attribute)

    def found() -> Iterator[Any]:
        seen: set[Any] = set()
        for item in iterate(budget, value):
            key = _folded(budget, get(item), case_sensitive)
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


def _items(environment: Any, value: Any) -> Stream:
    if not isinstance(value, (dict, Undefined)):
        raise TypeError("Can only get item pairs from a mapping.")
    pairs = value.items() if isinstance(value, dict) else ()
    return Stream(environment.budget, iterate(environment.budget, pairs))


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


def _reverse(environment: Any, value: Any) -> Any:
    budget = environment.budget
    if isinstance(value, str):
        return operators.cut(budget, value, None, None, -1)
    if type(value) is Stream:
        items = listed(budget, value)
        items.reverse()
        return items
    iterate(budget, value)
    return Stream(budget, iter(reversed(value)))


def _batch(environment: Any, value: Any, linecount: Any, fill_with: Any = None) -> Stream:
    budget = environment.budget
    if fill_with is not None and isinstance(linecount, int):
        budget.make(SLOT_BYTES * max(linecount, 0))
    return Stream(budget, filters.do_batch(_kept(budget, value), linecount, fill_with), value)


def _slice(environment: Any, value: Any, slices: Any, fill_with: Any = None) -> Stream:
    budget = environment.budget
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


FILTERS: dict[str, Callable[..., Any]] = {
    "batch": _batch,
    "dictsort": _dictsort,
    "first": _first,
    "groupby": _groupby,
    "items": _items,
    "join": _join,
    "last": _last,
    "list": lambda environment, value: listed(environment.budget, value),
    "max": _extreme(max),
    "min": _extreme(min),
    "reverse": _reverse,
    "slice": _slice,
    "sort": _sort,
    "sum": _sum,
    "unique": _unique,
}
OF_CONTEXT: dict[str, Callable[..., Any]] = {
    "map": _by_item(filters.sync_do_map),
    "reject": _by_item(filters.sync_do_reject),
    "rejectattr": _by_item(filters.sync_do_rejectattr, 1),
    "select": _by_item(filters.sync_do_select),
    "selectattr": _by_item(filters.sync_do_selectattr, 1),
}
