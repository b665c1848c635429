"""Labels of texts, and of the words in them, by classification heads."""

from __future__ import annotations

import math
from typing import NamedTuple

import mlx.core as mx

from cowmlx.errors import BadFormat
from cowmlx.generated import constants
from cowmlx.models import encoding, ranking
from cowmlx.models.embedding import rows_of
from cowmlx.models.encoding import EncodedText
from cowmlx.services.embedding import EmbeddingParams, text_tokens

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.models.embedding import Admit, HiddenStates, Pooling
    from cowmlx.models.model import Model
    from cowmlx.networks.encoders.layers import Texts

_OUTSIDE = "O"
_BEGIN, _INSIDE = ("B-", "S-", "U-"), ("I-", "E-", "L-")


class Word(NamedTuple):
    """A word with a label.

    Attributes:
        label: as the model names it.
        probability: of that label.
        begin, end: of the word, in characters.
    """

    label: str
    probability: float
    begin: int
    end: int


def classify_steps(
    model: Model,
    hidden: HiddenStates | None,
    text: str,
    params: EmbeddingParams,
    admit: Admit,
) -> Generator[None, None, dict[str, Any]]:
    """Yield between pieces of work; return the result of ``model_classify``.

    Args:
        model: has a head.
        hidden: reaches its hidden states; None for an encoder.
        text: any text.
        params: how it is tokenized.
        admit: makes sure that there is memory for texts of some lengths.

    Raises:
        InvalidArgument, ContextFull: of the text.
        BadFormat: the scores are no finite numbers.
    """
    ids = yield from text_tokens(model, "text", text, params, "give a shorter one")
    network: Any = model.network
    names = model.labels or []
    multiple = ranking.are_independent(model.config)
    if hidden is not None:

        def finish(pooling: Pooling) -> mx.array:
            return ranking.scores(network, pooling.result())

        last = constants.POOLING_LAST
        scores = yield from rows_of(hidden, [ids], last, len(ids), finish, admit)
    elif network.labels.of_tokens:
        return {"entities": (yield from _entities(model, text, ids, admit))}
    else:
        encoded = [EncodedText(ids)]
        scores = yield from encoding.rows_of(network, encoded, len(ids), network.head, admit)
    numbers = _finite(model, ranking.probabilities(scores, multiple=multiple)[0])
    found = sorted(zip(numbers, names, strict=True), key=lambda pair: -pair[0])
    labels = [{"label": name, "probability": number} for number, name in found]
    return {"labels": labels, "multiple": multiple}


def _entities(
    model: Model, text: str, ids: list[int], admit: Admit
) -> Generator[None, None, list[dict[str, Any]]]:
    """Yield between pieces of work; return what the head finds in a text.

    A word has the label of its first token.
    """
    network: Any = model.network
    words = model.tokenizer.words(text, ids)

    def finish(states: mx.array, lengths: Texts) -> mx.array:
        scores: mx.array = network.head(states, lengths)
        return mx.softmax(scores, axis=-1)[None]

    scored = yield from encoding.rows_of(network, [EncodedText(ids)], len(ids), finish, admit)
    best: Any = mx.argmax(scored[0], axis=-1).tolist()
    numbers = _finite(model, scored[0].max(axis=-1))
    found = [
        Word(network.labels.names[best[at]], numbers[at], begin, end) for at, begin, end in words
    ]
    return merged_words(text, found)


def _finite(model: Model, probabilities: mx.array) -> list[float]:
    """Return probabilities (N,) as numbers, which JSON has to hold.

    Raises:
        BadFormat: one is none.
    """
    numbers: Any = probabilities.tolist()
    if not all(map(math.isfinite, numbers)):
        raise BadFormat(
            f"the scores of this text are no finite numbers: the weights of {model.path} hold NaN "
            "or infinity, or are too large",
            file=model.path,
        )
    return list(numbers)


def merged_words(text: str, words: list[Word]) -> list[dict[str, Any]]:
    """Return the entities of a text, as ``model_classify`` reports them.

    Neighbouring words with labels of one kind are an entity, in the scheme of BIO.

    Args:
        text: the text.
        words: all of its words, in order.
    """
    groups: list[tuple[str, list[Word]]] = []
    previous: str | None = None
    for word in words:
        kind = word.label[2:] if word.label.startswith((*_BEGIN, *_INSIDE)) else word.label
        if word.label != _OUTSIDE:
            if kind == previous and not word.label.startswith(_BEGIN):
                groups[-1][1].append(word)
            else:
                groups.append((kind, [word]))
        previous = None if word.label == _OUTSIDE else kind
    return [_entity(text, kind, own) for kind, own in groups]


def _entity(text: str, kind: str, words: list[Word]) -> dict[str, Any]:
    begin, end = words[0].begin, words[-1].end
    begin += len(text[begin:end]) - len(text[begin:end].lstrip())  # tokens may have a space
    start = len(text[:begin].encode())
    return {
        "label": kind,
        "text": text[begin:end],
        "begin": start,
        "end": start + len(text[begin:end].encode()),
        "probability": sum(word.probability for word in words) / len(words),
    }
