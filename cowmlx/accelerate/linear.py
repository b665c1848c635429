"""Linear layers and embeddings whose weights lie in blocks, as the kernels read them.

They take the place of mlx's on a CPU.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

from cowmlx.accelerate import kernels, switch
from cowmlx.accelerate.blocks import BLOCKED, InBlocks, takes
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

    from cowmlx.accelerate.sources import Sources

_ARENA = 1 << 28  # bytes of matrices that share memory; the next ones have another arena


class InMatrix(InBlocks):
    """A module whose weight is one matrix (N, K)."""

    def matrix(self) -> Any:
        """Return the weight as layers of kernels hold it; it is evaluated."""
        module: Any = self
        bias = module.get("bias")
        bias = None if bias is None else bias.astype(mx.float32)
        return kernels.module().Matrix(*self.arrays, bias, **self.format)

    def product(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N) of x's type, without a bias; kernels have no gradient."""
        if self._training:  # type: ignore[attr-defined]
            return self._differentiable(x)
        if not mx.issubdtype(x.dtype, mx.floating):
            x = x.astype(mx.float32)
        options = {"rounded": self.rounded, **self.format}
        made: mx.array = kernels.module().product(x, *self.arrays, **options)
        return made

    def _differentiable(self, x: mx.array) -> mx.array:
        weight: mx.array = self.weight
        if self.scales is None:
            return x @ weight.T
        format = {name: self.format[name] for name in ("bits", "mode")}
        group = self.format["group"]
        return mx.quantized_matmul(
            x, weight, scales=self.scales, biases=self.biases, group_size=group, **format
        )

    def taken(self, indices: mx.array) -> mx.array:
        """Return rows (..., K) of the weight."""
        dtype = mx.float32 if self.wide else self.arrays[0].dtype
        made: mx.array = kernels.module().take(indices, *self.arrays, dtype=dtype, **self.format)
        return made


class _Mapping(InMatrix):
    """A linear layer of either kind."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N) of x's type."""
        made = self.product(x)
        module: Any = self
        return made + module["bias"] if "bias" in module else made


class BlockLinear(_Mapping, Linear):
    """Takes the place of ``mlx.nn.Linear``."""

    plain = Linear


class BlockQuantizedLinear(_Mapping, QuantizedLinear):
    """Takes the place of ``mlx.nn.QuantizedLinear``."""

    plain = QuantizedLinear


class _Looking(InMatrix):
    """An embedding of either kind."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map indices (...) to (..., K)."""
        return self.taken(x)

    def as_linear(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N), as the head of a network."""
        return self.product(x)


class BlockEmbedding(_Looking, Embedding):
    """Takes the place of ``mlx.nn.Embedding``."""

    plain = Embedding


class BlockQuantizedEmbedding(_Looking, QuantizedEmbedding):
    """Takes the place of ``mlx.nn.QuantizedEmbedding``."""

    plain = QuantizedEmbedding


_KINDS: dict[type, type] = {
    kind.plain: kind
    for kind in (BlockLinear, BlockQuantizedLinear, BlockEmbedding, BlockQuantizedEmbedding)
}


def replace(
    network: Module, *, rounded: bool = False, sources: Sources | None = None
) -> list[mx.array]:
    """Put the weights of a network's linear layers, embeddings and experts into blocks, lazily.

    A network with quantized weights computes in float32 from then on, as it does without kernels.

    Args:
        network: changed in place.
        rounded: round activations, as :class:`InBlocks` says.
        sources: where weights lie that are not read yet, if that is known.

    Returns:
        the weights in blocks that will be read from there.
    """
    modules = modules_of(network)
    packed = any("scales" in module for module in modules)
    packing = _Packing(sources)
    for module in modules:
        kind = _kind_of(module) or switch.kind_of(module)
        if kind is not None:
            _put(module, kind, packing, packed, rounded)
        elif packed and not isinstance(module, InBlocks):
            _to_float32(module)
    return packing.read


def _kind_of(module: Any) -> type | None:
    """Return the kind that takes a module's place; None where kernels do not take its weight."""
    kind = _KINDS.get(type(module))
    return kind if kind is not None and takes(module, 2) else None


class _Packing:
    """Puts arrays into blocks, each once: tied weights stay one array.

    Args:
        sources: where they lie, if that is known: then they are read into blocks.

    Attributes:
        read: arrays in blocks that are read so.
    """

    def __init__(self, sources: Sources | None) -> None:
        self._sources = sources
        self._files: dict[str, Any] = {}
        self._made: dict[int, tuple[mx.array, mx.array]] = {}
        self._arena: Any = None
        self.read: list[mx.array] = []

    def blocks(self, array: mx.array) -> mx.array:
        """Return a matrix, or matrices behind each other, in blocks, lazily."""
        if id(array) not in self._made:
            made = self._read(array) if array.ndim == 2 else switch.in_blocks(array)
            self._made[id(array)] = array, made
        return self._made[id(array)][1]

    def _read(self, matrix: mx.array) -> mx.array:
        if self._arena is None or self._arena.size > _ARENA:
            self._arena = kernels.module().Arena()
        place = None if self._sources is None else self._sources.of(matrix)
        if place is None:
            made: mx.array = kernels.module().pack(matrix, self._arena)
            return made
        path, offset = place
        if path not in self._files:
            self._files[path] = kernels.module().StoredFile(path)
        made = kernels.module().pack_stored(
            self._files[path], offset, *matrix.shape, dtype=matrix.dtype, arena=self._arena
        )
        self.read.append(made)
        return made


def _put(module: Any, kind: type, packing: _Packing, packed: bool, rounded: bool) -> None:
    *stacked, rows, _ = module["weight"].shape
    scales, biases = module.get("scales"), module.get("biases")
    if biases is not None and biases.dtype != scales.dtype:  # mlx takes both; kernels one type
        module["scales"], module["biases"] = (
            operand.astype(mx.float32) for operand in (scales, biases)
        )
    for name in BLOCKED:
        array = module.get(name)
        if array is not None:
            module[name] = packing.blocks(array)
    module.__class__ = kind
    module.rows = rows
    module.rounded = rounded and ("scales" in module or module["weight"].dtype == mx.bfloat16)
    if stacked:
        (module.count,) = stacked
    module.wide = packed
    if packed and "bias" in module:
        module["bias"] = module["bias"].astype(mx.float32)


def _to_float32(module: Any) -> None:
    for name, value in list(module.items()):
        if name.startswith("_") or not isinstance(value, mx.array):
            continue
        if mx.issubdtype(value.dtype, mx.floating):
            module[name] = value.astype(mx.float32)
