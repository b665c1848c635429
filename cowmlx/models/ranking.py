"""Ranking: the prompt of a query and a document, and classification heads.

mlx-lm has no networks with such heads. A head is a linear layer on the hidden state of the last
token, as transformers has it for decoders; all before it is mlx-lm's network of that architecture.
"""

from __future__ import annotations

import re

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported
from cowmlx.folders.config import MOST_LABELS, mismatch
from cowmlx.steps import finished
from cowmlx.text.marks import encode_marked, marked, pattern_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Protocol

    import mlx.core as mx
    from mlx.nn.layers.base import Module

    from cowmlx.text.tokenizer import Tokenizer

    class RankPrompt(Protocol):
        """Makes the tokens of a prompt in two parts, of which the first ends with the document.

        Attributes:
            front: how many tokens stand before a document.
            back: the tokens behind it.
        """

        front: int
        back: list[int]

        def head(self, document: str) -> Generator[None, None, list[int]]:
            """Return the tokens up to the end of a document, yielding between its parts."""


# Qwen3-Reranker's, and those of its size (arXiv 2506.05176): what the model was trained with.
_SPECIAL = ("<|im_start|>", "<|im_end|>")
_QWEN = (
    "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and "
    'the Instruct provided. Note that the answer can only be "yes" or "no".<|im_end|>\n'
    "<|im_start|>user\n<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}"
    "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)
_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
_PLACES = r"\{(instruction|query|document)\}"


class FilledPrompt:
    """A text with places. Special tokens are parsed in it, but not in what fills the places."""

    def __init__(
        self, tokenizer: Tokenizer, text: str, instruction: str | None, query: str
    ) -> None:
        self._tokenizer = tokenizer
        special = tokenizer.special_ids
        self._pattern = pattern_of(
            [own for at, own in tokenizer.added.items() if at in special or own.strip()]
        )
        filled = {"instruction": instruction or _INSTRUCTION, "query": query}
        places = re.findall(_PLACES, text)
        for name in ("query", "document"):
            if places.count(name) != 1:
                raise InvalidArgument(
                    f"prompt has {{{name}}} {places.count(name)} times; it must have "
                    f"{{{name}}} once",
                    argument="prompt",
                    value=places.count(name),
                    accepted=f"{{{name}}} once",
                )
        if instruction is not None and "instruction" not in places:
            raise InvalidArgument(
                "instruction is given, but prompt has no {instruction}",
                reason="conflict",
                argument="instruction",
                other="prompt",
            )
        before, _, behind = text.partition("{document}")
        self._before = self._filled(before, filled)
        self.front = len(finished(encode_marked(tokenizer, self._before)))
        behind = self._filled(behind, filled)
        self.back = finished(encode_marked(tokenizer, behind, inner=True)) if behind else []

    def _filled(self, text: str, values: dict[str, str]) -> str:
        return re.sub(_PLACES, lambda place: self._plain(values[place[1]]), text)

    def _plain(self, text: str) -> str:
        return text if self._pattern is None else marked(text, self._pattern)

    def head(self, document: str) -> Generator[None, None, list[int]]:
        """Return the tokens up to the end of a document."""
        return (yield from encode_marked(self._tokenizer, self._before + self._plain(document)))


class PairPrompt:
    """A query and a document, with what the tokenizer puts around a pair of texts.

    Attributes:
        front: how many tokens stand before a document.
        back: the tokens behind it.

    Raises:
        Unsupported: that is not known of this tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, query: str) -> None:
        self._tokenizer = tokenizer
        frame = tokenizer.pair_frame
        if frame is None:
            raise Unsupported(
                "prompt is NULL, and what this model's tokenizer puts around a pair of texts is "
                "not known; give the prompt that it was trained with",
                argument="prompt",
            )
        before, between, self.back = frame.tokens
        query_tokens = finished(
            tokenizer.encode_steps(query, add_special=False, parse_special=False)
        )
        self._before = [*before, *query_tokens, *between]
        self.front = len(self._before)
        first, middle, self._back_types = frame.types
        query_type, self._document_type = frame.text_types
        self._front_types = [*first, *[query_type] * len(query_tokens), *middle]

    def head(self, document: str) -> Generator[None, None, list[int]]:
        """Return the tokens up to the end of a document."""
        tokens = yield from self._tokenizer.encode_steps(
            document, add_special=False, parse_special=False
        )
        return [*self._before, *tokens]

    def types(self, count: int) -> list[int]:
        """Return the token types of a prompt of so many tokens."""
        document = [self._document_type] * (count - self.front - len(self.back))
        return [*self._front_types, *document, *self._back_types]


def rank_prompt(
    tokenizer: Tokenizer, text: str | None, instruction: str | None, query: str, *, pair: bool
) -> RankPrompt:
    """Return what a model reads.

    Args:
        tokenizer: the model's.
        text: the prompt that its host gives.
        instruction: what a document has to do for the query.
        query: any text.
        pair: whether a pair of texts is read where no prompt is given.

    Raises:
        InvalidArgument: the prompt lacks a place.
        Unsupported: none is known for this tokenizer.
    """
    if text is not None:
        return FilledPrompt(tokenizer, text, instruction, query)
    if pair:
        if instruction is not None:
            raise InvalidArgument(
                "instruction is given, but without a prompt a classification head reads a query "
                "and a document alone",
                reason="conflict",
                argument="instruction",
                other="prompt",
            )
        return PairPrompt(tokenizer, query)
    if any(tokenizer.token_id(text) is None for text in _SPECIAL):
        raise Unsupported(
            "prompt is NULL, and the only one known, that of Qwen3-Reranker, needs the tokens "
            f"{' and '.join(_SPECIAL)}, which this model's tokenizer does not have; give the "
            "prompt that it was trained with",
            argument="prompt",
        )
    return FilledPrompt(tokenizer, _QWEN, instruction, query)


def encoder_prompt(
    tokenizer: Tokenizer, text: str | None, instruction: str | None, query: str
) -> PairPrompt:
    """Return the pair that an encoder reads.

    Raises:
        InvalidArgument: a prompt or an instruction is given.
        Unsupported: the tokenizer knows no pairs.
    """
    for name, value in (("prompt", text), ("instruction", instruction)):
        if value is not None:
            raise InvalidArgument(
                f"{name} is given, but an encoder reads a query and a document as a pair; leave it "
                "at NULL",
                reason="conflict",
                argument=name,
                other="model",
            )
    return PairPrompt(tokenizer, query)


_SUFFIX = "ForSequenceClassification"
HEAD = "score"  # of the head, in the folder and in the network
_TOKENS = "lm_head.weight"


def is_classifier(config: dict[str, Any]) -> bool:
    """Tell whether a config is that of a sequence classifier."""
    named = config.get("architectures")
    return isinstance(named, list) and any(str(name).endswith(_SUFFIX) for name in named)


def without_token_head(config: dict[str, Any], arrays: dict[str, mx.array]) -> dict[str, Any]:
    """Return the config with which a network asks for no head for tokens, if the folder has none.

    Its embedding takes that place, so that the network is whole; nothing uses its logits.
    """
    return config if _TOKENS in arrays else {**config, "tie_word_embeddings": True}


def add_head(
    network: Module, config: dict[str, Any], weights: dict[str, mx.array], path: str
) -> None:
    """Give a network the layer that the weights of a head are for.

    Raises:
        BadFormat: there are none, or for another number of labels than the config has.
    """
    from mlx.nn.layers.linear import Linear

    weight = weights.get(f"{HEAD}.weight")
    if weight is None or weight.ndim != 2:
        raise mismatch(
            f"{path} lacks {HEAD}.weight, the matrix of the classification head that config.json "
            "names in architectures",
            path,
        )
    scales = weights.get(f"{HEAD}.scales")
    count = len(labels(config) or range(weight.shape[0]))
    if weight.shape[0] != count:
        raise mismatch(
            f"{path}: {HEAD}.weight has {weight.shape[0]} rows, and config.json {count} labels",
            path,
        )
    size = _size(config) if scales is not None else weight.shape[1]
    network[HEAD] = Linear(size, count, bias=f"{HEAD}.bias" in weights)


def labels(config: dict[str, Any]) -> list[str] | None:
    """Return the labels that a config names or counts, in order; None if it does neither."""
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        return [str(named.get(str(index), index)) for index in range(len(named))]
    count = config.get("num_labels")
    if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= MOST_LABELS:
        return [f"LABEL_{index}" for index in range(count)]
    return None


def are_independent(config: dict[str, Any]) -> bool:
    """Whether any number of a classifier's labels may hold for a text."""
    return config.get("problem_type") == "multi_label_classification"


def names_of(network: Module, config: dict[str, Any]) -> list[str] | None:
    """Return the labels of a network's classes; None for one without a head for them."""
    own = getattr(network, "labels", None)
    if own is not None:
        return list(own.names)
    head: Any = network.get(HEAD)
    if head is None or not is_classifier(config):
        return None
    known = labels(config)
    return known or [f"LABEL_{index}" for index in range(head.weight.shape[0])]


def scores(network: Module, hidden: mx.array) -> mx.array:
    """Return float32 (B, labels), lazily, for the hidden states (B, D) of last tokens."""
    import mlx.core as mx

    head = network[HEAD]
    return head(hidden).astype(mx.float32)


def probabilities(scores: mx.array, *, multiple: bool = False) -> mx.array:
    """Return probabilities (B, labels) of scores: of labels that exclude each other, or not.

    Args:
        scores: (B, labels).
        multiple: whether any number of labels may hold.
    """
    import mlx.core as mx

    alone = multiple or scores.shape[-1] == 1
    return mx.sigmoid(scores) if alone else mx.softmax(scores, axis=-1)


def _size(config: dict[str, Any]) -> int:
    """Return the size of a hidden state, which quantized weights do not show."""
    size = (config.get("text_config") or config).get("hidden_size")
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise BadFormat(
            f"config.json needs hidden_size, a positive integer, for the packed {HEAD}.weight",
            reason="invalid_config",
            file="config.json",
            key="hidden_size",
        )
    return size
