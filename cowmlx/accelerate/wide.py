"""Experts of 16 bits on a CPU without kernels for them: mlx has their products in float32 alone."""

from __future__ import annotations

from functools import cache

import mlx.core as mx

from cowmlx.accelerate import switch
from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mlx.nn.layers.base import Module

_HALF = (mx.float16, mx.bfloat16)


class InFloat32:
    """What such experts do: their weights are float32, and what goes in and out is not."""

    def __call__(self, x: mx.array, indices: mx.array, sorted_indices: bool = False) -> mx.array:
        """Map rows by the experts that are chosen for them, in x's type."""
        wide: Any = super()
        made: mx.array = wide.__call__(x.astype(mx.float32), indices, sorted_indices)
        return made.astype(x.dtype)


def replace(network: Module) -> None:
    """Widen a network's experts of 16 bits, lazily; they take twice the memory then."""
    for module in modules_of(network):
        weight, kind = module.get("weight"), _kind(module)
        if kind in switch.own_kinds() and weight is not None and weight.dtype in _HALF:
            for name in ("weight", "bias"):
                if name in module:
                    module[name] = module[name].astype(mx.float32)
            module.__class__ = _wide(kind)


def _kind(module: Any) -> Any:
    return type(module)


@cache
def _wide(plain: type) -> type:
    """Return ``WideSwitchLinear``, of one import of mlx-lm."""
    about = f"Takes the place of ``mlx_lm``'s ``{plain.__name__}``."
    return type(f"Wide{plain.__name__}", (InFloat32, plain), {"__doc__": about})
