"""Texts through an encoder: in batches of similar length, without padding."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

from cowmlx import resources
from cowmlx.accelerate import operations
from cowmlx.folders.weights import flatten
from cowmlx.generated import constants
from cowmlx.models.embedding import batches, normalized
from cowmlx.networks.encoders.layers import Texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any

    from cowmlx.models.embedding import Admit

# Tokens times layers that are computed in one turn.
_PIECE = 4096
# On a CPU larger batches take more memory and hardly less time, since nothing is padded. A batch
# has a token for so many bytes of weights, which are read for all of its tokens, and some at least.
_WEIGHTS, _LEAST = 1 << 17, 256
# Bytes that mlx may keep for the next call: a short text's, which it would have to get again.
_KEPT = 4 << 20
_FLOAT = 4  # bytes
_POOLINGS = {
    constants.POOLING_CLS: "cls",
    constants.POOLING_LAST: "last",
    constants.POOLING_MAX: "max",
    constants.POOLING_MEAN: "mean",
    constants.POOLING_WEIGHTED: "weighted",
}


class EncodedText(NamedTuple):
    """What an encoder reads.

    Attributes:
        tokens: of a text, or of a pair of texts.
        segments: the token type of each; None if all are 0.
    """

    tokens: Sequence[int]
    segments: list[int] | None = None


def rows_of(
    network: Any,
    texts: list[EncodedText],
    batch_tokens: int,
    finish: Callable[[mx.array, Texts], mx.array],
    admit: Admit,
) -> Generator[None, None, Any]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order.

    An array if there is one text, else a buffer.

    Args:
        network: an encoder.
        texts: of any length that the network takes.
        batch_tokens: the most tokens of a batch; a text with more is alone. Batches may be smaller.
        finish: makes rows (B, D) of the hidden states of a batch, lazily.
        admit: says for which part of a batch there is memory.
    """
    on_cpu = mx.default_device().type == mx.cpu
    if on_cpu and len(texts) > 1:
        batch_tokens = min(batch_tokens, _tokens_together(network))
    ordered: _Ordered | None = None
    made: mx.array | None = None
    for batch, _ in batches([len(text.tokens) for text in texts], batch_tokens, admit):
        if ordered is not None:
            made = None
            yield
            if on_cpu:  # the next batch's buffers have other sizes
                resources.give_back()
        made = yield from _finished(network, [texts[index] for index in batch], finish)
        if len(batch) == len(texts) == 1:
            break
        if ordered is None:
            ordered = _Ordered(len(texts), made.shape[-1])
        ordered.put(made, batch)
    if mx.get_cache_memory() > _KEPT:
        mx.clear_cache()
    return made if ordered is None else ordered.rows


class _Ordered:
    """The rows of all texts, in their order, which batches fill.

    mlx would need each of them three times: of its batch, joined, and in order.

    Attributes:
        rows: float32 (N, D).
    """

    def __init__(self, count: int, width: int) -> None:
        self._size = _FLOAT * width
        self._bytes = memoryview(bytearray(count * self._size))
        self.rows = self._bytes.cast("f", (count, width))

    def put(self, rows: mx.array, places: list[int]) -> None:
        """Put evaluated rows (B, D) to their places."""
        whole = mx.contiguous(rows)
        mx.eval(whole)
        own = memoryview(whole).cast("B")  # type: ignore[arg-type]
        size = self._size
        for index, place in enumerate(places):
            self._bytes[place * size : (place + 1) * size] = own[index * size : (index + 1) * size]


def _tokens_together(network: Any) -> int:
    size = sum(array.nbytes for array in flatten(network.parameters()).values())
    return max(_LEAST, size // _WEIGHTS)


def _finished(
    network: Any, batch: list[EncodedText], finish: Callable[[mx.array, Texts], mx.array]
) -> Generator[None, None, mx.array]:
    """Process one batch, some layers between two yields; return its rows, evaluated."""
    texts = Texts([len(text.tokens) for text in batch])
    tokens = mx.array([token for text in batch for token in text.tokens], mx.int32)
    every = max(1, _PIECE // texts.size)
    last = -(-len(network.layers) // every)
    x = None
    for index, x in enumerate(network.states(tokens, texts, _segments(batch), every)):
        if 0 < index < last:
            mx.async_eval(x)
            yield
            mx.eval(x)
    assert x is not None
    made = finish(x, texts)
    del x
    mx.async_eval(made)
    yield
    mx.eval(made)
    return made


def _segments(batch: list[EncodedText]) -> mx.array | None:
    if all(text.segments is None for text in batch):
        return None
    kinds: list[int] = []
    for text in batch:
        kinds += text.segments or [0] * len(text.tokens)
    return mx.array(kinds, mx.int32)


def pooled(
    hidden: mx.array, texts: Texts, kind: int, skipped: int = 0, *, unit: bool = False
) -> mx.array:
    """Return a vector of each text, float32 (B, D), lazily.

    Args:
        hidden: (N, D), the hidden states of all tokens.
        texts: whose they are.
        kind: one of ``POOLING_*``.
        skipped: tokens of each text that do not count, unless it has no more.
        unit: whether vectors get length 1.
    """
    hidden = hidden.astype(mx.float32)
    made = operations.pooled(hidden, texts.groups, _POOLINGS[kind], skipped, unit)
    if made is None:
        made = _pooled(hidden, texts, kind, skipped)
        made = normalized(made) if unit else made
    return made


def _pooled(hidden: mx.array, texts: Texts, kind: int, skipped: int) -> mx.array:
    if kind in (constants.POOLING_CLS, constants.POOLING_LAST):
        ends = zip(texts.starts, texts.lengths, strict=True)
        last = kind == constants.POOLING_LAST
        return hidden[mx.array([start + length - 1 if last else start for start, length in ends])]
    rows = []
    for group in texts.groups:
        own = hidden[group.start : group.end].reshape(group.texts, group.length, -1)
        before = skipped if skipped < group.length else 0
        rows.append(_pooled_group(own[:, before:], kind, before))
    return rows[0] if len(rows) == 1 else mx.concatenate(rows)


def _pooled_group(own: mx.array, kind: int, before: int) -> mx.array:
    """Pool (B, T, D) of one length over T, tokens behind so many others."""
    if kind == constants.POOLING_MAX:
        return own.max(axis=1)
    if kind == constants.POOLING_WEIGHTED:
        weights = mx.arange(before + 1, before + own.shape[1] + 1, dtype=mx.float32)
        return (own * weights[:, None]).sum(axis=1) / weights.sum()
    return own.mean(axis=1)


def filled_up(rows: mx.array, texts: Texts, count: int) -> mx.array:
    """Return ``count`` rows of each text beside each other, (B, count D), lazily.

    Args:
        rows: (N, D), of the tokens of all texts.
        texts: whose they are, none of more tokens.
        count: rows of zeros follow a text's own.
    """
    parts = []
    for group in texts.groups:
        own = rows[group.start : group.end].reshape(group.texts, group.length, -1)
        own = mx.pad(own, [(0, 0), (0, count - group.length), (0, 0)])
        parts.append(own.reshape(group.texts, -1))
    return parts[0] if len(parts) == 1 else mx.concatenate(parts)
