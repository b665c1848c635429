"""Cumulative operations along an axis, and differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import count
from cowmlx.programs.operations import elementary
from cowmlx.programs.operations.making import Result, example, inexact, row, same
from cowmlx.programs.operations.promotion import DTYPES as ALL_DTYPES
from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import NUMBERS, REAL, axis_of, replaced, require_dtype, spec

_AXIS = Attribute("axis", "axis", None, "The axis; null is the flattened array.")
_REVERSE = Attribute("reverse", "bool", False, "Whether it begins at the end.")
_INCLUSIVE = Attribute("inclusive", "bool", True, "Whether an element counts for its own place.")


def _scan(
    name: str,
    function: Callable[..., mx.array],
    result: Result,
    summary: str,
    formula: str,
    accepted: Sequence[str],
    aliases: Sequence[str],
    differentiable: bool,
) -> Operation:
    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype("a", given, accepted)
        shape = given.shape
        if attributes["axis"] is None:
            shape = (count(shape),)
        else:
            axis_of(attributes["axis"], len(shape))
        return [spec(shape, result(given.dtype))]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        (array,) = arrays
        return [function(array, **attributes)]

    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        [
            example("float32[2,3]", axis=1),
            example("float32[2,3]"),
            example("float32[4,2]", axis=0, reverse=True),
            example("float32[4]", axis=-1, inclusive=False),
            example("float32[0,2]", axis=0),
        ],
        aliases=aliases,
        attributes=(_AXIS, _REVERSE, _INCLUSIVE),
        differentiable=("a",) if differentiable else (),
    )


def _extreme(function: Callable[..., mx.array], lowest: float) -> Callable[..., mx.array]:
    """Return a scan of extremes, nan from the first nan on.

    mlx loses nan of 16 bits, and its gradient writes beyond the array where the first is nan.
    """

    def scan(a: mx.array, **attributes: Any) -> mx.array:
        if not mx.issubdtype(a.dtype, mx.floating):
            return function(a, **attributes)
        is_nan = mx.isnan(mx.stop_gradient(a))
        found = function(mx.where(is_nan, lowest, a), **attributes)
        return mx.where(mx.cumsum(is_nan, **attributes) > 0, math.nan, found)

    return scan


def _diff(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    require_dtype("a", given, NUMBERS)
    axis = axis_of(attributes["axis"], len(given.shape))
    length, times = given.shape[axis], attributes["n"]
    left = max(length - times, 0) if isinstance(length, int) else length - times
    return [spec(replaced(given.shape, axis, left), given.dtype)]


def _diff_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    (found,) = arrays
    axis = attributes["axis"] % found.ndim
    for _ in range(min(attributes["n"], found.shape[axis])):
        before = (slice(None),) * axis
        found = found[(*before, slice(1, None))] - found[(*before, slice(None, -1))]
    return [found]


ROWS = (
    _scan(
        "cumsum",
        mx.cumsum,
        lambda dtype: "int32" if dtype == "bool" else dtype,
        "The sums of all elements up to each.",
        "out[i] = a[0] + … + a[i]",
        ALL_DTYPES,
        ("cumulative_sum",),
        True,
    ),
    _scan(
        "cumprod",
        mx.cumprod,
        same,
        "The products of all elements up to each.",
        "out[i] = a[0] … a[i]",
        ALL_DTYPES,
        ("cumulative_prod", "cumulative_product"),
        True,
    ),
    _scan(
        "cummax",
        _extreme(mx.cummax, -math.inf),
        same,
        "The largest of all elements up to each.",
        "out[i] = max(a[0], …, a[i])",
        REAL,
        ("cumulative_max",),
        True,
    ),
    _scan(
        "cummin",
        _extreme(mx.cummin, math.inf),
        same,
        "The smallest of all elements up to each.",
        "out[i] = min(a[0], …, a[i])",
        REAL,
        ("cumulative_min",),
        True,
    ),
    _scan(
        "logcumsumexp",
        elementary.logcumsumexp,
        inexact,
        "The logarithms of the sums of exponentials up to each element.",
        "out[i] = ln(e^a[0] + … + e^a[i])",
        REAL,
        (),
        True,
    ),
    row(
        "diff",
        ("a",),
        _diff,
        _diff_arrays,
        "The differences of neighbours, n times.",
        "out[i] = a[i + 1] - a[i]",
        [
            example("float32[2,5]"),
            example("float32[5,2]", n=2, axis=0),
            example("float32[2]", n=3),
            example("float32[2]", n=0),
        ],
        attributes=(
            Attribute("n", "int", 1, "How many times.", low=0, high=64),
            Attribute("axis", "axis", -1, "The axis."),
        ),
        differentiable=("a",),
    ),
)
