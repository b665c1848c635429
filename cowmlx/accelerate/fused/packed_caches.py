"""Quantised keys and values as fused layers use them: each packed words, scales and biases."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.accelerate.fused.caches import Growing, Rows, columns_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.accelerate.fused.caches import Buffers, Place, Shape

_PARTS = 3
_WORD = 32
_BITS = (4, 8)
_GROUPS = (32, 64, 128)
_TYPES = (mx.float32, mx.float16, mx.bfloat16)


def _packs(cache: Any, shape: Shape) -> bool:
    """Whether kernels pack the layer's keys and values so."""
    return (
        cache.bits in _BITS
        and cache.group_size in _GROUPS
        and not shape.key_dim % cache.group_size
        and not shape.value_dim % cache.group_size
    )


def _zeros(
    cache: Any, shape: Shape, rows: int, columns: int, dtype: mx.Dtype
) -> tuple[mx.array, ...]:
    """Return buffers without tokens."""
    made = []
    for dim in (shape.key_dim, shape.value_dim):
        words, groups = dim * cache.bits // _WORD, dim // cache.group_size
        made.append(mx.zeros((rows, shape.groups, columns, words), mx.uint32))
        made += [mx.zeros((rows, shape.groups, columns, groups), dtype) for _ in range(2)]
    return tuple(made)


class PackedGrowing:
    """mlx-lm's ``QuantizedKVCache``: as :class:`Growing`."""

    @staticmethod
    def fits(cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        if not _packs(cache, shape):
            return False
        if cache.keys is None:
            return True
        words, scales = cache.keys[:2]
        return words.shape[0] == rows and scales.dtype in _TYPES

    @staticmethod
    def packing(cache: Any) -> tuple[int, int]:
        """Return the bits of a number, and how many share a scale."""
        return cache.bits, cache.group_size

    offsets = Growing.offsets

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        before = cache.offset
        if cache.keys is None:
            columns = columns_for(before + tokens, cache.step)
            return _zeros(cache, shape, rows, columns, dtype)
        held = (*cache.keys, *cache.values)
        if before + tokens <= held[0].shape[2]:
            return held
        columns = columns_for(before + tokens, cache.step)
        new = _zeros(cache, shape, rows, columns - before, held[1].dtype)
        if before < held[0].shape[2]:
            held = tuple(each[..., :before, :] for each in held)
        cache.keys = cache.values = None  # or what they hold would be copied once more
        return [mx.concatenate(list(parts), 2) for parts in zip(held, new, strict=True)]

    @staticmethod
    def give_back(cache: Any, buffers: Buffers) -> None:
        """Hold again what :meth:`room` gave: the step is not taken."""
        cache.keys, cache.values = tuple(buffers[:_PARTS]), tuple(buffers[_PARTS:])

    @staticmethod
    def place(cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        """Return where the step's tokens go in buffers of so many columns."""
        return Growing.place(cache, shape, rows, tokens, columns)

    @staticmethod
    def took(cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written."""
        PackedGrowing.give_back(cache, buffers)
        cache.offset += tokens


class PackedRows:
    """A batch's quantised keys and values: as :class:`Rows`."""

    @staticmethod
    def fits(cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        if not _packs(cache, shape) or len(cache.rows.all) != rows or cache.rows.width != tokens:
            return False
        return not cache.buffers or cache.buffers[1].dtype in _TYPES

    packing = PackedGrowing.packing
    offsets = Rows.offsets

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        room: list[mx.array] = cache.room(list(_zeros(cache, shape, 0, 0, dtype)))
        cache.buffers = []
        return room

    give_back = Rows.give_back
    place = Rows.place
    took = Rows.took
