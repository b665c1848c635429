"""Products with packed weights on a CPU, where mlx computes them number by number on one core."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.quantized import QuantizedLinear

from cowmlx.accelerate.parted import in_parts
from cowmlx.modules import modules_of

# Vectors from which it is faster to unpack the weights for them, and leave the product to the BLAS:
# by mode and bits, where that is quick, and otherwise.
_MANY = {("affine", 2): 4, ("affine", 4): 4, ("affine", 8): 4, ("mxfp8", 8): 4}
_MANY_OTHERWISE = 24


class PackedLinear(QuantizedLinear):
    """Takes the place of ``mlx.nn.QuantizedLinear``; few vectors give the same to the last bit."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., input_dims) to (..., output_dims)."""
        vectors = x.size // x.shape[-1]
        if vectors >= _MANY.get((self.mode, self.bits), _MANY_OTHERWISE):
            product = x @ self._unpacked(x.dtype).T
        else:
            rows = self["weight"].shape[0]
            product = in_parts(rows, x.size * rows, lambda part: self._product(x, part))
        return product + self["bias"] if "bias" in self else product

    def _unpacked(self, dtype: mx.Dtype) -> mx.array:
        return mx.dequantize(
            self["weight"],
            self["scales"],
            self.get("biases"),
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
            dtype=dtype,
        )

    def _product(self, x: mx.array, rows: slice) -> mx.array:
        biases = self.get("biases")
        return mx.quantized_matmul(
            x,
            self["weight"][rows],
            scales=self["scales"][rows],
            biases=biases if biases is None else biases[rows],
            transpose=True,
            group_size=self.group_size,
            bits=self.bits,
            mode=self.mode,
        )


def replace(network: Module) -> None:
    """Let a network compute in float32, in which alone mlx has quick products, and with these."""
    network.set_dtype(mx.float32)
    for module in modules_of(network):
        if type(module) is QuantizedLinear:
            module.__class__ = PackedLinear


def restore(module: Module) -> None:
    """Make a module of mlx's own kind again; its arrays stay float32."""
    if type(module) is PackedLinear:
        module.__class__ = QuantizedLinear  # type: ignore[assignment]
