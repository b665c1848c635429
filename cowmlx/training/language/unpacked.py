"""Products with packed weights on a CPU, where mlx computes them number by number.

The weights are unpacked for a product, and once more for its gradient, so that they are never all
unpacked at once. The numbers are those of mlx's own products but for rounding.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module


def _product(module: Any, x: mx.array) -> mx.array:
    """Map (..., K) to (..., N) with a packed weight (N, K)."""
    arrays = module["weight"], module["scales"], module.get("biases")
    how = {"group_size": module.group_size, "bits": module.bits, "mode": module.mode}

    def unpacked() -> mx.array:
        return mx.dequantize(*arrays, **how, dtype=x.dtype)

    @mx.custom_function
    def product(x: mx.array) -> mx.array:
        return x @ unpacked().T

    @product.vjp
    def gradient(_: Any, cotangent: mx.array, __: Any) -> mx.array:
        return cotangent @ unpacked()

    made: Any = product(x)
    found: mx.array = made
    return found


class UnpackedLinear(QuantizedLinear):
    """Takes the place of ``mlx.nn.QuantizedLinear``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., input_dims) to (..., output_dims)."""
        made = _product(self, x)
        return made + self["bias"] if "bias" in self else made


class UnpackedEmbedding(QuantizedEmbedding):
    """Takes the place of ``mlx.nn.QuantizedEmbedding``."""

    def as_linear(self, x: mx.array) -> mx.array:
        """Map (..., dims) to (..., num_embeddings)."""
        return _product(self, x)


_KINDS: dict[type, type] = {
    QuantizedLinear: UnpackedLinear,
    QuantizedEmbedding: UnpackedEmbedding,
}


def replace(network: Module) -> None:
    """Give the packed layers of a network these forms, in place."""
    for _, module in network.named_modules():
        kind = _KINDS.get(type(module))
        if kind is not None:
            module.__class__ = kind
