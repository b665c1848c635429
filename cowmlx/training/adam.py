"""mlx's Adam and AdamW, which a kernel computes in one pass where it can: with the same bits."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
from mlx import optimizers

from cowmlx.accelerate import kernels, trained


class Adam(optimizers.Adam):
    """mlx's Adam."""

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]
    ) -> mx.array:
        """Return a parameter after a step; its state goes on."""
        if not _takes(gradient, parameter, state):
            return super().apply_single(gradient, parameter, state)
        return _after(self, gradient, parameter, state, mx.array(1.0))


class AdamW(optimizers.AdamW):
    """mlx's AdamW."""

    def apply_single(
        self, gradient: mx.array, parameter: mx.array, state: dict[str, Any]
    ) -> mx.array:
        """Return a parameter after a step; its state goes on."""
        if not _takes(gradient, parameter, state):
            return super().apply_single(gradient, parameter, state)
        keep = 1 - self.learning_rate.astype(mx.float32) * self.weight_decay
        return _after(self, gradient, parameter, state, keep)


def _takes(gradient: mx.array, parameter: mx.array, state: dict[str, Any]) -> bool:
    return trained.takes(gradient, parameter, state["m"], state["v"]) and parameter.size > 0


def _after(
    optimizer: optimizers.Adam,
    gradient: mx.array,
    parameter: mx.array,
    state: dict[str, Any],
    keep: mx.array,
) -> mx.array:
    rate, root = optimizer.learning_rate.astype(mx.float32), mx.array(1.0)
    b1, b2 = optimizer.betas
    if optimizer.bias_correction:
        rate = (rate / (1 - b1**optimizer.step)).astype(mx.float32)
        root = mx.rsqrt(1 - b2**optimizer.step).astype(mx.float32)
    after: mx.array
    after, state["m"], state["v"] = kernels.module().adam(
        parameter,
        gradient,
        state["m"],
        state["v"],
        mx.stack([rate, root, keep]),
        betas=(b1, b2),
        eps=optimizer.eps,
    )
    return after
