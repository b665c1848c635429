"""Lets mlx-lm's modules, where they are imported under a private name, compute by kernels.

Their architectures call ``mx.fast`` in functions, not in modules of a network that could be
replaced. Under the private name a module is this library's alone: its name ``mx`` is bound to an
object that has all of mlx but for the operations of
:mod:`cowmlx.accelerate.operations`. mlx itself and the host's mlx-lm stay as they are.
"""

from __future__ import annotations

import sys
from functools import cache
from types import ModuleType

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.networks import light_route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_PREFIX = f"{light_route.ALIAS}.models."
_FAST = ("rms_norm", "layer_norm", "rope", "scaled_dot_product_attention")


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
        ("quantized_scaled_dot_product_attention", _packed_attention),
        ("swiglu", _swiglu),
    ):
        plain = vars(module).get(name)
        if plain is not None and not hasattr(plain, "by_kernels"):
            vars(module)[name] = make(plain)


def _packed_attention(plain: Callable[..., mx.array]) -> Callable[..., mx.array]:
    def attention(
        queries: mx.array,
        q_keys: Any,
        q_values: Any,
        scale: float,
        mask: Any,
        group_size: int = 64,
        bits: int = 8,
    ) -> mx.array:
        if operations.takes_packed(queries, bits, group_size):
            return operations.packed_attention(
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
