"""Blocks of tokens that attend to each other both ways, as the positions of an image do."""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


@contextmanager
def both_ways(layers: list[Any]) -> Iterator[None]:
    """While a network is called with a block, let its tokens attend to the later ones, too.

    The network takes its masks from the caches; a sliding window bounds them as before.
    """
    changed = [layer for layer in layers if hasattr(layer, "make_mask")]
    for layer in changed:
        layer.make_mask = _widened(layer.make_mask)
    try:
        yield
    finally:
        for layer in changed:
            del layer.make_mask


def _widened(make_mask: Callable[..., Any]) -> Callable[..., Any]:
    def widened(count: int, window_size: int | None = None, return_array: bool = False) -> Any:
        if count == 1:
            return make_mask(count, window_size=window_size, return_array=return_array)
        mask = make_mask(count, window_size=window_size, return_array=True)
        later = mx.triu(mx.ones((count, count), mx.bool_), k=1)
        earlier = mx.zeros((count, mask.shape[-1] - count), mx.bool_)
        return mask | mx.concatenate([earlier, later], axis=1)

    return widened
