"""Texts being embedded: a unit of the scheduler, so that others step meanwhile."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import ContextFull, InvalidArgument, OutOfRange
from cowmlx.models.embedding import HiddenStates, Pooling
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.text.tokenizer import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.model import Model

# Columns of a batch that are processed in one turn, as of a prompt.
CHUNK = 512
_MAX_BATCH_TOKENS = 1 << 20


class EmbeddingParams:
    """What ``cow_mlx_embed_params`` says, all of it valid.

    Raises:
        InvalidArgument: a value is out of range.
    """

    def __init__(self, fields: dict[str, Any]) -> None:
        self.pooling: int = fields["pooling"]
        self.normalize: bool = fields["normalize"]
        self.add_special: bool = fields["add_special"]
        self.batch_tokens: int = fields["batch_tokens"]
        Pooling.check(self.pooling)
        if not 1 <= self.batch_tokens <= _MAX_BATCH_TOKENS:
            raise OutOfRange("batch_tokens", self.batch_tokens, f"1 to {_MAX_BATCH_TOKENS}")


class Embedding(SteppedCall):
    """Embeds the texts of one call.

    Args:
        call: ends with the vectors (N, D) and D.
        model: whose hidden states they are.
        hidden: reaches them.
        texts: N texts, at least one.
        params: how.
        stream: to compute on.
        on_end: told when the call ends.
    """

    def __init__(
        self,
        call: Call,
        model: Model,
        hidden: HiddenStates,
        texts: list[str],
        params: EmbeddingParams,
        stream: mx.Stream,
        on_end: Callable[[], object],
    ) -> None:
        super().__init__(call, _embed(model, hidden, texts, params), stream, model)
        self._dims = hidden.dims
        self._on_end = on_end

    def _release(self) -> None:
        self._on_end()

    def _succeed(self, result: Any) -> None:
        self._call.succeed((result, self._dims))


def _embed(
    model: Model, hidden: HiddenStates, texts: list[str], params: EmbeddingParams
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order."""
    tokens: list[list[int]] = []
    characters = 0
    for index, text in enumerate(texts):
        if characters >= PART:
            yield
            characters = 0
        tokens.append((yield from _tokens(model, index, text, params.add_special)))
        characters += len(text) + 1
    yield
    together = len(texts) > 1 and hidden.batches()
    order: list[int] = []
    rows: list[mx.array] = []
    for batch in batches([len(ids) for ids in tokens], params.batch_tokens if together else 0):
        yield
        pooled = yield from _pool(hidden, [tokens[index] for index in batch], params)
        order += batch
        rows.append(pooled)
    back = sorted(range(len(order)), key=order.__getitem__)
    vectors = mx.contiguous(mx.concatenate(rows)[mx.array(back)])
    mx.eval(vectors)
    del rows
    mx.clear_cache()
    return vectors


def _pool(
    hidden: HiddenStates, batch: list[list[int]], params: EmbeddingParams
) -> Generator[None, None, mx.array]:
    """Process one batch, a chunk between two yields; return its vectors, evaluated."""
    lengths = [len(ids) for ids in batch]
    length = max(lengths)
    padded = mx.array([ids + [0] * (length - len(ids)) for ids in batch], mx.int32)
    cache = hidden.make_cache()
    pooling = Pooling(params.pooling, lengths, hidden.dims)
    for start in range(0, length, CHUNK):
        pooling.add(hidden(padded[:, start : start + CHUNK], cache))
        last = start + CHUNK >= length
        pending: list[Any] = [pooling.result(params.normalize) if last else pooling.total]
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


def _tokens(
    model: Model, index: int, text: str, add_special: bool
) -> Generator[None, None, list[int]]:
    """Return the tokens of a text, whose special tokens are plain text.

    Raises:
        InvalidArgument: it has none, or one that the network does not know.
        ContextFull: it has too many.
    """
    ids = yield from model.tokenizer.encode_steps(
        text, add_special=add_special, parse_special=False
    )
    if not ids:
        raise InvalidArgument(
            f"texts[{index}] has no tokens; leave it out",
            reason="missing",
            argument=f"texts[{index}]",
        )
    if len(ids) > model.context_length:
        raise ContextFull(
            f"texts[{index}] has {len(ids)} tokens, but the model's context length is "
            f"{model.context_length}",
            argument=f"texts[{index}]",
            needed=len(ids),
            available=model.context_length,
        )
    if max(ids) >= model.vocabulary_size:
        raise InvalidArgument(
            f"texts[{index}] has the token {max(ids)}, but the vocabulary has 0 to "
            f"{model.vocabulary_size - 1}",
            argument=f"texts[{index}]",
            value=max(ids),
        )
    return ids
