"""Experts whose weights lie in blocks: products with the matrices that a router chooses.

They take the place of mlx-lm's on a CPU, where mlx multiplies quantized ones number by number.
mlx-lm's module is known under one of two names; nothing is imported here.
"""

from __future__ import annotations

import sys
from functools import cache

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.accelerate.blocks import LANES, InBlocks, takes
from cowmlx.modules import modules_of
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

_MODULES = tuple(f"{package}.models.switch_layers" for package in (light_route.ALIAS, "mlx_lm"))
_NAMES = ("SwitchLinear", "QuantizedSwitchLinear")
_HALF = (mx.float16, mx.bfloat16)
_LARGEST = 2**31 - 1
_MOST_EXPERTS = 1 << 16
_MOST_ROWS = 1 << 24


class InExperts(InBlocks):
    """What experts of either kind have in common: weights (E, N, K)."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Map rows by the experts that are chosen for them.

        Args:
            x: (..., M, K), of leading axes that broadcast with those of indices.
            indices: (...) whole numbers below E.
            sorted_indices: whether they ascend; kernels sort them themselves.

        Returns:
            (..., M, N) of x's type; rows of experts that are not there are no numbers.
        """
        module: Any = self
        if module._training:
            return self._differentiable(x, indices, sorted_indices)
        if not mx.issubdtype(x.dtype, mx.floating):
            x = x.astype(mx.float32)
        *outer, length, _ = x.shape
        chosen = indices[..., None]
        if outer != [*indices.shape] or length != 1:
            shape = mx.broadcast_shapes(tuple(outer), indices.shape)
            chosen = mx.broadcast_to(chosen, (*shape, length))
        made: mx.array = kernels.module().experts(
            x, chosen, *self.arrays, module.get("bias"), count=self.count, rounded=self.rounded,
            **self.format,
        )  # fmt: skip
        return made

    def _differentiable(self, x: mx.array, indices: mx.array, sorted_indices: bool) -> mx.array:
        module: Any = self
        dtype, x = x.dtype, x.astype(mx.float32)  # on a CPU mlx has no such products of 16 bits
        chosen: Any = {"rhs_indices": indices, "sorted_indices": sorted_indices}
        if self.scales is None:
            weight = self.weight.astype(mx.float32)
            made = mx.gather_mm(x, weight.swapaxes(-1, -2), **chosen)
        else:
            made = mx.gather_qmm(
                x, self.weight, _widened(self.scales), _widened(self.biases), bits=module.bits,
                group_size=module.group_size, mode=module.mode, **chosen,
            )  # fmt: skip
        if "bias" in module:
            made = made + module["bias"][indices][..., None, :]
        return made.astype(dtype)


def kind_of(module: Any) -> type | None:
    """Return the kind that takes the place of mlx-lm's experts; None of other modules.

    None, too, where kernels do not take the weights, such as those with a scale for each expert.
    """
    own: Any = type(module)
    if own not in own_kinds():
        return None
    if module.get("global_scale") is not None or not takes(module, 3):
        return None
    count, rows, _ = module["weight"].shape
    small = count <= _MOST_EXPERTS and rows <= _MOST_ROWS
    return _blocked(own) if small and count * _filled(rows) <= _LARGEST else None


def in_blocks(weight: mx.array) -> mx.array:
    """Return (E, N, W) in blocks, those of an expert filled up with zeros."""
    rows = weight.shape[1]
    filled = mx.pad(weight, [(0, 0), (0, _filled(rows) - rows), (0, 0)]) if rows % LANES else weight
    packed: mx.array = kernels.module().pack(filled.flatten(0, 1))
    return packed


def _widened(array: Any) -> Any:
    """Return floating-point numbers as float32, and what else there is as it is."""
    if array is None or not mx.issubdtype(array.dtype, mx.floating):
        return array
    return array.astype(mx.float32)


def _filled(rows: int) -> int:
    return -(-rows // LANES) * LANES


def own_kinds() -> list[type]:
    """Return mlx-lm's kinds, of all that are imported."""
    modules = [sys.modules[name] for name in _MODULES if name in sys.modules]
    return [vars(module)[name] for module in modules for name in _NAMES if name in vars(module)]


@cache
def _blocked(plain: type) -> type:
    """Return ``BlockSwitchLinear`` or ``BlockQuantizedSwitchLinear``, of one import of mlx-lm."""
    about = f"Takes the place of ``mlx_lm``'s ``{plain.__name__}``."
    return type(f"Block{plain.__name__}", (InExperts, plain), {"__doc__": about, "plain": plain})


class InFloat32:
    """Experts of 16 bits without kernels: mlx has their products in float32 alone on a CPU."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Map rows by the experts that are chosen for them, in x's type."""
        wide: Any = super()
        made: mx.array = wide.__call__(x.astype(mx.float32), indices, sorted_indices)
        return made.astype(x.dtype)


def widen(network: Module) -> None:
    """Make a network's experts of 16 bits float32, lazily, with twice the memory."""
    for module in modules_of(network):
        kind: Any = type(module)
        weight = module.get("weight")
        if kind in own_kinds() and weight is not None and weight.dtype in _HALF:
            for name in ("weight", "bias"):
                if name in module:
                    module[name] = module[name].astype(mx.float32)
            module.__class__ = _wide(kind)


@cache
def _wide(plain: type) -> type:
    """Return ``WideSwitchLinear``, of one import of mlx-lm."""
    about = f"Takes the place of ``mlx_lm``'s ``{plain.__name__}``."
    return type(f"Wide{plain.__name__}", (InFloat32, plain), {"__doc__": about})
