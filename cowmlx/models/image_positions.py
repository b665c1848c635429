"""The positions of tokens among images that have three axes (``cowmlx.accelerate.positions``)."""

from __future__ import annotations

from contextlib import contextmanager

import mlx.core as mx

from cowmlx.accelerate.positions import placed
from cowmlx.models.images import ImagePosition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any


def shift_of(tokens: list[int]) -> int:
    """Return what is added to the number of tokens to get the position of a text behind them."""
    if min(tokens, default=0) >= 0:
        return 0
    shift = at = 0
    while at < len(tokens):
        grid = _begun(tokens[at])
        if grid is None:
            at += 1
            continue
        rows, columns = grid
        shift += max(grid) - rows * columns
        at += rows * columns
    return shift


def positions_behind(tokens: list[int], chunk: list[int]) -> list[list[int]]:
    """Return the positions of a chunk on each of three axes.

    Args:
        tokens: before it; they may end within an image.
        chunk: may begin and end within an image.
    """
    first = chunk[0]
    inside = isinstance(first, ImagePosition) and first.image.grid is not None
    begin = len(tokens) - (first.index if inside else 0)  # type: ignore[attr-defined]
    position = begin + shift_of(tokens[:begin])
    made: list[list[int]] = [[], [], []]
    for token in chunk:
        grid = token.image.grid if isinstance(token, ImagePosition) else None
        if grid is None:
            place = position, position, position
            position += 1
        else:
            row, column = divmod(token.index, grid[1])  # type: ignore[attr-defined]
            place = position, position + row, position + column
            if (row + 1, column + 1) == grid:
                position += max(grid)
        for axis, own in zip(made, place, strict=True):
            axis.append(own)
    return made


@contextmanager
def placing(network: Any, tokens: list[int], chunk: list[int]) -> Iterator[None]:
    """Call a network in the block, for a chunk with images, with their positions.

    And the features that a tower has for its first layers (Deepstack, arXiv 2406.04334).

    Args:
        network: of the images.
        tokens: before the chunk.
        chunk: has a position of an image with three axes.
    """
    images = {token.image for token in chunk if isinstance(token, ImagePosition)}
    image = next(image for image in images if image.axes is not None)
    assert image.axes is not None
    positions = mx.array(positions_behind(tokens, chunk), mx.int32)
    with placed(network, positions, image.axes), _adding(chunk):
        yield


@contextmanager
def _adding(chunk: list[int]) -> Iterator[None]:
    """Add features of a chunk's images to the results of a network's first layers, in the block."""
    features = _features(chunk)
    layers = _layers(chunk) if features else []
    changed = layers[: len(features)]
    try:
        for at, own in enumerate(features):
            layers[at] = _Adding(changed[at], own)
        yield
    finally:
        layers[: len(changed)] = changed


def _layers(chunk: list[int]) -> list[Any]:
    """Return the layers of the network of a chunk's images."""
    image = next(token for token in chunk if isinstance(token, ImagePosition))
    layers: list[Any] = image.rows.table.owner["layers"]
    return layers


def _features(chunk: list[int]) -> list[mx.array]:
    """Return what is added behind each of the first layers, (1, S, D); none without features."""
    parts: list[mx.array | int] = []  # of images; how many tokens have none
    at = 0
    while at < len(chunk):
        token, end = chunk[at], at + 1
        if isinstance(token, ImagePosition) and token.image.depth:
            end = min(len(chunk), at + token.image.count - token.index)
            parts.append(token.rows.features[:, token.index : token.index + end - at])
        else:
            parts.append(1)
        at = end
    like = next((part for part in parts if isinstance(part, mx.array)), None)
    if like is None:
        return []
    depth, _, width = like.shape
    filled = [
        mx.zeros((depth, part, width), like.dtype) if isinstance(part, int) else part
        for part in parts
    ]
    return list(mx.concatenate(filled, axis=1)[:, None])


class _Adding:
    """Replaces a layer: adds features to its result."""

    def __init__(self, layer: Any, more: mx.array) -> None:
        self._layer = layer
        self._more = more

    def __call__(self, *args: Any, **kwargs: Any) -> mx.array:
        made: mx.array = self._layer(*args, **kwargs)
        return made + self._more.astype(made.dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


def _begun(token: int) -> tuple[int, int] | None:
    """Return the rows and columns of the image that begins with a token; None: none does."""
    if not isinstance(token, ImagePosition) or token.index:
        return None
    return token.image.grid
