"""A context: a sequence of tokens, its stream, and the generation that works on it."""

from __future__ import annotations

from contextlib import suppress
from time import perf_counter

import mlx.core as mx

from cowmlx import failures
from cowmlx.cache.footprint import Expected, footprint_of
from cowmlx.cache.sequence import Sequence, Snapshot, common_prefix
from cowmlx.errors import BadState
from cowmlx.generated import defaults
from cowmlx.generation.drafting import DraftState
from cowmlx.generation.generation import Generation
from cowmlx.generation.message_marks import positions
from cowmlx.generation.outlet import Outlet
from cowmlx.generation.pace import PREFILL_CHUNK, pace_of
from cowmlx.generation.params import GenerationParams, check_begin, constraint_of, expected_tokens
from cowmlx.generation.places import computing
from cowmlx.generation.prompt import Keeper, Reuse, keep_known

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from typing import Any

    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.call import LogitsFunction
    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.params import ContextParams
    from cowmlx.generation.places import Places
    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model

    Archive = Callable[[Model, ContextParams, Sequence, int], Callable[[Snapshot], None] | None]


class Context:
    """Owns a sequence, and has a stream while it has work.

    The state of the generation, and the call that waits for it, is in :class:`Generation`.

    Args:
        model: without an adapter.
        params: of the context.
        places: give it a stream.
        cancel_epoch: returns the number of its cancellations.
        prefixes: processed prompts that the model's contexts share.
        outlet: offers pieces to its host.
        admit: makes sure that there is memory for a prompt of so many tokens and what follows,
            with the draft model if there is one, less bytes that are held for it already; returns
            how many tokens may be processed at once.

    Attributes:
        used_at: when it last had no work left, by ``perf_counter``.
    """

    def __init__(
        self,
        model: Model,
        params: ContextParams,
        places: Places,
        cancel_epoch: Callable[[], int],
        prefixes: SharedPrefixes,
        outlet: Outlet,
        admit: Callable[[Context, int, GenerationParams, Model | None, int], int],
    ) -> None:
        self.base = model
        self.model = model  # the base, or that with an adapter
        self.adapter: int | None = None  # its handle, for the host; it may be closed by now
        self.checkpoints: list[int] = []  # their handles
        self.params = params
        self.priority = params.priority  # below 0: has turns only when no other context wants one
        self._places = places
        self._admit = admit
        self._expected: Expected | None = None  # by the last generation
        self.used_at = 0.0
        self.largest_chunk = PREFILL_CHUNK  # of its prompts, while memory is short
        self._stream: mx.Stream | None = None  # while it has work
        self.prefixes = prefixes
        self.archive: Archive | None = None  # keeps processed prompts elsewhere
        self.outlet = outlet
        self.sequence = Sequence(model.network, params.kv.maker(model))
        self.generation: Generation | None = None
        self.cancel_epoch = cancel_epoch
        self.failure: dict[str, Any] | None = None  # of a call, since a generation last started
        self.reuse = Reuse()  # by the last begin
        self._draft = DraftState()
        # Why it is never batched, or None; a lane may find out later.
        self.alone: str | None = "solo" if params.solo else None
        self._occupied = False

    # ------------------------------------------------------- Calls, one at a time

    def require_idle(self) -> None:
        """Raise unless no other call is running here.

        Raises:
            BadState: one is.
        """
        waits = self.generation is not None and self.generation.waiter is not None
        if waits or self._occupied:
            raise BadState(
                "another call is running on this context; wait for it, or cancel it with "
                "context_cancel",
                reason="context_busy",
            )

    def occupy(self) -> None:
        """Keep other calls out until :meth:`release`: a unit of the scheduler works for a call."""
        self._occupied = True

    def release(self) -> None:
        """Let calls in again."""
        self._occupied = False
        self.settle()

    def wait(self, waiter: Waiter) -> None:
        """Let a call wait for the generation. It is served at once if it can be."""
        assert self.generation is not None
        self.generation.wait(waiter)
        self.attend()

    def serve(self) -> bool:
        """Let the host take all pieces; true if the call that waited has ended."""
        generation = self.generation
        if generation is None:
            return False
        if generation.awaits_host:
            with mx.stream(self.stream()):
                served = generation.serve(self.cancel_epoch())
        else:
            served = generation.serve(self.cancel_epoch())
        if not served:
            return False
        self._unshelve(generation)
        return True

    def attend(self) -> bool:
        """Serve the call that waits, without a step: a cancel or a deadline ends it.

        Returns:
            whether a call has ended.
        """
        try:
            served = self.serve()
        except BaseException as error:  # ends this generation and this call, and nothing else
            self.fail(error)
            self._fail_call(error)
            served = True
        if self._has_no_work:
            self.settle()
        return served

    def fail(self, error: BaseException) -> None:
        """End the generation with an error.

        A failure of the device ends those of the same batch, too: their steps were under way.
        """
        if self.generation is None:
            return
        together = self.shares_steps
        self.generation.fail(self.model.explained(error))
        if failures.spoils(self.generation.error):
            with suppress(BaseException):  # this error says less
                self._draft.reset()
            if together:
                self._places.note_spoiled(self)

    @property
    def shares_steps(self) -> bool:
        """Whether steps of a batch are under way that its layers or logits come of."""
        return self.sequence.row is not None or self.sequence.has_left

    def _computing(self) -> AbstractContextManager[None]:
        """Use the results of a step under way, which may have failed."""
        return computing(self, self._stream or self._places.idle_stream)

    def abandon(self, error: BaseException) -> None:
        """End the generation, and with an error the call that waits: the context is going away."""
        self._fail_call(error)
        try:
            self.reset()
        finally:
            self._leave()

    def _fail_call(self, error: BaseException) -> None:
        generation = self.generation
        if generation is not None:
            waiter, generation.waiter = generation.waiter, None
            self._unshelve(generation)
            if waiter is not None:
                waiter.call.fail(error)

    def _unshelve(self, generation: Generation) -> None:
        """Let the generation come back that another one had replaced, if there is one."""
        if generation.shelved is not None:
            self.generation, self.reuse = generation.shelved
            if self.generation is not None:
                self.outlet.resume(self.generation)

    def note_taken(self) -> None:
        """Take note of the pieces that the host has taken without a call that came here."""
        if self.generation is not None:
            self.generation.note_taken()

    def wake_fd(self) -> int:
        """Return a descriptor that is readable while there is something to take."""
        fd = self.outlet.watch(self.generation)
        if self.generation is not None:
            self.generation.show()
        return fd

    # ----------------------------------------------------------------- Its stream

    def stream(self) -> mx.Stream:
        """Return the stream to work on, which is the context's until :meth:`settle`.

        Raises:
            OutOfMemory: its thread cannot be started; nothing has changed.
        """
        if self._stream is None:
            self._stream = self._places.enter(self)
        return self._stream

    @property
    def _has_no_work(self) -> bool:
        generation = self.generation
        return generation is None or (generation.waiter is None and generation.ended)

    @property
    def has_work(self) -> bool:
        """Whether a generation has not ended, or a call is under way."""
        return self._stream is not None or self._occupied

    def uses(self, model: Model) -> bool:
        """Whether it is of a model, or drafts with it."""
        return self.base is model or self._draft.is_of(model)

    def drop_layers(self, model: Model) -> None:
        """Hold tokens alone, without the state that a model has made of them."""
        if self.base is model:
            self.sequence.drop_layers()
        if self._draft.is_of(model):
            self._draft.reset()

    def settle(self) -> None:
        """Finish all computations and give the stream back, if no work is left."""
        if self.generation is not None:
            self.generation.show()
        if self._stream is None or self._occupied or not self._has_no_work:
            return
        try:
            with mx.stream(self._stream):
                self.sequence.settle()
                self._draft.settle()
                if self.generation is not None:
                    self.generation.settle()
            self.sequence.has_left = False
        except BaseException as error:
            held = self.tokens()
            self.fail(error)
            self.sequence.restore(Snapshot(held, []))  # they are processed again
        self._leave(settled=self.generation is not None and self.generation.error is None)

    def _leave(self, *, settled: bool = False) -> None:
        """Give the stream back, whatever becomes of the computations on it."""
        self.used_at = perf_counter()
        if self._stream is not None:
            self._places.exit(self, self._stream, settled)
            self._stream = None  # behind exit(): if that fails, the lane's next turn tries again

    # ---------------------------------------------------------------- Beginning

    def begin(
        self,
        prompt: list[int],
        params: GenerationParams,
        cancel_epoch: int,
        draft: Model | None = None,
        constraint: Constrains | None = None,
        *,
        shelved: tuple[Generation | None, Reuse] | None = None,
        known: Snapshot | None = None,
        logits_function: LogitsFunction | None = None,
    ) -> None:
        """Start a generation; an earlier one ends.

        Args:
            prompt: all tokens.
            params: of the generation.
            cancel_epoch: the number of the context's cancellations when the call was made.
            draft: the draft model.
            constraint: on the output; without it the grammar of params.
            shelved: the generation that comes back when this one has ended, unseen by the host.
            known: tokens of which a beginning is the prompt's, from elsewhere.
            logits_function: the host's, which changes logits.

        Raises:
            InvalidArgument: no tokens, or one outside the vocabulary.
            ContextFull: the prompt does not fit.
            Unsupported: an option that the model cannot honour.
            InputOutput: the model's weights, left on disk by a lazy load, cannot be read.
            Lost: a machine of the model is; nothing has changed.
            OutOfMemory: there is too little memory for the prompt and max_tokens, or no thread can
                be started to work on; nothing has changed.
        """
        check_begin(prompt, params, self.params, self.model)
        self.model.require_ranks()
        rolling, given = self.params.rolling, len(prompt)
        if rolling is not None:
            prompt = rolling.cut_prompt(prompt)
        self._reserve(len(prompt), params, draft, 0 if known is None else known.nbytes)
        try:
            with mx.stream(self.stream()):
                constraint = constraint_of(params, self.model, constraint, prompt)
                drafter = self._draft.drafter(params, self.model, draft, self.sequence)
                with self._computing():
                    if self.generation is not None:
                        self.generation.cancel()
                    keeper = self._keep_known(prompt, given - len(prompt), known)
                self.generation = Generation(
                    self.model,
                    self.sequence,
                    prompt,
                    params,
                    self.params.max_tokens,
                    cancel_epoch,
                    self.outlet if shelved is None else Outlet(None, int),
                    rolling=rolling,
                    constraint=constraint,
                    drafter=drafter,
                    keeper=keeper,
                    shelved=shelved,
                    logits_function=logits_function,
                )
        finally:
            self.settle()  # if nothing has begun

    def _reserve(
        self, count: int, params: GenerationParams, draft: Model | None, held: int
    ) -> None:
        """Check that a prompt of so many tokens fits, and read weights that are left on disk."""
        self.largest_chunk = self._admit(self, count, params, draft, held)
        self._expected = Expected(
            expected_tokens(count, params, self.params),
            None if draft is None else footprint_of(draft, None),
        )
        self.model.read_weights()
        if draft is not None:
            draft.read_weights()

    def known_tokens(self, prompt: list[int]) -> int:
        """Return how many tokens of a prompt are known in memory."""
        with self._computing():
            own = self.sequence.reusable(prompt)
        held = min(common_prefix(self.sequence.tokens, prompt), len(prompt) - 1)
        return self.prefixes.known(self._kind, prompt[:-1], own, held)

    @property
    def _kind(self) -> tuple[int, ...]:
        """The kind of snapshots that fit the sequence."""
        return self.model.weights_version, *self.params.kv.key

    def _keep_known(self, prompt: list[int], dropped: int, known: Snapshot | None) -> Keeper | None:
        """Keep a prompt's known start; return what keeps the states of the rest."""
        prefixes = self.prefixes if self.params.share_prefix else None
        self.reuse = keep_known(self.sequence, prompt, dropped, prefixes, self._kind, known)
        if prefixes is None:
            return None
        held, interval = len(self.sequence.tokens), self.params.checkpoint_interval
        inside = positions(self.model, self.params.kv, prompt, held, interval)
        archive = None
        if self.archive is not None and min(prompt) >= 0:
            archive = self.archive(self.model, self.params, self.sequence, len(prompt) - 1)
        return Keeper(self.sequence, prefixes, self._kind, inside, archive)

    def trim(self, kept: list[int], cancel_epoch: int) -> bool:
        """Hold ``kept`` of the tokens held: in place (true), or by processing it in turns.

        The host's generation, which has ended, comes back afterwards.

        Raises:
            OutOfMemory: no thread can be started to work on; nothing has changed.
        """
        self.stream()
        try:
            with self._computing():
                if self.generation is not None:
                    self.generation.cancel(discard=True)
                if self.sequence.trim_to_prefix(kept):
                    return True
            params = GenerationParams({**defaults.GENERATION, "max_tokens": 0})
            self.begin(kept, params, cancel_epoch, shelved=(self.generation, self.reuse))
            return False
        finally:
            self.settle()

    # ---------------------------------------------------------------- Its tokens

    def tokens(self) -> list[int]:
        """Return the tokens held, but for those that the host has not been given yet."""
        unseen = self.generation.unseen if self.generation is not None else 0
        return self.sequence.tokens[: len(self.sequence.tokens) - unseen]

    def snapshot(self) -> Snapshot:
        """Return the tokens that the host knows, and their layers, computed.

        Raises:
            BadState: the layers hold a token that the host has not taken, and cannot drop it.
        """
        snapshot = self.snapshot_of(len(self.tokens()))
        if snapshot is None:
            raise BadState(
                "a piece of this context's generation waits for its host; take it with "
                "context_next first",
                reason="piece_waiting",
            )
        return snapshot

    def snapshot_of(self, length: int) -> Snapshot | None:
        """Return the first tokens held, and their layers, computed; None if it cannot cut these."""
        with self._computing():
            snapshot = self.sequence.snapshot(length)
            if snapshot is not None:
                mx.eval([layer.state for layer in snapshot.layers])
        return snapshot

    def restore(self, snapshot: Snapshot) -> None:
        """Hold the tokens of a snapshot; a generation under way ends."""
        if self.generation is not None:
            with self._computing():
                self.generation.cancel(discard=True)
        self.sequence.restore(snapshot)
        self.settle()

    @property
    def cache_bytes(self) -> int:
        """Bytes that its cache and its draft model's hold."""
        return self.sequence.nbytes + self._draft.nbytes

    @property
    def can_sleep(self) -> bool:
        """Whether it has a cache and no work."""
        is_idle = self._stream is None and not self._occupied and self._has_no_work
        is_idle = is_idle and (self.generation is None or not self.generation.unseen)
        return is_idle and self.model.split is None and self.cache_bytes > 0

    def sleep(self) -> None:
        """Give the cache back; the tokens are processed again when they are needed."""
        self.sequence.drop_layers()
        self._draft.reset()

    def reset(self) -> None:
        """Forget every token and the generation."""
        self.generation = None
        self.sequence.reset()
        self._draft.reset()
        self.outlet.clear()
        self.settle()

    def set_model(self, model: Model) -> None:
        """Use other weights; tokens that these have not processed are forgotten."""
        if model.weights_version == self.model.weights_version:
            return
        sequence = Sequence(model.network, self.params.kv.maker(model))
        self.reset()
        self.model = model
        self.sequence = sequence

    def logits(self) -> mx.array:
        """Return (V,) float32 behind the last token that the host knows.

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
        with self._computing():
            flat = mx.contiguous(logits.array()[0].astype(mx.float32))
            mx.eval(flat)
        return flat

    @property
    def estimate(self) -> int | None:
        """Bytes that the last generation was expected to take at its peak; None: unknown."""
        if self._expected is None or self.model.split is not None:
            return None
        footprint = footprint_of(self.model, self.params.kv)
        chunk = min(self.largest_chunk, pace_of(self.model).largest)
        return None if footprint is None else self._expected.nbytes(footprint, chunk)
