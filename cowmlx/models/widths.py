"""The widths of a network's layers, from its config: what sizes of activations follow from."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model

# The keys of configs, the first that has a number counts.
_WIDTH = ("hidden_size", "n_embd", "d_model", "dim", "embedding_dim")
_MLP = (
    *("intermediate_size", "ffn_dim", "n_inner", "moe_intermediate_size", "d_inner"),
    "hidden_dim",
)
_EXPERT = ("moe_intermediate_size",)
_EXPERTS = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "experts_per_token")
_HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
_LAYERS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_blocks")
_LATENT = ("kv_lora_rank",)
_HEAD = ("qk_nope_head_dim",), ("v_head_dim",)


class Widths(NamedTuple):
    """Sizes of a network; 0 for one that the config does not name.

    Attributes:
        width: of the hidden state.
        mlp: of the hidden layer of a dense MLP.
        expert: of the hidden layer of an expert.
        experts: that a token passes through in a layer.
        heads: of an attention.
        layers: how many.
        vocabulary: numbers of the logits.
        latent: of a token in a cache of latent attention (arXiv 2405.04434, section 2.1).
        expanded: keys and values of all heads that such an attention makes of it.
    """

    width: int
    mlp: int
    expert: int
    experts: int
    heads: int
    layers: int
    vocabulary: int
    latent: int
    expanded: int


def widths_of(model: Model) -> Widths:
    """Return the widths of a model's network."""
    widths: Widths = model.remembered.once("widths", lambda: _read(model))
    return widths


def _read(model: Model) -> Widths:
    keys = (_WIDTH, _MLP, _EXPERTS, _HEADS, _LAYERS)
    width, mlp, experts, heads, layers = (_number(model, names) for names in keys)
    expert = (_number(model, _EXPERT) or mlp) if experts else 0
    latent = _number(model, _LATENT)
    expanded = heads * sum(_number(model, names) for names in _HEAD) if latent else 0
    vocabulary = model.vocabulary_size
    return Widths(width, mlp, expert, experts, heads, layers, vocabulary, latent, expanded)


def _number(model: Model, names: tuple[str, ...]) -> int:
    for part in (model.config, model.config.get("text_config")):
        if isinstance(part, dict):
            for name in names:
                value = part.get(name)
                if isinstance(value, int) and value > 0:
                    return value
    return 0
