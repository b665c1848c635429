"""Tokens that are scored behind those of a context, on a copy of its state."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import mlx.core as mx

from cowmlx.cache.footprint import footprint_of
from cowmlx.cache.sequence import Sequence
from cowmlx.generation.pace import pace_of
from cowmlx.models.image_tokens import advance, next_chunk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.generation.context import Context
    from cowmlx.models.images import ImageSteps

MOST_LOGITS = 1 << 24
"""Numbers of the logits that are computed at once, at most, unless one token has more."""
_COPIES = 4  # of logits that are in memory at once: in float32, normalized, sorted, their indices
_FLOAT = 4


class Reading(ABC):
    """What is read from the logits behind given tokens.

    Position ``i`` is behind token ``i``; -1 is behind the tokens before the given ones.
    """

    @abstractmethod
    def wants(self, position: int) -> bool:
        """Whether the logits at a position are read."""

    @abstractmethod
    def take(self, positions: list[int], logits: mx.array) -> list[mx.array]:
        """Read logits (N, V) at wanted positions, lazily; return what is to be evaluated."""


class LogProbs(Reading):
    """Log probabilities of tokens, and of the most probable ones in their place.

    Args:
        tokens: given.
        top: alternatives for each.
    """

    def __init__(self, tokens: list[int], top: int) -> None:
        self._tokens = tokens
        self._top = top
        self._rows: list[tuple[list[int], mx.array, mx.array | None]] = []

    def wants(self, position: int) -> bool:
        """Whether a token follows."""
        return -1 <= position < len(self._tokens) - 1

    def take(self, positions: list[int], logits: mx.array) -> list[mx.array]:
        """Read the log probabilities of the tokens that follow."""
        own = logits.astype(mx.float32)
        own = own - mx.logsumexp(own, axis=-1, keepdims=True)
        ids = mx.array([[self._tokens[position + 1]] for position in positions], mx.int32)
        top = None
        if self._top:
            top = _most_probable(own, self._top)
            ids = mx.concatenate([ids, top], axis=-1)
        values = mx.take_along_axis(own, ids, axis=-1)
        self._rows.append((positions, values, top))
        return [values] if top is None else [values, top]

    def result(self) -> tuple[list[int], list[float]]:
        """Return (N * (1 + top)) token ids and their log probabilities."""
        unknown = self._rows[0][0][0] + 1 if self._rows else len(self._tokens)
        ids: list[int] = []
        values: list[float] = []
        for token in self._tokens[:unknown]:
            ids += [token, *[-1] * self._top]
            values += [math.nan] * (1 + self._top)
        for positions, scored, top in self._rows:
            rows: list[list[int]] = [[]] * len(positions) if top is None else top.tolist()  # type: ignore[assignment]
            for position, row in zip(positions, rows, strict=True):
                ids += [self._tokens[position + 1], *row]
            values += scored.reshape(-1).tolist()  # type: ignore[arg-type]
        return ids, values


def _most_probable(logprobs: mx.array, count: int) -> mx.array:
    """Return int32 (N, count) the tokens with the largest values of (N, V), the largest first."""
    size = logprobs.shape[-1]
    if count < size:
        found = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[:, :count]
        values = mx.take_along_axis(logprobs, found, axis=-1)
        order = mx.argsort(-values, axis=-1)
        return mx.take_along_axis(found, order, axis=-1).astype(mx.int32)
    return mx.argsort(-logprobs, axis=-1).astype(mx.int32)


class Logits(Reading):
    """The logits at chosen positions.

    Args:
        positions: in any order, perhaps some of them twice.
    """

    def __init__(self, positions: list[int]) -> None:
        self._positions = positions
        self._wanted = set(positions)
        self._rows: dict[int, mx.array] = {}

    def wants(self, position: int) -> bool:
        """Whether it was chosen."""
        return position in self._wanted

    def take(self, positions: list[int], logits: mx.array) -> list[mx.array]:
        """Keep rows."""
        rows = [logits[index].astype(mx.float32) for index in range(len(positions))]
        self._rows.update(zip(positions, rows, strict=True))
        return rows

    def result(self) -> mx.array:
        """Return float32 (N, V), evaluated."""
        made = mx.contiguous(mx.stack([self._rows[position] for position in self._positions]))
        mx.eval(made)
        return made


class States(Reading):
    """The hidden states of all tokens; of a network that returns these in place of logits.

    Args:
        count: tokens.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._rows: list[mx.array] = []

    def wants(self, position: int) -> bool:
        """Whether it is one of the tokens."""
        return 0 <= position < self._count

    def take(self, positions: list[int], logits: mx.array) -> list[mx.array]:
        """Keep rows (N, D)."""
        self._rows.append(logits.astype(mx.float32))
        return self._rows[-1:]

    def result(self) -> mx.array:
        """Return float32 (N, D), evaluated."""
        made = mx.contiguous(mx.concatenate(self._rows))
        mx.eval(made)
        return made


class Surprise:
    """The sum of negative log probabilities, and that of their squares, over windows."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = self._squares = 0.0
        self._window: LogProbs | None = None

    def begin(self, tokens: list[int]) -> Reading:
        """Return the reading of one window."""
        self._window = LogProbs(tokens, 0)
        return self._window

    def end(self) -> None:
        """Add up a window that was processed."""
        assert self._window is not None
        for value in self._window.result()[1]:
            if not math.isnan(value):
                self.count += 1
                self._sum -= value
                self._squares += value * value
        self._window = None

    def result(self) -> tuple[float, float, int]:
        """Return the perplexity, its standard error (NaN if unknown), and the scored tokens."""
        mean = self._sum / self.count
        perplexity = math.exp(mean) if mean < math.log(1.7e308) else math.inf
        if self.count < 2:
            return perplexity, math.nan, self.count
        variance = max(0.0, self._squares / self.count - mean * mean)
        variance *= self.count / (self.count - 1)
        return perplexity, perplexity * math.sqrt(variance / self.count), self.count


class _Start(NamedTuple):
    """A copy of a context's state, and the tokens to feed to it.

    Attributes:
        sequence: that they follow.
        feed: tokens, of which the last are the given ones.
        position: of the first of them; the given ones begin at 0.
        behind: logits (1, V) at position -1, or None.
    """

    sequence: Sequence
    feed: list[int]
    position: int
    behind: mx.array | None


def steps(
    context: Context,
    tokens: list[int],
    reading: Reading,
    require: Callable[[int], None],
    *,
    fresh: bool = False,
    network: Any = None,
    more: int = 0,
) -> Generator[None, None, None]:
    """Yield between chunks of tokens that follow those of a context, which does not change.

    Args:
        context: no generation on it has a token that its host has not taken, or it can drop them.
        tokens: given.
        reading: receives their logits.
        require: raises if there is no memory for so many bytes.
        fresh: whether they begin a text, whatever the context holds.
        network: the model's, or one that returns something else in place of its logits.
        more: bytes of the result.

    Raises:
        BadState: the layers hold a token that the host has not taken, and cannot drop it, or an
            image that is processed again has no pixels.
        OutOfMemory: there is too little memory; nothing has changed.
    """
    yield from context.model.read_steps()
    held = 0 if fresh else len(context.tokens())
    require(more + needed(context, held + len(tokens)))
    inner = context.model.network
    copy = Sequence(network or inner, context.sequence.make_layers, inner)
    start = _start(context, copy, tokens, fresh, reading.wants(-1))
    if start.behind is not None:
        mx.eval(reading.take([-1], start.behind))
    sequence, feed, position = start.sequence, start.feed, start.position
    image_steps: set[ImageSteps] = set()
    while feed and any(map(reading.wants, range(position, position + len(feed)))):
        size = _chunk(context, len(sequence.tokens))
        chunk = next_chunk(feed, size)
        while advance(chunk, image_steps):
            yield
        feed = feed[len(chunk) :]
        wanted = [place for place in range(position, position + len(chunk)) if reading.wants(place)]
        logits = sequence.process(chunk)[0]
        sequence.append(chunk)
        pending: list[mx.array] = []
        if wanted:
            rows = logits
            if len(wanted) < len(chunk):
                rows = logits[mx.array([place - position for place in wanted])]
            pending = reading.take(wanted, rows)
        position += len(chunk)
        mx.async_eval([*pending, sequence.state])
        yield
        mx.eval([*pending, sequence.state])
    mx.clear_cache()


def _start(
    context: Context, copy: Sequence, tokens: list[int], fresh: bool, needs_behind: bool
) -> _Start:
    """Return the state that the tokens follow, and logits behind it where they are known.

    Without those the last held token is fed once more; a state that cannot drop it is made again
    from the first token on.
    """
    held = [] if fresh else context.tokens()
    if not held:
        return _Start(copy, tokens, 0, None)
    cut = None
    if context.sequence.has_layers:
        known = context.generation is not None and context.generation.logits is not None
        if known or not needs_behind:
            behind = context.logits()[None] if needs_behind else None
            copy.restore(context.snapshot())
            return _Start(copy, tokens, 0, behind)
        cut = context.snapshot_of(len(held) - 1)
    if cut is None or (cut.tokens and not cut.layers):
        return _Start(copy, held + tokens, -len(held), None)
    copy.restore(cut)
    return _Start(copy, held[-1:] + tokens, -1, None)


def _chunk(context: Context, held: int) -> int:
    """Return how many tokens to process at once."""
    model = context.model
    return max(1, min(pace_of(model).size(held), MOST_LOGITS // model.vocabulary_size))


def needed(context: Context, tokens: int) -> int:
    """Return the bytes that scoring takes, beside its result.

    Args:
        context: whose state is copied.
        tokens: that the copy holds at its end.
    """
    model = context.model
    chunk = min(tokens, _chunk(context, 0))
    logits = _FLOAT * _COPIES * chunk * model.vocabulary_size
    footprint = footprint_of(model, context.params.kv)
    return logits if footprint is None else footprint.needed(tokens, chunk) + logits
