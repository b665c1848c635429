"""The calls that generate, and that describe the last generation."""

from __future__ import annotations

from cowmlx.call import keeps_call
from cowmlx.errors import BadState, InvalidArgument, Unsupported
from cowmlx.generation.params import GenerationParams
from cowmlx.generation.waiters import (
    BeginWaiter,
    ChatWaiter,
    GenerateWaiter,
    NextWaiter,
    PollWaiter,
)
from cowmlx.models.embedded import EMBEDDED
from cowmlx.services.conversations import conversation_steps
from cowmlx.services.transfers import Preparing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.cache.sequence import Snapshot
    from cowmlx.call import Call
    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.context import Context
    from cowmlx.generation.pieces import Stats
    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model
    from cowmlx.services.contexts import Contexts
    from cowmlx.services.models import Models
    from cowmlx.services.runtime import Runtime
    from cowmlx.text.chat_options import Conversation


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
        self._start(handle, tokens, fields, call, BeginWaiter(call))

    @keeps_call
    def context_begin_embeddings(
        self, call: Call, handle: int, tokens: list[int], array: int, fields: dict[str, Any]
    ) -> None:
        """Start a generation on a prompt with rows of embeddings among its tokens."""
        from cowmlx.services.embedded_prompts import embedded_prompt  # late: few hosts need it

        context, values = self._contexts.idle(handle), self._contexts.arrays.get(array)

        def start(_: None) -> None:
            prompt = embedded_prompt(context, tokens, values, fields)
            self._start(handle, prompt, fields, call, BeginWaiter(call))

        self._runtime.scheduler.add(Preparing(call, context, context.model.read_steps(), start))

    @keeps_call
    def context_generate(
        self, call: Call, handle: int, tokens: list[int], fields: dict[str, Any]
    ) -> None:
        """Start a generation; the call ends with it."""
        _refuse_logprobs(fields)
        self._start(handle, tokens, fields, call, GenerateWaiter(call))

    @keeps_call
    def context_chat(
        self, call: Call, handle: int, messages: str, fields: dict[str, Any], options: str | None
    ) -> None:
        """Answer a conversation (JSON texts); the call ends with the answer."""
        from cowmlx.generation.chat import ChatAnswer  # late: not every host chats

        context = self._contexts.idle(handle)
        _refuse_logprobs(fields)
        params = GenerationParams(fields)

        def begin(rendered: tuple[list[int], Conversation]) -> None:
            prompt, conversation = rendered
            if not prompt:
                raise InvalidArgument(
                    "the chat template makes nothing of messages_json",
                    reason="missing",
                    argument="messages_json",
                )
            answer = ChatAnswer(context.model, conversation, params)
            waiter = ChatWaiter(call, answer)
            self._begin(context, prompt, params, call, waiter, answer.constraint)
            if answer.note:
                call.note(answer.note)

        steps = conversation_steps(context.model, messages, options, self._runtime)
        try:
            next(steps)
        except StopIteration as stop:
            begin(stop.value)
            return
        self._runtime.scheduler.add(Preparing(call, context, steps, begin))

    def _start(
        self,
        handle: int,
        tokens: list[int],
        fields: dict[str, Any],
        call: Call,
        waiter: Waiter,
    ) -> None:
        context = self._contexts.idle(handle)
        self._begin(context, tokens, GenerationParams(fields), call, waiter)

    def _begin(
        self,
        context: Context,
        tokens: list[int],
        params: GenerationParams,
        call: Call,
        waiter: Waiter,
        constraint: Constrains | None = None,
    ) -> None:
        """Start a generation, behind what the prompt cache on disk knows, and let a call wait."""
        function = call.logits_function
        _check_prompt(tokens, params, function is not None)
        draft = self._models.get(params.draft) if params.draft else None
        if draft is not None:
            draft.require_generation("draft")

        prompt = tokens

        def start(known: Snapshot | None) -> None:
            context.begin(
                prompt,
                params,
                call.cancel_epoch,
                draft,
                constraint,
                known=known,
                logits_function=function,
            )
            if call.round:
                context.outlet.begin(call.round, call.cancel_epoch)
            else:
                context.outlet.clear()  # until this call has ended, others are refused
            context.failure = None
            context.wait(waiter)

        def look() -> None:
            nonlocal prompt
            if min(tokens) < EMBEDDED:
                from cowmlx.services.embedded_prompts import prompt_with_images  # late: few do

                prompt = prompt_with_images(context, tokens, params)
            cache = self._runtime.prompt_cache
            if cache is None or min(prompt) < 0:
                start(None)
            else:
                cache.begin(call, context, prompt, start)

        models = [context.model] if draft is None else [context.model, draft]
        if all(model.is_read for model in models):
            look()
            return
        reading = Preparing(call, context, _read(models), lambda _: look())
        self._runtime.scheduler.add(reading)

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


def _read(models: list[Model]) -> Generator[None, None, None]:
    """Read the weights of models that are on disk."""
    for model in models:
        yield from model.read_steps()


def _check_prompt(tokens: list[int], params: GenerationParams, has_function: bool) -> None:
    if not tokens:
        raise InvalidArgument(
            "count is 0, but a prompt has at least one token",
            reason="missing",
            argument="count",
        )
    if has_function and params.draft_tokens:
        raise Unsupported(
            "logits_fn and draft_tokens exclude each other: a draft is checked in one pass, "
            "before the host could see its tokens",
            reason="conflict",
            argument="logits_fn",
            other="draft_tokens",
        )


def _refuse_logprobs(fields: dict[str, Any]) -> None:
    if fields["logprobs"]:
        raise InvalidArgument(
            f"logprobs is {fields['logprobs']}, but they come with context_next only; leave it at "
            "0",
            reason="conflict",
            argument="logprobs",
        )
