"""``model_type: "nomic_bert"`` (arXiv 2402.01613): BERT with rotary positions and gated MLPs.

Folders are of two forms: transformers' own, and that of the code that its first models came with.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlx.nn.layers.base import Module

from cowmlx.networks.architectures import bert
from cowmlx.networks.encoders.layers import MLP, Layer, RotaryAttention
from cowmlx.networks.encoders.model import EncoderArgs
from cowmlx.networks.encoders.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Keys of the first models' configs.
_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
# Other values of these make another network.
_FIXED: dict[str, tuple[object, ...]] = {
    "prenorm": (False,),
    "use_rms_norm": (False,),
    "parallel_block": (False,),
    "causal": (False,),
    "qkv_proj_bias": (False,),
    "mlp_fc1_bias": (False,),
    "mlp_fc2_bias": (False,),
    "rotary_emb_fraction": (1,),
    "rotary_emb_interleaved": (False,),
    "rotary_emb_scale_base": (),
    "rotary_scaling_factor": (),
    "activation_function": ("swiglu",),
}
_ROTARY_BASE = 1000.0


@dataclass
class ModelArgs(EncoderArgs):
    """A config.

    Attributes:
        base: of the angles.
    """

    base: float = _ROTARY_BASE

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        options, known = Options(config), config.get("rope_parameters")
        for name, accepted in _FIXED.items():
            options.fixed(name, *accepted)
        if isinstance(known, dict):
            Options(known).fixed("rope_type", "default")
            base = Options(known).number("rope_theta", _ROTARY_BASE)
        else:
            base = options.number("rotary_emb_base", _ROTARY_BASE)
        named = {name: config[own] for name, own in _KEYS.items() if own in config}
        named["hidden_act"] = config.get("hidden_act", "silu")
        args = cls.read({**config, **named, "position_embedding_type": None})
        args.positions, args.base = 0, base
        return args


class Model(bert.Model):
    """The network, and where its stored weights go."""

    prefixes = ("nomic_bert.", "bert.")
    names = (
        *bert.EMBEDDING_NAMES,
        (r"layers\.(\d+)\.self_attn\.q_proj", r"layers.\1.attention.query"),
        (r"layers\.(\d+)\.self_attn\.k_proj", r"layers.\1.attention.key"),
        (r"layers\.(\d+)\.self_attn\.v_proj", r"layers.\1.attention.value"),
        (r"layers\.(\d+)\.self_attn\.o_proj", r"layers.\1.attention.out"),
        (r"layers\.(\d+)\.post_attention_layernorm", r"layers.\1.attention_norm"),
        (r"layers\.(\d+)\.post_mlp_layernorm", r"layers.\1.mlp_norm"),
        (r"layers\.(\d+)\.mlp\.(gate|up|down)_proj", r"layers.\1.mlp.\2"),
        ("emb_ln", "embeddings.norm"),
        (r"encoder\.layers\.(\d+)\.attn\.Wqkv", r"layers.\1.attention.query_key_value"),
        (r"encoder\.layers\.(\d+)\.attn\.out_proj", r"layers.\1.attention.out"),
        (r"encoder\.layers\.(\d+)\.norm1", r"layers.\1.attention_norm"),
        (r"encoder\.layers\.(\d+)\.norm2", r"layers.\1.mlp_norm"),
        (r"encoder\.layers\.(\d+)\.mlp\.fc11", r"layers.\1.mlp.up"),
        (r"encoder\.layers\.(\d+)\.mlp\.fc12", r"layers.\1.mlp.gate"),
        (r"encoder\.layers\.(\d+)\.mlp\.fc2", r"layers.\1.mlp.down"),
    )

    def make_layer(self, args: Any, index: int) -> Module:
        """Return a layer."""
        attention = RotaryAttention(args.dims, args.heads, args.base, bias=False)
        mlp = MLP(args.dims, args.hidden, args.activation, bias=False, gated=True)
        return Layer(attention, mlp, args.dims, args.eps)
