"""Weights in blocks of sixteen rows, as the kernels read them, and how others see them.

A weight is held once: what others want to see of it in mlx's own form is made for them.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.quantized_formats import FORMATS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

LANES = 16
BLOCKED = ("weight", "scales", "biases")
DENSE = (mx.float32, mx.float16, mx.bfloat16)


def _shown(name: str) -> Any:
    """Return a property that is a parameter in mlx's own form, or None without it."""
    return property(lambda module: module._shown(name))


class InBlocks:
    """A module whose weight is held as (blocks, words, 16).

    Attributes:
        rows: N of a matrix.
        count: how many matrices there are behind each other, each filled up to whole blocks; 0: one
            that is no stack.
        wide: whether the network computes in float32, whatever the types of its weights.
        rounded: whether activations are rounded: to eight bits for quantized weights, to bfloat16
            for weights of this type if the instruction set multiplies it.
        plain: mlx's own kind of such a module.
    """

    rows: int
    count = 0
    wide: bool
    rounded = False
    plain: type

    @property
    def format(self) -> dict[str, Any]:
        """The form of the weight, as the kernels' functions take it."""
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

    @property
    def unfilled_rows(self) -> int:
        """How many rows there are of all matrices, without those that fill up blocks."""
        return self.rows * max(self.count, 1)

    # What others read of such a layer: laid out as mlx has it, made for each read.
    weight: Any = _shown("weight")
    scales: Any = _shown("scales")
    biases: Any = _shown("biases")

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; setting a weight turns the module back into mlx's own kind.

        An architecture that sets a weight has it in mlx's layout: Gemma 3n clips two of them
        in each forward pass.
        """
        if name in BLOCKED:
            setattr(restore(self), name, value)  # type: ignore[arg-type]
        else:
            super().__setattr__(name, value)

    def _shown(self, name: str) -> mx.array | None:
        return self.rowwise(name).array() if name in self else None  # type: ignore[operator]

    def rowwise(self, name: str) -> Rowwise:
        """Return a parameter in mlx's own form, before it is made."""
        module: Any = self
        return Rowwise(module[name], self.rows, self.wide, self.count)


class Rowwise:
    """A parameter that is held in blocks, as the array (N, W) or (E, N, W) that it was made of.

    Attributes:
        shape: of that array.
        dtype: the type that it counts as.
    """

    def __init__(self, blocks: mx.array, rows: int, wide: bool, count: int = 0) -> None:
        self._blocks = blocks
        stacked = (count,) if count else ()
        self.shape = *stacked, rows, blocks.shape[1]
        floating = mx.issubdtype(blocks.dtype, mx.floating)
        self.dtype = mx.float32 if wide and floating else blocks.dtype

    def array(self) -> mx.array:
        """Return all of it."""
        *stacked, rows, words = self.shape
        return (
            self._blocks.transpose(0, 2, 1)
            .reshape(*stacked, -1, words)[..., :rows, :]
            .astype(self.dtype)
        )

    def __getitem__(self, slices: tuple[Any, ...]) -> mx.array:
        """Return what a slice for each axis takes, without the rest."""
        # What a slice behind the last axis says, such as "...", is not looked at.
        chosen = [mx.arange(size)[slice_] for size, slice_ in zip(self.shape, slices, strict=False)]
        rows, words = chosen[-2:]
        blocks = rows // LANES
        for matrices in chosen[:-2]:
            blocks = matrices[:, None] * (self._blocks.shape[0] // self.shape[0]) + blocks
        lanes = (rows % LANES)[:, None]
        return self._blocks[blocks[..., None], words, lanes].astype(self.dtype)


def restore(module: Module) -> Module:
    """Make a module of mlx's own kind again, for a caller that reads its weight."""
    if isinstance(module, InBlocks):
        arrays: Any = module
        for name in BLOCKED:
            if name in arrays:
                arrays[name] = module.rowwise(name).array()
        module.__class__ = module.plain
    return module


def parameters(network: Module) -> dict[str, mx.array | Rowwise]:
    """Return the parameters of a network by their names, in mlx's own form."""
    from mlx.utils import tree_flatten

    tree: dict[str, mx.array | Rowwise] = dict(tree_flatten(network.parameters()))
    for path, module in network.named_modules():
        if isinstance(module, InBlocks):
            for name in BLOCKED:
                full = f"{path}.{name}" if path else name
                if full in tree:
                    tree[full] = module.rowwise(name)
    return tree


def takes(module: Any, axes: int) -> bool:
    """Whether kernels take the weight of a module of mlx's own, which has so many axes."""
    weight = module["weight"]
    if weight.ndim != axes or 0 in weight.shape:
        return False
    if "scales" not in module:
        return weight.dtype in DENSE
    known = FORMATS.get(module.mode)
    if known is None or module.bits not in known.bits or module.group_size not in known.groups:
        return False
    columns: int = weight.shape[-1] * 32 // module.bits
    return columns % module.group_size == 0
