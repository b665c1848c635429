"""Tool calls whose arguments are elements: JSON values may spell the tags, and hold large numbers.

Parsers look for the next end tag, and read numbers as floats.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from cowmlx import json_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# From here on a float may be another number than the integer that it was read from.
_INEXACT = 1 << 53
_SPACE = re.compile(r"\s*")
# Brackets, and strings in which there are none.
_TOKENS = re.compile(r'[\[\]{}]|"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_MAX_WORK = 1 << 16  # brackets, strings, and parts of 64 characters of these
_INTEGER = re.compile(r"\s*-?[0-9]+\s*")


class _Element(NamedTuple):
    """The element of an argument.

    Attributes:
        before: matches what stands in front of a value.
        after: the end tag.
        ends: further tags at which the parser ends a call.
        begins: the characters with which JSON values begin that the parser reads.
    """

    before: re.Pattern[str]
    after: str
    ends: tuple[str, ...]
    begins: str = "[{"


_GLM = _Element(re.compile(r"<arg_value>\s*"), "</arg_value>", ("</tool_call>",))
_ELEMENTS = {
    "glm47": _GLM,
    "laguna": _GLM,
    "longcat": _Element(
        re.compile(r"<longcat_arg_value>\s*"), "</longcat_arg_value>", ("</longcat_tool_call>",)
    ),
    "minicpm5": _Element(re.compile(r"<param\s+name[^<>]*>\s*"), "</param>", ("</function>",)),
    "minimax_m2": _Element(
        re.compile(r"<parameter name=[^<>]*>\s*"),
        "</parameter>",
        ("</invoke>", "</minimax:tool_call>"),
    ),
    "muse_spark": _Element(
        re.compile(r"<atem:parameter\b[^<>]*>\s*"),
        "</atem:parameter>",
        ("</atem:invoke>", "</atem:function_calls>"),
        '[{"',
    ),
    "qwen3_coder": _Element(
        re.compile(r"<parameter=[^<>]*>\s*"), "</parameter>", ("</function>", "</tool_call>")
    ),
}


def escaped(parser: str | None, text: str) -> str:
    r"""Return a call in which no JSON value spells an end tag: ``</`` becomes ``<\/``.

    Raises:
        ValueError: the text ends inside a JSON value.
    """
    element = _ELEMENTS.get(parser or "")
    if element is None:
        return text
    last = text.rfind(element.after)
    pieces: list[str] = []
    done, left = 0, _MAX_WORK
    match = element.before.search(text)
    while match is not None and left > 0:
        begin = end = match.end()
        if text[begin : begin + 1] in tuple(element.begins):
            end, left = _value_end(text, begin, left)
            if end == len(text) and begin > last and left > 0:
                raise ValueError("a value is cut")
        value = text[begin:end]
        if any(tag in value for tag in (element.after, *element.ends)) and _is_value(
            text, end, element.after, value
        ):
            pieces += (text[done:begin], value.replace("</", "<\\/"))
            done = end
        # Behind a value without an end others may begin.
        match = element.before.search(text, begin if end == len(text) else end)
    return "".join((*pieces, text[done:]))


def _value_end(text: str, begin: int, left: int) -> tuple[int, int]:
    """Return where a JSON value ends, the end of the text if it does not, and the work left."""
    depth = 0
    for token in _TOKENS.finditer(text, begin):
        left -= 1 + (token.end() - token.start() >> 6)
        if left <= 0:
            break
        first = text[token.start()]
        depth += (first in "[{") - (first in "]}")
        if depth <= 0:
            return token.end(), left
    return len(text), left


def _is_value(text: str, end: int, after: str, value: str) -> bool:
    """Whether a value is JSON, and is all that stands in its element."""
    behind = _SPACE.match(text, end)
    if behind is None or not text.startswith(after, behind.end()):
        return False
    try:
        json_text.parse(value)
    except json_text.Malformed:
        return False
    return True


def exact(
    parser: str | None,
    calls: list[dict[str, Any]],
    plain: Callable[[], list[dict[str, Any]]],
) -> None:
    """Correct the large integers in calls that a parser of elements has read.

    Args:
        parser: its name; other parsers read all integers exactly.
        calls: with arguments of their types.
        plain: returns the same calls with the texts of arguments.
    """
    if parser not in _ELEMENTS:
        return
    given = [call.get("arguments") for call in calls]
    large = [
        (number, key)
        for number, arguments in enumerate(given)
        if isinstance(arguments, dict)
        for key, value in arguments.items()
        if isinstance(value, int) and abs(value) >= _INEXACT
    ]
    if not large:
        return
    texts = [call["arguments"] for call in plain()]
    for number, key in large:
        text = texts[number].get(key)
        if isinstance(text, str) and _INTEGER.fullmatch(text):
            calls[number]["arguments"][key] = int(text)
