"""Gradient checkpointing: a block's activations are computed again when gradients need them.

Instances get another class, a subclass of their own; classes stay as they are, since the serving
network shares them.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.utils import tree_flatten

from cowmlx.training.language.slots import Slots

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_made: dict[type, type] = {}


def put(block: Any) -> None:
    """Let a block compute its activations again; what is trained of it must not change later."""
    kind = type(block)
    if getattr(kind, "_is_checkpointed", False):
        return
    if kind not in _made:
        _made[kind] = _subclass(kind)
    block.__class__ = _made[kind]
    block._checkpointed = Slots(block, [name for name, _ in _trainable(block)])


def _trainable(module: Module) -> list[tuple[str, mx.array]]:
    found: list[tuple[str, mx.array]] = tree_flatten(module.trainable_parameters())  # type: ignore[assignment]
    return found


def _subclass(kind: type) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return kind.__call__(self, *args, **kwargs)
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        # Gradients flow through what is handed over: arrays, and blocks that are lent.
        handed = {str(name): value for name, value in given.items() if _has_arrays(value)}
        slots = {"": self._checkpointed}
        for name, value in given.items():
            if isinstance(value, Module):
                slots[str(name)] = Slots(value, [found for found, _ in _trainable(value)])

        def again(values: dict[str, Any], handed: dict[str, Any]) -> Any:
            for name, own in slots.items():
                own.put(values[name])
            every = {name: handed.get(str(name), value) for name, value in given.items()}
            positional = [every.pop(index) for index in range(len(args))]
            return kind.__call__(self, *positional, **every)

        before = {name: own.get() for name, own in slots.items()}
        try:
            return mx.checkpoint(again)(before, handed)
        finally:
            for name, own in slots.items():
                own.put(before[name])

    names = {"__call__": call, "__module__": kind.__module__, "_is_checkpointed": True}
    return type(kind.__name__, (kind,), names)


def _has_arrays(value: Any) -> bool:
    """Whether a value is an array, or holds some and is no block."""
    if isinstance(value, Module):
        return False
    if isinstance(value, mx.array):
        return True
    if isinstance(value, dict):
        return any(map(_has_arrays, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_arrays, value))
