"""Networks of plain mlx-lm in float64: what its float32 is a rounding of.

Knows nothing of libcowmlx. mlx has float64 on the CPU, but for products with quantized weights and
with chosen experts; these are made here of operations that have it. What a network computes in
float32 whatever its type, such as the angles of positions, is the same in both.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import mlx.core as mx


@contextmanager
def in_float64(model: Any) -> Iterator[None]:
    """Let a model of mlx-lm compute in float64 for a while, from the weights that it has."""
    kept = {name: getattr(mx, name) for name in _OPERATIONS}
    parameters = model.parameters()
    with mx.stream(mx.cpu):  # no GPU has it
        model.set_dtype(mx.float64)
    for name, operation in _OPERATIONS.items():
        always = operation is _numbers  # scales of some modes are whole numbers
        setattr(mx, name, operation if always else _for_float64(kept[name], operation))
    mx.disable_compile()  # a C++ compiler takes seconds for each graph
    try:
        with mx.stream(mx.cpu):
            yield
    finally:
        if os.environ.get("MLX_DISABLE_COMPILE") is None:
            mx.enable_compile()
        for name, operation in kept.items():
            setattr(mx, name, operation)
        model.update(parameters)
        _dequantized.clear()


def _for_float64(plain: Any, own: Any) -> Any:
    def operation(*arguments: Any, **named: Any) -> Any:
        arrays = [each for each in (*arguments, *named.values()) if isinstance(each, mx.array)]
        exact = any(array.dtype == mx.float64 for array in arrays)
        return (own if exact else plain)(*arguments, **named)

    return operation


_dequantize = mx.dequantize
# Quantized weights by their ids, and as numbers.
_dequantized: dict[int, tuple[mx.array, mx.array]] = {}


def _weights(w: mx.array, scales: mx.array, biases: mx.array | None, **how: Any) -> mx.array:
    """As :func:`_numbers`, once for each weight."""
    if id(w) not in _dequantized:
        numbers = _numbers(w, scales, biases, **how)
        mx.eval(numbers)
        _dequantized[id(w)] = w, numbers
    return _dequantized[id(w)][1]


def _numbers(
    w: mx.array,
    scales: mx.array,
    biases: mx.array | None = None,
    group_size: int | None = None,
    bits: int | None = None,
    mode: str = "affine",
    **_: Any,
) -> mx.array:
    """Dequantized weights: only products with scales are rounded."""
    how = {"group_size": group_size, "bits": bits, "mode": mode}
    if mode != "affine":
        return _dequantize(w, scales, **how, dtype=mx.float32).astype(mx.float64)
    ones = mx.ones(scales.shape, mx.float32)
    levels = _dequantize(w, ones, mx.zeros(scales.shape, mx.float32), **how)
    levels = mx.unflatten(levels.astype(mx.float64), -1, (scales.shape[-1], -1))
    numbers = levels * scales[..., None].astype(mx.float64)
    if biases is not None:
        numbers = numbers + biases[..., None].astype(mx.float64)
    return numbers.flatten(-2)


def _quantized_matmul(
    x: mx.array,
    w: mx.array,
    scales: mx.array,
    biases: Any = None,
    transpose: bool = True,
    **how: Any,
) -> mx.array:
    numbers = _weights(w, scales, biases, **how)
    return x.astype(mx.float64) @ (numbers.swapaxes(-1, -2) if transpose else numbers)


def _gather_mm(
    a: mx.array, b: mx.array, lhs_indices: Any = None, rhs_indices: Any = None, **_: Any
) -> mx.array:
    assert lhs_indices is None, "no network of the tests chooses rows"
    return a.astype(mx.float64) @ b.astype(mx.float64)[rhs_indices]


def _gather_qmm(
    x: mx.array,
    w: mx.array,
    scales: mx.array,
    biases: Any = None,
    lhs_indices: Any = None,
    rhs_indices: Any = None,
    transpose: bool = True,
    sorted_indices: bool = False,
    global_scale: Any = None,
    **how: Any,
) -> mx.array:
    assert global_scale is None, "no model of the tests has a scale of all weights"
    numbers = _weights(w, scales, biases, **how)
    return _gather_mm(
        x, numbers.swapaxes(-1, -2) if transpose else numbers, lhs_indices, rhs_indices
    )


_OPERATIONS = {
    "dequantize": _numbers,
    "quantized_matmul": _quantized_matmul,
    "gather_mm": _gather_mm,
    "gather_qmm": _gather_qmm,
}
