"""Parameters in their places in a network."""

from __future__ import annotations

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from mlx.nn.layers.base import Module


class Slots:
    """Where parameters are: each in a module, or in an array or object of one.

    Args:
        network: holds them.
        names: their full names.
    """

    def __init__(self, network: Module, names: list[str]) -> None:
        self._places = {name: _place(network, name) for name in names}

    def get(self) -> dict[str, mx.array]:
        """Return what is in the places."""
        return {name: owner[key] for name, (owner, key) in self._places.items()}

    def put(self, values: Mapping[str, mx.array]) -> None:
        """Put something into some places."""
        for name, value in values.items():
            owner, key = self._places[name]
            owner[key] = value


def _place(network: Module, name: str) -> tuple[Any, Any]:
    """Return what holds a parameter, and under which key or index."""
    owner: Any = network
    *path, leaf = name.split(".")
    for part in path:
        owner = owner[_key(owner, part)]
    return owner, _key(owner, leaf)


def _key(owner: Any, part: str) -> Any:
    return int(part) if isinstance(owner, list | tuple) else part
