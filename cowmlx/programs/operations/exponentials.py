"""Exponentials, logarithms and error functions of elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations import elementary
from cowmlx.programs.operations.making import PAIR, elementwise, inexact
from cowmlx.programs.operations.row import Operation
from cowmlx.programs.operations.rules import REAL


def _function(
    name: str,
    function: Callable[..., mx.array],
    summary: str,
    formula: str,
    **more: Any,
) -> Operation:
    return elementwise(
        name, function, summary, formula, result=inexact, differentiable=True, **more
    )


ROWS = (
    _function("exp", elementary.exp, "The exponential.", "e^a"),
    _function("expm1", mx.expm1, "The exponential less 1, exact near 0.", "e^a - 1", accepted=REAL),
    _function("exp2", elementary.exp2, "The power of 2.", "2^a", accepted=REAL),
    _function("log", mx.log, "The natural logarithm.", "ln a", values=" 0.5..2", aliases=("ln",)),
    _function(
        "log1p", mx.log1p, "The logarithm of 1 + a, exact near 0.", "ln(1 + a)", values=" -0.5..2"
    ),
    _function("log2", elementary.log2, "The logarithm of base 2.", "ln a / ln 2", values=" 0.5..2"),
    _function(
        "log10", elementary.log10, "The logarithm of base 10.", "ln a / ln 10", values=" 0.5..2"
    ),
    _function(
        "logaddexp",
        elementary.logaddexp,
        "The logarithm of a sum of exponentials, without overflow.",
        "ln(e^a + e^b)",
        places=PAIR,
    ),
    _function(
        "erf",
        elementary.erf,
        "The error function.",
        "2 / sqrt(pi) integral from 0 to a of e^(-t^2) dt",
        accepted=REAL,
    ),
    _function(
        "erfinv",
        elementary.erfinv,
        "The inverse of the error function.",
        "erf(out) = a",
        accepted=REAL,
        values=" -0.8..0.8",
        aliases=("erf_inv",),
    ),
)
