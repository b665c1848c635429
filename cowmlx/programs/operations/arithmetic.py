"""Sums, products, quotients and powers of elements."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.programs.operations.making import elementwise

PAIR = ("a", "b")

ROWS = (
    elementwise(
        "add",
        mx.add,
        "The sum of two arrays; of bools it is their or.",
        "a + b",
        places=PAIR,
        differentiable=True,
    ),
)
