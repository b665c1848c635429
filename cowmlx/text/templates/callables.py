"""What templates may call: methods of values, functions and tests, and attributes they may read."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace, pass_environment
from markupsafe import Markup

from cowmlx.text.templates import operators
from cowmlx.text.templates.budget import MAX_RANGE, Budget, OverBudget
from cowmlx.text.templates.values import (
    ENTRY_BYTES,
    ITEM_BYTES,
    LARGE_OBJECT_BYTES,
    OBJECT_BYTES,
    SIZED,
    Operation,
    Stream,
    iterate,
    listed,
    new_dict,
    pay_for_hash,
    soft_text,
    text,
    unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from cowmlx.text.templates.budget import Budget

    Method = Callable[..., Any]

# A part of a string that is a separate string in a list.
PIECE_BYTES = 88
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_WORD = re.compile(r"\S+")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def _string_methods(pay: Callable[..., None], names: str) -> dict[str, Method]:
    """Make operations of methods of strings.

    Args:
        pay: takes the budget and the method's arguments before the method runs.
        names: of the methods.
    """

    def method(name: str) -> Method:
        run = getattr(str, name)

        def paid(budget: Budget, owner: str, *args: Any, **kwargs: Any) -> Any:
            pay(budget, owner, *args, **kwargs)
            result = run(owner, *args, **kwargs)
            if type(result) is str:
                return result if result is owner else budget.made(result)
            if type(result) is list:
                budget.make(len(result) * PIECE_BYTES + len(owner) * unit(owner))
            return result

        return paid

    return {name: method(name) for name in names.split()}


def _pay_for_case(budget: Budget, owner: str) -> None:
    # A letter may become three, and Python converts in four bytes each.
    budget.reserve(len(owner) * 12)
    budget.step(len(owner) >> 6)


def _pay_for_simple_case(budget: Budget, owner: str) -> None:
    size = len(owner)
    budget.reserve(size if owner.isascii() else 12 * size)
    budget.step(size >> 6)


def _pay_for_check(budget: Budget, owner: str) -> None:
    budget.step(len(owner) >> 8)


def _pay_for_strip(budget: Budget, owner: str, chars: Any = None) -> None:
    size = len(owner)
    budget.step(1 + (size >> 8 if chars is None else size * max(_size(chars), 4) >> 10))
    budget.reserve(size if owner.isascii() else 4 * size)


def _pay_for_affix(budget: Budget, owner: str, affix: Any, *bounds: Any) -> None:
    if isinstance(affix, str):
        budget.step(1 + (len(affix) >> 10))
    for part in affix if isinstance(affix, tuple) else ():
        budget.step(1 + (_size(part) >> 10))


def _pay_for_removal(budget: Budget, owner: str, affix: Any) -> None:
    budget.reserve(len(owner) * unit(owner))


def _pay_for_search(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> None:
    operators.pay_for_search(budget, owner, wanted)


def _pay_from_behind(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> None:
    """Pay for a search from behind, which takes Python the product of both lengths."""
    budget.step(1 + (len(owner) * min(max(_size(wanted), 1), len(owner)) >> 9))


def _pay_for_pieces(budget: Budget, owner: str, count: int) -> None:
    budget.reserve(count * PIECE_BYTES + len(owner) * unit(owner))
    budget.step(1 + (count >> 3) + (len(owner) >> 8))


def _pay_for_split(budget: Budget, owner: str, sep: Any = None, maxsplit: Any = -1) -> None:
    if isinstance(sep, str) and sep:
        operators.pay_for_search(budget, owner, sep)
        count = owner.count(sep) + 1
    else:
        budget.step(len(owner) >> 3)
        count = sum(1 for _ in _WORD.finditer(owner)) + 1
    if isinstance(maxsplit, int) and maxsplit >= 0:
        count = min(count, maxsplit + 1)
    _pay_for_pieces(budget, owner, count)


def _pay_for_rsplit(budget: Budget, owner: str, sep: Any = None, maxsplit: Any = -1) -> None:
    if sep is not None:
        _pay_from_behind(budget, owner, sep)
    _pay_for_split(budget, owner, sep, maxsplit)


def lines_of(budget: Budget, text: str) -> int:
    """Return how many lines a text may have."""
    budget.step(1 + (len(text) >> 6))
    return 1 + sum(text.count(end) for end in _LINE_ENDS)


def _pay_for_lines(budget: Budget, owner: str, keepends: Any = False) -> None:
    _pay_for_pieces(budget, owner, lines_of(budget, owner))


def _pay_for_partition(budget: Budget, owner: str, sep: Any) -> None:
    operators.pay_for_search(budget, owner, sep)
    budget.make(3 * PIECE_BYTES + (len(owner) + _size(sep)) * unit(owner))


def _pay_for_rpartition(budget: Budget, owner: str, sep: Any) -> None:
    _pay_from_behind(budget, owner, sep)
    _pay_for_partition(budget, owner, sep)


def _pay_for_replace(budget: Budget, owner: str, old: Any, new: Any, count: Any = -1) -> None:
    if isinstance(old, str) and isinstance(new, str):
        operators.pay_for_search(budget, owner, old)
        places = owner.count(old)
        if isinstance(count, int) and count >= 0:
            places = min(places, count)
        if places:
            budget.step(places >> 4)
            size = len(owner) + max(len(new) - len(old), 0) * places
            budget.reserve(size if owner.isascii() and new.isascii() else 4 * size)


def _pay_for_tabs(budget: Budget, owner: str, tabsize: Any = 8) -> None:
    if isinstance(tabsize, int):
        budget.reserve((len(owner) + owner.count("\t") * max(tabsize, 0)) * unit(owner))


def _pay_for_width(budget: Budget, owner: str, width: Any, *fill: Any) -> None:
    if isinstance(width, int):
        wide = 4 if any(_size(part) and not part.isascii() for part in fill) else unit(owner)
        budget.reserve(max(len(owner), width) * wide)


def _join(budget: Budget, owner: str, parts: Any) -> str:
    texts = listed(budget, parts)
    for index, part in enumerate(texts):
        if not isinstance(part, str):
            raise TypeError(f"sequence item {index}: expected str, {type(part).__name__} found")
    return operators.join(budget, str(owner), texts)


def _find_item(name: str) -> Method:
    def run(budget: Budget, owner: Any, item: Any, *bounds: Any) -> int:
        operators.pay_for_comparisons(budget, len(owner), item)
        return getattr(type(owner), name)(owner, item, *bounds)

    return run


def _of_fixed_size(kind: type, name: str) -> Method:
    """Make an operation of a method that gives a small object."""
    run = getattr(kind, name)

    def paid(budget: Budget, owner: Any, *args: Any) -> Any:
        budget.make(64)
        return run(owner, *args)

    return paid


def _copy_dict(budget: Budget, owner: dict[Any, Any]) -> dict[Any, Any]:
    budget.make(64 + ENTRY_BYTES * len(owner))
    return dict(owner)


def _get(budget: Budget, owner: dict[Any, Any], key: Any, default: Any = None) -> Any:
    pay_for_hash(budget, key)
    return owner.get(key, default)


def _changed(budget: Budget, owner: LoopContext, *values: Any) -> bool:
    known: Any = owner._last_changed_value
    if isinstance(known, tuple) and operators.compare(budget, "eq", known, values):
        return False
    owner._last_changed_value = values
    return True


_STR: dict[str, Method] = {
    **_string_methods(_pay_for_case, "title capitalize swapcase"),
    **_string_methods(_pay_for_simple_case, "upper lower casefold"),
    **_string_methods(
        _pay_for_check,
        "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable"
        " isspace istitle isupper",
    ),
    **_string_methods(_pay_for_strip, "strip lstrip rstrip"),
    **_string_methods(_pay_for_affix, "startswith endswith"),
    **_string_methods(_pay_for_removal, "removeprefix removesuffix"),
    **_string_methods(_pay_for_search, "find index count"),
    **_string_methods(_pay_from_behind, "rfind rindex"),
    **_string_methods(_pay_for_split, "split"),
    **_string_methods(_pay_for_rsplit, "rsplit"),
    **_string_methods(_pay_for_lines, "splitlines"),
    **_string_methods(_pay_for_partition, "partition"),
    **_string_methods(_pay_for_rpartition, "rpartition"),
    **_string_methods(_pay_for_replace, "replace"),
    **_string_methods(_pay_for_tabs, "expandtabs"),
    **_string_methods(_pay_for_width, "center ljust rjust zfill"),
    "join": _join,
}
_SEQUENCE = {name: _find_item(name) for name in ("index", "count")}
METHODS: dict[type, dict[str, Method]] = {
    str: _STR,
    Markup: _STR,
    list: {**_SEQUENCE, "copy": listed},
    tuple: _SEQUENCE,
    dict: {
        "get": _get,
        "copy": _copy_dict,
        **{name: _of_fixed_size(dict, name) for name in ("items", "keys", "values")},
    },
    float: {"is_integer": _of_fixed_size(float, "is_integer")},
    LoopContext: {"cycle": _of_fixed_size(LoopContext, "cycle"), "changed": _changed},
    Cycler: {name: _of_fixed_size(Cycler, name) for name in ("next", "reset")},
}
_PARTS = frozenset(("real", "imag"))
_FRACTION = _PARTS | {"numerator", "denominator"}
_LOOP = (
    "index index0 revindex revindex0 first last length previtem nextitem depth depth0"  # of a loop
)
# Attributes that are read as they are.
FIELDS: dict[type, frozenset[str]] = {
    LoopContext: frozenset(_LOOP.split()),
    Macro: frozenset(("name", "arguments", "catch_kwargs", "catch_varargs", "caller")),
    Cycler: frozenset(("current",)),
    range: frozenset(("start", "stop", "step")),
    int: _FRACTION,
    bool: _FRACTION,
    float: _PARTS,
    complex: _PARTS,
}


def bound(budget: Budget, owner: Any, name: str) -> Operation | None:
    """Return a method of a value; None if templates may not use one of that name."""
    run = METHODS.get(type(owner), {}).get(name)
    if run is None:
        return None
    budget.make(OBJECT_BYTES)
    return Operation(name, run, owner)


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


def _simple(check: Callable[[Any], Any], environment: Any, value: Any) -> Any:
    environment.budget.step()
    return check(value)


# jinja2's own that look at a value's type alone.
_OF_TYPE = "boolean defined escaped false float integer none number string true undefined"
_SIMPLE: dict[str, Any] = {
    **{name: TESTS[name] for name in _OF_TYPE.split()},
    "callable": lambda value: isinstance(value, (Operation, Macro, Undefined)),
    "iterable": lambda value: isinstance(value, _ITERABLE),
    "mapping": lambda value: isinstance(value, dict),
    "sequence": lambda value: isinstance(value, _SEQUENCES),
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
