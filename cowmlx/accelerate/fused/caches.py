"""How fused layers read and write the caches that networks are given: a form for each kind.

Plain layers and fused ones leave a cache in the same state, so a call may take either.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    # Of every row of the batch: the first column written, columns in use then, the position that
    # query 0 counts as; and whether the layers' window applies.
    Place = tuple[list[int], list[int], list[int], bool]
    # A layer's cache: keys and values; quantized, words, scales and biases of both.
    Buffers = Sequence[mx.array]

_TYPES = (mx.float32, mx.float16, mx.bfloat16)
_SPARE = 64  # columns for tokens to come, at least, in what grows by doubling
_TRIAL = 16  # columns, where a network is tried with a few tokens
_WORD = 32
_BITS = (4, 8)
_GROUPS = (32, 64, 128)


class Shape(NamedTuple):
    """What a layer keeps of a token, and how far it looks back."""

    groups: int
    """Heads of keys and values."""
    key_dim: int
    value_dim: int
    window: int
    """Tokens that a query sees; 0: all."""

    def zeros(
        self, rows: int, columns: int, dtype: mx.Dtype, bits: int = 0, group: int = 0
    ) -> list[mx.array]:
        """Return buffers without tokens, quantized to so many bits unless these are 0."""
        made = []
        for dim in (self.key_dim, self.value_dim):
            if not bits:
                made.append(mx.zeros((rows, self.groups, columns, dim), dtype))
                continue
            made.append(mx.zeros((rows, self.groups, columns, dim * bits // _WORD), mx.uint32))
            shape = (rows, self.groups, columns, dim // group)
            made += [mx.zeros(shape, dtype) for _ in range(2)]
        return made


def columns_for(tokens: int, step: int) -> int:
    """Return how many columns to have for so many tokens: a short text takes no whole block."""
    if tokens > step:
        return -(-tokens // step) * step
    return min(step, 1 << (tokens + _SPARE - 1).bit_length())


def for_trials(make_cache: Callable[[], list[Any]]) -> list[Any]:
    """Return empty caches of a network's layers, which take memory for few tokens at once."""
    caches = make_cache()
    for cache in caches:
        for part in getattr(cache, "caches", (cache,)):
            if isinstance(getattr(part, "step", None), int):
                part.step = _TRIAL
    return caches


class Growing:
    """mlx-lm's ``KVCache`` or ``QuantizedKVCache``: buffers that grow by blocks of columns.

    The first ones grow by doubling.

    Attributes:
        quantized: whether keys and values are words, scales and biases.
        direct: whether kernels read and write the cache themselves, where it has room.
        batched: whether it is the rows of a batch.
    """

    batched = False

    def __init__(self, quantized: bool = False, direct: bool = True) -> None:
        self.quantized = quantized
        self.direct = direct

    def format(self, cache: Any) -> tuple[int, int]:
        """Return the bits of a number, and how many share a scale; 0: not quantized."""
        return (cache.bits, cache.group_size) if self.quantized else (0, 0)

    def fits(self, cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        """Whether a step can be taken with it; nothing has changed."""
        buffers = self._buffers(cache)
        return self._is_known(cache, shape, buffers) and all(
            buffer.shape[0] == rows for buffer in buffers[:1]
        )

    def _is_known(self, cache: Any, shape: Shape, buffers: Buffers) -> bool:
        """Whether kernels have the type, and the format for heads of that size."""
        bits, group = self.format(cache)
        if self.quantized and (
            bits not in _BITS
            or group not in _GROUPS
            or shape.key_dim % group
            or shape.value_dim % group
        ):
            return False
        typed = buffers[1:2] if self.quantized else buffers
        return all(array.dtype in _TYPES for array in typed)

    def _buffers(self, cache: Any) -> Buffers:
        """Return what a cache holds; nothing before its first token."""
        if cache.keys is None:
            return ()
        return (*cache.keys, *cache.values) if self.quantized else (cache.keys, cache.values)

    def offsets(self, cache: Any, rows: int) -> list[int]:
        """Return the position of every row's next token."""
        return [cache.offset] * rows

    def room(self, cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return buffers with columns for the step's tokens."""
        before, buffers = cache.offset, self._buffers(cache)
        if buffers and before + tokens <= buffers[0].shape[2]:
            return buffers
        columns = columns_for(before + tokens, cache.step)
        if not buffers:
            return shape.zeros(rows, columns, dtype, *self.format(cache))
        new = shape.zeros(rows, columns - before, buffers[-1].dtype, *self.format(cache))
        if before < buffers[0].shape[2]:
            buffers = [buffer[..., :before, :] for buffer in buffers]
        cache.keys = cache.values = None  # or their arrays would be copied once more
        return [mx.concatenate(list(parts), 2) for parts in zip(buffers, new, strict=True)]

    def give_back(self, cache: Any, buffers: Buffers) -> None:
        """Hold again what :meth:`room` gave: the step is not taken."""
        if self.quantized:
            cache.keys, cache.values = tuple(buffers[:3]), tuple(buffers[3:])
        else:
            cache.keys, cache.values = buffers

    def convert(self, cache: Any, dtype: mx.Dtype) -> None:
        """Convert keys and values to a type, unless they are quantized."""
        buffers = self._buffers(cache)
        if not self.quantized and any(buffer.dtype != dtype for buffer in buffers):
            self.give_back(cache, [buffer.astype(dtype) for buffer in buffers])

    def place(self, cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        """Return where the step's tokens go in buffers of so many columns."""
        at = [cache.offset] * rows
        return at, [cache.offset + tokens] * rows, at, shape.window > 0

    def took(self, cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written."""
        self.give_back(cache, buffers)
        cache.offset += tokens


class _Packed:
    """Quantized keys and values that other code gets dequantized (``cowmlx.cache.dequantized``)."""

    def format(self, cache: Any) -> tuple[int, int]:
        packing: tuple[int, int] = cache.packing
        return packing


class _Dequantized(_Packed, Growing):
    """A sequence's."""


class _Ring(Growing):
    """mlx-lm's ``RotatingKVCache``: a token a step into a ring, prompts in the order of time."""

    def fits(self, cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        is_ring = not cache.keep and cache.max_size == shape.window
        return is_ring and super().fits(cache, shape, rows, tokens)

    def room(self, cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        if tokens > 1:
            return self._line(cache, shape, rows, tokens, dtype)
        buffers, before, size = self._buffers(cache), cache.offset, cache.max_size
        if not buffers or (before >= buffers[0].shape[2] and buffers[0].shape[2] < size):
            of = buffers[0].dtype if buffers else dtype
            more = shape.zeros(rows, min(cache.step, size - before), of)
            joined = zip(buffers, more, strict=True) if buffers else ()
            buffers = [mx.concatenate(list(parts), 2) for parts in joined] or more
            cache._idx = before
        excess = buffers[0].shape[2] - size
        if excess > 0:
            buffers = [buffer[:, :, excess:] for buffer in buffers]
            cache._idx = size
        at = cache._idx % size
        if buffers[0].shape[2] == size and before % size != at:
            # The order of columns is that of additions: it is the one that a batch's rows have.
            buffers = [mx.roll(each, (before - at) % size, 2) for each in buffers]
            at = before % size
        cache._idx = at
        cache.keys = cache.values = None
        return buffers

    def _line(self, cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        """Return the ring laid out in the order of time, with room for a prompt behind it."""
        if cache.keys is None:
            return shape.zeros(rows, tokens, dtype)
        made = []
        new = shape.zeros(rows, tokens, cache.keys.dtype)
        for array, more in zip((cache.keys, cache.values), new, strict=True):
            ordered = cache._temporal_order(array)
            excess = max(0, ordered.shape[2] - cache.max_size + 1)
            made.append(mx.concatenate([ordered[:, :, excess:], more], 2))
        return made

    def place(self, cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        if tokens > 1:
            before = [columns - tokens] * rows
            return before, [columns] * rows, before, True
        end = min(cache.offset + 1, columns)
        return [cache._idx] * rows, [end] * rows, [end - 1] * rows, False

    def took(self, cache: Any, buffers: Buffers, tokens: int) -> None:
        super().took(cache, buffers, tokens)
        cache._idx = cache.keys.shape[2] if tokens > 1 else cache._idx + 1


class _Rows(Growing):
    """A batch's keys and values, a row for each sequence (``cowmlx.cache.key_values``)."""

    batched = True

    def _buffers(self, cache: Any) -> Buffers:
        buffers: Buffers = cache.buffers
        return buffers

    def fits(self, cache: Any, shape: Shape, rows: int, tokens: int) -> bool:
        if len(cache.rows.all) != rows or cache.rows.width != tokens:
            return False
        if not self._is_known(cache, shape, cache.buffers):
            return False
        return not cache.ring or (cache.ring == shape.window and tokens == 1)

    def offsets(self, cache: Any, rows: int) -> list[int]:
        return [row.length for row in cache.rows.all]

    def room(self, cache: Any, shape: Shape, rows: int, tokens: int, dtype: mx.Dtype) -> Buffers:
        room: Buffers = cache.room(shape.zeros(0, 0, dtype, *self.format(cache)))
        cache.buffers = []
        return room

    def give_back(self, cache: Any, buffers: Buffers) -> None:
        cache.buffers = list(buffers)

    def place(self, cache: Any, shape: Shape, rows: int, tokens: int, columns: int) -> Place:
        lengths = [row.length for row in cache.rows.all]
        if not cache.ring:
            ends = [row.length + max(row.count, 1) for row in cache.rows.all]
            return lengths, ends, lengths, shape.window > 0
        ring = cache.ring
        ends = [min(length + 1, ring) for length in lengths]
        return [length % ring for length in lengths], ends, [end - 1 for end in ends], False

    def took(self, cache: Any, buffers: Buffers, tokens: int) -> None:
        """Hold what the step has written; the batch moves its rows on."""
        self.give_back(cache, buffers)


class _DequantizedRows(_Packed, _Rows):
    """A batch's."""


_FORMS: dict[str, Growing] = {
    "KVCache": Growing(),
    "QuantizedKVCache": Growing(quantized=True),
    "DequantizedKVCache": _Dequantized(quantized=True, direct=False),
    "RotatingKVCache": _Ring(direct=False),
    "KVRows": _Rows(),
    "QuantizedRows": _Rows(quantized=True),
    "DequantizedRows": _DequantizedRows(quantized=True, direct=False),
    "RotatingRows": _Rows(direct=False),
}
_MODULES = (".models.cache", ".cache.key_values", ".cache.dequantized")
_forms: dict[type, Growing | None] = {}


def form_of(cache: Any) -> Growing | None:
    """Return how fused layers use a cache, or None if they do not."""
    kind = type(cache)
    if kind not in _forms:
        ours = kind.__module__.endswith(_MODULES)
        _forms[kind] = _FORMS.get(kind.__name__) if ours else None
    return _forms[kind]
