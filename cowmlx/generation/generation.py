"""The course of one generation: prompt in chunks, then a token a step."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from math import inf
from time import perf_counter

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Lost
from cowmlx.generated import constants
from cowmlx.generation.pace import PREFILL_CHUNK
from cowmlx.generation.pieces import Piece, Stats, TextOutput
from cowmlx.generation.prompt import Prompt
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.sampler import SampleInputs
from cowmlx.generation.sampling.samples import RowLogits, Step, settled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.cache.sequence import Sequence
    from cowmlx.errors import CowMlxError
    from cowmlx.generation.drafting import Drafter, Drafts
    from cowmlx.generation.params import GenerationParams
    from cowmlx.generation.prompt import RollingWindow
    from cowmlx.generation.sampling.sampler import Constrains, SampleInput
    from cowmlx.generation.sampling.samples import Sample
    from cowmlx.models.model import Model

RUN_AHEAD = 1  # tokens that may wait for their host while the next is computed
CLEAR_INTERVAL = 256  # tokens between returns of mlx's unused buffers, as mlx-lm does


class Generation:
    """Processes a prompt and generates tokens into ``outbox``.

    Owns no cache: it works on its context's sequence, which holds what is reused of the prompt.
    Runs on whatever mlx stream is current. While a token is read, the step that follows it is
    already computing; a sequence that can drop tokens again may also run ahead of its
    host by RUN_AHEAD tokens, any other holds exactly what its host has seen.

    Args:
        model: whose tokens these are.
        sequence: the context's.
        prompt: all of it.
        params: of this generation.
        window: tokens that the sequence may hold.
        cancel_epoch: the context's count of cancellations at begin.
        rolling: how to go on where the window is full, or None to end there.
        constraint: what the output must match.
        drafter: drafts tokens.
        on_prompt: called when all of the prompt but its last token is processed.
    """

    def __init__(
        self,
        model: Model,
        sequence: Sequence,
        prompt: list[int],
        params: GenerationParams,
        window: int,
        cancel_epoch: int,
        *,
        rolling: RollingWindow | None = None,
        constraint: Constrains | None = None,
        drafter: Drafter | None = None,
        on_prompt: Callable[[], None] | None = None,
    ) -> None:
        self.params = params
        self.cancel_epoch = cancel_epoch
        self.stats = Stats(len(prompt), len(sequence.tokens))
        self._deadline = self.stats.begun + params.timeout
        self.outbox: deque[Piece] = deque()
        self.finish = constants.FINISH_NONE
        self.ended = False  # no more tokens come, but for those in the outbox
        self.error: CowMlxError | None = None
        self.logits: RowLogits | None = None  # behind the tokens that the host knows
        self.last: Piece | None = None  # that the host was given
        self.batched = 0  # tokens whose step was taken together with other contexts
        self.prompt = Prompt(
            prompt, sequence, rolling=rolling, drafter=drafter, on_prompt=on_prompt
        )
        self._count = 0  # tokens generated, given to the host or not
        self._sequence = sequence
        self._window = window
        self._can_roll = rolling is not None
        self._inputs = SampleInputs(params, model, constraint)
        self._drafts: Drafts | None = None
        if drafter is not None:
            from cowmlx.generation.drafting import Drafts  # late: few hosts draft

            self._drafts = Drafts(drafter, sequence, self._inputs, model.end_tokens)
        self._batch_sampler = BatchSampler()
        self._text = TextOutput(model, params.stop, exact=constraint is not None)
        self._pending: Sample | None = None  # the next token
        self._held: Step | None = None  # under way, its token in the sequence

    # ---------------------------------------------------------------- Prompt

    @property
    def prefilling(self) -> bool:
        """Whether the prompt, or what rolls, is still to be processed."""
        return not self.ended and self.prompt.unfinished

    def finish_chunk(self) -> tuple[int, int, float | None]:
        """Wait for the chunk that is computing, if one is.

        Returns:
            its tokens, those before it, and the seconds that it took, or None if that is not known.
        """
        chunk = self.prompt.finish_chunk(self._pending)
        if chunk[0] and not self.prompt.left:
            self._end_prompt()
        return chunk

    @property
    def position(self) -> int:
        """Tokens that the sequence holds."""
        return len(self._sequence.tokens)

    def start_chunk(self, size: int) -> None:
        """Start processing a chunk of the prompt, of ``size`` tokens at most.

        All but the last token go through in chunks whose logits nobody computes;
        the last one is the first step.
        """
        chunk = self.next_chunk(size)
        if not chunk:
            return
        logits = self._sequence.forward(mx.array(chunk, mx.int32))[:, -1, :]
        self.prompt.hold(chunk)
        wanted = None if self.prompt.left else self.follow_prompt(RowLogits(logits))
        if wanted is None:
            mx.async_eval(self._sequence.state)
        else:
            self._sample(wanted, logits)
        self.prompt.note_started()

    # The parts of that, for those who do something in between.

    def next_chunk(self, size: int) -> list[int]:
        """Return the tokens to process next, ``size`` at most; none if something else was done."""
        if self.prompt.rolls:
            self.logits = None
        return self.prompt.next_chunk(size)

    def follow_prompt(self, logits: RowLogits) -> SampleInput | None:
        """Return the input of the first token's sample; None if there is to be none.

        Args:
            logits: behind the prompt's last token.
        """
        self.logits = logits
        if self.params.max_tokens == 0:
            return None
        *history, last = self._sequence.tokens
        return self._inputs.allowed_behind(history, last, logits.array())

    @property
    def short_prompt(self) -> int:
        """How many tokens of a prompt are left that can be processed with others; 0: none."""
        if not self.prefilling or self.params.max_tokens == 0:
            return 0
        return self.prompt.short

    def _end_prompt(self) -> None:
        if self._pending is None:
            self._end(constants.FINISH_LENGTH)
        else:
            mx.eval(self._pending.token)
        if not self.prompt.finish():
            return
        if self.recomputed > PREFILL_CHUNK:
            mx.clear_cache()
        self.stats.prompt_seconds = self.stats.elapsed()

    # ---------------------------------------------------------------- Tokens

    @property
    def can_run_ahead(self) -> bool:
        """Whether a step may be taken that no host has asked for."""
        return self.has_room(RUN_AHEAD)

    def has_room(self, ahead: int) -> bool:
        """Whether another token may wait for the host, of at most ``ahead``."""
        return len(self.outbox) < ahead and self._sequence.can_take_back(len(self.outbox) + 1)

    @property
    def drafts(self) -> bool:
        """Whether it checks drafts."""
        return self._drafts is not None

    def next_draft(self) -> list[int]:
        """Return the pending token and its draft, to be held and checked; none: a plain step."""
        if self._drafts is None:
            return []
        assert self._pending is not None
        left = self.params.max_tokens - self._count - 2  # the last token is not processed
        place = self._window - len(self._sequence.tokens) - 1
        return self._drafts.behind(self._pending, min(self.params.draft_tokens, left, place))

    @property
    def decoding(self) -> bool:
        """Whether it takes decode steps, plain ones."""
        return not (self.ended or self.prompt.unfinished or self._drafts is not None)

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        if self._deadline == inf or self.ended:
            return False
        return perf_counter() >= self._deadline

    def decode(self) -> None:
        """Start the step after the pending token, then read that token into the outbox."""
        if self._drafts is None or not (ids := self.next_draft()):
            self._decode_one()
            return
        logits = self._sequence.forward(mx.array(ids, mx.int32))[0]
        self.hold_draft(ids)
        self.check_draft(ids, logits)

    def _decode_one(self) -> None:
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

    # The parts of a step, for those that several generations take at once.

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
        tokens = self._sequence.tokens
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
        return self._inputs.behind(self._before(step), step.pending)

    def match(self, step: Step) -> SampleInput | None:
        """Take note of the token of a step; return the input of its successor's sample.

        None where that is known without, or it has none.
        """
        if not self._inputs.waits:
            return None
        token = step.pending.value()
        if self._inputs.note(token, step.pending):
            step.finish = constants.FINISH_STOP
        elif step.feeds:
            logits = step.following.array()
            return self._inputs.allowed_behind(self._before(step), token, logits)
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
        if self._count % CLEAR_INTERVAL == 0:
            mx.clear_cache()
        if step.full and not finish:
            self.prompt.roll_for(token)  # a window rolls when its host wants more
        self._emit(token, finish, step.before, step.pending, step.following)

    def hold_draft(self, ids: list[int]) -> None:
        """Note a token and its draft, which the layers process or have processed."""
        assert self._pending is not None
        self._held = Step(self._pending, len(self._sequence.tokens), constants.FINISH_NONE, False)
        self._sequence.append(ids)

    def check_draft(self, ids: list[int], logits: mx.array) -> None:
        """Read the part of the draft that is right.

        Args:
            ids: that are held.
            logits: (S, V) behind each of them.
        """
        held, self._held = self._held, None
        assert held is not None and self._drafts is not None
        samples = self._drafts.check(ids, held.before, logits)
        self._pending = samples[-1]
        self.stats.drafted_tokens += len(ids) - 1
        self.stats.accepted_tokens += len(samples) - 1
        for i, sample in enumerate([held.pending, *samples[:-1]]):
            self._count += 1
            self._emit(ids[i], constants.FINISH_NONE, held.before + i, sample, samples[i].logits)
            if self.ended:
                self._sequence.trim_to(held.before + i + 1)
                break

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
        # An end token, or one that completes a stop text, is output only if there
        # was text before it.
        silent = not text and finish in (constants.FINISH_STOP, constants.FINISH_STOP_TEXT)
        elapsed, count = self.stats.elapsed(), self._count
        if count == 1:
            self.stats.first_token_seconds = elapsed
        seconds = elapsed - self.stats.prompt_seconds
        logprob, top = sample.logprobs() if self.params.logprobs else (None, None)
        encoded = text.encode()
        piece = Piece(
            token, encoded, finish, silent, before, count, seconds, following, logprob, top
        )
        self.outbox.append(piece)

    def take(self) -> Piece:
        """Return the next piece: the host has it from now on."""
        piece = self.outbox.popleft()
        self.last, self.logits = piece, piece.logits
        self.stats.generated_tokens = piece.count
        self.stats.generation_seconds = piece.seconds
        return piece

    @property
    def over(self) -> bool:
        """Whether the host has been given everything."""
        return self.ended and not self.outbox

    def _end(self, finish: int) -> None:
        self.finish = finish
        self.ended = True
        self._pending = None

    @property
    def unseen(self) -> int:
        """Tokens in the sequence that the host has not been given."""
        unseen = self.outbox[0] if self.outbox else self._held
        return 0 if unseen is None else max(0, len(self._sequence.tokens) - unseen.before)

    @property
    def recomputed(self) -> int:
        """Tokens of the prompt that were not reused, as far as it is processed."""
        return self.prompt.processed - self.stats.reused_tokens

    def cancel(self, finish: int = constants.FINISH_CANCELED) -> None:
        """End now; tokens that the host has not been given are taken back.

        Where the cache cannot, the host is still given them: it holds no others.
        """
        if self.over:
            return
        seen = len(self._sequence.tokens) - self.unseen
        self._end(finish)
        if self._sequence.trim_to(seen):
            self.outbox.clear()
            self._held = None
        elif self._held is not None:
            self.read(self._held)

    def forget(self) -> None:
        """End, and drop what the host was not given and whatever was computed for it."""
        self.cancel()
        self.outbox.clear()
        self.logits = None

    def settle(self) -> None:
        """Compute the logits that are kept, and let go of the batch that they were a row of."""
        if self.last is not None:
            self.last.logits = None  # they are in self.logits
        keep: list[Generation | Piece] = [self, *self.outbox]
        keep = [each for each in keep if each.logits is not None]
        rows = settled([each.logits for each in keep if each.logits is not None])
        for each, row in zip(keep, rows, strict=True):
            each.logits = row

    def fail(self, error: BaseException) -> None:
        """End with an error; the sequence is emptied, since its layers may differ.

        Where these are lost with the machines that they were on, it goes on telling its tokens.
        """
        unseen, self._held = self.unseen, None
        self.error = failures.kept(error)
        self.outbox.clear()
        self.logits = None
        self._end(constants.FINISH_CANCELED)
        if isinstance(error, Lost):
            self._sequence.forget_last(unseen)
            return
        with suppress(BaseException):  # what its batch makes of that says less than the error
            self._sequence.reset()

    def last_piece(self) -> Piece:
        """Return what every call gets once all is delivered."""
        stats = self.stats
        last = self.outbox[-1] if self.outbox else self.last
        return Piece(
            last.token if last is not None else -1,
            b"",
            self.finish,
            True,
            len(self._sequence.tokens),
            stats.generated_tokens,
            stats.generation_seconds,
            logprob=last.logprob if last is not None else None,
        )
