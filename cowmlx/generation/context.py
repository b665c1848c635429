"""A context: a sequence, its stream, and at most one generation and one waiting call."""

from __future__ import annotations

import math

import mlx.core as mx

from cowmlx import _constants as constants
from cowmlx import _defaults as defaults
from cowmlx.cache.layers import KVQuantization
from cowmlx.cache.sequence import Sequence, common_prefix
from cowmlx.cache.trimming import can_trim_all, shorten
from cowmlx.cache.window import RollingWindow
from cowmlx.errors import BadState, ContextFull, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generation.drafting import DraftModel, PromptLookup
from cowmlx.generation.generation import PREFILL_CHUNK, SMALL_CHUNK, Generation
from cowmlx.generation.lane import known_why_not
from cowmlx.generation.params import GenerationParams
from cowmlx.generation.wake import WakeDescriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.cache.snapshot import Snapshot
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.generation import Constrains
    from cowmlx.generation.lane import Lane, Lanes
    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model

_OVERFLOWS = {constants.OVERFLOW_STOP: "stop", constants.OVERFLOW_ROLL: "roll"}


class ContextParams:
    """What ``cow_mlx_context_params`` says, all of it valid.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: an option that the model cannot honour.
    """

    def __init__(self, fields: dict[str, Any], model: Model) -> None:
        self.max_tokens: int = fields["max_tokens"] or model.context_length
        if self.max_tokens > model.context_length:
            raise InvalidArgument(
                f"max_tokens is {self.max_tokens}, but the model's context length is "
                f"{model.context_length}; 0 stands for all of it",
                argument="max_tokens",
                value=self.max_tokens,
                accepted=f"{model.context_length}",
            )
        self.solo: bool = fields["solo"]
        self.priority: int = fields["priority"]
        self.share_prefix: bool = fields["share_prefix"]
        self.overflow: int = fields["overflow"]
        self.keep_tokens: int = fields["keep_tokens"]
        if self.overflow not in _OVERFLOWS:
            known = " or ".join(f"{value} ({name})" for value, name in _OVERFLOWS.items())
            raise OutOfRange("overflow", self.overflow, known)
        self.rolling: RollingWindow | None = None
        if self.overflow == constants.OVERFLOW_ROLL:
            if self.keep_tokens >= self.max_tokens:
                raise OutOfRange("keep_tokens", self.keep_tokens, f"less than {self.max_tokens}")
            self.rolling = RollingWindow(self.max_tokens, self.keep_tokens)
        elif self.keep_tokens:
            raise InvalidArgument(
                f"keep_tokens is {self.keep_tokens}, but nothing is dropped where overflow is "
                f"{constants.OVERFLOW_STOP}; leave it at 0",
                reason="conflict",
                argument="keep_tokens",
                other="overflow",
            )
        self.kv = KVQuantization(model, fields["kv_bits"], fields["kv_group_size"])


class Reuse:
    """What a begin found done already.

    Attributes:
        shared: tokens that another context had processed.
        first_difference: index of the first token that was not as held, or None.
        rebuilt: why nothing held could be kept, or None.
    """

    def __init__(self, shared: int, first_difference: int | None, rebuilt: str | None) -> None:
        self.shared = shared
        self.first_difference = first_difference
        self.rebuilt = rebuilt


class Context:
    """Owns a sequence, and has a stream of its own while it has work.

    The scheduler calls :meth:`turn`; a call that waits is served by its waiter.

    Args:
        model: without an adapter.
        params: of the context.
        lanes: where it works.
        cancel_epoch: how often it has been cancelled.
        prefixes: what the model's contexts share.
    """

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        lanes: Lanes,
        cancel_epoch: Callable[[], int],
        prefixes: SharedPrefixes,
    ) -> None:
        self.base = model
        self.model = model  # the base, or that with an adapter
        self.adapter: int | None = None  # its handle, for the host; it may be closed by now
        self.params = params
        self._lanes = lanes
        self._stream: mx.Stream | None = None  # while it has work
        self.prefixes = prefixes
        self.sequence = Sequence(model.network, params.kv.maker(model))
        self.generation: Generation | None = None
        self.cancel_epoch = cancel_epoch
        self.failure: dict[str, Any] | None = None  # of a call, since a generation last started
        self._reuse = Reuse(0, None, None)
        self._dropped = 0  # tokens that the last prompt lost at its front
        self._draft: tuple[int, Sequence] | None = None  # serial of the draft model, its state
        self.lane: Lane | None = None  # the contexts that it may be batched with, likewise
        # Why it is never batched, or None; a lane may find out later.
        self.alone: str | None = "solo" if params.solo else None
        self._carried = False  # another context's turn was one of its own, too
        self.wanted = False  # a piece shall be there before anybody asks for it
        self._wake: WakeDescriptor | None = None
        self._waiter: Waiter | None = None
        self._occupied = False
        self._refilling = False
        # The host's, while refilling.
        self._shelved: tuple[Generation | None, Reuse, int] = None, self._reuse, 0

    @property
    def priority(self) -> int:
        """Whose turn comes first; below 0 only when nobody else wants one."""
        return self.params.priority

    @property
    def finished(self) -> bool:
        """Whether no turn will find anything to do."""
        return self._waiter is None and (self.generation is None or self.generation.ended)

    # ----------------------------------------------------------- One at a time

    def require_idle(self) -> None:
        """Raise unless no other call is running here.

        Raises:
            BadState: one is.
        """
        if self._waiter is not None or self._occupied:
            raise BadState(
                "another call is running on this context; wait for it, or cancel it with "
                "context_cancel",
                reason="context_busy",
            )

    def occupy(self) -> None:
        """Keep other calls out until :meth:`release`: something else works for a call."""
        self._occupied = True

    def release(self) -> None:
        """Let calls in again."""
        self._occupied = False
        self.settle()

    # ----------------------------------------------------------------- Its stream

    def stream(self) -> mx.Stream:
        """Return the stream to work on, which is the context's until :meth:`settle`.

        Raises:
            OutOfMemory: its thread cannot be started; nothing has changed.
        """
        if self._stream is None:
            self._stream = self._lanes.enter(self)
        return self._stream

    def settle(self) -> None:
        """Give the stream back if no work is left, and nothing that still has to compute on it."""
        stream = self._stream
        if stream is None or self._occupied or not self.finished:
            return
        try:
            with mx.stream(stream):
                self.sequence.settle()
                if self._draft is not None:
                    self._draft[1].settle()
                if self.generation is not None:
                    self.generation.settle()
        except BaseException as error:
            self.fail(error)
            self.sequence.reset()
        self._leave()

    def _leave(self) -> None:
        """Give the stream back, whatever becomes of what was computed on it."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._lanes.exit(self, stream)

    # ---------------------------------------------------------------- Beginning

    def begin(
        self,
        prompt: list[int],
        params: GenerationParams,
        cancel_epoch: int,
        draft: Model | None = None,
        constraint: Constrains | None = None,
    ) -> None:
        """Start a generation; an earlier one ends.

        Args:
            prompt: all tokens.
            params: of the generation.
            cancel_epoch: how often the context had been cancelled when the call was made.
            draft: the model that guesses ahead.
            constraint: what the output must match; without it that is the grammar of params.

        Raises:
            InvalidArgument: no tokens, or one outside the vocabulary.
            ContextFull: the prompt does not fit.
            Unsupported: an option that the model cannot honour.
            InputOutput: the model's weights, left on disk by a lazy load, cannot be read.
            OutOfMemory: no thread can be started to work on; nothing has changed.
        """
        self._check(prompt, params)
        rolling, dropped = self.params.rolling, 0
        if rolling is not None:
            dropped, prompt = rolling.dropped(len(prompt)), rolling.cut(prompt)
        self.model.read_weights()
        if draft is not None:
            draft.read_weights()
        try:
            with mx.stream(self.stream()):
                constraint = self._constraint(params, constraint)
                drafter = self._drafter(params, draft)
                self.end_generation()
                self._dropped = dropped
                self._reuse = self._reuse_for(prompt)
                self.generation = Generation(
                    self.model,
                    self.sequence,
                    prompt,
                    params,
                    self.params.max_tokens,
                    cancel_epoch,
                    rolling=rolling,
                    constraint=constraint,
                    drafter=drafter,
                    on_prompt=self._share if self.params.share_prefix else None,
                )
        finally:
            self.settle()  # if nothing has begun

    def _check(self, prompt: list[int], params: GenerationParams) -> None:
        size = self.model.vocabulary_size
        if not prompt:
            raise InvalidArgument(
                "count is 0; a prompt has at least one token", reason="missing", argument="count"
            )
        for position, token in enumerate(prompt):
            if not 0 <= token < size:
                raise InvalidArgument(
                    f"tokens[{position}] is {token}, but the vocabulary has 0 to {size - 1}",
                    argument=f"tokens[{position}]",
                    value=token,
                    accepted=f"0 to {size - 1}",
                )
        for token in params.bias:
            if not 0 <= token < size:
                raise InvalidArgument(
                    f"bias_tokens has {token}, but the vocabulary has 0 to {size - 1}",
                    argument="bias_tokens",
                    value=token,
                    accepted=f"0 to {size - 1}",
                )
        forbidden = sum(value == -math.inf for value in params.bias.values())
        if forbidden == size:
            raise InvalidArgument(
                f"bias_values forbids all {size} tokens of the vocabulary; one at least must stay",
                argument="bias_values",
            )
        if params.logprobs > size:
            raise InvalidArgument(
                f"logprobs is {params.logprobs}, but the vocabulary has {size} tokens",
                argument="logprobs",
                value=params.logprobs,
            )
        if self.params.rolling is None and len(prompt) > self.params.max_tokens:
            raise ContextFull(
                f"the prompt has {len(prompt)} tokens, but this context holds "
                f"{self.params.max_tokens}",
                needed=len(prompt),
                available=self.params.max_tokens,
            )

    def _constraint(self, params: GenerationParams, given: Constrains | None) -> Constrains | None:
        if params.grammar is None and given is None:
            return None
        from cowmlx.generation.grammar import Constraint  # late: few generations need it

        if params.draft_tokens:
            named = "grammar" if params.grammar is not None else "tool_choice"
            raise Unsupported(
                f"{named} and draft_tokens exclude each other: guesses are not checked against a "
                "grammar",
                reason="conflict",
                argument=named,
                other="draft_tokens",
            )
        if given is not None:
            return given
        assert params.grammar is not None
        return Constraint.of(self.model, params.grammar, params.grammar_kind)

    def _drafter(self, params: GenerationParams, draft: Model | None) -> Drafter | None:
        if not params.draft_tokens:
            return None
        for model in (self.model, draft) if draft is not None else (self.model,):
            if not can_trim_all(model.make_cache()):
                raise Unsupported(
                    f"draft_tokens is {params.draft_tokens}, but the cache of a "
                    f"{model.architecture} model cannot drop wrong guesses",
                    argument="draft_tokens",
                    value=params.draft_tokens,
                )
        if draft is None:
            return PromptLookup()
        if draft.vocabulary_size != self.model.vocabulary_size:
            raise InvalidArgument(
                f"the draft model's vocabulary has {draft.vocabulary_size} tokens, this one's "
                f"{self.model.vocabulary_size}; they must be the same",
                argument="draft",
            )
        if self._draft is None or self._draft[0] != draft.serial:
            self._draft = draft.serial, Sequence(draft.network, draft.make_cache)
        return DraftModel(draft, self._draft[1], params)

    @property
    def _kind(self) -> tuple[int, int, int]:
        """Whose snapshots fit this context's sequence."""
        return self.model.serial, self.params.kv.bits, self.params.kv.group_size

    def _reuse_for(self, prompt: list[int]) -> Reuse:
        """Keep, or take from the shared prompts, what a prompt begins with."""
        held = self.sequence.tokens
        common = common_prefix(held, prompt)
        difference = common if common < min(len(held), len(prompt)) else None
        if self.params.share_prefix:
            own = self.sequence.reusable(prompt)
            shared = self.prefixes.longest(self._kind, prompt[:-1], own)
            if shared is not None:
                self.sequence.restore(shared)
                return Reuse(len(shared.tokens), difference, None)
        return Reuse(0, difference, self.sequence.keep_prefix(prompt))

    def _share(self) -> None:
        """Leave the prompt so far for the model's other contexts."""
        sequence = self.sequence
        if self.prefixes.wants(sequence.tokens, 0):
            snapshot = sequence.snapshot()
            assert snapshot is not None
            for layer in snapshot.layers:
                shorten(layer)
            mx.async_eval([layer.state for layer in snapshot.layers])
            self.prefixes.add(self._kind, snapshot)

    def trim(self, kept: list[int], cancel_epoch: int) -> bool:
        """Hold ``kept`` of what is held: in place (true), or by processing it, which takes turns.

        The host's generation, which has ended, comes back afterwards.

        Raises:
            OutOfMemory: no thread can be started to work on; nothing has changed.
        """
        self.stream()
        try:
            self.end_generation(discard=True)
            if self.sequence.trim_to_prefix(kept):
                return True
            shelved = self.generation, self._reuse, self._dropped
            params = GenerationParams({**defaults.GENERATION, "max_tokens": 0})
            self.begin(kept, params, cancel_epoch)
            self._shelved, self._refilling = shelved, True
            return False
        finally:
            self.settle()

    def end_generation(self, discard: bool = False) -> None:
        """Cancel what is under way; with ``discard``, pieces that wait are lost too."""
        if self.generation is not None:
            if discard:
                self.generation.forget()
            else:
                self.generation.cancel()

    # ----------------------------------------------------------- What is held

    def snapshot(self) -> Snapshot:
        """Return what the host knows to be held.

        Raises:
            BadState: the layers hold a token that the host has not taken, and cannot drop it.
        """
        with mx.stream(self._stream or self._lanes.idle_stream):
            snapshot = self.sequence.snapshot(len(self.tokens()))
        if snapshot is None:
            raise BadState(
                "a piece of this context's generation waits for its host; take it with "
                "context_next first",
                reason="piece_waiting",
            )
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Hold what a snapshot holds; a generation under way ends."""
        self.end_generation(discard=True)
        self.sequence.restore(snapshot)
        self.settle()

    def set_model(self, model: Model) -> None:
        """Go on with other weights; tokens that these have not processed are forgotten."""
        if model.serial == self.model.serial:
            return
        sequence = Sequence(model.network, self.params.kv.maker(model))
        self.reset()
        self.model = model
        self.sequence = sequence

    def logits(self) -> mx.array:
        """Return (V,) float32 behind the last token that the host knows to be held.

        Raises:
            BadState: nothing has been processed.
        """
        logits = self.generation.logits if self.generation is not None else None
        if logits is None:
            raise BadState(
                "there are no logits: nothing was processed since the context changed; call "
                "context_begin first",
                reason="nothing_there",
            )
        with mx.stream(self._stream or self._lanes.idle_stream):
            flat = mx.contiguous(logits[0].astype(mx.float32))
            mx.eval(flat)
        return flat

    # -------------------------------------------------------------------- Turns

    def wake_fd(self) -> int:
        """Return a descriptor that is readable while there is something to take."""
        if self._wake is None:
            self._wake = WakeDescriptor()
            self._show_wake()
        return self._wake.fd()

    def _show_wake(self, ready: bool | None = None) -> None:
        if self._wake is not None:
            generation = self.generation
            if ready is None:
                ready = generation is not None and bool(generation.outbox or generation.ended)
            self._wake.show(ready)

    def wait(self, waiter: Waiter) -> None:
        """Let a call wait here. It is served at once if it can be."""
        self._waiter = waiter
        self.attend()

    def attend(self) -> bool:
        """Serve the call that waits, without a step: a cancel or a deadline ends it.

        Returns:
            whether a call has ended.
        """
        try:
            served = self._serve()
        except BaseException as error:  # ends this generation and this call, and nothing else
            self._give_up(error)
            served = True
        self.settle()
        return served

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
            carried, self._carried = self._carried, False
            wants = self._wants_step(generation)
            if carried or not wants:
                self.settle()
                return served or wants  # who is passed over wants another turn
            together = self.lane.step(self) if self.decodes and self.lane is not None else []
            if not together:
                with mx.stream(self.stream()):
                    if generation.prefilling:
                        generation.prefill(self._chunk_size)
                    else:
                        generation.decode()
        except BaseException as error:  # ends this generation, and nothing else
            self.fail(error)
            together = []
        for context in together or [self]:
            context._carried = context is not self
            context.attend()
        return True

    @property
    def _chunk_size(self) -> int:
        """Tokens of a prompt to process in a turn."""
        if self.alone is not None or self.lane is None:  # the same whatever else runs
            return PREFILL_CHUNK
        crowded = any(other.decodes for other in self.lane.contexts)
        return SMALL_CHUNK if crowded else PREFILL_CHUNK

    @property
    def decodes(self) -> bool:
        """Whether it generates, and in a way that can be batched."""
        generation = self.generation
        return self.alone is None and generation is not None and generation.decoding

    def goes_along(self, ahead: int) -> bool:
        """Whether it can use a step that another context asks for.

        Args:
            ahead: tokens that may wait for its host.
        """
        generation = self.generation
        if generation is None:
            return False
        hungry = self._waiter is not None and self._waiter.hungry(generation)
        return hungry or generation.has_room(ahead)

    def fail(self, error: BaseException) -> None:
        """End the generation with an error, and nothing else."""
        if self.generation is not None:
            self.generation.fail(error)

    @property
    def why_alone(self) -> str | None:
        """Why this context is not batched, as far as that is known, or None."""
        if self.alone is None and self.generation is not None and self.generation.drafts:
            return "speculative decoding"
        return self.alone or known_why_not(self.model, self.params.kv)

    def reset(self) -> None:
        """Forget every token and the generation."""
        self.generation = None
        self.wanted = False
        self.sequence.reset()
        self._draft = None
        self._show_wake()
        self._shelved = None, self._reuse, 0
        self.settle()

    def abandon(self, error: BaseException) -> None:
        """End the generation, and with an error the call that waits: the context is going away."""
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            waiter.call.fail(error)
        if self._wake is not None:
            self._wake.close()
            self._wake = None
        try:
            self.reset()
        finally:
            self._leave()

    def _give_up(self, error: BaseException) -> None:
        """End the generation and the call that waits: it cannot be served."""
        self.fail(error)
        waiter, self._waiter = self._waiter, None
        self._end_refill()
        if waiter is not None:
            waiter.call.fail(error)

    def _end_refill(self) -> None:
        """Let the host's generation, which has ended, come back."""
        if self._refilling:
            self.generation, self._reuse, self._dropped = self._shelved
            self._shelved, self._refilling = (None, self._reuse, 0), False

    def _wants_step(self, generation: Generation) -> bool:
        if generation.ended:
            return False
        if self._waiter is not None:
            if self._waiter.hungry(generation):
                return True
        elif (self.wanted or self._wake is not None) and not generation.outbox:
            return True
        return not generation.prefilling and generation.can_run_ahead

    def _serve(self) -> bool:
        """Let the waiting call take what there is; true if it has ended."""
        waiter, generation = self._waiter, self.generation
        if generation is None:
            return False
        if self.cancel_epoch() != generation.cancel_epoch:
            generation.cancel()
        elif generation.expired:
            generation.cancel(constants.FINISH_TIMEOUT)
        if generation.outbox:
            self.wanted = False
        if waiter is not None and waiter.takes and len(generation.outbox) < 2:
            self._show_wake(generation.ended)  # what its host looks at when its call has ended
        served = waiter is not None and waiter.advance(generation)
        self._show_wake()
        if not served:
            return False
        self._waiter = None
        self._end_refill()
        return True

    # --------------------------------------------------------------------- Info

    def info(self) -> dict[str, Any]:
        """Return what ``context_info`` tells."""
        generation = self.generation
        return {
            "max_tokens": self.params.max_tokens,
            "kv_bits": self.params.kv.bits,
            "kv_group_size": self.params.kv.group_size,
            "solo": self.params.solo,
            "priority": self.params.priority,
            "overflow": _OVERFLOWS[self.params.overflow],
            "keep_tokens": self.params.keep_tokens,
            "share_prefix": self.params.share_prefix,
            "alone": self.why_alone,
            "adapter": self.adapter,
            "tokens": len(self.tokens()),
            "bytes": self.sequence.nbytes,
            "generating": generation is not None and not generation.over,
            "prompt": generation.stats.prompt_tokens if generation else 0,
            "reused": generation.stats.reused_tokens if generation else 0,
            "shared": self._reuse.shared if generation else 0,
            "recomputed": generation.recomputed if generation else 0,
            "dropped": self._dropped + generation.rolled if generation else 0,
            "first_difference": self._reuse.first_difference if generation else None,
            "rebuilt": self._reuse.rebuilt if generation else None,
            "batched": generation.batched if generation else 0,
            "error": self.failure,
        }

    def tokens(self) -> list[int]:
        """Return the tokens held, but for those that the host has not been given yet."""
        unseen = self.generation.unseen if self.generation is not None else 0
        return self.sequence.tokens[: len(self.sequence.tokens) - unseen]
