"""Dropout whose masks come from a key that is given, and not from mlx's global state."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.dropout import Dropout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _Keys:
    """The keys of one pass, one for each layer."""

    def __init__(self) -> None:
        self.values: mx.array | None = None


class KeyedDropout(Module):
    """Takes the place of ``mlx.nn.Dropout``.

    The same key gives the same mask however often a layer is computed, so that what gradient
    checkpointing computes again is the same.
    """

    def __init__(self, keep: float, keys: _Keys, index: int) -> None:
        super().__init__()
        self._keep = keep
        self._keys = keys
        self._index = index

    def __call__(self, x: mx.array) -> mx.array:
        """Set some of x to 0 and multiply the others, so that the mean stays."""
        keys = self._keys.values
        if keys is None or not self.training:
            return x
        mask = mx.random.bernoulli(self._keep, x.shape, key=keys[self._index])
        return (1 / self._keep) * mask * x


class Dropouts:
    """All layers of a network that drop something.

    Args:
        network: its layers are replaced in place.
    """

    def __init__(self, network: Module) -> None:
        self._keys = _Keys()
        self.count = 0
        for _, module in network.named_modules():
            for name, child in list(module.items()):
                if type(child) is Dropout:
                    setattr(module, name, self._made(child))

    def _made(self, plain: Any) -> Module:
        keep: float = plain._p_1
        if keep < 1:
            self.count += 1
        return KeyedDropout(keep, self._keys, self.count - 1) if keep < 1 else plain

    def begin(self, key: mx.array | None) -> None:
        """Let the layers take their masks from a key; None: nothing is dropped."""
        self._keys.values = None
        if key is not None and self.count:
            self._keys.values = mx.random.split(key, self.count)
