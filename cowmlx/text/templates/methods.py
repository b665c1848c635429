"""The methods and attributes of values that templates may use; there are no others."""

from __future__ import annotations

import re

from jinja2.runtime import LoopContext, Macro
from jinja2.utils import Cycler
from markupsafe import Markup

from cowmlx.text.templates import operators
from cowmlx.text.templates.values import (
    ENTRY_BYTES,
    OBJECT_BYTES,
    Operation,
    listed,
    pay_for_hash,
    unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.text.templates.budget import Budget

# What a piece of a text takes that is a string of its own in a list.
PIECE_BYTES = 88
_CASES = ("upper", "lower", "title", "capitalize", "swapcase", "casefold")
_PREDICATES = (
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "isidentifier",
    "islower",
    "isnumeric",
    "isprintable",
    "isspace",
    "istitle",
    "isupper",
)
_LINE_ENDS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_WORD = re.compile(r"\S+")


def _size(value: object) -> int:
    return len(value) if isinstance(value, str) else 0


def _case(name: str) -> Callable[..., str]:
    def run(budget: Budget, owner: str) -> str:
        # A letter may become three, and Python converts in four bytes each.
        is_direct = owner.isascii() and name in ("upper", "lower", "casefold")
        budget.reserve(len(owner) * (1 if is_direct else 12))
        budget.step(len(owner) >> 6)
        return budget.made(getattr(str, name)(owner))

    return run


def _predicate(name: str) -> Callable[..., bool]:
    def run(budget: Budget, owner: str) -> bool:
        budget.step(len(owner) >> 8)
        return getattr(str, name)(owner)

    return run


def _strip(name: str) -> Callable[..., str]:
    def run(budget: Budget, owner: str, chars: Any = None) -> str:
        budget.step(1 + (len(owner) * max(_size(chars), 4) >> 10))
        budget.reserve(len(owner) * unit(owner))
        result: str = getattr(str, name)(owner, chars)
        return result if result is owner else budget.made(result)

    return run


def _affix(name: str) -> Callable[..., bool]:
    def run(budget: Budget, owner: str, affix: Any, *bounds: Any) -> bool:
        for part in affix if isinstance(affix, tuple) else (affix,):
            budget.step(1 + (_size(part) >> 10))
        return getattr(str, name)(owner, affix, *bounds)

    return run


def _remove(name: str) -> Callable[..., str]:
    def run(budget: Budget, owner: str, affix: Any) -> str:
        budget.reserve(len(owner) * unit(owner))
        return budget.made(getattr(str, name)(owner, affix))

    return run


def _search(name: str) -> Callable[..., int]:
    def run(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> int:
        if isinstance(wanted, str):
            operators.pay_for_search(budget, owner, wanted)
        return getattr(str, name)(owner, wanted, *bounds)

    return run


def _pay_from_behind(budget: Budget, owner: str, wanted: Any) -> None:
    """Pay for a search from behind, which takes Python the product of both lengths."""
    budget.step(1 + (len(owner) * min(max(_size(wanted), 1), len(owner)) >> 9))


def _search_from_behind(name: str) -> Callable[..., int]:
    def run(budget: Budget, owner: str, wanted: Any, *bounds: Any) -> int:
        _pay_from_behind(budget, owner, wanted)
        return getattr(str, name)(owner, wanted, *bounds)

    return run


def _pieces(budget: Budget, owner: str, count: int) -> None:
    budget.reserve(count * PIECE_BYTES + len(owner) * unit(owner))
    budget.step(1 + (count >> 3) + (len(owner) >> 8))


def _made_pieces(budget: Budget, owner: str, pieces: list[str]) -> list[str]:
    budget.make(len(pieces) * PIECE_BYTES + len(owner) * unit(owner))
    return pieces


def _split(name: str) -> Callable[..., list[str]]:
    def run(budget: Budget, owner: str, sep: Any = None, maxsplit: int = -1) -> list[str]:
        if isinstance(sep, str) and sep:
            if name == "rsplit":
                _pay_from_behind(budget, owner, sep)
            operators.pay_for_search(budget, owner, sep)
            count = owner.count(sep) + 1
        else:
            budget.step(len(owner) >> 3)
            count = sum(1 for _ in _WORD.finditer(owner)) + 1
        if isinstance(maxsplit, int) and maxsplit >= 0:
            count = min(count, maxsplit + 1)
        _pieces(budget, owner, count)
        return _made_pieces(budget, owner, getattr(str, name)(owner, sep, maxsplit))

    return run


def lines_of(budget: Budget, text: str) -> int:
    """Return how many lines a text may have."""
    budget.step(1 + (len(text) >> 6))
    return 1 + sum(text.count(end) for end in _LINE_ENDS)


def _splitlines(budget: Budget, owner: str, keepends: Any = False) -> list[str]:
    _pieces(budget, owner, lines_of(budget, owner))
    return _made_pieces(budget, owner, owner.splitlines(keepends))


def _partition(name: str) -> Callable[..., tuple[str, str, str]]:
    def run(budget: Budget, owner: str, sep: Any) -> tuple[str, str, str]:
        if name == "rpartition":
            _pay_from_behind(budget, owner, sep)
        elif isinstance(sep, str):
            operators.pay_for_search(budget, owner, sep)
        budget.make(3 * PIECE_BYTES + (len(owner) + _size(sep)) * unit(owner))
        return getattr(str, name)(owner, sep)

    return run


def replace(budget: Budget, owner: str, old: Any, new: Any, count: int = -1) -> str:
    """Replace a text in another."""
    if isinstance(old, str) and isinstance(new, str):
        operators.pay_for_search(budget, owner, old)
        found = owner.count(old)
        if isinstance(count, int) and count >= 0:
            found = min(found, count)
        budget.step(found >> 4)
        longer = max(len(new) - len(old), 0) * found
        budget.reserve((len(owner) + longer) * max(unit(owner), unit(new)))
    result = str.replace(owner, old, new, count)
    return result if result is owner else budget.made(result)


def _expandtabs(budget: Budget, owner: str, tabsize: int = 8) -> str:
    if isinstance(tabsize, int):
        count = owner.count("\t") * max(tabsize, 0)
        budget.reserve((len(owner) + count) * unit(owner))
    return budget.made(str(owner).expandtabs(tabsize))


def _pad(name: str) -> Callable[..., str]:
    def run(budget: Budget, owner: str, width: Any, *fill: Any) -> str:
        if isinstance(width, int):
            wide = 4 if any(_size(part) and not part.isascii() for part in fill) else unit(owner)
            budget.reserve(max(len(owner), width) * wide)
        return budget.made(getattr(str, name)(owner, width, *fill))

    return run


def _join(budget: Budget, owner: str, parts: Any) -> str:
    texts = listed(budget, parts)
    for index, part in enumerate(texts):
        if not isinstance(part, str):
            raise TypeError(f"sequence item {index}: expected str, {type(part).__name__} found")
    return operators.join(budget, str(owner), texts)


def _find_item(name: str) -> Callable[..., int]:
    def run(budget: Budget, owner: Any, item: Any, *bounds: Any) -> int:
        operators.pay_for_comparisons(budget, len(owner), item)
        return getattr(type(owner), name)(owner, item, *bounds)

    return run


def _copy_list(budget: Budget, owner: list[Any]) -> list[Any]:
    return listed(budget, owner)


def _copy_dict(budget: Budget, owner: dict[Any, Any]) -> dict[Any, Any]:
    budget.make(64 + ENTRY_BYTES * len(owner))
    return dict(owner)


def _get(budget: Budget, owner: dict[Any, Any], key: Any, default: Any = None) -> Any:
    pay_for_hash(budget, key)
    return owner.get(key, default)


def _view(name: str) -> Callable[..., Any]:
    def run(budget: Budget, owner: dict[Any, Any]) -> Any:
        budget.make(64)
        return getattr(dict, name)(owner)

    return run


def _is_integer(budget: Budget, owner: float) -> bool:
    return owner.is_integer()


def _cycle(budget: Budget, owner: LoopContext, *items: Any) -> Any:
    return owner.cycle(*items)


def _changed(budget: Budget, owner: LoopContext, *values: Any) -> bool:
    known: Any = owner._last_changed_value
    if isinstance(known, tuple) and operators.compare(budget, "eq", known, values):
        return False
    owner._last_changed_value = values
    return True


def _next(budget: Budget, owner: Cycler) -> Any:
    return owner.next()


def _reset(budget: Budget, owner: Cycler) -> None:
    owner.reset()


_STR: dict[str, Callable[..., Any]] = {
    **{name: _case(name) for name in _CASES},
    **{name: _predicate(name) for name in _PREDICATES},
    **{name: _strip(name) for name in ("strip", "lstrip", "rstrip")},
    **{name: _affix(name) for name in ("startswith", "endswith")},
    **{name: _remove(name) for name in ("removeprefix", "removesuffix")},
    **{name: _search(name) for name in ("find", "index", "count")},
    **{name: _search_from_behind(name) for name in ("rfind", "rindex")},
    **{name: _split(name) for name in ("split", "rsplit")},
    **{name: _partition(name) for name in ("partition", "rpartition")},
    **{name: _pad(name) for name in ("center", "ljust", "rjust", "zfill")},
    "expandtabs": _expandtabs,
    "join": _join,
    "replace": replace,
    "splitlines": _splitlines,
}
_SEQUENCE = {name: _find_item(name) for name in ("index", "count")}
METHODS: dict[type, dict[str, Callable[..., Any]]] = {
    str: _STR,
    Markup: _STR,
    list: {**_SEQUENCE, "copy": _copy_list},
    tuple: _SEQUENCE,
    dict: {
        "get": _get,
        "copy": _copy_dict,
        **{name: _view(name) for name in ("items", "keys", "values")},
    },
    float: {"is_integer": _is_integer},
    LoopContext: {"cycle": _cycle, "changed": _changed},
    Cycler: {"next": _next, "reset": _reset},
}
# Attributes that are read as they are.
FIELDS: dict[type, frozenset[str]] = {
    LoopContext: frozenset(
        (
            *("index", "index0", "revindex", "revindex0", "first", "last", "length"),
            *("previtem", "nextitem", "depth", "depth0"),
        )
    ),
    Macro: frozenset(("name", "arguments", "catch_kwargs", "catch_varargs", "caller")),
    Cycler: frozenset(("current",)),
    range: frozenset(("start", "stop", "step")),
    int: frozenset(("real", "imag", "numerator", "denominator")),
    bool: frozenset(("real", "imag", "numerator", "denominator")),
    float: frozenset(("real", "imag")),
    complex: frozenset(("real", "imag")),
}


def bound(budget: Budget, owner: Any, name: str) -> Operation | None:
    """Return a method of a value; None if templates may not use one of that name."""
    run = METHODS.get(type(owner), {}).get(name)
    if run is None:
        return None
    budget.make(OBJECT_BYTES)
    return Operation(name, run, owner)
