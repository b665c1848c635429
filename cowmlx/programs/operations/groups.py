"""Convolutions in groups that can be vectorised over their weights alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

Convolution = Callable[[mx.array, mx.array], mx.array]


def grouped(convolution: Convolution) -> Convolution:
    """Return a convolution whose rows are right whichever of its inputs have rows.

    mlx 0.32.4 mixes the groups of different rows where only the weights have rows. So the input
    gets rows too then.

    Args:
        convolution: of an input and weights, in groups, by mlx.
    """
    found: Any = mx.custom_function(convolution)

    @found.vmap  # type: ignore[untyped-decorator]
    def rows(inputs: Any, axes: Any) -> tuple[mx.array, int]:
        given, weight = inputs
        if axes[0] is None:
            given = mx.broadcast_to(given, (weight.shape[axes[1]], *given.shape))
            axes = (0, axes[1])
        return mx.vmap(convolution, in_axes=axes)(given, weight), 0

    made: Convolution = found
    return made
