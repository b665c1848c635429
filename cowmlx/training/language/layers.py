"""Layers in training: parameters in their places, keyed dropout, gradient checkpointing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.dropout import Dropout
from mlx.utils import tree_flatten


class Slots:
    """Places of parameters: each in a module, or in a list or dict of one."""

    def __init__(self, network: Module, names: list[str]) -> None:
        self._places = {name: _place(network, name) for name in names}

    def get(self) -> dict[str, mx.array]:
        """Return the values in all places."""
        return {name: owner[key] for name, (owner, key) in self._places.items()}

    def put(self, values: Mapping[str, mx.array]) -> None:
        """Set the values of some places."""
        for name, value in values.items():
            owner, key = self._places[name]
            owner[key] = value


def _place(network: Module, name: str) -> tuple[Any, Any]:
    """Return the owner of a parameter, and its key or index there."""
    owner: Any = network
    *path, leaf = name.split(".")
    for part in path:
        owner = owner[_key(owner, part)]
    return owner, _key(owner, leaf)


def _key(owner: Any, part: str) -> Any:
    return int(part) if isinstance(owner, list | tuple) else part


# ------------------------------------------------------------------------ Dropout


class KeyedDropout(Module):
    """``mlx.nn.Dropout`` with masks of given keys instead of mlx's global state.

    The same key gives the same mask however often a layer is computed, as gradient checkpointing
    does.
    """

    def __init__(self, keep: float, dropouts: Dropouts, index: int) -> None:
        super().__init__()
        self._keep = keep
        self._dropouts = dropouts
        self._index = index

    def __call__(self, x: mx.array) -> mx.array:
        """Set some of x to 0 and multiply the others, so that the mean stays."""
        keys = self._dropouts.keys
        if keys is None or not self.training:
            return x
        mask = mx.random.bernoulli(self._keep, x.shape, key=keys[self._index])
        return (1 / self._keep) * mask * x


class Dropouts:
    """All dropout layers of a network, replaced in place."""

    def __init__(self, network: Module) -> None:
        # One for each of them in this pass; None: nothing is dropped.
        self.keys: mx.array | None = None
        self.count = 0  # how many layers drop something
        for _, module in network.named_modules():
            for name, child in list(module.items()):
                if type(child) is Dropout and child._p_1 < 1:
                    setattr(module, name, KeyedDropout(child._p_1, self, self.count))
                    self.count += 1

    def begin(self, key: mx.array | None) -> None:
        """Take the masks of the next pass from a key; None: drop nothing."""
        self.keys = None
        if key is not None and self.count:
            self.keys = mx.random.split(key, self.count)


# -------------------------------------------------------------- Gradient checkpointing

_checkpointed: dict[type, type] = {}


def checkpoint(block: Any) -> None:
    """Let a block compute its activations again where gradients need them.

    The block gets a subclass of its class, which stays as it is: the serving network shares it. Its
    trainable parameters must not change later.
    """
    kind = type(block)
    if getattr(kind, "_is_checkpointed", False):
        return
    if kind not in _checkpointed:
        _checkpointed[kind] = _subclass(kind)
    block.__class__ = _checkpointed[kind]
    block._checkpointed = _trainable(block)


def _trainable(module: Module) -> Slots:
    return Slots(module, list(dict(tree_flatten(module.trainable_parameters()))))


def _subclass(kind: type) -> type:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.training:
            return kind.__call__(self, *args, **kwargs)
        given: dict[Any, Any] = {**dict(enumerate(args)), **kwargs}
        # Gradients flow through arguments: arrays, and blocks that are shared.
        arrays = {str(name): value for name, value in given.items() if _has_arrays(value)}
        modules = {str(name): value for name, value in given.items() if isinstance(value, Module)}
        slots = {"": self._checkpointed}
        slots |= {name: _trainable(module) for name, module in modules.items()}

        def again(values: dict[str, Any], arrays: dict[str, Any]) -> Any:
            for name, own in slots.items():
                own.put(values[name])
            every = {name: arrays.get(str(name), value) for name, value in given.items()}
            positional = [every.pop(index) for index in range(len(args))]
            return kind.__call__(self, *positional, **every)

        before = {name: own.get() for name, own in slots.items()}
        try:
            return mx.checkpoint(again)(before, arrays)
        finally:
            for name, own in slots.items():
                own.put(before[name])

    names = {"__call__": call, "__module__": kind.__module__, "_is_checkpointed": True}
    return type(kind.__name__, (kind,), names)


def _has_arrays(value: Any) -> bool:
    """Whether a value is an array, or a container with some and no block."""
    if isinstance(value, Module):
        return False
    if isinstance(value, mx.array):
        return True
    if isinstance(value, dict):
        return any(map(_has_arrays, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_arrays, value))
