"""The calls that generate, and that describe the last generation."""

from __future__ import annotations

from cowmlx.call import keeps_call
from cowmlx.errors import BadState, InvalidArgument
from cowmlx.generation.params import GenerationParams
from cowmlx.generation.waiters import (
    BeginWaiter,
    ChatWaiter,
    GenerateWaiter,
    NextWaiter,
    PollWaiter,
)
from cowmlx.services.models import read_conversation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.generation.context import Context
    from cowmlx.generation.pieces import Stats
    from cowmlx.generation.sampling.sampler import Constrains
    from cowmlx.services.contexts import Contexts
    from cowmlx.services.models import Models
    from cowmlx.services.runtime import Runtime


class Generations:
    """Starts generations on contexts, and lets calls wait for them.

    Args:
        runtime: shared by all services.
        models: the draft models.
        contexts: what is generated on.
    """

    def __init__(self, runtime: Runtime, models: Models, contexts: Contexts) -> None:
        self._runtime = runtime
        self._models = models
        self._contexts = contexts

    @keeps_call
    def context_begin(
        self, call: Call, handle: int, tokens: list[int], fields: dict[str, Any]
    ) -> None:
        """Start a generation; the call ends when the prompt is processed."""
        self._start(handle, tokens, fields, call).wait(BeginWaiter(call))

    @keeps_call
    def context_generate(
        self, call: Call, handle: int, tokens: list[int], fields: dict[str, Any]
    ) -> None:
        """Start a generation; the call ends with it."""
        _refuse_logprobs(fields)
        self._start(handle, tokens, fields, call).wait(GenerateWaiter(call))

    @keeps_call
    def context_chat(
        self, call: Call, handle: int, messages: str, fields: dict[str, Any], options: str | None
    ) -> None:
        """Answer a conversation (JSON texts); the call ends with the answer."""
        from cowmlx.generation.chat import ChatAnswer  # late: not every host chats

        context = self._contexts.idle(handle)
        _refuse_logprobs(fields)
        params = GenerationParams(fields)
        conversation = read_conversation(context.model, messages, options)

        def begin(prompt: list[int]) -> None:
            if not prompt:
                raise InvalidArgument(
                    "the chat template makes nothing of messages_json",
                    reason="missing",
                    argument="messages_json",
                )
            answer = ChatAnswer(context.model, conversation, params)
            self._begin(context, prompt, params, call, answer.constraint)
            context.wait(ChatWaiter(call, answer.splitter))

        steps = conversation.prompt_steps()
        try:
            next(steps)
        except StopIteration as stop:
            begin(stop.value)
            return
        from cowmlx.services.saving import PromptTokenizing  # late: most prompts are short

        self._runtime.scheduler.add(PromptTokenizing(call, context, steps, begin))

    def _start(self, handle: int, tokens: list[int], fields: dict[str, Any], call: Call) -> Context:
        context = self._contexts.idle(handle)
        self._begin(context, tokens, GenerationParams(fields), call)
        return context

    def _begin(
        self,
        context: Context,
        tokens: list[int],
        params: GenerationParams,
        call: Call,
        constraint: Constrains | None = None,
    ) -> None:
        if not tokens:
            raise InvalidArgument(
                "count is 0, but a prompt has at least one token",
                reason="missing",
                argument="count",
            )
        draft = self._models.get(params.draft) if params.draft else None
        context.begin(tokens, params, call.cancel_epoch, draft, constraint)
        context.outlet.begin(call.round, call.cancel_epoch)
        context.failure = None

    @keeps_call
    def context_poll(self, call: Call, handle: int, timeout_ms: int) -> None:
        """Wait until a piece is there, or none will come."""
        context = self._contexts.idle(handle)
        if context.generation is None:
            raise BadState("nothing to wait for; call context_begin first", reason="nothing_begun")
        context.wait(PollWaiter(call, timeout_ms))

    @keeps_call
    def context_next(self, call: Call, handle: int) -> None:
        """Wait for one piece of a generation."""
        context = self._contexts.idle(handle)
        if context.generation is None:
            raise BadState("nothing to generate; call context_begin first", reason="nothing_begun")
        context.wait(NextWaiter(call))

    def context_logprobs(self, handle: int) -> tuple[list[int], list[float]]:
        """Return the most probable tokens where the last piece was chosen."""
        generation = self._contexts.get(handle).generation
        piece = generation.last if generation is not None else None
        if piece is None:
            raise BadState(
                "no piece has been delivered; call context_next first", reason="nothing_there"
            )
        if piece.top is None:
            raise BadState("this generation was begun with logprobs 0", reason="nothing_there")
        return [token for token, _ in piece.top], [value for _, value in piece.top]

    def context_stats(self, handle: int) -> Stats:
        """Return the sizes and times of a context's last generation."""
        generation = self._contexts.get(handle).generation
        if generation is None:
            raise BadState(
                "nothing has begun on this context; call context_begin first",
                reason="nothing_begun",
            )
        return generation.stats


def _refuse_logprobs(fields: dict[str, Any]) -> None:
    if fields["logprobs"]:
        raise InvalidArgument(
            f"logprobs is {fields['logprobs']}, but they come with context_next only; leave it at "
            "0",
            reason="conflict",
            argument="logprobs",
        )
