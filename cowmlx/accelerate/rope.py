"""Rotary position embeddings on the CPU, their angles computed once per step.

mlx's CPU backend builds some thirty small operations for every call, half of them for the angles,
which are the same for queries, keys and every layer. Here the angles are kept until positions
change. The results are the same to the last bit.
"""

from __future__ import annotations

import math

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.modules import modules_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Angles:
    """Cosines and sines of the last positions asked for (arXiv 2104.09864, eq. 34)."""

    def __init__(self, dims: int, base: float, scale: float) -> None:
        half = dims // 2
        self._scale = scale
        steps = mx.arange(0, -half, -1, dtype=mx.float32)
        self._frequencies = mx.exp(steps * (math.log(base) / half))
        self._of: tuple[Any, int] | None = None
        self._kept: tuple[mx.array, mx.array] | None = None

    def get(self, offset: int | mx.array, length: int) -> tuple[mx.array, mx.array]:
        """Return what halves are multiplied by, themselves and swapped.

        Args:
            offset: the first position, or (B,) one for every row.
            length: T, how many follow each other.
        Returns:
            cosines and signed sines, both (T, dims) or (B, 1, T, dims).
        """
        same = self._of is not None and self._of[1] == length
        if same and self._of is not None:
            kept = self._of[0]
            same = kept is offset if isinstance(offset, mx.array) else _equal(kept, offset)
        if not same or self._kept is None:
            positions = mx.arange(length, dtype=mx.float32)
            if isinstance(offset, mx.array) and offset.ndim:
                positions = positions + offset[:, None, None]
            else:
                positions = positions + offset
            theta = (positions * self._scale)[..., None] * self._frequencies
            cosines, sines = mx.cos(theta), mx.sin(theta)
            self._kept = (
                mx.concatenate([cosines, cosines], axis=-1),
                mx.concatenate([-sines, sines], axis=-1),
            )
            self._of = offset, length
        return self._kept


def _equal(kept: Any, offset: int) -> bool:
    return not isinstance(kept, mx.array) and kept == offset


class SharedAngleRoPE(Module):
    """Takes the place of ``mlx.nn.RoPE`` for float32 on the CPU."""

    def __init__(self, plain: RoPE, angles: Angles) -> None:
        super().__init__()
        self._plain = plain
        self._angles = angles
        self._dims = plain.dims

    def __call__(self, x: mx.array, offset: int | mx.array = 0) -> mx.array:
        """Rotate (B, H, T, D)."""
        if x.dtype != mx.float32 or x.ndim != 4:
            return self._plain(x, offset=offset)  # type: ignore[arg-type]
        cosines, sines = self._angles.get(offset, x.shape[-2])
        half, dims = self._dims // 2, self._dims
        first = x if x.shape[-1] == dims else x[..., :dims]
        swapped = mx.concatenate([first[..., half:], first[..., :half]], axis=-1)
        rotated = first * cosines + swapped * sines
        if x.shape[-1] == dims:
            return rotated
        return mx.concatenate([rotated, x[..., dims:]], axis=-1)


def share_angles(network: Module) -> None:
    """Let the layers of a network share their angles, where they rotate halves."""
    kinds: dict[tuple[int, float, float], Angles] = {}
    for module in modules_of(network):
        for name, child in list(module.items()):
            if type(child) is RoPE and not child.traditional and child.dims % 2 == 0:
                kind = child.dims, child.base, child.scale
                if kind not in kinds:
                    kinds[kind] = Angles(*kind)
                setattr(module, name, SharedAngleRoPE(child, kinds[kind]))


def restore(module: Module) -> None:
    """Give a module's children that share their angles the place back to mlx's own."""
    for name, child in list(module.items()):
        if type(child) is SharedAngleRoPE:
            setattr(module, name, child["_plain"])
