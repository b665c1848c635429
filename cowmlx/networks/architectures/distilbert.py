"""``model_type: "distilbert"`` (arXiv 1910.01108), as Hugging Face has it."""

from __future__ import annotations

from cowmlx.networks.architectures.bert import EMBEDDING_NAMES, UNUSED
from cowmlx.networks.encoders.heads import ClassificationHead
from cowmlx.networks.encoders.model import Encoder, EncoderArgs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.networks.encoders.options import Labels

_KEYS = {
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
}
_EPS = 1e-12  # no key of its configs


class ModelArgs(EncoderArgs):
    """A config."""

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> EncoderArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        named = {name: config[own] for name, own in _KEYS.items() if own in config}
        return cls.read({**config, **named, "type_vocab_size": 0, "layer_norm_eps": _EPS})


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("distilbert.",)
    names = (
        *EMBEDDING_NAMES,
        (r"transformer\.layer\.(\d+)\.attention\.q_lin", r"layers.\1.attention.query"),
        (r"transformer\.layer\.(\d+)\.attention\.k_lin", r"layers.\1.attention.key"),
        (r"transformer\.layer\.(\d+)\.attention\.v_lin", r"layers.\1.attention.value"),
        (r"transformer\.layer\.(\d+)\.attention\.out_lin", r"layers.\1.attention.out"),
        (r"transformer\.layer\.(\d+)\.sa_layer_norm", r"layers.\1.attention_norm"),
        (r"transformer\.layer\.(\d+)\.ffn\.lin1", r"layers.\1.mlp.up"),
        (r"transformer\.layer\.(\d+)\.ffn\.lin2", r"layers.\1.mlp.down"),
        (r"transformer\.layer\.(\d+)\.output_layer_norm", r"layers.\1.mlp_norm"),
    )
    head_names = (("pre_classifier", "dense"), ("classifier", "out"))
    unused: tuple[str, ...] = (*UNUSED, "vocab_transform.", "vocab_layer_norm.", "vocab_projector.")

    def make_head(self, args: EncoderArgs, labels: Labels) -> ClassificationHead:
        """Return the head of a classifier."""
        return ClassificationHead(args.dims, labels, None if labels.of_tokens else "relu")
