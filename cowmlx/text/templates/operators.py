"""What templates do with ``+``, ``==``, ``in``, ``~`` and slices."""

from __future__ import annotations

import operator

from jinja2.runtime import Undefined
from markupsafe import Markup

from cowmlx.text.templates import printf
from cowmlx.text.templates.values import (
    CONTAINERS,
    ITEMS,
    KEYS,
    NUMBERS,
    SLOT_BYTES,
    VALUES,
    Stream,
    check_integer,
    iterate,
    measure,
    pay_for_hash,
    text,
    type_name,
    unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.text.templates.budget import Budget

_ARITHMETIC = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": operator.pow,
    "%": operator.mod,
}
_COMPARISONS = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
}
_SMALL_BITS = 62
# What escaping makes of a character at most: &#34;
_ESCAPED = 6


def arithmetic(budget: Budget, sign: str, left: Any, right: Any) -> Any:
    """Carry out an operator between two values.

    Raises:
        OverBudget: the result would be too large.
        TypeError: it has none.
    """
    budget.step()
    if isinstance(left, NUMBERS) and isinstance(right, NUMBERS):
        return _number(budget, sign, left, right)
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return _joined(budget, left, right)
    if sign == "%" and isinstance(left, str):
        return printf.printf(budget, left, right)
    if sign == "+" and isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        budget.make(64 + SLOT_BYTES * (len(left) + len(right)))
        return operator.add(left, right)
    if sign == "*":
        for part, times in ((left, right), (right, left)):
            if isinstance(part, (str, list, tuple)) and isinstance(times, int):
                return _repeated(budget, part, times)
    if isinstance(left, Undefined) or isinstance(right, Undefined):
        return _ARITHMETIC[sign](left, right)
    raise TypeError(
        f"unsupported operand type(s) for {sign}: {type_name(left)!r} and {type_name(right)!r}"
    )


def negative(budget: Budget, sign: str, value: Any) -> Any:
    """Carry out a sign in front of a value."""
    budget.step()
    check_integer(budget, value)
    if not isinstance(value, (*NUMBERS, Undefined)):
        raise TypeError(f"bad operand type for unary {sign}: {type_name(value)!r}")
    return operator.neg(value) if sign == "-" else operator.pos(value)


def _number(budget: Budget, sign: str, left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        bits, others = left.bit_length(), right.bit_length()
        if bits > _SMALL_BITS or others > _SMALL_BITS or sign == "**":
            wanted = max(bits, others) + 1
            if sign == "*":
                wanted = bits + others
            elif sign == "**" and right > 0:
                wanted = max(bits * right, wanted)
            budget.integer(wanted)
            budget.step(1 + (wanted * wanted >> 16))
            budget.make(wanted >> 3)
    return _ARITHMETIC[sign](left, right)


def _joined(budget: Budget, left: str, right: str) -> str:
    size = (len(left) + len(right)) * max(unit(left), unit(right))
    if isinstance(left, Markup) or isinstance(right, Markup):
        size *= _ESCAPED
    budget.reserve(size)
    return budget.made(left + right)


def _repeated(budget: Budget, part: Any, times: int) -> Any:
    count = len(part) * max(times, 0)
    if isinstance(part, str):
        budget.reserve(count * unit(part))
        return budget.made(part * times)
    budget.make(64 + SLOT_BYTES * count)
    return part * times


def compare(budget: Budget, sign: str, left: Any, right: Any) -> Any:
    """Compare two values; ``sign`` is one of jinja2's names of comparisons."""
    budget.step()
    if sign == "in":
        return contains(budget, right, left)
    if sign == "notin":
        return not contains(budget, right, left)
    if isinstance(left, str):
        if isinstance(right, str):
            budget.step(min(len(left), len(right)) >> 10)
    elif isinstance(left, CONTAINERS) and isinstance(right, CONTAINERS):
        measure(budget, left)
        measure(budget, right)
    return _COMPARISONS[sign](left, right)


def compare_chain(budget: Budget, value: Any, *rest: Any) -> Any:
    """Carry out ``a < b < c``; of the rest, each has a sign and a function for its value."""
    result: Any = True
    for sign, following in rest:
        other = following()
        result = compare(budget, sign, value, other)
        if not result:
            return result
        value = other
    return result


def contains(budget: Budget, container: Any, item: Any) -> bool:
    """Tell whether a value is in another."""
    if isinstance(container, str):
        if isinstance(item, str):
            pay_for_search(budget, container, item)
        return item in container
    if isinstance(container, (dict, KEYS, ITEMS)):
        pay_for_hash(budget, item)
        return item in container
    if isinstance(container, (list, tuple, VALUES)):
        pay_for_comparisons(budget, len(container), item)
        return item in container
    if isinstance(container, range):
        budget.step(1 if isinstance(item, int) else len(container))
        return item in container
    if isinstance(container, (Stream, Undefined)):
        return any(compare(budget, "eq", item, other) for other in iterate(budget, container))
    raise TypeError(f"argument of type {type_name(container)!r} is not iterable")


def pay_for_comparisons(budget: Budget, count: int, item: Any) -> None:
    """Pay for comparing a value with so many others."""
    if isinstance(item, CONTAINERS):
        tree = measure(budget, item)
        budget.step(count * (tree.items + (tree.characters >> 10)))
    else:
        size = len(item) if isinstance(item, str) else 0
        budget.step((count >> 2) + (count * size >> 12))


def pay_for_search(budget: Budget, within: str, wanted: str) -> None:
    """Pay for looking for a text from the front; Python does that in linear time."""
    budget.step(1 + (len(within) * min(max(len(wanted), 1), 16) >> 10))


def concatenate(budget: Budget, parts: tuple[Any, ...]) -> str:
    """Join the texts of values: ``a ~ b``, and the pieces of a macro's output."""
    texts = [text(budget, part) for part in parts]
    return join(budget, "", texts)


def join(budget: Budget, separator: str, texts: list[str]) -> str:
    """Join strings."""
    budget.step(1 + (len(texts) >> 2))
    count = sum(map(len, texts)) + len(separator) * len(texts)
    wide = 4 if not separator.isascii() or any(not part.isascii() for part in texts) else 1
    budget.reserve(count * wide)
    return budget.made(separator.join(texts))


def cut(budget: Budget, value: Any, start: Any, stop: Any, step: Any) -> Any:
    """Return a slice of a value."""
    budget.step()
    part = slice(start, stop, step)
    if isinstance(value, (str, list, tuple)):
        count = len(range(*part.indices(len(value))))
        if isinstance(value, str):
            budget.reserve(count * unit(value))
            return budget.made(value[part])
        budget.make(64 + SLOT_BYTES * count)
        return value[part]
    if isinstance(value, (range, Undefined)):
        return value[part]
    raise TypeError(f"{type_name(value)!r} object cannot be sliced")
