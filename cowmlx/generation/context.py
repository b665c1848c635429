"""A context: a sequence, its stream, and at most one generation and one waiting call."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.sequence import Sequence
from cowmlx.errors import BadState, Canceled, ContextFull, InvalidArgument, Unsupported
from cowmlx.generation.generation import Generation
from cowmlx.generation.params import DEFAULTS, GenerationParams

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model


class ContextParams:
    """What ``cow_mlx_context_params`` says, all of it valid.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: an option that cannot be honoured.
    """

    def __init__(self, fields: dict[str, Any], model: Model) -> None:
        if fields["kv_bits"] or fields["kv_group_size"]:
            raise Unsupported(
                f"kv_bits is {fields['kv_bits']} and kv_group_size {fields['kv_group_size']}: a "
                "quantised cache is not supported yet; leave both at 0"
            )
        self.max_tokens: int = fields["max_tokens"] or model.context_length
        if self.max_tokens > model.context_length:
            raise InvalidArgument(
                f"max_tokens is {self.max_tokens}, but the model's context length is "
                f"{model.context_length}; 0 stands for all of it"
            )
        self.solo: bool = fields["solo"]
        self.priority: int = fields["priority"]


class Context:
    """Owns a sequence and computes on a stream of its own.

    The scheduler calls :meth:`turn`; a call that waits is served by its waiter.
    """

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        stream: mx.Stream,
        cancel_epoch: Callable[[], int],
    ) -> None:
        self.model = model
        self.params = params
        self.stream = stream
        self.sequence = Sequence(model)
        self.generation: Generation | None = None
        self._cancel_epoch = cancel_epoch
        self._waiter: Waiter | None = None
        self._refilling = False
        self._shelved: Generation | None = None  # the host's, while refilling

    @property
    def priority(self) -> int:
        """Whose turn comes first; below 0 only when nobody else wants one."""
        return self.params.priority

    @property
    def finished(self) -> bool:
        """Whether no turn will find anything to do."""
        return self._waiter is None and (self.generation is None or self.generation.ended)

    def require_idle(self) -> None:
        """Raise unless no other call is running here.

        Raises:
            BadState: one is.
        """
        if self._waiter is not None:
            raise BadState(
                "another call is running on this context; wait for it, or cancel it with "
                "context_cancel"
            )

    def begin(self, prompt: list[int], params: GenerationParams, cancel_epoch: int) -> None:
        """Start a generation; an earlier one ends.

        Raises:
            InvalidArgument: no tokens, or one outside the vocabulary.
            ContextFull: the prompt does not fit.
        """
        if not prompt:
            raise InvalidArgument("count is 0; a prompt has at least one token")
        for position, token in enumerate(prompt):
            if not 0 <= token < self.model.vocabulary_size:
                raise InvalidArgument(
                    f"tokens[{position}] is {token}, but the vocabulary has "
                    f"0 to {self.model.vocabulary_size - 1}"
                )
        if len(prompt) > self.params.max_tokens:
            raise ContextFull(
                f"the prompt has {len(prompt)} tokens, but this context holds "
                f"{self.params.max_tokens}"
            )
        with mx.stream(self.stream):
            self.end_generation()
            self.generation = Generation(
                self.model, self.sequence, prompt, params, self.params.max_tokens, cancel_epoch
            )

    def refill(self, kept: list[int], cancel_epoch: int) -> None:
        """Hold ``kept`` instead of what is held, by processing it; a call must wait for that.

        The host's generation, which has ended, comes back afterwards.
        """
        host_generation = self.generation
        self.begin(kept, GenerationParams({**DEFAULTS, "max_tokens": 0}), cancel_epoch)
        self._shelved, self._refilling = host_generation, True

    def end_generation(self, discard: bool = False) -> None:
        """Cancel what is under way; with ``discard``, pieces that wait are lost too."""
        if self.generation is not None:
            self.generation.cancel()
            if discard:
                self.generation.outbox.clear()

    def wait(self, waiter: Waiter) -> None:
        """Let a call wait here. It is served at once if it can be."""
        self._waiter = waiter
        self._serve()

    def turn(self) -> bool:
        """Serve the call that waits, and step if it, or running ahead, wants it.

        Returns:
            whether there was anything to do.
        """
        generation = self.generation
        if generation is None:
            return False
        try:
            served = self._serve()
            if not self._wants_step(generation):
                return served
            with mx.stream(self.stream):
                if generation.prefilling:
                    generation.prefill()
                else:
                    generation.decode()
        except BaseException as error:  # ends this generation, and nothing else
            generation.fail(error)
        self._serve()
        return True

    def reset(self) -> None:
        """Forget every token and the generation."""
        self.generation = None
        self.sequence.reset()

    def abandon(self, reason: str) -> None:
        """End the generation and the call that waits: the context is going away."""
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            waiter.call.fail(Canceled(reason))
        self.reset()

    def _wants_step(self, generation: Generation) -> bool:
        if generation.ended:
            return False
        if self._waiter is not None and self._waiter.hungry(generation):
            return True
        return not generation.prefilling and generation.can_run_ahead

    def _serve(self) -> bool:
        """Let the waiting call take what there is; true if it has ended."""
        waiter, generation = self._waiter, self.generation
        if generation is None:
            return False
        if self._cancel_epoch() != generation.cancel_epoch:
            generation.cancel()
        if waiter is None or not waiter.advance(generation):
            return False
        self._waiter = None
        if self._refilling:
            self.generation, self._refilling = self._shelved, False
        return True

    def info(self) -> dict[str, Any]:
        """Return what ``context_info`` tells."""
        generation = self.generation
        return {
            "max_tokens": self.params.max_tokens,
            "kv_bits": 0,
            "solo": self.params.solo,
            "priority": self.params.priority,
            "tokens": len(self.tokens()),
            "bytes": self.sequence.nbytes,
            "generating": generation is not None and not generation.over,
            "prompt": generation.stats.prompt_tokens if generation else 0,
            "reused": generation.stats.reused_tokens if generation else 0,
            "recomputed": generation.recomputed if generation else 0,
            "rebuilt": generation.rebuilt if generation else None,
        }

    def tokens(self) -> list[int]:
        """Return the tokens held, but for those that the host has not been given yet."""
        unseen = self.generation.unseen if self.generation is not None else 0
        return self.sequence.tokens[: len(self.sequence.tokens) - unseen]
