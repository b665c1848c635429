"""Which form a cache has for fused layers."""

from __future__ import annotations

from cowmlx.accelerate.fused.caches import Growing, Ring, Rows
from cowmlx.accelerate.fused.packed_caches import PackedGrowing, PackedRows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_NAMES: dict[str, Any] = {
    "KVCache": Growing,
    "QuantizedKVCache": PackedGrowing,
    "RotatingKVCache": Ring,
    "KVRows": Rows,
    "QuantizedRows": PackedRows,
    "RotatingRows": Rows,
}
_MODULES = (".models.cache", ".cache.key_values")
_forms: dict[type, Any] = {}


class Quick:
    """How kernels read and write a kind of cache themselves, where there is room in it.

    Attributes:
        batched: whether it is the rows of a batch, or one sequence's.
        packed: whether it holds packed words, scales and biases.
    """

    __slots__ = ("batched", "packed")

    def __init__(self, batched: bool, packed: bool) -> None:
        self.batched = batched
        self.packed = packed


_QUICK = {
    "KVCache": Quick(batched=False, packed=False),
    "QuantizedKVCache": Quick(batched=False, packed=True),
    "KVRows": Quick(batched=True, packed=False),
    "QuantizedRows": Quick(batched=True, packed=True),
}
_quick: dict[type, Quick | None] = {}


def form_of(cache: Any) -> Any | None:
    """Return how fused layers use a cache, or None if they do not."""
    kind = type(cache)
    if kind not in _forms:
        ours = kind.__module__.endswith(_MODULES)
        _forms[kind] = _NAMES.get(kind.__name__) if ours else None
    return _forms[kind]


def quick_form_of(cache: Any) -> Quick | None:
    """Return how kernels use a cache themselves, or None if they do not."""
    kind = type(cache)
    if kind not in _quick:
        _quick[kind] = _QUICK.get(kind.__name__) if form_of(cache) is not None else None
    return _quick[kind]
