"""A context: a sequence, its stream, and at most one generation and one waiting call."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.sequence import Sequence
from cowmlx.errors import BadState
from cowmlx.generated import constants, defaults
from cowmlx.generation.batched import known_why_not
from cowmlx.generation.drafting import DraftState
from cowmlx.generation.generation import Generation
from cowmlx.generation.pace import pace_of
from cowmlx.generation.params import GenerationParams, check_begin, constraint_of
from cowmlx.generation.prompt import Reuse, keep_known, share

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from cowmlx.cache.sequence import Snapshot
    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.generation.outlet import Outlet
    from cowmlx.generation.params import ContextParams
    from cowmlx.generation.sampling.sampler import Constrains
    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model

    class Places(Protocol):
        """Where contexts get a stream while they have work."""

        @property
        def idle_stream(self) -> mx.Stream:
            """What is computed for contexts that have no stream, and waited for."""

        def enter(self, context: Context) -> mx.Stream:
            """Let a context work; returns its stream."""

        def exit(self, context: Context, stream: mx.Stream) -> None:
            """Take a context's stream back."""


class Context:
    """Owns a sequence, and has a stream of its own while it has work.

    Its lane gives it turns; a call that waits is served by its waiter.

    Args:
        model: without an adapter.
        params: of the context.
        places: where it works.
        cancel_epoch: how often it has been cancelled.
        prefixes: what the model's contexts share.
        outlet: where its host takes pieces without waiting.
    """

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        places: Places,
        cancel_epoch: Callable[[], int],
        prefixes: SharedPrefixes,
        outlet: Outlet,
    ) -> None:
        self.base = model
        self.model = model  # the base, or that with an adapter
        self.adapter: int | None = None  # its handle, for the host; it may be closed by now
        self.checkpoints: list[int] = []  # handles of what it can go back to
        self.params = params
        self._places = places
        self._stream: mx.Stream | None = None  # while it has work
        self.prefixes = prefixes
        self.outlet = outlet
        self.sequence = Sequence(model.network, params.kv.maker(model))
        self.generation: Generation | None = None
        self.cancel_epoch = cancel_epoch
        self.failure: dict[str, Any] | None = None  # of a call, since a generation last started
        self.reuse = Reuse()  # what the last begin made of its prompt
        self._draft = DraftState()
        # Why it is never batched, or None; a lane may find out later.
        self.alone: str | None = "solo" if params.solo else None
        self.wanted = False  # a piece shall be there before anybody asks for it
        self._waiter: Waiter | None = None
        self._occupied = False
        # The host's, while the tokens that a trim left are processed again.
        self._shelved: tuple[Generation | None, Reuse] | None = None

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
            self._stream = self._places.enter(self)
        return self._stream

    def settle(self) -> None:
        """Give the stream back if no work is left, and nothing that still has to compute on it."""
        self._show()
        stream = self._stream
        if stream is None or self._occupied or not self.finished:
            return
        try:
            with mx.stream(stream):
                self.sequence.settle()
                self._draft.settle()
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
            self._places.exit(self, stream)

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
            draft: the draft model.
            constraint: what the output must match; without it that is the grammar of params.

        Raises:
            InvalidArgument: no tokens, or one outside the vocabulary.
            ContextFull: the prompt does not fit.
            Unsupported: an option that the model cannot honour.
            InputOutput: the model's weights, left on disk by a lazy load, cannot be read.
            OutOfMemory: no thread can be started to work on; nothing has changed.
        """
        check_begin(prompt, params, self.params, self.model)
        rolling, given = self.params.rolling, len(prompt)
        if rolling is not None:
            prompt = rolling.cut(prompt)
        self.model.read_weights()
        if draft is not None:
            draft.read_weights()
        try:
            with mx.stream(self.stream()):
                constraint = constraint_of(params, self.model, constraint)
                drafter = self._draft.drafter(params, self.model, draft)
                self.end_generation()
                prefixes = self.prefixes if self.params.share_prefix else None
                dropped = given - len(prompt)
                self.reuse = keep_known(self.sequence, prompt, dropped, prefixes, self._kind)
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
                    on_prompt=None if prefixes is None else self._share,
                )
        finally:
            self.settle()  # if nothing has begun

    @property
    def _kind(self) -> tuple[int, int, int]:
        """Whose snapshots fit this context's sequence."""
        return self.model.weights_version, self.params.kv.bits, self.params.kv.group_size

    def _share(self) -> None:
        """Leave the prompt so far for the model's other contexts."""
        share(self.sequence, self.prefixes, self._kind)

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
            shelved = self.generation, self.reuse
            params = GenerationParams({**defaults.GENERATION, "max_tokens": 0})
            self.begin(kept, params, cancel_epoch)
            self._shelved = shelved
            return False
        finally:
            self.settle()

    def end_generation(self, discard: bool = False) -> None:
        """Cancel what is under way; with ``discard``, pieces that wait are lost too."""
        if self.generation is not None:
            self.outlet.take_back(self.generation)
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
        with mx.stream(self._stream or self._places.idle_stream):
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
        if model.weights_version == self.model.weights_version:
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
        with mx.stream(self._stream or self._places.idle_stream):
            flat = mx.contiguous(logits.array()[0].astype(mx.float32))
            mx.eval(flat)
        return flat

    # -------------------------------------------------------------------- Turns

    def wake_fd(self) -> int:
        """Return a descriptor that is readable while there is something to take."""
        fd = self.outlet.watch(self.generation)
        self._show()
        return fd

    def note_taken(self) -> None:
        """Find out what the host has taken without a call that came here."""
        if self.generation is not None:
            self.outlet.note_taken(self.generation)

    def _show(self) -> None:
        """Let the host take what there is, unless a call takes it."""
        takes = self._waiter is not None and self._waiter.takes
        if self.generation is not None and self._shelved is None and not takes:
            self.outlet.show(self.generation)

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
            served = self.serve()
        except BaseException as error:  # ends this generation and this call, and nothing else
            self._give_up(error)
            served = True
        if self.finished:
            self.settle()
        return served

    def step_alone(self, *, undisturbed: bool, most: int) -> None:
        """Process a chunk of the prompt, or generate a token.

        Args:
            undisturbed: nothing else computes, so that the time it takes tells something.
            most: tokens that a chunk may have.
        """
        generation = self.generation
        assert generation is not None
        with mx.stream(self.stream()):
            if generation.prefilling:
                self._process_chunk(generation, undisturbed, most)
            else:
                generation.decode()

    def _process_chunk(self, generation: Generation, undisturbed: bool, most: int) -> None:
        """Wait for a chunk of the prompt, and start the next unless all is over."""
        pace = pace_of(self.model)
        size, position, seconds = generation.finish_chunk()
        if undisturbed and seconds is not None:
            pace.observe(size, position, seconds)
        if generation.prefilling and self.cancel_epoch() == generation.cancel_epoch:
            generation.start_chunk(min(most, pace.size(generation.position)))

    @property
    def short_prompt(self) -> int:
        """How many tokens of its prompt can be processed together with others; 0: none."""
        if self.alone is not None or self.generation is None:
            return 0
        return self.generation.short_prompt

    @property
    def awaits_prompt(self) -> bool:
        """Whether its host waits for a short prompt."""
        generation = self.generation
        if generation is None or not self.short_prompt:
            return False
        return self._waiter is not None and self._waiter.hungry(generation)

    @property
    def decodes(self) -> bool:
        """Whether it generates, and in a way that can be batched."""
        generation = self.generation
        return self.alone is None and generation is not None and generation.decoding

    def goes_along(self, ahead: int) -> bool:
        """Whether it generates, and can use a step that another context asks for.

        Args:
            ahead: tokens that may wait for its host.
        """
        generation = self.generation
        if generation is None or self.alone is not None or not generation.decoding:
            return False
        self.outlet.note_taken(generation)
        hungry = self._waiter is not None and self._waiter.hungry(generation)
        return hungry or generation.has_room(ahead)

    def fail(self, error: BaseException) -> None:
        """End the generation with an error, and nothing else."""
        if self.generation is not None:
            self.outlet.take_back(self.generation)
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
        self._draft.reset()
        self.outlet.clear()
        self._shelved = None
        self.settle()

    def abandon(self, error: BaseException) -> None:
        """End the generation, and with an error the call that waits: the context is going away."""
        if self._waiter is not None:
            waiter, self._waiter = self._waiter, None
            waiter.call.fail(error)
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
        if self._shelved is not None:
            self.generation, self.reuse = self._shelved
            self._shelved = None

    @property
    def wants_step(self) -> bool:
        """Whether the call that waits, or running ahead, wants a step."""
        generation = self.generation
        if generation is None or generation.ended:
            return False
        if self._waiter is not None:
            if self._waiter.hungry(generation):
                return True
        elif (self.wanted or self.outlet.is_open) and not generation.outbox:
            return True
        return not generation.prefilling and generation.can_run_ahead

    def serve(self) -> bool:
        """Let the waiting call take what there is; true if it has ended."""
        waiter, generation = self._waiter, self.generation
        if generation is None:
            return False
        self.outlet.note_taken(generation)
        if self.cancel_epoch() != generation.cancel_epoch:
            self._break_off(generation, constants.FINISH_CANCELED)
        elif generation.expired:
            self._break_off(generation, constants.FINISH_TIMEOUT)
        if generation.outbox:
            self.wanted = False
        self._show()
        if waiter is None or not waiter.advance(generation):
            return False
        self._waiter = None
        if self._shelved is not None:
            self._end_refill()
        self._show()
        return True

    def _break_off(self, generation: Generation, finish: int) -> None:
        """End a generation, once."""
        if not generation.over and generation.finish != finish:
            self.outlet.take_back(generation)
            generation.cancel(finish)

    def tokens(self) -> list[int]:
        """Return the tokens held, but for those that the host has not been given yet."""
        unseen = self.generation.unseen if self.generation is not None else 0
        return self.sequence.tokens[: len(self.sequence.tokens) - unseen]
