"""Log probabilities of the chosen and of the most probable tokens."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generation.filters import normalized


class LogProbs:
    """Of one position, lazily; under the model, whatever the sampler made of its logits.

    Args:
        logits: (1, V).
        token: (1,) the chosen token.
        count: how many of the most probable ones.
    """

    def __init__(self, logits: mx.array, token: mx.array, count: int) -> None:
        logprobs = normalized(logits.astype(mx.float32))
        self._chosen = mx.take_along_axis(logprobs, token[None].astype(mx.int32), axis=-1)
        count = min(count, logprobs.shape[-1])
        best = mx.argpartition(-logprobs, kth=count - 1, axis=-1)[:, :count]
        order = mx.argsort(-mx.take_along_axis(logprobs, best, axis=-1), axis=-1)
        self._tokens = mx.take_along_axis(best, order, axis=-1)
        self._values = mx.take_along_axis(logprobs, self._tokens, axis=-1)

    @property
    def arrays(self) -> tuple[mx.array, ...]:
        """What has to be evaluated."""
        return self._chosen, self._tokens, self._values

    def chosen(self) -> float:
        """Return the log probability of the chosen token."""
        return float(self._chosen.item())  # type: ignore[arg-type]

    def top(self) -> list[tuple[int, float]]:
        """Return the most probable tokens with their log probabilities, best first."""
        tokens: list[int] = self._tokens[0].tolist()  # type: ignore[assignment]
        values: list[float] = self._values[0].tolist()  # type: ignore[assignment]
        return list(zip(tokens, values, strict=True))
