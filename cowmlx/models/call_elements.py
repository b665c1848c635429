"""Tool calls whose arguments are elements: JSON values may spell the tags, and hold large numbers.

Parsers look for the next end tag, and read numbers as floats.
"""

from __future__ import annotations

import json
import re
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# From here on a float may be another number than the integer that it was read from.
_INEXACT = 1 << 53
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
    decoder = json.JSONDecoder(strict=False)
    last = text.rfind(element.after)
    pieces: list[str] = []
    done = 0
    match = element.before.search(text)
    while match is not None:
        begin = end = match.end()
        if text[begin : begin + 1] in tuple(element.begins):
            try:
                end = decoder.raw_decode(text, begin)[1]
            except (ValueError, RecursionError):
                if begin > last:
                    raise ValueError("a value is cut") from None
        value = text[begin:end]
        if any(tag in value for tag in (element.after, *element.ends)) and _closes(
            text, end, element.after
        ):
            pieces += (text[done:begin], value.replace("</", "<\\/"))
            done = end
        match = element.before.search(text, end)
    return "".join((*pieces, text[done:]))


def _closes(text: str, at: int, tag: str) -> bool:
    rest = re.compile(r"\s*").match(text, at)
    return rest is not None and text.startswith(tag, rest.end())


def exact(calls: list[dict[str, Any]], plain: Callable[[], list[dict[str, Any]]]) -> None:
    """Correct the large integers in calls.

    Args:
        calls: with arguments of their types.
        plain: returns the same calls with the texts of arguments.
    """
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
