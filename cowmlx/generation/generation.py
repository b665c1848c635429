"""The course of one generation: prompt in chunks, then a token a step."""

from __future__ import annotations

from collections import deque
from time import perf_counter

import mlx.core as mx

from cowmlx import _constants as constants
from cowmlx.generation.sampling import Sampler
from cowmlx.generation.stop import StopMatcher

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.cache.sequence import Sequence
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model

PREFILL_CHUNK = 512  # tokens; the longest that one context's prompt delays another's step
RUN_AHEAD = 1  # tokens that may wait for their host while the next is computed
CLEAR_INTERVAL = 256  # tokens between returns of mlx's unused buffers, as mlx-lm does


class Piece:
    """One token and its text.

    Attributes:
        silent: the token only ends the generation and is no output of its own.
        before: how many tokens the sequence held before it.
        count: how many tokens were generated with it.
        seconds: when it was there, since the prompt was processed.
    """

    __slots__ = ("before", "count", "finish", "seconds", "silent", "text", "token")

    def __init__(
        self,
        token: int,
        text: bytes,
        finish: int,
        silent: bool,
        before: int,
        count: int,
        seconds: float,
    ) -> None:
        self.token = token
        self.text = text
        self.finish = finish
        self.silent = silent
        self.before = before
        self.count = count
        self.seconds = seconds


class Stats:
    """Sizes and times of a generation; seconds since ``begin``."""

    def __init__(self, prompt_tokens: int, reused_tokens: int) -> None:
        self.prompt_tokens = prompt_tokens
        self.reused_tokens = reused_tokens
        self.generated_tokens = 0
        self.prompt_seconds = 0.0
        self.generation_seconds = 0.0
        self.first_token_seconds = 0.0
        self.begun = perf_counter()

    def elapsed(self) -> float:
        """Return the seconds since begin."""
        return perf_counter() - self.begun


class Generation:
    """Processes a prompt and generates tokens into ``outbox``.

    Owns no cache: it works on its context's sequence. Runs on whatever mlx
    stream is current. While a token is read, the step that follows it is already
    computing; a sequence that can drop tokens again may also run ahead of its
    host by RUN_AHEAD tokens, any other holds exactly what its host has seen.
    """

    def __init__(
        self,
        model: Model,
        sequence: Sequence,
        prompt: list[int],
        params: GenerationParams,
        window: int,
        cancel_epoch: int,
    ) -> None:
        self.params = params
        self.cancel_epoch = cancel_epoch
        self.rebuilt = sequence.keep_prefix(prompt)
        self.stats = Stats(len(prompt), len(sequence.tokens))
        self.outbox: deque[Piece] = deque()
        self.finish = constants.FINISH_NONE
        self.error: BaseException | None = None
        self.processed = len(sequence.tokens)  # of the prompt, reused ones included
        self._last_token = -1  # that the host was given
        self._count = 0  # tokens generated, given to the host or not
        self._sequence = sequence
        self._window = window
        self._ends = model.end_tokens
        self._rest = prompt[len(sequence.tokens) :]
        self._sampler = Sampler(params)
        self._detokenizer = model.tokenizer.detokenizer(skip_special=False)
        self._stops = StopMatcher(params.stop)
        self._chunk = 0  # tokens of the prompt that are computing
        self._pending: mx.array | None = None  # (1,) the next token, computing

    # ---------------------------------------------------------------- Prompt

    @property
    def prefilling(self) -> bool:
        """Whether the prompt is still being processed."""
        return not self.ended and (bool(self._rest) or self._chunk > 0)

    def prefill(self) -> None:
        """Wait for the chunk that is computing, then start the next.

        All but the last token go through in chunks whose logits nobody computes;
        the last one is the first step.
        """
        if self._chunk:
            mx.eval(self._sequence.state)
            self.processed += self._chunk
            self._chunk = 0
            if not self._rest:
                self._end_prompt()
                return
        chunk = self._rest[:PREFILL_CHUNK]
        if self.params.max_tokens > 0 and len(chunk) == len(self._rest) > 1:
            chunk = chunk[:-1]
        ids = mx.array(chunk, mx.int32)
        if self.params.max_tokens > 0 and len(self._rest) == 1:
            self._pending = self._step(ids)
        else:
            self._sequence.forward(ids)
            mx.async_eval(self._sequence.state)
        self._sequence.name(chunk)
        del self._rest[: len(chunk)]
        self._chunk = len(chunk)

    def _end_prompt(self) -> None:
        if self._pending is None:
            self._end(constants.FINISH_LENGTH)
        else:
            mx.eval(self._pending)
        if self.recomputed > PREFILL_CHUNK:
            mx.clear_cache()
        self.stats.prompt_seconds = self.stats.elapsed()

    # ---------------------------------------------------------------- Tokens

    @property
    def can_run_ahead(self) -> bool:
        """Whether a step may be taken that no host has asked for."""
        return len(self.outbox) < RUN_AHEAD and self._sequence.can_take_back(RUN_AHEAD)

    @property
    def ended(self) -> bool:
        """Whether no more tokens come, but for those in the outbox."""
        return self.finish != constants.FINISH_NONE

    def decode(self) -> None:
        """Start the step after the pending token, then read that token into the outbox."""
        pending = self._pending
        assert pending is not None
        self._count += 1
        finish = constants.FINISH_NONE
        if self._count >= self.params.max_tokens:
            finish = constants.FINISH_LENGTH
        elif len(self._sequence.tokens) >= self._window:
            finish = constants.FINISH_CONTEXT
        before = len(self._sequence.tokens)
        self._pending = self._step(pending) if not finish else None
        token = int(pending.item())  # type: ignore[arg-type]
        if not finish:
            self._sequence.name([token])
        if self._count % CLEAR_INTERVAL == 0:
            mx.clear_cache()
        self._emit(token, finish, before)

    def _step(self, last: mx.array) -> mx.array:
        """Start computing the token after ``last`` (1,)."""
        history = self._sequence.tokens
        logits = self._sequence.forward(last)[:, -1, :]
        token = self._sampler(logits, history, last)
        mx.async_eval(token)
        return token

    def _emit(self, token: int, finish: int, before: int) -> None:
        if token in self._ends:
            finish = constants.FINISH_STOP
            text = self._detokenizer.finish()
        else:
            text = self._detokenizer.add(token)
            if finish:
                text += self._detokenizer.finish()
        text = self._stops.add(text)
        if self._stops.stopped:
            finish = constants.FINISH_STOP_TEXT
        elif finish:
            text += self._stops.finish()
        if finish:
            self._end(finish)
        # An end token, or one that completes a stop text, is output only if there
        # was text before it.
        silent = not text and finish in (constants.FINISH_STOP, constants.FINISH_STOP_TEXT)
        elapsed = self.stats.elapsed()
        if self._count == 1:
            self.stats.first_token_seconds = elapsed
        seconds = elapsed - self.stats.prompt_seconds
        self.outbox.append(
            Piece(token, text.encode(), finish, silent, before, self._count, seconds)
        )

    def take(self) -> Piece:
        """Return the next piece: the host has it from now on."""
        piece = self.outbox.popleft()
        self._last_token = piece.token
        self.stats.generated_tokens = piece.count
        self.stats.generation_seconds = piece.seconds
        return piece

    @property
    def over(self) -> bool:
        """Whether the host has been given everything."""
        return self.ended and not self.outbox

    def _end(self, finish: int) -> None:
        self.finish = finish
        self._pending = None

    @property
    def unseen(self) -> int:
        """Tokens in the sequence that the host has not been given."""
        return len(self._sequence.tokens) - self.outbox[0].before if self.outbox else 0

    @property
    def recomputed(self) -> int:
        """Tokens of the prompt that were not reused, as far as it is processed."""
        return self.processed - self.stats.reused_tokens

    def cancel(self) -> None:
        """End now; tokens that the host has not been given are taken back.

        Where the cache cannot, the host is still given them: it holds no others.
        """
        if self.over:
            return
        seen = len(self._sequence.tokens) - self.unseen
        self._end(constants.FINISH_CANCELED)
        if self._sequence.trim_to(seen):
            self.outbox.clear()

    def fail(self, error: BaseException) -> None:
        """End with an error; the sequence is emptied, since its layers may differ."""
        self.error = error
        self.outbox.clear()
        self._end(constants.FINISH_CANCELED)
        self._sequence.reset()

    def last_piece(self) -> Piece:
        """Return what every call gets once all is delivered."""
        stats = self.stats
        return Piece(
            self._last_token,
            b"",
            self.finish,
            True,
            len(self._sequence.tokens),
            stats.generated_tokens,
            stats.generation_seconds,
        )
