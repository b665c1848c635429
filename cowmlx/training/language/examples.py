"""Examples to train on: JSON lines from memory or a file, in mlx-lm's three forms."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from cowmlx import json_text
from cowmlx.errors import InputOutput, NotFound
from cowmlx.folders.opening import without_waiting
from cowmlx.text.chat_messages import json_type

MAX_LINE = 64 << 20  # bytes
_BOM = b"\xef\xbb\xbf"


def lines(source: bytes | str) -> Iterator[tuple[int, bytes]]:
    """Yield numbers, from 1, and lines of data or of the file with a path.

    A line that is too long is the last one, cut after more than ``MAX_LINE`` bytes: its end may be
    far.

    Raises:
        NotFound, InputOutput: the file is missing, unreadable, or no regular file.
    """
    if isinstance(source, bytes):
        yield from _lines(io.BytesIO(source))
        return
    try:
        descriptor = without_waiting(source)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no such file: {source}", file=source) from None
    except (OSError, ValueError) as exc:
        raise _unreadable(source, exc) from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputOutput(f"cannot read {source}: it is no regular file", file=source)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield from _lines(file)
    except OSError as exc:
        raise _unreadable(source, exc) from exc
    finally:
        os.close(descriptor)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 2):
        number += 1
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(line) > MAX_LINE:
            yield number, line
            return
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _unreadable(path: str, exc: OSError | ValueError) -> InputOutput:
    reason = getattr(exc, "strerror", None) or exc
    return InputOutput(f"cannot read {path}: {reason}", file=path)


MESSAGES, COMPLETION, TEXT = "messages", "prompt and completion", "text"


class Malformed(ValueError):
    """A line is no example; the message says why."""


class Example(NamedTuple):
    """The contents of a line."""

    text: str  # a plain text, or "" for a chat
    messages: list[Any] | None = None  # of a chat, at least one, as objects; None for a plain text
    tools: list[Any] | None = None  # of the chat, or None


def parse(line: bytes) -> Example:
    """Return the example in a line; other keys, such as an id, are ignored.

    Raises:
        Malformed: it is no JSON object of one of the forms.
    """
    if len(line) > MAX_LINE:
        raise Malformed(f"it has more than {MAX_LINE} bytes, and lines after it were not read")
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
        texts = {"user": _text(value, "prompt"), "assistant": _text(value, "completion")}
        messages = [{"role": role, "content": content} for role, content in texts.items()]
        return Example("", messages, tools)
    messages = value["messages"]
    if not isinstance(messages, list) or not messages:
        raise Malformed("messages is no array of at least one message")
    return Example("", messages, tools)


def _form(value: dict[str, Any]) -> str:
    forms = [TEXT] if "text" in value else []
    if "messages" in value:
        forms.append(MESSAGES)
    if "prompt" in value or "completion" in value:
        forms.append(COMPLETION)
    if len(forms) != 1:
        has = " and ".join(forms) or "none of them"
        raise Malformed(f'it must have "messages", "prompt" and "completion", or "text"; has {has}')
    return forms[0]


def _text(value: dict[str, Any], key: str) -> str:
    text = value.get(key)
    if not isinstance(text, str):
        raise Malformed(f"{key} is {'missing' if key not in value else json_type(text)}")
    if not text and key != "prompt":
        raise Malformed(f"{key} is empty")
    return text
