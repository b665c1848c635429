"""Texts being turned into numbers: a unit of the scheduler, so that others step meanwhile."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import ContextFull, CowMlxError, InvalidArgument, OutOfRange
from cowmlx.models.embedding import MAX_BATCH_TOKENS, Pooling, rows_of
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.text.tokenizer import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.embedding import HiddenStates
    from cowmlx.models.model import Model


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
        if not 1 <= self.batch_tokens <= MAX_BATCH_TOKENS:
            raise OutOfRange("batch_tokens", self.batch_tokens, f"1 to {MAX_BATCH_TOKENS}")


class TextRows(SteppedCall):
    """Makes a row of numbers of each text of one call.

    Args:
        call: ends with the rows (N, D) and D.
        model: whose hidden states they are made of.
        steps: makes the rows.
        shape: (N, D).
        stream: to compute on.
        on_end: called when the call ends.
    """

    def __init__(
        self,
        call: Call,
        model: Model,
        steps: Generator[None, None, mx.array],
        shape: tuple[int, int],
        stream: mx.Stream,
        on_end: Callable[[], object],
    ) -> None:
        super().__init__(call, steps, stream, model)
        self._shape = shape
        self._on_end = on_end

    def _release(self) -> None:
        self._on_end()

    def _succeed(self, result: mx.array) -> None:
        if result.shape != self._shape:
            raise CowMlxError(
                f"rows of shape {list(result.shape)} were computed, but {list(self._shape)} is "
                "declared"
            )
        self._call.succeed((result, self._shape[1]))


def embed_steps(
    model: Model, hidden: HiddenStates, texts: list[str], params: EmbeddingParams
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order."""
    tokens = yield from tokens_of(
        texts, lambda index, text: _tokens(model, index, text, params.add_special)
    )

    def finish(pooling: Pooling) -> mx.array:
        return pooling.result(params.normalize)

    rows = rows_of(hidden, tokens, params.pooling, params.batch_tokens, finish)
    return (yield from rows)


def tokens_of(
    texts: list[str], tokenize: Callable[[int, str], Generator[None, None, list[int]]]
) -> Generator[None, None, list[list[int]]]:
    """Tokenize texts; yields between parts and at the end."""
    tokens: list[list[int]] = []
    characters = 0
    for index, text in enumerate(texts):
        if characters >= PART:
            yield
            characters = 0
        tokens.append((yield from tokenize(index, text)))
        characters += len(text) + 1
    yield
    return tokens


def require_known(model: Model, named: str, ids: list[int]) -> None:
    """Check that tokens are in the vocabulary.

    Raises:
        InvalidArgument: one is not.
    """
    if max(ids) >= model.vocabulary_size:
        raise InvalidArgument(
            f"{named} has the token {max(ids)}, but the vocabulary has 0 to "
            f"{model.vocabulary_size - 1}",
            argument=named,
            value=max(ids),
        )


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
    require_known(model, f"texts[{index}]", ids)
    return ids
