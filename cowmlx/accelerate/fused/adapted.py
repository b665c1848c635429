"""Linear layers with an adapter, as fused layers compute them: a matrix and a low-rank part."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.accelerate.linear import InMatrix

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_LORA, _DORA = "LoRALinear", "DoRALinear"


def takes(module: Any) -> bool:
    """Whether a module is mlx-lm's ``LoRALinear`` or ``DoRALinear`` around a matrix in blocks."""
    kind = type(module).__name__
    return (
        kind in (_LORA, _DORA)
        and isinstance(module.get("linear"), InMatrix)
        and isinstance(getattr(module, "scale", None), int | float)
        and all(name in module and module[name].ndim == 2 for name in ("lora_a", "lora_b"))
        and (kind == _LORA or ("m" in module and module["m"].ndim == 1))
    )


class Adapted:
    """What fused layers ask of a matrix in blocks, of one with an adapter.

    LoRA (arXiv 2106.09685) adds to the matrix, and DoRA (arXiv 2402.09353, eq. 5) gives each row of
    the sum a trained length.

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
        down = self._module["lora_a"].astype(mx.float32).T
        up = self._module["lora_b"].astype(mx.float32).T * self._module.scale
        rescale = None
        if "m" in self._module:
            rescale = self._rescale(down, up)
            up = up * rescale[:, None]
        return self._linear.matrix().with_low(_matrix(down), _matrix(up), rescale)

    def _rescale(self, down: mx.array, up: mx.array) -> mx.array:
        """Return what rows of the sum are multiplied with, (N,): it depends on no input."""
        adapted = self._module._dequantized_weight().astype(mx.float32) + up @ down
        scale: mx.array = self._module["m"].astype(mx.float32) / mx.linalg.norm(adapted, axis=1)
        mx.eval(scale)
        return scale


def _matrix(weight: mx.array) -> Any:
    module = kernels.module()
    return module.Matrix(module.pack(mx.contiguous(weight)), rows=weight.shape[0])
