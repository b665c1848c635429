"""One generation: its state, its pieces on their way to the host, and its steps."""

from __future__ import annotations

from collections import deque
from contextlib import suppress

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Lost
from cowmlx.generated import constants
from cowmlx.generation.drafting import Drafts
from cowmlx.generation.handover import Handover, Phase
from cowmlx.generation.host_logits import HostLogits
from cowmlx.generation.pace import PREFILL_CHUNK
from cowmlx.generation.pieces import Piece, Stats, TextOutput
from cowmlx.generation.prompt import Prompt
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.sampler import SampleInputs
from cowmlx.generation.sampling.samples import RowLogits, Step
from cowmlx.vision.turns import Turns, computed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cowmlx.cache.sequence import Sequence
    from cowmlx.call import LogitsFunction
    from cowmlx.errors import CowMlxError
    from cowmlx.generation.constrains import Constrains
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.outlet import Outlet
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.prompt import Keeper, Reuse, RollingWindow
    from cowmlx.generation.sampling.sampler import SampleInput
    from cowmlx.generation.sampling.samples import Sample
    from cowmlx.generation.waiters import Waiter
    from cowmlx.models.model import Model


class Generation(Handover):
    """Processes a prompt, generates tokens into ``outbox`` and hands them to the host.

    Owns all of a generation's state. Its host takes pieces in one of two ways: a call waits for
    them (``waiter``), or the outlet offers them. A step is taken because the waiter is hungry;
    because a piece shall be there before the host asks (``wanted``, or an open outlet); or to run
    ahead of the host, by RUN_AHEAD tokens, where the sequence can drop tokens again. Any other
    sequence holds exactly what its host has seen.

    Owns no cache: it works on its context's sequence, which holds the reused part of the prompt,
    and runs on the current mlx stream. While a token is read, the step behind it is computing.

    Args:
        model: that generates.
        sequence: the context's.
        prompt: all of it.
        params: of this generation.
        window: tokens that the sequence may hold.
        cancel_epoch: the context's count of cancellations at begin.
        outlet: offers pieces to the host.
        rolling: how the window rolls; None: the generation ends when it is full.
        constraint: on the output.
        drafter: drafts tokens.
        keeper: keeps states of the prompt.
        shelved: a generation, with its reuse, that comes back when this one has ended.
        logits_function: the host's, which changes logits.
    """

    def __init__(
        self,
        model: Model,
        sequence: Sequence,
        prompt: list[int],
        params: GenerationParams,
        window: int,
        cancel_epoch: int,
        outlet: Outlet,
        *,
        rolling: RollingWindow | None = None,
        constraint: Constrains | None = None,
        drafter: Drafter | None = None,
        keeper: Keeper | None = None,
        shelved: tuple[Generation | None, Reuse] | None = None,
        logits_function: LogitsFunction | None = None,
    ) -> None:
        self.params = params
        self.cancel_epoch = cancel_epoch
        self.shelved = shelved
        self.stats = Stats(len(prompt), len(sequence.tokens))
        self._deadline = self.stats.begun + params.timeout
        self.phase = Phase.PROMPT
        self.finish = constants.FINISH_NONE
        self.error: CowMlxError | None = None
        self.waiter: Waiter | None = None  # the call that waits
        self.wanted = False
        self.outbox: deque[Piece] = deque()
        self._outlet = outlet
        self.logits: RowLogits | None = None  # behind the tokens that the host knows
        self.last: Piece | None = None  # that the host was given
        self.batched = 0  # tokens whose step was taken together with other contexts
        self.prompt = Prompt(prompt, sequence, rolling, drafter, keeper)
        self._count = 0  # tokens generated, given to the host or not
        self._sequence = sequence
        self._window = window
        self._can_roll = rolling is not None
        self.host_logits = HostLogits(logits_function)
        self._inputs = SampleInputs(params, model, constraint, asks=logits_function is not None)
        self.drafts: Drafts | None = None
        if drafter is not None:
            self.drafts = Drafts(drafter, sequence, self._inputs, model.end_tokens)
        self._batch_sampler = BatchSampler()
        self._text = TextOutput(
            model, params.stop, exact=constraint is not None and constraint.exact
        )
        self._pending: Sample | None = None  # the next token
        self._held: Step | None = None  # under way, its token in the sequence
        # Of a chunk's layers that are not computed, and the logits behind them.
        self._layers: tuple[Iterator[None], mx.array] | None = None

    # ---------------------------------------------------------------- Ending

    def cancel(self, finish: int = constants.FINISH_CANCELED, *, discard: bool = False) -> None:
        """End now; tokens that the host has not been given are taken back.

        Where the cache cannot drop them, the host is still given them: it holds no others.
        With ``discard`` these are dropped, too, and the logits.
        """
        self._outlet.take_back(self)
        if not self.over:
            seen = len(self._sequence.tokens) - self.unseen
            self._end(finish)
            if self._sequence.trim_to(seen):
                self.outbox.clear()
                self._held = None
            elif (step := self._held) is not None:
                self.read(step)
                if step.following is step.pending.logits:  # those behind it have not come
                    self.outbox[-1].logits = None
        if discard:
            self.outbox.clear()
            self.logits = None

    def fail(self, error: BaseException) -> None:
        """End with an error; the sequence is emptied, since its layers may differ.

        Where the layers are lost with the machines that held them, the sequence keeps its tokens.
        """
        with suppress(BaseException):  # this error says less
            self._outlet.take_back(self)
        unseen, self._held = self.unseen, None
        self.error = failures.kept(error)
        self.outbox.clear()
        self.logits = None
        self._end(constants.FINISH_CANCELED)
        if isinstance(error, Lost):
            self._sequence.forget_last(unseen)
        else:
            with suppress(BaseException):  # an error of its batch says less than this one
                self._sequence.reset()
        if self.waiter is None:  # no turn may follow, and hosts wait for the end
            with suppress(BaseException):
                self.show()

    def _end(self, finish: int) -> None:
        self.finish = finish
        self.phase = Phase.ENDED
        self._pending = self._layers = None
        self.prompt.give_up()
        self.host_logits.close()

    # ---------------------------------------------------------------- Prompt

    @property
    def short_prompt(self) -> int:
        """How many tokens of a prompt are left that can be processed with others; 0: none."""
        if not self.prefilling or self.params.max_tokens == 0:
            return 0
        return self.prompt.short

    def start_chunk(self, size: int) -> None:
        """Start processing a chunk of the prompt, of ``size`` tokens at most.

        All but the last token go through in chunks whose logits are not computed; the last one is
        the first step.
        """
        chunk = self.next_chunk(size)
        if not chunk:
            return
        logits = self._sequence.process(chunk)[:, -1, :]
        self.prompt.hold(chunk)
        if min(chunk) < 0:  # with images: each layer is computed by itself
            self._layers = computed(self._sequence.state), logits
        else:
            self._follow_chunk(logits)

    def advance_chunk(self) -> bool:
        """Compute layers of a chunk with images for a while; false if none is left."""
        if self._layers is None:
            return False
        steps, logits = self._layers
        try:
            Turns().take(steps)
        except StopIteration:
            self._layers = None
            self._follow_chunk(logits)
        return True

    def _follow_chunk(self, logits: mx.array) -> None:
        """Start the rest of a chunk, of which logits (1, V) are the last."""
        wanted = None if self.prompt.left else self.follow_prompt(RowLogits(logits))
        if wanted is None:
            mx.async_eval(self._sequence.state)
        else:
            self._sample(wanted, logits)
        self.prompt.note_started()

    def next_chunk(self, size: int) -> list[int]:
        """Return the tokens to process next, ``size`` at most; none if other work was done."""
        if self.prompt.rolls:
            self.logits = None
        return self.prompt.next_chunk(size)

    def follow_prompt(self, logits: RowLogits) -> SampleInput | None:
        """Return the input of the sample behind a prompt's logits; None if no token is wanted."""
        self.logits = logits
        if self.params.max_tokens == 0:
            return None
        *history, last = self.prompt.held_tokens() or [-1]
        own = logits.array()
        wanted = self._inputs.allowed_behind(history, last, own)
        return self.host_logits.hold(wanted, own, self._sequence.tokens)

    def finish_chunk(self) -> tuple[int, int, float | None]:
        """Wait for the chunk that is computing; see :meth:`Prompt.finish_chunk`."""
        chunk = self.prompt.finish_chunk(self._pending)
        if not chunk[0] or self.prompt.left:
            return chunk
        if self._pending is not None:
            mx.eval(self._pending.token)
        elif not self.host_logits.is_open:
            self._end(constants.FINISH_LENGTH)
        self.phase = Phase.ENDED if self.finish else Phase.TOKENS
        if self.prompt.finish():
            if self.prompt.recomputed > PREFILL_CHUNK:
                mx.clear_cache()
            self.stats.prompt_seconds = self.stats.elapsed()
        return chunk

    # ---------------------------------------------------------------- Tokens

    def take_answer(self) -> None:
        """Sample from logits that the host's function has changed; it may cancel."""
        sample = self.host_logits.sample(self._batch_sampler)
        if sample is None:
            self.cancel()
        else:
            self.take_sample(sample)

    def decode(self) -> None:
        """Start the step after the pending token, then read that token into the outbox."""
        if ids := self.next_draft():
            logits = self._sequence.forward(mx.array(ids, mx.int32))[0]
            self.hold_draft(ids)
            self.check_draft(ids, logits)
            return
        step = self.prepare()
        if step.feeds:
            logits = self._sequence.decode(step.pending.token)
            wanted = self.follow(step, RowLogits(logits))
            if wanted is None:
                mx.async_eval(logits)
            else:
                self._sample(wanted, logits)
        matched = self.match(step)
        if matched is not None:
            self._sample(matched, step.following.array())
        self.read(step)

    # The parts of a step, for lanes, which take those of several generations at once.

    def prepare(self) -> Step:
        """Take the pending token, and find out whether it has a successor."""
        pending = self._pending
        assert pending is not None
        self._pending = None
        self._count += 1
        before = len(self._sequence.tokens)
        finish, full = constants.FINISH_NONE, before >= self._window
        if self._count >= self.params.max_tokens:
            finish = constants.FINISH_LENGTH
        elif full and not self._can_roll:
            finish = constants.FINISH_CONTEXT
        return Step(pending, before, finish, full)

    def hold(self, step: Step) -> int:
        """Note a step's token, which is known, as one that the layers process; returns it."""
        token = step.pending.value()
        self._sequence.append([token])
        self._held = step
        return token

    def _before(self, step: Step) -> list[int]:
        """Return the tokens before a step's."""
        tokens = self.prompt.held_tokens()
        return tokens[:-1] if step is self._held else tokens

    def follow(self, step: Step, logits: RowLogits) -> SampleInput | None:
        """Return the input of the sample behind a step's token; None: it needs that token first.

        Args:
            step: one that feeds.
            logits: behind its token.
        """
        step.following = logits
        if self._inputs.waits:
            return None
        step.followed = True
        return self._inputs.behind(self._before(step), step.pending)

    def match(self, step: Step) -> SampleInput | None:
        """Take note of the token of a step; return the input of its successor's sample.

        None where that of :meth:`follow` holds, or the token has no successor.
        """
        if not self._inputs.notes:
            return None
        token = step.pending.value()
        if self._inputs.note(token, step.pending):
            step.finish = constants.FINISH_STOP
        elif step.feeds and (self._inputs.waits or not step.followed):
            self._inputs.count -= step.followed  # that sample is taken again
            logits = step.following.array()
            wanted = self._inputs.allowed_behind(self._before(step), token, logits)
            tokens = self._sequence.tokens
            whole = tokens if step is self._held else [*tokens, token]
            return self.host_logits.hold(wanted, logits, whole)
        return None

    def take_sample(self, sample: Sample) -> None:
        """Take the next token, which is computing."""
        self._inputs.count += 1
        self._pending = sample

    def read(self, step: Step) -> None:
        """Read a step's token into the outbox."""
        finish = step.finish
        token = step.pending.value()
        if step is self._held:
            self._held = None
        elif step.feeds:
            self._sequence.append([token])
        if step.full and not finish:
            self.prompt.roll_for(token)  # when the host wants more
            self.phase = Phase.PROMPT
        self._emit(token, finish, step.before, step.pending, step.following)

    def next_draft(self) -> list[int]:
        """Return the pending token and its draft, to be held and checked; none: a plain step."""
        if self.drafts is None:
            return []
        assert self._pending is not None
        left = self.params.max_tokens - self._count - 2  # the last token is not processed
        place = self._window - len(self._sequence.tokens) - 1
        return self.drafts.behind(self._pending, min(self.params.draft_tokens, left, place))

    def hold_draft(self, ids: list[int]) -> None:
        """Note a token and its draft, which the layers process or have processed."""
        assert self._pending is not None
        self._held = Step(self._pending, len(self._sequence.tokens), constants.FINISH_NONE, False)
        self._sequence.append(ids)

    def check_draft(self, ids: list[int], logits: mx.array) -> int:
        """Read the part of the draft ``ids`` that is right, from logits (S, V) behind each.

        Returns:
            how many tokens were generated.
        """
        before = self._count
        held, self._held = self._held, None
        assert held is not None and self.drafts is not None
        samples = self.drafts.check(ids, held, logits)
        self._pending = samples[-1]
        self.stats.drafted_tokens += len(ids) - 1
        for i, sample in enumerate([held.pending, *samples[:-1]]):
            self._count += 1
            self.stats.accepted_tokens += i > 0
            self._emit(ids[i], constants.FINISH_NONE, held.before + i, sample, samples[i].logits)
            if self.ended:
                self._sequence.trim_to(held.before + i + 1)
                break
        return self._count - before

    def _sample(self, wanted: SampleInput, logits: mx.array) -> None:
        """Start computing the next token."""
        (sample,) = self._batch_sampler.sample([wanted], logits)
        mx.async_eval(sample.rows.arrays)
        self.take_sample(sample)

    def _emit(
        self, token: int, finish: int, before: int, sample: Sample, following: RowLogits
    ) -> None:
        text, finish = self._text.add(token, finish)
        if finish:
            self._end(finish)
        # An end token, or one that completes a stop text, is output only with text before it.
        silent = not text and finish in (constants.FINISH_STOP, constants.FINISH_STOP_TEXT)
        elapsed, count = self.stats.elapsed(), self._count
        if count == 1:
            self.stats.first_token_seconds = elapsed
        seconds = elapsed - self.stats.prompt_seconds
        logprob, top = sample.logprobs() if self.params.logprobs else (None, None)
        numbers = before, count, seconds
        self.outbox.append(
            Piece(token, text.encode(), finish, silent, *numbers, following, logprob, top)
        )
