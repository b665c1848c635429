"""A network's parameters as files have them, whatever form they are held in."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.accelerate import blocks


def stored(network: Any) -> dict[str, mx.array]:
    """Return all parameters by their names, laid out as mlx-lm's."""
    return {
        name: array.array() if isinstance(array, blocks.Rowwise) else array
        for name, array in blocks.parameters(network).items()
    }
