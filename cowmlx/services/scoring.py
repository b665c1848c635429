"""The calls that score given tokens: log probabilities, logits, hidden states, perplexity."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.call import keeps_call
from cowmlx.errors import BadState, ContextFull, InvalidArgument, OutOfRange
from cowmlx.generation.params import check_tokens
from cowmlx.generation.scoring import Logits, LogProbs, States, Surprise, steps
from cowmlx.models.embedding import hidden_states_of
from cowmlx.models.image_tokens import whole
from cowmlx.models.images import HOST_IDS, ImageStore
from cowmlx.services.transfers import Preparing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.generation.context import Context
    from cowmlx.models.embedding import HiddenStates
    from cowmlx.services.contexts import Contexts
    from cowmlx.services.runtime import Runtime

_FLOAT = 4  # bytes of a value of a result


class Scores:
    """Scores tokens behind those that contexts hold.

    Args:
        runtime: shared by all services.
        contexts: whose state is copied.
    """

    def __init__(self, runtime: Runtime, contexts: Contexts) -> None:
        self._runtime = runtime
        self._contexts = contexts

    @keeps_call
    def context_prompt_logprobs(self, call: Call, handle: int, tokens: list[int], top: int) -> None:
        """Start scoring tokens; the call ends with their log probabilities."""
        context = self._ready(handle, tokens, "context_prompt_logprobs")
        size = context.model.vocabulary_size
        if not 0 <= top <= size:
            raise OutOfRange("top", top, f"0 to {size}, the size of the vocabulary")
        length = len(tokens) * (1 + top)
        if not call.answer_size(length, length):
            self._run(call, context, self._logprobs(context, tokens, top))

    def _logprobs(
        self, context: Context, tokens: list[int], top: int
    ) -> Generator[None, None, tuple[list[int], list[float]]]:
        reading = LogProbs(tokens, top)
        more = 2 * _FLOAT * len(tokens) * (1 + top)
        yield from steps(context, tokens, reading, self._require, more=more)
        return reading.result()

    @keeps_call
    def context_prompt_logits(
        self, call: Call, handle: int, tokens: list[int], positions: list[int]
    ) -> None:
        """Start processing tokens; the call ends with the logits at some positions."""
        context = self._ready(handle, tokens, "context_prompt_logits")
        if not positions:
            raise InvalidArgument(
                "position_count is 0; choose one position at least",
                reason="missing",
                argument="position_count",
            )
        for index, position in enumerate(positions):
            if not 0 <= position < len(tokens):
                accepted = f"0 to {len(tokens) - 1}"
                raise OutOfRange(f"positions[{index}]", position, accepted)
        length = len(positions) * context.model.vocabulary_size
        if not call.answer_size(length, length):
            self._run(call, context, self._logits(context, tokens, positions))

    def _logits(
        self, context: Context, tokens: list[int], positions: list[int]
    ) -> Generator[None, None, Any]:
        reading = Logits(positions)
        more = 2 * _FLOAT * len(positions) * context.model.vocabulary_size
        yield from steps(context, tokens, reading, self._require, more=more)
        return reading.result()

    @keeps_call
    def context_hidden_states(self, call: Call, handle: int, tokens: list[int]) -> None:
        """Start processing tokens; the call ends with their hidden states."""
        context = self._ready(handle, tokens, "context_hidden_states")

        def start(_: None) -> None:
            try:
                with mx.stream(context.stream()):
                    hidden = hidden_states_of(context.model)
            finally:
                context.settle()
            length = len(tokens) * hidden.dims
            if not call.answer_size(length, length):
                self._run(call, context, self._states(context, tokens, hidden))

        self._runtime.scheduler.add(Preparing(call, context, context.model.read_steps(), start))

    def _states(
        self, context: Context, tokens: list[int], hidden: HiddenStates
    ) -> Generator[None, None, Any]:
        reading = States(len(tokens))
        more = 2 * _FLOAT * len(tokens) * hidden.dims
        yield from steps(context, tokens, reading, self._require, network=hidden, more=more)
        return reading.result()

    @keeps_call
    def context_perplexity(self, call: Call, handle: int, text: str, window: int) -> None:
        """Start scoring a text; the call ends with its perplexity."""
        context = self._idle(handle, "context_perplexity")
        most = context.params.max_tokens
        if window and not 2 <= window <= most:
            raise OutOfRange("window", window, f"0, or 2 to {most}, which this context may hold")
        self._run(call, context, self._perplexity(context, text, window or most))

    def _perplexity(
        self, context: Context, text: str, window: int
    ) -> Generator[None, None, tuple[float, float, int]]:
        tokens = yield from context.model.tokenizer.encode_steps(
            text, add_special=True, parse_special=False
        )
        if len(tokens) < 2:
            raise InvalidArgument(
                f"text has {len(tokens)} tokens, and a perplexity needs 2 at least",
                reason="missing",
                argument="text",
            )
        check_tokens(tokens, context.model)
        surprise = Surprise()
        for start in range(0, len(tokens), window):
            part = tokens[start : start + window]
            if len(part) < 2:
                break
            yield from steps(context, part, surprise.begin(part), self._require, fresh=True)
            surprise.end()
        return surprise.result()

    def _idle(self, handle: int, what: str) -> Context:
        context = self._contexts.idle(handle)
        context.model.require_one_machine(what)
        return context

    def _ready(self, handle: int, tokens: list[int], what: str) -> Context:
        """Return an idle context that has room for tokens.

        Raises:
            InvalidArgument: no tokens, or one outside the vocabulary.
            ContextFull: they do not fit.
            BadState: it holds a part of an image.
        """
        context = self._idle(handle, what)
        if isinstance(context.model.images, ImageStore):
            _refuse_images(tokens)
            _require_whole_images(context.tokens())
        check_tokens(tokens, context.model)
        needed, most = len(context.tokens()) + len(tokens), context.params.max_tokens
        if needed > most:
            raise ContextFull(
                f"with these {len(tokens)} the context would hold {needed} tokens, but it may hold "
                f"{most}",
                needed=needed,
                available=most,
            )
        return context

    def _require(self, size: int) -> None:
        self._runtime.admission.require(size, "scoring")

    def _run(self, call: Call, context: Context, work: Generator[None, None, Any]) -> None:
        self._runtime.scheduler.add(Preparing(call, context, work, call.succeed))


def _require_whole_images(held: list[int]) -> None:
    if len(whole(held)) < len(held):
        raise BadState(
            "the context holds a part of an image, since its prompt was cancelled; begin with the "
            "whole image, then score the text behind it"
        )


def _refuse_images(tokens: list[int]) -> None:
    for position, token in enumerate(tokens):
        if token in HOST_IDS:
            raise InvalidArgument(
                f"tokens[{position}] is {token}, a position of an image, but only text is scored; "
                "begin a prompt that ends with the last image, then score the text behind it",
                argument=f"tokens[{position}]",
                value=token,
            )
