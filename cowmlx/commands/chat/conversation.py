"""A conversation with a model: its messages, the context that holds them, and both on disk."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable
from contextlib import suppress
from ctypes import byref, c_size_t, sizeof
from dataclasses import dataclass, field
from typing import Any

from cowmlx import json_text
from cowmlx.host.generated import declarations as abi
from cowmlx.host.library import Callbacks, HostError, Library

# Receives the kind of an event, its text and the tool's name; false cancels the answer.
OnEvent = Callable[[int, str, str], bool]

# Receives how many tokens of the prompt are processed, and of how many; false cancels.
OnPrompt = Callable[[int, int], bool]

WHOLE_WINDOW = c_size_t(-1).value


class ChatError(Exception):
    """A command of the chat that cannot be carried out; the message says why."""


@dataclass
class Answer:
    """The answer to one prompt."""

    text: str = ""  # without the reasoning
    reasoning: str = ""
    calls: list[tuple[str, Any]] = field(default_factory=list)  # names and arguments of tools
    cancelled: bool = False  # by the user
    finish: int = 0  # one of FINISH_; 0 where it was cancelled
    stats: Any = field(
        default_factory=lambda: abi.cow_mlx_stats(struct_size=sizeof(abi.cow_mlx_stats))
    )

    def message(self, earlier: int) -> dict[str, Any]:
        """Return it as a message of a conversation, in which there are so many earlier calls."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.reasoning:
            message["reasoning_content"] = self.reasoning
        if self.calls:
            # Mistral's templates ask for nine letters and digits.
            message["tool_calls"] = [
                {
                    "type": "function",
                    "id": f"{number:09d}",
                    "function": {"name": name, "arguments": given},
                }
                for number, (name, given) in enumerate(self.calls, earlier)
            ]
        return message


@dataclass
class Conversation:
    """Messages, and a context that holds those which were answered."""

    library: Library
    context: int  # a handle, which belongs to the conversation
    sampling: dict[str, Any]  # of cow_mlx_generation_params, with the seed of the first answer
    options: dict[str, Any]  # of the chat, such as tools
    messages: list[dict[str, Any]]
    last: Answer | None = None
    images: list[str] = field(default_factory=list)  # of the next message: data: URLs
    _answers: int = 0

    def say(self, text: str) -> None:
        """Add a message of the user, with the images that wait for it."""
        parts = [{"type": "image_url", "image_url": {"url": url}} for url in self.images]
        content = [*parts, {"type": "text", "text": text}] if parts else text
        self.images = []
        self.messages.append({"role": "user", "content": content})

    def add_image(self, file: bytes) -> dict[str, Any]:
        """Add an image to the next message; returns what the library says of it.

        Raises:
            HostError: it cannot be decoded.
        """
        media = self.library.opened("media_from_file", file, len(file))
        try:
            about: dict[str, Any] = self.library.described("media_info", media)
        finally:
            self.library.call("media_free", media)
        self.images.append("data:;base64," + base64.b64encode(file).decode())
        return about

    def add_result(self, name: str, result: str, number: int) -> None:
        """Add the result of a tool, of the call with that number in the last answer."""
        calls = next(m["tool_calls"] for m in reversed(self.messages) if m.get("tool_calls"))
        call = calls[number]["id"]
        self.messages.append(
            {"role": "tool", "name": name, "tool_call_id": call, "content": result}
        )

    def set_system(self, text: str) -> None:
        """Replace the system message; "" removes it."""
        rest = self.messages[1:] if self.has_system() else self.messages
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    def has_system(self) -> bool:
        """Whether the first message is the system message."""
        return bool(self.messages) and self.messages[0]["role"] == "system"

    def take_back(self) -> bool:
        """Drop all messages after the user's last one; false if there is none."""
        for at in reversed(range(len(self.messages))):
            if self.messages[at]["role"] == "user":
                del self.messages[at + 1 :]
                return True
        return False

    def answer(self, on_event: OnEvent, on_prompt: OnPrompt) -> Answer:
        """Answer the messages; the answer joins them, even if it was cancelled.

        Raises:
            HostError: the model cannot answer; the messages stay as they are.
            Exception: of a callback; the messages stay as they are.
        """
        answer = Answer()
        callbacks = Callbacks()

        def take(event: Any) -> bool:
            kind, text = event.contents.kind, event.contents.text.decode()
            name = event.contents.name.decode()
            if kind == abi.EVENT_TEXT:
                answer.text += text
            elif kind == abi.EVENT_REASONING:
                answer.reasoning += text
            elif kind == abi.EVENT_TOOL_CALL:
                answer.calls.append((name, json_text.parse(text)))
            elif kind == abi.EVENT_END:
                answer.finish = event.contents.finish
            return on_event(kind, text, name)

        sampling = {**self.sampling, "seed": (self.sampling["seed"] + self._answers) % 2**64}
        params = self.library.params(
            "generation",
            callbacks,
            max_tokens=WHOLE_WINDOW,
            prompt_progress=on_prompt,
            **sampling,
        )
        text = json.dumps(self.messages).encode()
        options = json.dumps(self.options).encode() if self.options else None
        self._answers += 1
        try:
            self.library.call(
                "context_chat",
                self.context,
                text,
                len(text),
                byref(params),
                options,
                callbacks.wrap(abi.cow_mlx_event_fn, take),
                None,
                byref(answer.stats),
            )
        except HostError as error:
            callbacks.reraise()
            if error.status != abi.ECANCELED:
                raise
            answer.cancelled = True
            self.library.call("context_stats", self.context, byref(answer.stats))
        self.last = answer
        earlier = sum(len(message.get("tool_calls") or ()) for message in self.messages)
        self.messages.append(answer.message(earlier))
        return answer

    def fork(self) -> Conversation:
        """Return another conversation that continues from here; both share the processed tokens."""
        context = self.library.opened("context_fork", self.context)
        return Conversation(
            self.library, context, self.sampling, self.options, [*map(dict, self.messages)]
        )

    def info(self) -> dict[str, Any]:
        """Return the facts of ``context_info``."""
        info: dict[str, Any] = self.library.described("context_info", self.context)
        return info


MAX_BYTES = 64 << 20
ROLES = ("system", "user", "assistant", "tool")
CACHE = ".cache"  # behind a file's name: the saved context
PARTIAL = ".partial"  # behind a name: a file that is being written


def save(conversation: Conversation, path: str) -> None:
    """Write a conversation, whole or not at all.

    Raises:
        ChatError: the file cannot be written.
    """
    text = json.dumps({"messages": conversation.messages}, ensure_ascii=False, indent=1)
    fresh, cache = path + PARTIAL, path + CACHE
    try:
        with open(fresh, "w", encoding="utf-8") as file:
            file.write(text + "\n")
        cached = _save_cache(conversation, cache + PARTIAL)
        os.replace(fresh, path)
        if cached:
            os.replace(cache + PARTIAL, cache)
        else:  # the old one is of other messages
            with suppress(FileNotFoundError):
                os.remove(cache)
    except (OSError, ValueError, HostError) as error:
        raise ChatError(f"{path} cannot be written: {error}") from None
    finally:
        for partial in (fresh, cache + PARTIAL):
            with suppress(OSError, ValueError):
                os.remove(partial)


def _save_cache(conversation: Conversation, path: str) -> bool:
    try:
        conversation.library.call("context_save", conversation.context, os.fsencode(path))
    except HostError as error:
        if error.status != abi.EUNSUPPORTED:  # of a context that holds images
            raise
        return False
    return True


def load(conversation: Conversation, path: str) -> bool:
    """Load a saved conversation; returns whether its context could be loaded, too.

    Without the context, the next answer processes the messages again.

    Raises:
        ChatError: the file holds none; the conversation stays as it is.
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
    for message in messages:
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            return None
        if not isinstance(message.get("content"), str | list):
            return None
    return messages
