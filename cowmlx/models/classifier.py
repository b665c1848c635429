"""Classification heads: what a sequence classifier has in the place of a head for tokens.

mlx-lm has no such networks. The head is a linear layer on the hidden state of the last token, as
transformers has it for decoders; all before it is mlx-lm's network of that architecture.
"""

from __future__ import annotations

from cowmlx.errors import BadFormat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx
    from mlx.nn.layers.base import Module

_SUFFIX = "ForSequenceClassification"
_NAME = "score"  # of the head, in the folder and in the network
_TOKENS = "lm_head.weight"


def is_classifier(config: dict[str, Any]) -> bool:
    """Tell whether a config is that of a sequence classifier."""
    named = config.get("architectures")
    return isinstance(named, list) and any(str(each).endswith(_SUFFIX) for each in named)


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

    weight = weights.get(f"{_NAME}.weight")
    if weight is None or weight.ndim != 2:
        raise BadFormat(
            f"{path} lacks {_NAME}.weight, the matrix of the classification head that config.json "
            "names in architectures",
            reason="weights_mismatch",
            file=path,
        )
    scales = weights.get(f"{_NAME}.scales")
    count = len(labels(config) or range(weight.shape[0]))
    if weight.shape[0] != count:
        raise BadFormat(
            f"{path}: {_NAME}.weight has {weight.shape[0]} rows, and config.json {count} labels",
            reason="weights_mismatch",
            file=path,
        )
    size = _size(config) if scales is not None else weight.shape[1]
    network[_NAME] = Linear(size, count, bias=f"{_NAME}.bias" in weights)


def labels(config: dict[str, Any]) -> list[str] | None:
    """Return the labels that a config names or counts, in order; None if it does neither."""
    named = config.get("id2label")
    if isinstance(named, dict) and named:
        return [str(named.get(str(index), index)) for index in range(len(named))]
    count = config.get("num_labels")
    if isinstance(count, int) and not isinstance(count, bool) and 0 < count <= 1 << 16:
        return [f"LABEL_{index}" for index in range(count)]
    return None


def names_of(network: Module, config: dict[str, Any]) -> list[str] | None:
    """Return the labels that a network tells apart; None for one without a head for them."""
    head: Any = network.get(_NAME)
    if head is None or not is_classifier(config):
        return None
    known = labels(config)
    return known or [f"LABEL_{index}" for index in range(head.weight.shape[0])]


def scores(network: Module, hidden: mx.array) -> mx.array:
    """Return float32 (B, labels), lazily, for the hidden states (B, D) of last tokens."""
    import mlx.core as mx

    head = network[_NAME]
    return head(hidden).astype(mx.float32)


def _size(config: dict[str, Any]) -> int:
    """Return how long a hidden state is, which packed weights do not tell."""
    found = (config.get("text_config") or config).get("hidden_size")
    if isinstance(found, bool) or not isinstance(found, int) or found < 1:
        raise BadFormat(
            f"config.json needs hidden_size, a positive integer, for the packed {_NAME}.weight",
            reason="invalid_config",
            file="config.json",
            key="hidden_size",
        )
    return found
