"""Single operations of a network by kernels: norms, rotary positions, attention, the mLSTM.

Modules get another class. mlx-lm's architectures also call ``mx.fast`` in functions. Imported under
this library's private name, their modules are its own: their name ``mx`` is bound to an object that
has all of mlx but for the operations of :mod:`cowmlx.accelerate.operations`. mlx itself and the
host's mlx-lm stay as they are.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType

import mlx.core as mx
from mlx.nn.layers.normalization import LayerNorm, RMSNorm
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.accelerate import operations
from cowmlx.modules import modules_of
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from mlx.nn.layers.base import Module

_PREFIX = f"{light_route.ALIAS}.models."
_FAST = ("rms_norm", "layer_norm", "rope", "scaled_dot_product_attention")


class KernelRMSNorm(RMSNorm):
    """Takes the place of ``mlx.nn.RMSNorm``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Norm (..., dims)."""
        return operations.rms_norm(x, self["weight"], self.eps)


class KernelLayerNorm(LayerNorm):
    """Takes the place of ``mlx.nn.LayerNorm``."""

    def __call__(self, x: mx.array) -> mx.array:
        """Norm (..., dims)."""
        return operations.layer_norm(x, self.get("weight"), self.get("bias"), self.eps)


class KernelRoPE(RoPE):
    """Takes the place of ``mlx.nn.RoPE``."""

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate (B, ..., T, D)."""
        return operations.rope(
            x, self.dims, traditional=self.traditional, base=self.base, scale=self.scale,
            offset=offset,
        )  # fmt: skip


_KINDS: dict[type, type] = {RMSNorm: KernelRMSNorm, LayerNorm: KernelLayerNorm, RoPE: KernelRoPE}


def _kinds() -> dict[type, type]:
    """Return what takes whose place; a network has blocks of ours only once these are imported."""
    kinds = dict(_KINDS)
    if "cowmlx.networks.blocks.simple" in sys.modules:
        from cowmlx.accelerate import single_blocks

        kinds |= single_blocks.KINDS
    if "cowmlx.networks.encoders.layers" in sys.modules:
        from cowmlx.accelerate import single_encoders

        kinds |= single_encoders.KINDS
    return kinds


def replace(network: Module) -> None:
    """Let a network's modules, and the functions of mlx-lm that it calls, compute by kernels."""
    bind()
    kinds = _kinds()
    for module in modules_of(network):
        kind = kinds.get(type(module))
        if kind is not None:
            module.__class__ = kind


def restore(module: Module) -> None:
    """Give a module its former class."""
    for plain, kind in _kinds().items():
        if type(module) is kind:
            module.__class__ = plain


def bind() -> None:
    """Bind the names of all modules that have been imported since the last time."""
    for name, module in list(sys.modules.items()):
        if name.startswith(_PREFIX) and vars(module).get("mx") is mx:
            vars(module)["mx"] = _mlx()
            _bind_functions(module)


@cache
def _mlx() -> ModuleType:
    """Return mlx with other operations in its ``fast``."""
    fast = ModuleType(mx.fast.__name__)
    vars(fast).update(vars(mx.fast))
    vars(fast).update({name: getattr(operations, name) for name in _FAST})
    whole = ModuleType(mx.__name__)
    vars(whole).update(vars(mx))
    vars(whole)["fast"] = fast
    return whole


def _bind_functions(module: ModuleType) -> None:
    """Bind functions that mlx-lm's modules import from each other by name."""
    for name, make in (
        ("quantized_scaled_dot_product_attention", _quantized_attention),
        ("swiglu", _swiglu),
    ):
        plain = vars(module).get(name)
        if plain is not None and not hasattr(plain, "by_kernels"):
            vars(module)[name] = make(plain)


def _quantized_attention(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(
        queries: mx.array,
        q_keys: Any,
        q_values: Any,
        scale: float,
        mask: Any,
        group_size: int = 64,
        bits: int = 8,
    ) -> mx.array:
        if operations.takes_quantized(queries, bits, group_size):
            return operations.quantized_attention(
                queries, q_keys, q_values, scale, mask, group_size, bits
            )
        return plain(queries, q_keys, q_values, scale, mask, group_size=group_size, bits=bits)

    attention.by_kernels = True  # type: ignore[attr-defined]
    return attention


def _swiglu(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def swiglu(gate: mx.array, x: mx.array) -> mx.array:
        made = operations.gated(gate, x, "silu")
        return plain(gate, x) if made is None else made

    swiglu.by_kernels = True  # type: ignore[attr-defined]
    return swiglu
