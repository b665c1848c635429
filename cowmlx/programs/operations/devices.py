"""Ways around kernels that GPUs lack for some dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mlx.core as mx

Function = Callable[..., mx.array]


def on_cpu(function: Function, *arrays: mx.array) -> mx.array:
    """Compute on the CPU a function for which a GPU has no kernel."""
    if mx.default_device().type == mx.cpu:
        return function(*arrays)  # on the stream of this thread
    with mx.stream(mx.cpu):
        return function(*arrays)


def complex_on_cpu(function: Function) -> Function:
    """Return a function of elements that is computed on the CPU for complex numbers."""

    def computed(a: mx.array) -> mx.array:
        return on_cpu(function, a) if a.dtype == mx.complex64 else function(a)

    return computed


def ordering(function: Function) -> Function:
    """Return a function that orders elements; bools are ordered as uint8."""

    def computed(a: mx.array, **attributes: Any) -> mx.array:
        if a.dtype != mx.bool_:
            return function(a, **attributes)
        result = function(a.astype(mx.uint8), **attributes)
        return result.astype(mx.bool_) if result.dtype == mx.uint8 else result

    return computed
