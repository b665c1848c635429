"""What fused layers read and write of the caches that networks are given: a form for each kind.

Plain layers and fused ones leave a cache in the same state, so a call may take either.
"""

from __future__ import annotations

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    # Of every row of the batch: the first column written, columns in use then, what query 0 counts
    # as; and whether the layers' window applies.
    Place = tuple[list[int], list[int], list[int], bool]
    # What a layer's cache consists of: keys and values; or of each words, scales and biases.
    Buffers = Sequence[mx.array]

_TYPES = (mx.float32, mx.float16, mx.bfloat16)
_SPARE = 64  # columns for tokens to come, at least, in what grows by doubling


class Shape:
    """What a layer keeps of a token, and how far it looks back.

    Attributes:
        groups, key_dim, value_dim: of keys and values.
        window: tokens that a query sees; 0: all.
    """

    __slots__ = ("groups", "key_dim", "value_dim", "window")

    def __init__(self, groups: int, key_dim: int, value_dim: int, window: int) -> None:
        self.groups = groups
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.window = window

    def zeros(self, rows: int, columns: int, dtype: mx.Dtype) -> tuple[mx.array, mx.array]:
        """Return keys and values without tokens."""
        return (
            mx.zeros((rows, self.groups, columns, self.key_dim), dtype),
            mx.zeros((rows, self.groups, columns, self.value_dim), dtype),
        )


def columns_for(tokens: int, step: int) -> int:
    """Return how many columns to have for so many tokens: a short text takes no whole block."""
    if tokens > step:
        return -(-tokens // step) * step
    return min(step, 1 << (tokens + _SPARE - 1).bit_length())


class Growing:
    """mlx-lm's ``KVCache``: buffers that grow by blocks of columns, the first ones by doubling."""

    @staticmethod
    def fits(cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        keys = cache.keys
        return keys is None or (keys.shape[0] == rows and keys.dtype in _TYPES)

    @staticmethod
    def packing(cache: Any) -> tuple[int, int]:
        """Return the bits of a number, and how many share a scale; 0: plain numbers."""
        return 0, 0

    @staticmethod
    def offsets(cache: Any, rows: int) -> list[int]:
        """Return the position of every row's next token."""
        return [cache.offset] * rows

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        before, keys, values = cache.offset, cache.keys, cache.values
        if keys is not None and before + tokens <= keys.shape[2]:
            return keys, values
        columns = columns_for(before + tokens, cache.step)
        if keys is None:
            return shape.zeros(rows, columns, dtype)
        new_keys, new_values = shape.zeros(rows, columns - before, keys.dtype)
        if before < keys.shape[2]:
            keys, values = keys[..., :before, :], values[..., :before, :]
        cache.keys = cache.values = None  # or what they hold would be copied once more
        return mx.concatenate([keys, new_keys], 2), mx.concatenate([values, new_values], 2)

    @staticmethod
    def give_back(cache: Any, buffers: Buffers) -> None:
        """Hold again what :meth:`room` gave: the step is not taken."""
        cache.keys, cache.values = buffers

    @staticmethod
    def place(cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        """Return where the step's tokens go in buffers of so many columns."""
        at = [cache.offset] * rows
        return at, [cache.offset + tokens] * rows, at, shape.window > 0

    @staticmethod
    def took(cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written."""
        cache.keys, cache.values = buffers
        cache.offset += tokens


class Ring:
    """mlx-lm's ``RotatingKVCache``: a token a step into a ring, prompts in the order of time."""

    @staticmethod
    def fits(cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        return (
            not cache.keep
            and cache.max_size == shape.window
            and Growing.fits(cache, shape, rows, tokens)
        )

    packing = Growing.packing
    offsets = Growing.offsets
    give_back = Growing.give_back

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        if tokens > 1:
            return _Line.room(cache, shape, rows, tokens, dtype)
        keys, values, before = cache.keys, cache.values, cache.offset
        if keys is None or (before >= keys.shape[2] and keys.shape[2] < cache.max_size):
            more = shape.zeros(
                rows,
                min(cache.step, cache.max_size - before),
                dtype if keys is None else keys.dtype,
            )
            if keys is None:
                keys, values = more
            else:
                keys, values = (
                    mx.concatenate([keys, more[0]], 2),
                    mx.concatenate([values, more[1]], 2),
                )
            cache._idx = before
        excess = keys.shape[2] - cache.max_size
        if excess > 0:
            keys, values = keys[:, :, excess:], values[:, :, excess:]
            cache._idx = cache.max_size
        at = cache._idx % cache.max_size
        if keys.shape[2] == cache.max_size and before % cache.max_size != at:
            # The order of columns is that of additions: it is the one that a batch's rows have.
            by = (before - at) % cache.max_size
            keys, values = mx.roll(keys, by, 2), mx.roll(values, by, 2)
            at = before % cache.max_size
        cache._idx = at
        cache.keys = cache.values = None
        return keys, values

    @staticmethod
    def place(cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        """Return where the step's tokens go in buffers of so many columns."""
        if tokens > 1:
            before = [columns - tokens] * rows
            return before, [columns] * rows, before, True
        end = min(cache.offset + 1, columns)
        return [cache._idx] * rows, [end] * rows, [end - 1] * rows, False

    @staticmethod
    def took(cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written."""
        cache.keys, cache.values = buffers
        cache.offset += tokens
        cache._idx = cache.keys.shape[2] if tokens > 1 else cache._idx + 1


class _Line:
    """A ring laid out in the order of time, with a prompt's tokens behind it."""

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        if cache.keys is None:
            return shape.zeros(rows, tokens, dtype)
        new = shape.zeros(rows, tokens, cache.keys.dtype)
        made = []
        for array, more in zip((cache.keys, cache.values), new, strict=True):
            ordered = cache._temporal_order(array)
            excess = max(0, ordered.shape[2] - cache.max_size + 1)
            made.append(mx.concatenate([ordered[:, :, excess:], more], 2))
        return made


class Rows:
    """A batch's keys and values, a row for each sequence (``cowmlx.cache.key_values``)."""

    @staticmethod
    def fits(cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        if len(cache.rows.all) != rows or cache.rows.width != tokens:
            return False
        if any(each.dtype not in _TYPES for each in cache.buffers):
            return False
        return not cache.ring or (cache.ring == shape.window and tokens == 1)

    packing = Growing.packing

    @staticmethod
    def offsets(cache: Any, rows: int) -> list[int]:
        """Return the position of every row's next token."""
        return [row.length for row in cache.rows.all]

    @staticmethod
    def room(cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        room: list[mx.array] = cache.room(list(shape.zeros(0, 0, dtype)))
        cache.buffers = []
        return room

    @staticmethod
    def give_back(cache: Any, buffers: Buffers) -> None:
        """Hold again what :meth:`room` gave: the step is not taken."""
        cache.buffers = list(buffers)

    @staticmethod
    def place(cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        """Return where the step's tokens go in buffers of so many columns."""
        lengths = [row.length for row in cache.rows.all]
        if not cache.ring:
            ends = [row.length + max(row.count, 1) for row in cache.rows.all]
            return lengths, ends, lengths, shape.window > 0
        ring = cache.ring
        ends = [min(length + 1, ring) for length in lengths]
        return [length % ring for length in lengths], ends, [end - 1 for end in ends], False

    @staticmethod
    def took(cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written; the batch moves its rows on."""
        cache.buffers = list(buffers)
