"""Texts being turned into numbers: a unit of the scheduler, so that others step meanwhile."""

from __future__ import annotations

from array import array

import mlx.core as mx

from cowmlx.errors import ContextFull, CowMlxError, InvalidArgument, OutOfRange, Unsupported
from cowmlx.generated import constants
from cowmlx.generated.defaults import EMBED
from cowmlx.models import encoding
from cowmlx.models.embedding import MAX_BATCH_TOKENS, Pooling, normalized, rows_of
from cowmlx.models.encoding import EncodedText
from cowmlx.models.sentences import Sentences, Stage
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.text.tokenizer import PART

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.models.embedding import Admit, HiddenStates
    from cowmlx.models.model import Model
    from cowmlx.networks.encoders.layers import Texts


# Characters whose tokens and computation fit one turn.
_SHORT = PART >> 3
# Characters that take as long as all else of a text.
_OF_A_TEXT = 16


class EmbeddingParams:
    """What ``cow_mlx_embed_params`` and a model's folder say, all of it valid.

    Attributes:
        poolings: of which the vectors are joined.
        prompt: in front of every text.
        lower: whether texts are made lower-case.
        token_vectors: rows for the tokens of a text; 0: it has one vector.
        most: tokens that a text may have.

    Raises:
        InvalidArgument: a value is out of range.
        Unsupported: a network that is no encoder has several poolings.
    """

    def __init__(self, fields: dict[str, Any], model: Model) -> None:
        own = model.sentences
        self.sentences = own or Sentences((constants.POOLING_MEAN,))
        self.lower = self.sentences.lower
        self.normalize: bool = fields["normalize"]
        self.add_special: bool = fields["add_special"]
        self.batch_tokens: int = fields["batch_tokens"]
        Pooling.check(fields["pooling"])
        by_model = fields["pooling"] == constants.POOLING_MODEL
        self.poolings = self.sentences.poolings if by_model else (fields["pooling"],)
        self.token_vectors: int = fields["token_vectors"]
        if not (self.poolings or self.token_vectors):
            raise InvalidArgument(
                "the folder's modules pool nothing: they give a vector for each token; set "
                "token_vectors, or pooling",
                reason="missing",
                argument="token_vectors",
            )
        if len(self.poolings) > 1 and not model.is_encoder:
            raise Unsupported("several poolings of one text: with an encoder alone; choose one")
        self.prompt = self._prompt(fields)
        self.cuts: int = fields["max_tokens"]
        self.most = min(model.context_length, self.sentences.max_tokens or model.context_length)
        if not 0 <= self.cuts <= self.most:
            raise OutOfRange("max_tokens", self.cuts, f"0 to {self.most}, the longest text")
        if not 0 <= self.token_vectors <= self.most:
            accepted = f"0 to {self.most}, the longest text"
            raise OutOfRange("token_vectors", self.token_vectors, accepted)
        if self.token_vectors and not model.is_encoder:
            raise Unsupported(
                f"token_vectors is {self.token_vectors}, but {model.architecture} is no encoder",
                argument="token_vectors",
                value=self.token_vectors,
            )
        self._asked_dims: int = fields["truncate_dims"]
        self.truncate_dims: int = self._asked_dims or self.sentences.truncate_dims or 0
        if not 1 <= self.batch_tokens <= MAX_BATCH_TOKENS:
            raise OutOfRange("batch_tokens", self.batch_tokens, f"1 to {MAX_BATCH_TOKENS}")

    @classmethod
    def of_bare_text(cls, model: Model) -> EmbeddingParams:
        """Return those of a text that is read as it is, for a head."""
        made = cls({**EMBED, "pooling": constants.POOLING_MEAN, "prompt": ""}, model)
        made.lower = False
        return made

    def _prompt(self, fields: dict[str, Any]) -> str:
        text: str | None = fields["prompt"]
        name = fields["prompt_name"]
        if text is not None and name is not None:
            raise InvalidArgument(
                "prompt and prompt_name are given; give one of them",
                reason="conflict",
                argument="prompt",
                other="prompt_name",
            )
        if text is not None:
            return text
        known = self.sentences.prompts
        name = name if name is not None else self.sentences.default_prompt
        if name is not None and name not in known:
            raise InvalidArgument(
                f'prompt_name is "{name}"; the folder has '
                + (", ".join(known) if known else "no prompts"),
                argument="prompt_name",
                value=name,
            )
        return known[name] if name is not None else ""

    def width(self, dims: int) -> int:
        """Return the values of a vector, of hidden states of ``dims`` values.

        Raises:
            InvalidArgument: fewer than are to be kept.
        """
        stages = self.stages
        if self.token_vectors:
            return self.token_vectors * self._kept(stages[-1].dims if stages else dims)
        if stages and stages[0].weight.shape[-1] != dims * len(self.poolings):
            raise InvalidArgument(
                f"pooling gives {dims * len(self.poolings)} values, but the folder's dense layer "
                f"takes {stages[0].weight.shape[-1]}; leave it at COW_MLX_POOLING_MODEL",
                argument="pooling",
            )
        return self._kept(stages[-1].dims if stages else dims * len(self.poolings))

    def _kept(self, whole: int) -> int:
        """Return how many of a vector's values are kept; a folder may name more than there are."""
        if self._asked_dims > whole:
            raise OutOfRange("truncate_dims", self._asked_dims, f"0 to {whole}")
        return min(self.truncate_dims or whole, whole)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The folder's layers; those behind a pooling take no vectors of tokens."""
        of_pooled = self.token_vectors and self.sentences.poolings
        return () if of_pooled else self.sentences.stages

    @property
    def is_bare(self) -> bool:
        """Whether one pooling makes the vectors, and nothing but their length follows."""
        return len(self.poolings) == 1 and not (self.stages or self.truncate_dims)

    def vectors(self, states: mx.array) -> mx.array:
        """Return vectors (B, D) of hidden states, pooled or of tokens."""
        for stage in self.stages:
            states = stage(states)
        if self.truncate_dims:
            states = states[:, : self.truncate_dims]
        return normalized(states) if self.normalize else states


class TextRows(SteppedCall):
    """Makes a row of numbers of each text of one call.

    Args:
        call: ends with the rows (N, D) and D.
        model: whose hidden states they are made of.
        steps: makes the rows.
        shape: (N, D).
        stream: to compute on.
        on_end: called when the call ends, with whether all rows were computed.
    """

    def __init__(
        self,
        call: Call,
        model: Model,
        steps: Generator[None, None, mx.array],
        shape: tuple[int, int],
        stream: mx.Stream,
        on_end: Callable[[bool], object],
    ) -> None:
        super().__init__(call, self._noted(steps), stream, model)
        self._shape = shape
        self._on_rows_end = on_end
        self._is_computed = False

    def _noted(self, steps: Generator[None, None, mx.array]) -> Generator[None, None, mx.array]:
        rows = yield from steps
        self._is_computed = True
        return rows

    def _release(self) -> None:
        self._on_rows_end(self._is_computed)

    def _succeed(self, result: mx.array) -> None:
        if result.shape != self._shape:
            raise CowMlxError(
                f"rows of shape {list(result.shape)} were computed, but {list(self._shape)} is "
                "declared"
            )
        self._call.succeed((result, self._shape[1]))


def embed_steps(
    model: Model,
    hidden: HiddenStates | None,
    texts: list[str],
    params: EmbeddingParams,
    admit: Admit,
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, D), evaluated, in the texts' order.

    Args:
        model: reads the texts.
        hidden: reaches its hidden states; None for an encoder.
        texts: any texts.
        params: of the call.
        admit: says for which part of a batch there is memory.
    """
    tokens = yield from tokens_of(
        texts, lambda index, text: text_tokens(model, f"texts[{index}]", text, params)
    )
    skipped = _prompt_tokens(model, params)
    if hidden is None:

        def vectors(states: mx.array, lengths: Texts) -> mx.array:
            if params.token_vectors:
                own = params.vectors(states.astype(mx.float32))
                return encoding.filled_up(own, lengths, params.token_vectors)
            if params.is_bare:
                (kind,) = params.poolings
                return encoding.pooled(states, lengths, kind, skipped, unit=params.normalize)
            parts = [encoding.pooled(states, lengths, kind, skipped) for kind in params.poolings]
            return params.vectors(parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=-1))

        encoded = [EncodedText(ids) for ids in tokens]
        size = params.batch_tokens
        return (yield from encoding.rows_of(model.network, encoded, size, vectors, admit))

    def finish(pooling: Pooling) -> mx.array:
        return params.vectors(pooling.result())

    kind, size = params.poolings[0], params.batch_tokens
    return (yield from rows_of(hidden, tokens, kind, size, finish, admit, skipped))


def _prompt_tokens(model: Model, params: EmbeddingParams) -> int:
    """Return the tokens in front of a text that are not pooled."""
    if params.sentences.counts_prompt or not params.prompt:
        return 0
    special = params.add_special
    prompt = params.prompt.lower() if params.lower else params.prompt
    ids = model.tokenizer.encode(prompt, add_special=special, parse_special=False)
    return len(ids) - (len(model.tokenizer.back) if special else 0)


def tokens_of(
    texts: list[str], tokenize: Callable[[int, str], Generator[None, None, list[int]]]
) -> Generator[None, None, list[array[int]]]:
    """Tokenize texts; yields between parts, and at the end of long ones.

    Those of many texts wait here, so they are kept in four bytes each.
    """
    tokens: list[array[int]] = []
    characters = 0
    for index, text in enumerate(texts):
        if characters >= PART:
            yield
            characters = 0
        tokens.append(array("i", (yield from tokenize(index, text))))
        characters += len(text) + _OF_A_TEXT
    if characters > _SHORT:
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


def text_tokens(
    model: Model,
    named: str,
    text: str,
    params: EmbeddingParams,
    advice: str = "max_tokens cuts texts",
) -> Generator[None, None, list[int]]:
    """Return the tokens of a text, whose special tokens are plain text.

    Args:
        model: whose tokenizer is used.
        named: the text in messages.
        text: any text.
        params: how it is tokenized.
        advice: of the message for a text that is too long.

    Raises:
        InvalidArgument: it has none, or one that the network does not know.
        ContextFull: it has too many.
    """
    text = params.prompt + text
    ids = yield from model.tokenizer.encode_steps(
        text.lower() if params.lower else text,
        add_special=params.add_special,
        parse_special=False,
    )
    if 0 < params.cuts < len(ids):
        back = model.tokenizer.back if params.add_special else []
        ids = (ids[: max(0, params.cuts - len(back))] + back)[: params.cuts]
    if not ids:
        raise InvalidArgument(
            f"{named} has no tokens; leave it out",
            reason="missing",
            argument=named,
        )
    if 0 < params.token_vectors < len(ids):
        raise ContextFull(
            f"{named} has {len(ids)} tokens, but token_vectors is {params.token_vectors}; "
            "max_tokens cuts texts",
            argument=named,
            needed=len(ids),
            available=params.token_vectors,
        )
    if len(ids) > params.most:
        bound = "context length" if params.most == model.context_length else "max_seq_length"
        raise ContextFull(
            f"{named} has {len(ids)} tokens, but the model's {bound} is {params.most}; {advice}",
            argument=named,
            needed=len(ids),
            available=params.most,
        )
    require_known(model, named, ids)
    return ids
