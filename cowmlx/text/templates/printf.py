"""``'%s' % value`` and ``'{}'.format(value)``, with widths, and the texts put in, bounded."""

from __future__ import annotations

import re

from jinja2.sandbox import SandboxedFormatter
from markupsafe import Markup

from cowmlx.text.templates.budget import MAX_WIDTH, OverBudget, check_width
from cowmlx.text.templates.values import (
    CONTAINERS,
    NUMBERS,
    check_integer,
    measure,
    quoted,
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

_CONVERSION = re.compile(
    r"%(?:\((?P<name>[^()]*)\))?[-+ #0]*(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?[hlL]?"
    r"(?P<kind>.)?",
    re.DOTALL,
)
_NUMBER = re.compile(r"\d+")
_MAX_SPEC = 100
# A float in full, or an integer of as many digits as there may be.
_NUMBER_BYTES = 4400
_ESCAPED = 6


def _number(digits: str | None) -> int:
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
    size = len(pattern) * unit(pattern)
    escaped = _ESCAPED if isinstance(pattern, Markup) else 1
    arguments = iter(values if isinstance(values, tuple) else (values,))
    for found in _CONVERSION.finditer(pattern):
        kind = found["kind"]
        if kind == "%":
            continue
        if kind == "(":
            raise ValueError("a name in a format holds a parenthesis")
        width = _number(found["width"]) + _number(found["precision"])
        budget.step(2 + (width >> 2))
        name = found["name"]
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
        width = sum(_number(digits) for digits in _NUMBER.findall(format_spec))
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
