"""Tokens of texts to one row of numbers for each, in batches and chunks."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.models.embedding import Pooling

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from cowmlx.models.embedding import HiddenStates

# Columns of a batch that are processed in one turn, as of a prompt.
CHUNK = 512
MAX_BATCH_TOKENS = 1 << 20


def rows_of(
    hidden: HiddenStates,
    tokens: list[list[int]],
    pooling: int,
    batch_tokens: int,
    finish: Callable[[Pooling], mx.array],
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order.

    Args:
        hidden: reaches the hidden states.
        tokens: of each text.
        pooling: one of ``POOLING_*``.
        batch_tokens: as :func:`batches` has it.
        finish: makes rows (B, D) of what was pooled, lazily.
    """
    together = len(tokens) > 1 and hidden.batches()
    order: list[int] = []
    rows: list[mx.array] = []
    for batch in batches([len(ids) for ids in tokens], batch_tokens if together else 0):
        yield
        own = [tokens[index] for index in batch]
        rows.append((yield from _pooled(hidden, own, pooling, finish)))
        order += batch
    back = sorted(range(len(order)), key=order.__getitem__)
    ordered = mx.contiguous(mx.concatenate(rows)[mx.array(back)])
    mx.eval(ordered)
    del rows
    mx.clear_cache()
    return ordered


def _pooled(
    hidden: HiddenStates,
    batch: list[list[int]],
    kind: int,
    finish: Callable[[Pooling], mx.array],
) -> Generator[None, None, mx.array]:
    """Process one batch, a chunk between two yields; return its rows, evaluated."""
    lengths = [len(ids) for ids in batch]
    length = max(lengths)
    padded = mx.array([ids + [0] * (length - len(ids)) for ids in batch], mx.int32)
    cache = hidden.make_cache()
    pooling = Pooling(kind, lengths, hidden.dims)
    for start in range(0, length, CHUNK):
        pooling.add(hidden(padded[:, start : start + CHUNK], cache))
        last = start + CHUNK >= length
        pending: list[Any] = [finish(pooling) if last else pooling.total]
        if not last:
            pending.append([layer.state for layer in cache])
        # Others start their steps while this is computed.
        mx.async_eval(pending)
        yield
        mx.eval(pending)
    result: mx.array = pending[0]
    return result


def batches(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Split texts into batches of similar length.

    Args:
        lengths: tokens of each text.
        batch_tokens: the most that a batch has with its padding; a text with more is alone.

    Yields:
        indices of texts, the shortest first.
    """
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > batch_tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch
