"""Log probabilities of the chosen and of the most probable tokens."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.sampling.filters import normalized


class LogProbs:
    """Of one position a row, lazily; under the model, whatever the sampler made of its logits.

    Args:
        logits: (B, V).
        tokens: (B,) the chosen tokens.
        count: how many of the most probable ones.
    """

    def __init__(self, logits: mx.array, tokens: mx.array, count: int) -> None:
        logprobs = normalized(logits.astype(mx.float32))
        chosen = mx.take_along_axis(logprobs, tokens[:, None].astype(mx.int32), axis=-1)
        count = min(count, logprobs.shape[-1])
        best = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[:, :count]
        order = mx.argsort(-mx.take_along_axis(logprobs, best, axis=-1), axis=-1)
        best = mx.take_along_axis(best, order, axis=-1)
        self.arrays = chosen, best, mx.take_along_axis(logprobs, best, axis=-1)
        self._lists: tuple[list[list[float]], list[list[int]], list[list[float]]] | None = None

    def chosen(self, row: int) -> float:
        """Return the log probability of a row's token."""
        return self._read()[0][row][0]

    def top(self, row: int) -> list[tuple[int, float]]:
        """Return a row's most probable tokens with their log probabilities, best first."""
        _, tokens, values = self._read()
        return list(zip(tokens[row], values[row], strict=True))

    def _read(self) -> tuple[list[list[float]], list[list[int]], list[list[float]]]:
        """Wait for all rows."""
        if self._lists is None:
            chosen, tokens, values = (array.tolist() for array in self.arrays)
            self._lists = chosen, tokens, values  # type: ignore[assignment]
        return self._lists  # type: ignore[return-value]
