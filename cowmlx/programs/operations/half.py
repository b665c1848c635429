"""Floats of 16 bits, computed in float32 where they would lose numbers on the way.

float16 has no number between 0 and 6e-8, none above 65,504, and few digits below 6.1e-5. So a small
``eps`` would be 0, and a square or a sum infinite, while the result is an ordinary number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import mlx.core as mx

Function = Callable[..., mx.array]
HALF = (mx.float16, mx.bfloat16)
_LEAST = 2.0**-14
"""The least float16 with all its digits."""
GREATEST = 65504.0
"""The greatest float16."""


def in_float32(function: Function) -> Function:
    """Return a function of arrays and attributes that is computed in float32 for 16-bit floats.

    Its result is rounded once, to the dtype in which the floats and complex numbers meet.

    Args:
        function: takes arrays, None for missing ones, then attributes by name.
    """

    def computed(*arrays: Any, **attributes: Any) -> mx.array:
        dtypes = [array.dtype for array in arrays if array is not None]
        if not any(dtype in HALF for dtype in dtypes):
            return function(*arrays, **attributes)
        floats = [dtype for dtype in dtypes if mx.issubdtype(dtype, mx.inexact)]
        wide = [None if array is None else widened(array) for array in arrays]
        result = function(*wide, **attributes)
        return result.astype(reduce(mx.result_type, floats))

    return computed


def keeping(function: Function, names: Sequence[str]) -> Function:
    """Return a function that is computed in float32 where float16 would lose an attribute.

    Args:
        function: as :func:`in_float32` takes it.
        names: the attributes, numbers or None.
    """
    wide = in_float32(function)

    def computed(*arrays: Any, **attributes: Any) -> mx.array:
        is_kept = all(is_half(attributes[name]) for name in names)
        return (function if is_kept else wide)(*arrays, **attributes)

    return computed


def is_half(number: float | None) -> bool:
    """Return whether float16 has a number with all its digits; also of none, 0 and infinity."""
    if not number or not math.isfinite(number):
        return True
    return _LEAST <= abs(number) <= GREATEST


def widened(array: mx.array) -> mx.array:
    """Return a 16-bit float in float32, any other array as it is."""
    return array.astype(mx.float32) if array.dtype in HALF else array
