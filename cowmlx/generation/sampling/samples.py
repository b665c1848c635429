"""Tokens being sampled, and the steps that read them."""

from __future__ import annotations

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from cowmlx.generation.sampling.batch import LogProbs


class RowLogits:
    """One row of logits (B, V), copied only when used, which is rare."""

    __slots__ = ("_all", "_row")

    def __init__(self, logits: mx.array, row: int = 0) -> None:
        self._all = logits
        self._row = row

    def array(self) -> mx.array:
        """Return (1, V), lazily."""
        if self._all.shape[0] == 1:
            return self._all
        return self._all[self._row : self._row + 1]


def settled(rows: Sequence[RowLogits]) -> list[RowLogits]:
    """Compute rows, and let go of the batches that they were cut out of."""
    first = mx.array([0])
    own = [mx.take(row.array(), first, axis=0) for row in rows]
    mx.eval(own)
    return [RowLogits(sample) for sample in own]


class SampledRows:
    """The tokens of the rows of a batch, computed and read together.

    Args:
        tokens: (B,).
        logprobs: the reported ones by row, each with the row's place there.
        surprises: (B,) of the tokens in bits, among those that mirostat left; None: of none.
    """

    __slots__ = ("_logprobs", "_surprises", "_values", "tokens")

    def __init__(
        self,
        tokens: mx.array,
        logprobs: dict[int, tuple[LogProbs, int]],
        surprises: mx.array | None = None,
    ) -> None:
        self.tokens = tokens
        self._logprobs = logprobs
        self._surprises = surprises
        self._values: list[int] | None = None

    @property
    def arrays(self) -> list[mx.array]:
        """What has to be evaluated."""
        return [
            self.tokens,
            *([] if self._surprises is None else [self._surprises]),
            *(array for of_row, _ in self._logprobs.values() for array in of_row.arrays),
        ]

    def value(self, row: int) -> int:
        """Wait for all tokens and return one."""
        if self._values is None:
            self._values = self.tokens.tolist()  # type: ignore[assignment]
        return self._values[row]  # type: ignore[index]

    def surprise(self, row: int) -> float:
        """Wait for the token of a row and return its surprise."""
        assert self._surprises is not None
        return float(self._surprises[row].item())  # type: ignore[arg-type]

    def logprobs(self, row: int) -> tuple[float | None, list[tuple[int, float]] | None]:
        """Return the log probability of a row's token, and the most probable ones."""
        if row not in self._logprobs:
            return None, None
        of_rows, place = self._logprobs[row]
        return of_rows.chosen(place), of_rows.top(place)


class Sample:
    """A token being computed, and the logits that it is sampled from.

    Attributes:
        rows: it is one of.
        row: its index there.
        logits: of the model, as they were before penalties and filters.
    """

    __slots__ = ("logits", "row", "rows")

    def __init__(self, rows: SampledRows, row: int, logits: RowLogits) -> None:
        self.rows = rows
        self.row = row
        self.logits = logits

    @property
    def token(self) -> mx.array:
        """(1,), perhaps still computing."""
        tokens = self.rows.tokens
        return tokens if tokens.size == 1 else tokens[self.row : self.row + 1]

    def value(self) -> int:
        """Wait for the token and return it."""
        return self.rows.value(self.row)

    def surprise(self) -> float:
        """Wait for the token and return its surprise in bits, where mirostat is on."""
        return self.rows.surprise(self.row)

    def logprobs(self) -> tuple[float | None, list[tuple[int, float]] | None]:
        """Return the log probability of the token, and the most probable ones."""
        return self.rows.logprobs(self.row)


def stacked(samples: Sequence[Sample | None]) -> mx.array:
    """Return (B,) uint32 the tokens of samples, and any where there is none."""
    rows = next(sample for sample in samples if sample is not None).rows
    places = []
    for place, sample in enumerate(samples):
        if sample is None:
            places.append(place)
        elif sample.rows is rows:
            places.append(sample.row)
        else:
            nothing = mx.array([0], mx.uint32)
            return mx.concatenate(
                [nothing if sample is None else sample.token for sample in samples]
            )
    size = rows.tokens.size
    if places == list(range(size)):
        return rows.tokens
    known = [place if place < size else 0 for place in places]
    return mx.take(rows.tokens, mx.array(known), axis=0)


class Step:
    """One decode step under way.

    Attributes:
        pending: the token that is read, and fed if it has a successor.
        before: tokens held before it.
        finish: why it is the last one, or FINISH_NONE.
        full: whether the window has no place for it.
        feeds: whether it is fed to the network.
        followed: whether its successor is sampled already.
        following: the logits behind it, or those that it was sampled from.
    """

    __slots__ = ("before", "feeds", "finish", "followed", "following", "full", "pending")

    def __init__(self, pending: Sample, before: int, finish: int, full: bool) -> None:
        self.pending = pending
        self.before = before
        self.finish = finish
        self.full = full
        self.feeds = not finish and not full
        self.followed = False
        self.following = pending.logits
