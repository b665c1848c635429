"""Examples to learn from: what a line of data says, in mlx-lm's three forms."""

from __future__ import annotations

from typing import Any, NamedTuple

from cowmlx import json_text
from cowmlx.text.chat_messages import json_type
from cowmlx.training.language.lines import MAX_LINE

MESSAGES, COMPLETION, TEXT = "messages", "prompt and completion", "text"


class Malformed(ValueError):
    """A line is no example; says why."""


class Example(NamedTuple):
    """What a line says.

    Attributes:
        text: a plain text, or "" for a chat.
        messages: of a chat, at least one, as objects; None for a plain text.
        tools: that the chat offers, or None.
    """

    text: str
    messages: list[Any] | None = None
    tools: list[Any] | None = None


def parse(line: bytes) -> Example:
    """Return what a line says; keys of no form, such as an id, are left aside.

    Raises:
        Malformed: it is no JSON object of one of the forms.
    """
    if len(line) > MAX_LINE:
        raise Malformed(f"it has more than {MAX_LINE} bytes")
    if not line.strip():
        raise Malformed("it is empty")
    try:
        value = json_text.parse(line)
    except json_text.Malformed as exc:
        raise Malformed(f"it is no JSON ({exc})") from None
    if not isinstance(value, dict):
        raise Malformed(f"it is {json_type(value)}, not an object")
    form = _form(value)
    if form == TEXT:
        return Example(_text(value, "text"))
    tools = value.get("tools")
    if tools is not None and not (
        isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)
    ):
        raise Malformed("tools is no array of objects")
    if form == COMPLETION:
        said = {"user": _text(value, "prompt"), "assistant": _text(value, "completion")}
        messages = [{"role": role, "content": content} for role, content in said.items()]
        return Example("", messages, tools)
    messages = value["messages"]
    if not isinstance(messages, list) or not messages:
        raise Malformed("messages is no array of at least one message")
    return Example("", messages, tools)


def _form(value: dict[str, Any]) -> str:
    found = [TEXT] if "text" in value else []
    if "messages" in value:
        found.append(MESSAGES)
    if "prompt" in value or "completion" in value:
        found.append(COMPLETION)
    if len(found) != 1:
        told = " and ".join(found) if found else "none of them"
        raise Malformed(
            f'it must have "messages", "prompt" and "completion", or "text"; has {told}'
        )
    return found[0]


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise Malformed(f"{key} is {'missing' if key not in value else json_type(text)}")
    if not text and key != "prompt":
        raise Malformed(f"{key} is empty")
    return text
