"""The operators of templates (``+``, ``==``, ``in``, ``~``, slices) and string formatting."""

from __future__ import annotations

import operator
import re

from jinja2.runtime import Undefined
from jinja2.sandbox import SandboxedFormatter
from markupsafe import Markup

from cowmlx.text.templates.budget import MAX_WIDTH, OverBudget, check_width
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
    quoted,
    size_of,
    text,
    type_name,
    unit,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

    from jinja2 import Environment

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
        return printf(budget, left, right)
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


def pay_for_search(budget: Budget, within: str, wanted: object) -> None:
    """Pay for looking for a text from the front; Python does that in linear time."""
    size = len(wanted) if isinstance(wanted, str) else 0
    budget.step(1 + (len(within) * min(max(size, 1), 16) >> 10))


def concatenate(budget: Budget, *parts: Any) -> str:
    """Carry out ``a ~ b``."""
    return join(budget, "", [text(budget, part) for part in parts])


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


_CONVERSION = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?[-+ #0]*(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?[hlL]?"
    r"(?P<kind>.)?",
    re.DOTALL,
)
_NUMBER = re.compile(r"\d+")
_MAX_SPEC = 100
# A float in full, or an integer of as many digits as there may be.
_NUMBER_BYTES = 4400


def _width(digits: str | None) -> int:
    if digits == "*":
        raise OverBudget("the chat template formats with a width that it computes ('*')")
    if digits and len(digits) > 4:
        check_width(MAX_WIDTH + 1)
    width = int(digits) if digits else 0
    check_width(width)
    return width


def printf(budget: Budget, pattern: str, values: Any) -> str:
    """Format as ``pattern % values``.

    Raises:
        OverBudget: the result would be too long.
    """
    budget.step(1 + (len(pattern) >> 5))
    size = size_of(pattern)
    escaped = _ESCAPED if isinstance(pattern, Markup) else 1
    arguments = iter(values if isinstance(values, tuple) else (values,))
    for match in _CONVERSION.finditer(pattern):
        kind = match["kind"]
        if kind == "%":
            continue
        if kind == "(":
            raise ValueError("a name in a format holds a parenthesis")
        width = _width(match["width"]) + _width(match["precision"])
        budget.step(2 + (width >> 2))
        name = match["name"]
        if name is not None:
            argument = values.get(name) if isinstance(values, dict) else values
        else:
            argument = next(arguments, None)
        size += escaped * _bytes(budget, argument) + 4 * width
        budget.reserve(size)
    return budget.made(pattern % values)


def _bytes(budget: Budget, value: Any) -> int:
    """Return the bytes that the text of a value takes at most, quoted or not."""
    if isinstance(value, (str, *CONTAINERS)):
        return measure(budget, value).text_bytes()
    if isinstance(value, NUMBERS):
        check_integer(budget, value)
        return 64 if isinstance(value, int) and value.bit_length() < 64 else _NUMBER_BYTES
    return 256


class BoundedFormatter(SandboxedFormatter):
    """The formatter of ``str.format``; what it reads of values goes through the environment."""

    def __init__(self, environment: Environment, budget: Budget) -> None:
        super().__init__(environment)
        self._budget = budget

    def parse(self, format_string: str) -> Iterator[Any]:
        """Take a pattern apart."""
        for piece in super().parse(format_string):
            self._budget.make(64 + 4 * len(piece[0]))
            self._budget.step()
            yield piece

    def convert_field(self, value: Any, conversion: str | None) -> Any:
        """Carry out ``!s``, ``!r`` and ``!a``."""
        if conversion == "s":
            return text(self._budget, value)
        if conversion in ("r", "a"):
            return quoted(self._budget, value, repr if conversion == "r" else ascii)
        return super().convert_field(value, conversion)

    def format_field(self, value: Any, format_spec: str) -> str:
        """Write one value."""
        budget = self._budget
        if len(format_spec) > _MAX_SPEC:
            check_width(MAX_WIDTH + 1)
        width = sum(_width(digits) for digits in _NUMBER.findall(format_spec))
        budget.step(1 + (width >> 2))
        if not isinstance(value, (str, *NUMBERS)):
            if format_spec:
                raise TypeError(
                    f"unsupported format string passed to {type_name(value)}.__format__"
                )
            return text(budget, value)
        size = len(value) if isinstance(value, str) else _NUMBER_BYTES
        check_integer(budget, value)
        budget.reserve(4 * (size + width))
        return budget.made(format(value, format_spec))


def str_format(
    environment: Environment,
    budget: Budget,
    pattern: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> str:
    """Format as ``pattern.format(*args, **kwargs)``."""
    return budget.made(BoundedFormatter(environment, budget).vformat(str(pattern), args, kwargs))
