"""What templates may call: methods of values, functions and tests, and attributes they may read."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from jinja2.exceptions import SecurityError, TemplateError
from jinja2.runtime import LoopContext, Macro
from jinja2.tests import TESTS
from jinja2.utils import Cycler, Joiner, Namespace, pass_environment
from markupsafe import Markup

from cowmlx.text.templates import operators
from cowmlx.text.templates.arguments import Arguments
from cowmlx.text.templates.budget import MAX_RANGE, OverBudget
from cowmlx.text.templates.values import (
    ENTRY_BYTES,
    ITEM_BYTES,
    LARGE_OBJECT_BYTES,
    OBJECT_BYTES,
    Operation,
    iterate,
    listed,
    new_dict,
    pay_for_hash,
    size_of,
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


def _length(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def _string_methods(names: str, pay: Callable[..., int]) -> dict[str, Method]:
    """Make operations of methods of strings.

    Args:
        names: of the methods.
        pay: pays for the work, given the budget, the string and the method's arguments. Returns
            the bytes that the result takes at most.
    """

    def method(name: str) -> Method:
        run = getattr(str, name)

        def paid(budget: Budget, owner: str, *args: Any, **kwargs: Any) -> Any:
            budget.reserve(pay(budget, owner, *args, **kwargs))
            result = run(owner, *args, **kwargs)
            if type(result) is str:
                return result if result is owner else budget.made(result)
            if type(result) is list or type(result) is tuple:
                budget.make(len(result) * PIECE_BYTES + size_of(owner))
            return result

        return paid

    return {name: method(name) for name in names.split()}


def _by_length(shift: int, size: Callable[..., int]) -> Callable[..., int]:
    """Pay a step for ``1 << shift`` characters."""

    def pay(budget: Budget, owner: str, *args: Any, **kwargs: Any) -> int:
        budget.step(len(owner) >> shift)
        return size(owner, *args, **kwargs)

    return pay


def _strip(budget: Budget, owner: str, chars: Any = None) -> int:
    size = len(owner)
    budget.step(1 + (size >> 8 if chars is None else size * max(_length(chars), 4) >> 10))
    return size if owner.isascii() else 4 * size


def _affix(budget: Budget, owner: str, affix: Any, *bounds: Any) -> int:
    for part in affix if isinstance(affix, tuple) else (affix,):
        budget.step(1 + (_length(part) >> 10))
    return 0


def _search(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> int:
    operators.pay_for_search(budget, owner, wanted)
    return 0


def _search_from_behind(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> int:
    """Pay for the product of both lengths, which Python takes."""
    budget.step(1 + (len(owner) * min(max(_length(wanted), 1), len(owner)) >> 9))
    return 0


def _at_most(places: int, count: Any) -> int:
    return min(places, count) if isinstance(count, int) and count >= 0 else places


def _split(budget: Budget, owner: str, sep: Any = None, maxsplit: Any = -1) -> int:
    if isinstance(sep, str) and sep:
        operators.pay_for_search(budget, owner, sep)
        places = owner.count(sep)
    else:
        budget.step(len(owner) >> 3)
        places = sum(1 for _ in _WORD.finditer(owner))
    return (1 + _at_most(places, maxsplit)) * PIECE_BYTES + size_of(owner)


def _rsplit(budget: Budget, owner: str, sep: Any = None, maxsplit: Any = -1) -> int:
    if sep is not None:
        _search_from_behind(budget, owner, sep)
    return _split(budget, owner, sep, maxsplit)


def _partition(budget: Budget, owner: str, sep: Any) -> int:
    operators.pay_for_search(budget, owner, sep)
    return 3 * PIECE_BYTES + (len(owner) + _length(sep)) * unit(owner)


def _rpartition(budget: Budget, owner: str, sep: Any) -> int:
    _search_from_behind(budget, owner, sep)
    return _partition(budget, owner, sep)


def line_count(text: str) -> int:
    """Return how many lines a text may have."""
    return 1 + sum(text.count(end) for end in _LINE_ENDS)


def _replace(budget: Budget, owner: str, old: Any, new: Any, count: Any = -1) -> int:
    if not (isinstance(old, str) and isinstance(new, str)):
        return 0
    operators.pay_for_search(budget, owner, old)
    places = _at_most(owner.count(old), count)
    if not places:
        return 0
    size = len(owner) + max(len(new) - len(old), 0) * places
    return size if owner.isascii() and new.isascii() else 4 * size


def _tabs_size(owner: str, tabsize: Any = 8) -> int:
    spaces = owner.count("\t") * max(tabsize, 0) if isinstance(tabsize, int) else 0
    return (len(owner) + spaces) * unit(owner)


def _widened_size(owner: str, width: Any, fill: Any = " ") -> int:
    wide = 4 if _length(fill) and not fill.isascii() else unit(owner)
    return max(len(owner), width) * wide if isinstance(width, int) else 0


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


# A letter may become three, and Python converts in four bytes each.
_STR: dict[str, Method] = {
    **_string_methods("title capitalize swapcase", _by_length(6, lambda s: 12 * len(s))),
    **_string_methods(
        "upper lower casefold",
        _by_length(6, lambda s: len(s) if s.isascii() else 12 * len(s)),
    ),
    **_string_methods(
        "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable"
        " isspace istitle isupper",
        _by_length(8, lambda s: 0),
    ),
    **_string_methods("strip lstrip rstrip", _strip),
    **_string_methods("startswith endswith", _affix),
    **_string_methods("removeprefix removesuffix", _by_length(10, lambda s, affix: size_of(s))),
    **_string_methods("find index count", _search),
    **_string_methods("rfind rindex", _search_from_behind),
    **_string_methods("split", _split),
    **_string_methods("rsplit", _rsplit),
    **_string_methods(
        "splitlines",
        _by_length(6, lambda s, keepends=False: line_count(s) * PIECE_BYTES + size_of(s)),
    ),
    **_string_methods("partition", _partition),
    **_string_methods("rpartition", _rpartition),
    **_string_methods("replace", _replace),
    **_string_methods("expandtabs", _by_length(10, _tabs_size)),
    **_string_methods("center ljust rjust zfill", _by_length(10, _widened_size)),
    "join": _join,
}
_SEQUENCE = {name: _find_item(name) for name in ("index", "count")}
_OBJECT: dict[str, Method] = {
    "get": _get,
    "copy": _copy_dict,
    **{name: _of_fixed_size(dict, name) for name in ("items", "keys", "values")},
}
METHODS: dict[type, dict[str, Method]] = {
    str: _STR,
    Markup: _STR,
    list: {**_SEQUENCE, "copy": listed},
    tuple: _SEQUENCE,
    dict: _OBJECT,
    Arguments: _OBJECT,
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


_COMPARISONS = {
    "eq": ("==", "eq", "equalto"),
    "ne": ("!=", "ne"),
    "gt": (">", "gt", "greaterthan"),
    "gteq": (">=", "ge"),
    "lt": ("<", "lt", "lessthan"),
    "lteq": ("<=", "le"),
    "in": ("in",),
}
# jinja2's own, which take a fixed small time.
_SIMPLE = (
    "boolean callable defined escaped false float integer iterable mapping none number sequence"
    " string true undefined"
)


def _compare(sign: str, environment: Any, value: Any, other: Any) -> Any:
    return operators.compare(environment.budget, sign, value, other)


def _rest(environment: Any, value: Any, number: Any) -> Any:
    return operators.arithmetic(environment.budget, "%", value, number)


def _has(table: str, environment: Any, value: Any) -> bool:
    return isinstance(value, str) and value in getattr(environment, table)


def _letters(name: str, environment: Any, value: Any) -> bool:
    given = text(environment.budget, value)
    environment.budget.step(len(given) >> 8)
    return bool(getattr(given, name)())


def _simple(check: Any, environment: Any, value: Any) -> Any:
    environment.budget.step()
    return check(value)


def tests() -> dict[str, Callable[..., Any]]:
    """Return the tests by name, as jinja2 calls them."""
    made: dict[str, Callable[..., Any]] = {
        "divisibleby": lambda environment, value, num: _rest(environment, value, num) == 0,
        "even": lambda environment, value: _rest(environment, value, 2) == 0,
        "odd": lambda environment, value: _rest(environment, value, 2) == 1,
        "filter": partial(_has, "filters"),
        "test": partial(_has, "tests"),
        "lower": partial(_letters, "islower"),
        "upper": partial(_letters, "isupper"),
        "sameas": lambda environment, value, other: value is other,
        **{name: partial(_simple, TESTS[name]) for name in _SIMPLE.split()},
    }
    for sign, names in _COMPARISONS.items():
        made.update({name: partial(_compare, sign) for name in names})
    return {name: pass_environment(run) for name, run in made.items()}
