"""Documents being ranked: prompts with a query each, and a score of their last tokens."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.errors import BadFormat, ContextFull, InvalidArgument, OutOfRange
from cowmlx.generated import constants
from cowmlx.models import encoding, ranking
from cowmlx.models.embedding import MAX_BATCH_TOKENS, rows_of
from cowmlx.models.encoding import EncodedText
from cowmlx.models.ranking import encoder_prompt, rank_prompt
from cowmlx.services.embedding import require_known, tokens_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from typing import Any

    from cowmlx.models.embedding import Admit, HiddenStates, Pooling
    from cowmlx.models.model import Model
    from cowmlx.models.ranking import RankPrompt
    from cowmlx.networks.encoders.layers import Texts


class RankParams:
    """What ``cow_mlx_rank_params`` says, for a model and a query.

    Attributes:
        prompt: what is read.
        answers: the tokens for yes and for no; None where a head gives the scores.
        most: tokens that a prompt may have.

    Raises:
        InvalidArgument: a value is out of range, or none that this model has use for.
        Unsupported: no prompt is known for this model.
    """

    def __init__(self, fields: dict[str, Any], model: Model, query: str) -> None:
        given = model.tokenizer, fields["prompt"], fields["instruction"], query
        self.prompt: RankPrompt = (
            encoder_prompt(*given)
            if model.is_encoder
            else rank_prompt(*given, pair=model.labels is not None)
        )
        self.normalize: bool = fields["normalize"]
        self.truncate: bool = fields["truncate"]
        self.batch_tokens: int = fields["batch_tokens"]
        self.most: int = fields["max_tokens"] or model.context_length
        if not 0 <= fields["max_tokens"] <= model.context_length:
            accepted = f"0 to {model.context_length}, the context length"
            raise OutOfRange("max_tokens", fields["max_tokens"], accepted)
        if not 1 <= self.batch_tokens <= MAX_BATCH_TOKENS:
            raise OutOfRange("batch_tokens", self.batch_tokens, f"1 to {MAX_BATCH_TOKENS}")
        self.answers: tuple[int, int] | None = None
        if model.labels is None:
            yes, no = (
                _answer(model, name, fields[name] if fields[name] is not None else name)
                for name in ("yes", "no")
            )
            if yes == no:
                raise InvalidArgument(
                    "yes and no are the same token; they must differ",
                    reason="conflict",
                    argument="yes",
                    other="no",
                )
            self.answers = yes, no
            return
        for name in ("yes", "no"):
            if fields[name] is not None:
                raise InvalidArgument(
                    f"{name} is given, but this model has a classification head; leave it at NULL",
                    reason="conflict",
                    argument=name,
                    other="model",
                )


def rank_steps(
    model: Model,
    hidden: HiddenStates | None,
    documents: list[str],
    params: RankParams,
    admit: Admit,
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return float32 (N, labels), evaluated, in their order.

    Args:
        model: reads the documents.
        hidden: reaches its hidden states; None for an encoder.
        documents: any texts.
        params: of the call.
        admit: says for which part of a batch there is memory.

    Raises:
        InvalidArgument, ContextFull: of a document.
    """
    prompt = params.prompt
    tokens = yield from tokens_of(
        documents, lambda index, document: _tokens(model, prompt, index, document, params)
    )

    if hidden is None:
        return (yield from _scores_of_pairs(model, tokens, params, admit))

    def finish(pooling: Pooling) -> mx.array:
        last = pooling.result()
        if params.answers is None:
            scores = ranking.scores(model.network, last)
        else:
            chosen = hidden.logits(last)[:, mx.array(params.answers)].astype(mx.float32)
            scores = chosen[:, :1] - chosen[:, 1:]
        return ranking.probabilities(scores) if params.normalize else scores

    last = constants.POOLING_LAST
    return (yield from rows_of(hidden, tokens, last, params.batch_tokens, finish, admit))


def _scores_of_pairs(
    model: Model, tokens: Sequence[Sequence[int]], params: RankParams, admit: Admit
) -> Generator[None, None, mx.array]:
    """Yield between pieces of work; return the scores of an encoder's head, evaluated.

    Raises:
        BadFormat: the tokenizer gives token types that the network does not know.
    """
    network: Any = model.network
    prompt: Any = params.prompt
    texts = []
    for ids in tokens:
        types = prompt.types(len(ids)) if network.pairs else None
        if types is not None and max(types) >= network.token_types:
            raise BadFormat(
                f"the model's tokenizer gives a pair the token type {max(types)}, but config.json "
                f"has {network.token_types} (type_vocab_size)",
                reason="invalid_tokenizer",
            )
        texts.append(EncodedText(ids, types))

    def finish(states: mx.array, lengths: Texts) -> mx.array:
        scores: mx.array = network.head(states, lengths)
        return ranking.probabilities(scores) if params.normalize else scores

    return (yield from encoding.rows_of(network, texts, params.batch_tokens, finish, admit))


def _answer(model: Model, name: str, text: str) -> int:
    """Return the token of an answer."""
    ids = model.tokenizer.encode_plain(text)
    if len(ids) != 1 or ids[0] >= model.vocabulary_size:
        raise InvalidArgument(
            f'{name} is "{text}", {len(ids)} of this model\'s tokens; it must be one token',
            argument=name,
            value=text,
            accepted="one token",
        )
    return ids[0]


def _tokens(
    model: Model, prompt: RankPrompt, index: int, document: str, params: RankParams
) -> Generator[None, None, list[int]]:
    """Return the tokens of a document's prompt, cut where that is asked for.

    Raises:
        ContextFull: they are too many.
        InvalidArgument: one is none that the network knows.
    """
    head = yield from prompt.head(document)
    room = params.most - len(prompt.back)
    named = f"documents[{index}]"
    if len(head) > room:
        if not params.truncate:
            raise ContextFull(
                f"{named} makes a prompt of {len(head) + len(prompt.back)} tokens, but at most "
                f"{params.most} are wanted; truncate cuts it",
                argument=named,
                needed=len(head) + len(prompt.back),
                available=params.most,
            )
        if prompt.front >= room:
            raise ContextFull(
                f"query makes a prompt of {prompt.front + len(prompt.back)} tokens without a "
                f"document, but at most {params.most} are wanted",
                argument="query",
                needed=prompt.front + len(prompt.back),
                available=params.most,
            )
    ids = head[:room] + prompt.back
    if not ids:
        raise InvalidArgument(
            f"{named} and the query have no tokens; leave it out", reason="missing", argument=named
        )
    require_known(model, named, ids)
    return ids
