"""Products with quantized weights on a CPU, where mlx computes them number by number.

The weights are dequantized for a product, and again for its gradient, so never all at once. The
results equal those of mlx's own products except for rounding.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

from cowmlx.accelerate.switch import own_kinds

MOST_BYTES = 512 << 20
"""Experts whose dequantized weights take more bytes keep mlx's product."""


def _dequantized(module: Any, dtype: mx.Dtype) -> mx.array:
    arrays = module["weight"], module["scales"], module.get("biases")
    how = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}
    return mx.dequantize(*arrays, **how, dtype=dtype)


def _product(module: Any, x: mx.array) -> mx.array:
    """Map (..., K) to (..., N) with a quantized weight (N, K)."""

    def weight() -> mx.array:
        return _dequantized(module, x.dtype)

    @mx.custom_function
    def product(x: mx.array) -> mx.array:
        return x @ weight().T

    @product.vjp
    def gradient(_: Any, cotangent: mx.array, __: Any) -> mx.array:
        return cotangent @ weight()

    made: Any = product(x)
    found: mx.array = made
    return found


class DequantizedLinear(QuantizedLinear):
    """Takes the place of ``mlx.nn.QuantizedLinear``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., input_dims) to (..., output_dims)."""
        made = _product(self, x)
        return made + self["bias"] if "bias" in self else made


class DequantizedEmbedding(QuantizedEmbedding):
    """Takes the place of ``mlx.nn.QuantizedEmbedding``."""

    def as_linear(self, x: mx.array) -> mx.array:
        """Map (..., dims) to (..., num_embeddings)."""
        return _product(self, x)


class _Experts:
    """Experts of mlx-lm with quantized weights (E, N, K)."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Map (..., M, K) to (..., M, N) by the experts that are chosen for them."""
        module: Any = self
        size = module["scales"].size * module.group_size * x.itemsize
        if size > MOST_BYTES or module.get("global_scale") is not None:
            plain: mx.array = super().__call__(x, indices, sorted_indices)  # type: ignore[misc]
            return plain

        def chosen(x: mx.array) -> mx.array:
            weight = _dequantized(module, x.dtype).swapaxes(-1, -2)
            return mx.gather_mm(x, weight, rhs_indices=indices, sorted_indices=sorted_indices)

        product = mx.custom_function(chosen)

        @product.vjp
        def gradient(x: mx.array, cotangent: mx.array, _: Any) -> mx.array:
            return mx.vjp(chosen, [x], [cotangent])[1][0]

        made: Any = product(x)
        if "bias" in module:
            made = made + mx.expand_dims(module["bias"][indices], -2)
        found: mx.array = made
        return found


@cache
def _experts(plain: type) -> type:
    return type(f"Dequantized{plain.__name__}", (_Experts, plain), {"__doc__": _Experts.__doc__})


_KINDS: dict[type, type] = {
    QuantizedLinear: DequantizedLinear,
    QuantizedEmbedding: DequantizedEmbedding,
}


def replace(network: Module) -> None:
    """Give the quantized layers of a network these classes, in place."""
    kinds = _KINDS | {kind: _experts(kind) for kind in own_kinds() if "Quantized" in kind.__name__}
    for _, module in network.named_modules():
        kind = kinds.get(type(module))
        if kind is not None:
            module.__class__ = kind
