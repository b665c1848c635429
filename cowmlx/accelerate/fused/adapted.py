"""Linear layers with a LoRA adapter, as fused layers compute them: a matrix and a low-rank part."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.accelerate.linear import InMatrix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def takes(module: Any) -> bool:
    """Whether a module is mlx-lm's ``LoRALinear`` around a matrix in blocks."""
    return (
        type(module).__name__ == "LoRALinear"
        and isinstance(module.get("linear"), InMatrix)
        and isinstance(getattr(module, "scale", None), int | float)
        and all(name in module and module[name].ndim == 2 for name in ("lora_a", "lora_b"))
    )


class Adapted:
    """What fused layers ask of a matrix in blocks, of one with an adapter (arXiv 2106.09685).

    Args:
        module: one that :func:`takes` takes.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._linear = module["linear"]
        self.rows: int = self._linear.rows
        self.columns: int = self._linear.columns

    def matrix(self) -> Any:
        """Return the weight as layers of kernels hold it; it is evaluated."""
        down = self._module["lora_a"].astype(mx.float32)
        up = self._module["lora_b"].astype(mx.float32) * self._module.scale
        return self._linear.matrix().with_low(_matrix(down.T), _matrix(up.T))


def _matrix(weight: mx.array) -> Any:
    module = kernels.module()
    return module.Matrix(module.pack(mx.contiguous(weight)), rows=weight.shape[0])
