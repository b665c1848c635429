"""A conversation with a model: its messages, and the context that holds them."""

from __future__ import annotations

import json
from ctypes import byref, c_size_t, sizeof

from cowmlx import json_text
from cowmlx.host.generated import declarations as abi
from cowmlx.host.library import Callbacks, HostError, Library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # Receives the kind of an event, its text and the tool's name; false cancels the answer.
    OnEvent = Callable[[int, str, str], bool]
    # Receives how many tokens of the prompt are processed, and of how many; false cancels.
    OnPrompt = Callable[[int, int], bool]

WHOLE_WINDOW = c_size_t(-1).value


class Answer:
    """What came of one prompt.

    Attributes:
        text: what was said.
        reasoning: what was thought before.
        calls: names and arguments of the tools that are to be called.
        cancelled: whether the user has ended it.
        finish: why it ended: one of FINISH_; 0 where it was cancelled.
        stats: sizes and times.
    """

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[tuple[str, Any]] = []
        self.cancelled = False
        self.finish = 0
        self.stats = abi.cow_mlx_stats(struct_size=sizeof(abi.cow_mlx_stats))

    def message(self) -> dict[str, Any]:
        """Return it as a message of the conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.text}
        if self.calls:
            message["tool_calls"] = [
                {"type": "function", "id": str(at), "function": {"name": name, "arguments": given}}
                for at, (name, given) in enumerate(self.calls)
            ]
        return message


class Conversation:
    """Messages, and a context that holds those which were answered.

    Args:
        library: makes the calls.
        context: its handle, which belongs to the conversation.
        sampling: members of ``cow_mlx_generation_params``; the seed is that of the first answer.
        options: of the chat, such as tools.
        messages: those so far.
    """

    def __init__(
        self,
        library: Library,
        context: int,
        sampling: dict[str, Any],
        options: dict[str, Any],
        messages: list[dict[str, Any]],
    ):
        self.library = library
        self.context = context
        self.sampling = sampling
        self.options = options
        self.messages = messages
        self.last: Answer | None = None
        self._answers = 0

    def say(self, text: str) -> None:
        """Add what the user says."""
        self.messages.append({"role": "user", "content": text})

    def tell(self, name: str, result: str, number: int) -> None:
        """Add what a tool has given."""
        self.messages.append(
            {"role": "tool", "name": name, "tool_call_id": str(number), "content": result}
        )

    def set_system(self, text: str) -> None:
        """Replace the system's message; "" takes it away."""
        rest = self.messages[1:] if self.has_system() else self.messages
        self.messages = [*([{"role": "system", "content": text}] if text else []), *rest]

    def has_system(self) -> bool:
        """Whether the first message is the system's."""
        return bool(self.messages) and self.messages[0]["role"] == "system"

    def take_back(self) -> bool:
        """Drop all behind the user's last message; false if there is none."""
        for at in reversed(range(len(self.messages))):
            if self.messages[at]["role"] == "user":
                del self.messages[at + 1 :]
                return True
        return False

    def answer(self, on_event: OnEvent, on_prompt: OnPrompt) -> Answer:
        """Answer the messages so far, and keep what came, also of an answer that was cancelled.

        Raises:
            HostError: the model cannot answer; the messages are as before.
            Exception: what a callback has raised; the messages are as before.
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
        self.messages.append(answer.message())
        return answer

    def fork(self) -> Conversation:
        """Return another conversation that goes on from here; both share what was processed."""
        context = self.library.opened("context_fork", self.context)
        return Conversation(
            self.library, context, self.sampling, self.options, [*map(dict, self.messages)]
        )

    def info(self) -> dict[str, Any]:
        """Return what the library tells of the context."""
        told: dict[str, Any] = self.library.described("context_info", self.context)
        return told
