"""Tokens being drawn, and the steps that read them."""

from __future__ import annotations

from cowmlx.generation.logprobs import LogProbs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import mlx.core as mx


class Draw:
    """A token being computed, and what it was drawn from.

    Attributes:
        token: (1,).
        logits: (1, V) of the model, as they were before penalties and filters.
    """

    __slots__ = ("_logprobs", "logits", "token")

    def __init__(self, token: mx.array, logits: mx.array, logprobs: int = 0) -> None:
        self.token = token
        self.logits = logits
        self._logprobs = LogProbs(logits, token, logprobs) if logprobs else None

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        """What has to be evaluated."""
        return (self.token, *(self._logprobs.arrays if self._logprobs is not None else ()))

    def value(self) -> int:
        """Wait for the token and return it."""
        return int(self.token.item())  # type: ignore[arg-type]

    def logprobs(self) -> tuple[float | None, list[tuple[int, float]] | None]:
        """Return the log probability of the token, and the most probable ones."""
        if self._logprobs is None:
            return None, None
        return self._logprobs.chosen(), self._logprobs.top()


class BestOfRows:
    """The best token of every row of a batch, in one operation.

    Attributes:
        tokens: (B,), computing.
    """

    __slots__ = ("_values", "tokens")

    def __init__(self, tokens: mx.array) -> None:
        self.tokens = tokens
        self._values: list[int] | None = None

    def value(self, row: int) -> int:
        """Wait for all of them and return one."""
        if self._values is None:
            self._values = self.tokens.tolist()  # type: ignore[assignment]
        return self._values[row]  # type: ignore[index]


class RowDraw(Draw):
    """One row's of :class:`BestOfRows`.

    Attributes:
        best: of all rows.
        row: its index then.
    """

    __slots__ = ("best", "row")

    def __init__(self, best: BestOfRows, row: int, logits: mx.array) -> None:
        super().__init__(best.tokens[row : row + 1], logits)
        self.best = best
        self.row = row

    def value(self) -> int:
        """Wait for the token and return it."""
        return self.best.value(self.row)


class Step:
    """One decode step under way.

    Attributes:
        pending: the token that is read, and fed if it has a successor.
        before: tokens held before it.
        finish: why it is the last one, or FINISH_NONE.
        full: whether the window has no place for it.
        feeds: whether it is fed to the network.
        following: (1, V) the logits behind it, or those it was drawn from.
    """

    __slots__ = ("before", "feeds", "finish", "following", "full", "pending")

    def __init__(self, pending: Draw, before: int, finish: int, full: bool) -> None:
        self.pending = pending
        self.before = before
        self.finish = finish
        self.full = full
        self.feeds = not finish and not full
        self.following = pending.logits
