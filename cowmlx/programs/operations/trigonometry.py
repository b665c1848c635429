"""Trigonometric and hyperbolic functions of elements, in radians."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations import elementary
from cowmlx.programs.operations.making import PAIR, elementwise, inexact
from cowmlx.programs.operations.row import Operation
from cowmlx.programs.operations.rules import REAL


def _function(
    name: str, function: Callable[..., mx.array], summary: str, formula: str, **more: Any
) -> Operation:
    return elementwise(
        name, function, summary, formula, result=inexact, differentiable=True, **more
    )


ROWS = (
    _function("sin", elementary.sin, "The sine.", "sin a", aliases=("sine",)),
    _function("cos", elementary.cos, "The cosine.", "cos a", aliases=("cosine",)),
    _function("tan", elementary.tan, "The tangent.", "sin a / cos a", values=" -1..1"),
    _function(
        "arcsin",
        mx.arcsin,
        "The inverse sine.",
        "sin out = a",
        values=" -0.8..0.8",
        aliases=("asin",),
    ),
    _function(
        "arccos",
        mx.arccos,
        "The inverse cosine.",
        "cos out = a",
        values=" -0.8..0.8",
        aliases=("acos",),
    ),
    _function("arctan", mx.arctan, "The inverse tangent.", "tan out = a", aliases=("atan",)),
    _function(
        "arctan2",
        mx.arctan2,
        "The angle of the point (b, a).",
        "atan(a / b) in the quadrant of (b, a)",
        places=PAIR,
        accepted=REAL,
        values=" 0.5..2",
        aliases=("atan2",),
    ),
    _function("sinh", mx.sinh, "The hyperbolic sine.", "(e^a - e^-a) / 2"),
    _function("cosh", mx.cosh, "The hyperbolic cosine.", "(e^a + e^-a) / 2"),
    _function("tanh", mx.tanh, "The hyperbolic tangent.", "sinh a / cosh a"),
    _function(
        "arcsinh", mx.arcsinh, "The inverse hyperbolic sine.", "sinh out = a", aliases=("asinh",)
    ),
    _function(
        "arccosh",
        mx.arccosh,
        "The inverse hyperbolic cosine.",
        "cosh out = a",
        values=" 1.5..3",
        aliases=("acosh",),
    ),
    _function(
        "arctanh",
        mx.arctanh,
        "The inverse hyperbolic tangent.",
        "tanh out = a",
        values=" -0.8..0.8",
        aliases=("atanh",),
    ),
)
