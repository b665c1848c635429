"""Conversations on disk: messages as JSON, and beside them what the model made of them."""

from __future__ import annotations

import json
import os

from cowmlx import json_text
from cowmlx.commands.chat.errors import ChatError
from cowmlx.host.library import HostError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.commands.chat.conversation import Conversation

MAX_BYTES = 64 << 20
ROLES = ("system", "user", "assistant", "tool")
CACHE = ".cache"  # behind a file's name: the saved context


def save(conversation: Conversation, path: str) -> None:
    """Write a conversation, whole or not at all.

    Raises:
        ChatError: the file cannot be written.
    """
    text = json.dumps({"messages": conversation.messages}, ensure_ascii=False, indent=1)
    try:
        conversation.library.call("context_save", conversation.context, os.fsencode(path + CACHE))
        with open(path + ".partial", "w", encoding="utf-8") as file:
            file.write(text + "\n")
        os.replace(path + ".partial", path)
    except (OSError, ValueError, HostError) as error:
        raise ChatError(f"{path} cannot be written: {error}") from None


def load(conversation: Conversation, path: str) -> bool:
    """Take a saved conversation's place; whether the context came with it.

    Without it, the next answer processes the messages again.

    Raises:
        ChatError: there is none in the file; the conversation is as before.
    """
    try:
        with open(path, "rb") as file:
            text = file.read(MAX_BYTES + 1)
        messages = _messages(json_text.parse(text)) if len(text) <= MAX_BYTES else None
    except (OSError, ValueError) as error:
        raise ChatError(f"{path} cannot be read: {error}") from None
    if messages is None:
        raise ChatError(f"{path} holds no conversation that /save has written")
    cached = True
    try:
        conversation.library.call("context_load", conversation.context, os.fsencode(path + CACHE))
    except HostError:
        cached = False
    conversation.messages = messages
    return cached


def _messages(value: Any) -> list[dict[str, Any]] | None:
    messages = value.get("messages") if isinstance(value, dict) else None
    if not isinstance(messages, list):
        return None
    for each in messages:
        if not isinstance(each, dict) or each.get("role") not in ROLES:
            return None
        if not isinstance(each.get("content"), str):
            return None
    return messages
