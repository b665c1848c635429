"""Linear layers and embeddings whose weights lie in blocks, as the kernels read them.

They take the place of mlx's on a CPU. A weight is held once: what others want to see of it in mlx's
own form is made for them.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.quantized import QuantizedEmbedding, QuantizedLinear

from cowmlx.accelerate import kernels

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

_DENSE = (mx.float32, mx.float16, mx.bfloat16)
_BLOCKED = ("weight", "scales", "biases")
# What kernels unpack, by mode: bits and groups.
_PACKED = {
    "affine": ((2, 3, 4, 5, 6, 8), (32, 64, 128)),
    "mxfp4": ((4,), (32,)),
    "nvfp4": ((4,), (16,)),
    "mxfp8": ((8,), (32,)),
}


def _shown(name: str) -> Any:
    """Return a property that is a parameter (N, W), or None without it."""
    return property(lambda module: module._rowwise(name))


class InBlocks:
    """What modules have in common whose weight (N, K) is held as (blocks, words, 16).

    Attributes:
        rows: N.
        wide: whether the network computes in float32, whatever the types of its weights.
        int8: whether activations are rounded to eight bits for products with packed weights.
    """

    rows: int
    wide: bool
    int8 = False

    @property
    def packing(self) -> dict[str, Any]:
        """How the weight is packed, as the kernels' functions take it."""
        if "scales" not in self:  # type: ignore[operator]
            return {"rows": self.rows}
        module: Any = self
        return {
            "rows": self.rows,
            "mode": module.mode,
            "bits": module.bits,
            "group": module.group_size,
        }

    @property
    def arrays(self) -> tuple[mx.array, mx.array | None, mx.array | None]:
        """The weight, its scales and its biases, in blocks."""
        module: Any = self
        return module["weight"], module.get("scales"), module.get("biases")

    @property
    def columns(self) -> int:
        """K."""
        module: Any = self
        words: int = module["weight"].shape[1]
        return words * 32 // module.bits if "scales" in module else words

    # What others read of a linear layer: laid out as mlx has it, made anew each time.
    weight: Any = _shown("weight")
    scales: Any = _shown("scales")
    biases: Any = _shown("biases")

    def _rowwise(self, name: str) -> mx.array | None:
        module: Any = self
        if name not in module:
            return None
        return Rowwise(module[name], self.rows, self.wide).array()

    def matrix(self) -> Any:
        """Return the weight as layers of kernels hold it; it is evaluated."""
        module: Any = self
        bias = module.get("bias")
        bias = None if bias is None else bias.astype(mx.float32)
        return kernels.module().Matrix(*self.arrays, bias, **self.packing)

    def product(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N) of x's type, without a bias; kernels have no gradient."""
        if self._training:  # type: ignore[attr-defined]
            return self._differentiable(x)
        if not mx.issubdtype(x.dtype, mx.floating):
            x = x.astype(mx.float32)
        made: mx.array = kernels.module().product(x, *self.arrays, int8=self.int8, **self.packing)
        return made

    def _differentiable(self, x: mx.array) -> mx.array:
        weight: mx.array = self.weight
        if self.scales is None:
            return x @ weight.T
        packing = {name: self.packing[name] for name in ("bits", "mode")}
        group = self.packing["group"]
        return mx.quantized_matmul(
            x, weight, scales=self.scales, biases=self.biases, group_size=group, **packing
        )

    def taken(self, indices: mx.array) -> mx.array:
        """Return rows (..., K) of the weight."""
        dtype = mx.float32 if self.wide else self.arrays[0].dtype
        made: mx.array = kernels.module().take(indices, *self.arrays, dtype=dtype, **self.packing)
        return made


class _Mapping(InBlocks):
    """A linear layer of either kind."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N) of x's type."""
        made = self.product(x)
        module: Any = self
        return made + module["bias"] if "bias" in module else made


class BlockLinear(_Mapping, Linear):
    """Takes the place of ``mlx.nn.Linear``."""


class BlockQuantizedLinear(_Mapping, QuantizedLinear):
    """Takes the place of ``mlx.nn.QuantizedLinear``."""


class _Looking(InBlocks):
    """An embedding of either kind."""

    def __call__(self, x: mx.array) -> mx.array:
        """Map indices (...) to (..., K)."""
        return self.taken(x)

    def as_linear(self, x: mx.array) -> mx.array:
        """Map (..., K) to (..., N), as the head of a network."""
        return self.product(x)


class BlockEmbedding(_Looking, Embedding):
    """Takes the place of ``mlx.nn.Embedding``."""


class BlockQuantizedEmbedding(_Looking, QuantizedEmbedding):
    """Takes the place of ``mlx.nn.QuantizedEmbedding``."""


_KINDS: dict[type, type] = {
    Linear: BlockLinear,
    QuantizedLinear: BlockQuantizedLinear,
    Embedding: BlockEmbedding,
    QuantizedEmbedding: BlockQuantizedEmbedding,
}
_PLAIN: dict[type, type] = {blocked: own for own, blocked in _KINDS.items()}


def replace(network: Module, *, int8: bool = False) -> None:
    """Put the weights of a network's linear layers and embeddings into blocks, lazily.

    A network with packed weights computes in float32 from then on, as it does without kernels.

    Args:
        network: changed in place.
        int8: round activations to eight bits for products with packed weights.
    """
    modules = [module for _, module in network.named_modules()]
    packed = any("scales" in module for module in modules)
    chosen = [module for module in modules if _can(module)]
    ours = set(map(id, chosen))
    for module in modules:
        if packed and id(module) not in ours:
            _to_float32(module)
    shared: dict[int, tuple[mx.array, mx.array]] = {}  # tied weights stay one array
    for module in chosen:
        _put(module, shared, packed, int8)


class Rowwise:
    """A parameter that is held in blocks, as the array (N, W) that it was made of.

    Attributes:
        shape: (N, W).
        dtype: the type that it counts as.
    """

    def __init__(self, blocks: mx.array, rows: int, wide: bool) -> None:
        self._blocks = blocks
        self.shape = rows, blocks.shape[1]
        floating = mx.issubdtype(blocks.dtype, mx.floating)
        self.dtype = mx.float32 if wide and floating else blocks.dtype

    def array(self) -> mx.array:
        """Return all of it."""
        blocks, words, lanes = self._blocks.shape
        rows = self._blocks.transpose(0, 2, 1).reshape(blocks * lanes, words)
        return rows[: self.shape[0]].astype(self.dtype)

    def __getitem__(self, slices: tuple[Any, ...]) -> mx.array:
        """Return rows and columns by slices, without the others."""
        rows = mx.arange(self.shape[0])[slices[0]]
        lanes = self._blocks.shape[2]
        words = mx.take_along_axis(self._blocks[rows // lanes], (rows % lanes)[:, None, None], 2)
        return words[:, :, 0][:, slices[1]].astype(self.dtype)


def restore(module: Module) -> Module:
    """Make a module of mlx's own kind again, for those who want its weight."""
    if isinstance(module, InBlocks):
        arrays: Any = module
        for name in _BLOCKED:
            if name in arrays:
                arrays[name] = Rowwise(arrays[name], module.rows, module.wide).array()
        module.__class__ = _PLAIN[type(module)]
    return module


def parameters(network: Module) -> dict[str, mx.array | Rowwise]:
    """Return the parameters of a network by their names, in mlx's own form."""
    from mlx.utils import tree_flatten

    found: dict[str, mx.array | Rowwise] = dict(tree_flatten(network.parameters()))
    for path, module in network.named_modules():
        if isinstance(module, InBlocks):
            for name in _BLOCKED:
                full = f"{path}.{name}" if path else name
                if full in found:
                    held: Any = module
                    found[full] = Rowwise(held[name], module.rows, module.wide)
    return found


def _can(module: Any) -> bool:
    """Whether kernels take a module's weight."""
    if type(module) not in _KINDS:
        return False
    weight = module["weight"]
    if weight.ndim != 2 or 0 in weight.shape:
        return False
    if "scales" not in module:
        return weight.dtype in _DENSE
    bits, groups = _PACKED.get(module.mode, ((), ()))
    columns = weight.shape[1] * 32 // module.bits
    fits = module.bits in bits and module.group_size in groups
    return fits and columns % module.group_size == 0


def _put(
    module: Any, shared: dict[int, tuple[mx.array, mx.array]], packed: bool, int8: bool
) -> None:
    rows: int = module["weight"].shape[0]
    scales = module.get("scales")
    for name in _BLOCKED:
        array = module.get(name)
        if array is not None:
            if id(array) not in shared:
                shared[id(array)] = array, kernels.module().pack(array)
            module[name] = shared[id(array)][1]
    module.__class__ = _KINDS[type(module)]
    module.rows, module.int8 = rows, int8 and scales is not None
    module.wide = packed
    if packed and "bias" in module:
        module["bias"] = module["bias"].astype(mx.float32)


def _to_float32(module: Any) -> None:
    for name, value in list(module.items()):
        if name.startswith("_") or not isinstance(value, mx.array):
            continue
        if mx.issubdtype(value.dtype, mx.floating):
            module[name] = value.astype(mx.float32)
