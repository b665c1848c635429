"""``model_type: "modernbert"`` (arXiv 2412.13663): rotary positions, and layers that look near."""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.networks.encoders import windows
from cowmlx.networks.encoders.heads import ClassificationHead
from cowmlx.networks.encoders.layers import MLP, NormedFirst, RotaryAttention, Texts
from cowmlx.networks.encoders.model import Encoder, EncoderArgs
from cowmlx.networks.encoders.options import Labels, Options
from cowmlx.networks.encoders.windows import FULL, SLIDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BASES = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}


@dataclass
class ModelArgs(EncoderArgs):
    """A config.

    Attributes:
        kinds: of the layers' attention.
        bases: of the angles of full and of sliding attention.
        window: distance of the tokens that a sliding layer sees, to each side.
        attention_bias, mlp_bias, head_bias: whether these layers have a bias.
        head_activation: of the head.
        head_mean: whether the head reads the mean of all tokens.
    """

    kinds: tuple[str, ...] = ()
    bases: tuple[float, float] = (0.0, 0.0)
    window: int = 0
    attention_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    head_activation: str = "gelu"
    head_mean: bool = False

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        options = Options(config)
        known = {"hidden_act": "hidden_activation", "layer_norm_eps": "norm_eps"}
        named = {name: config.get(own) for name, own in known.items()}
        named["layer_norm_eps"] = named["layer_norm_eps"] or 1e-5
        args = cls.read({**config, **named, "type_vocab_size": 0})
        args.positions = 0
        args.norm_bias = options.flag("norm_bias", False)
        args.kinds = windows.kinds(
            config, args.layers, options.size("global_attn_every_n_layers", 3)
        )
        args.bases = windows.bases(config, options, _BASES)
        args.window = options.size("local_attention", 128) // 2
        args.attention_bias = options.flag("attention_bias", False)
        args.mlp_bias = options.flag("mlp_bias", False)
        args.head_bias = options.flag("classifier_bias", False)
        args.head_activation = options.activation("classifier_activation")
        args.head_mean = options.one_of("classifier_pooling", "cls", ("cls", "mean")) == "mean"
        return args


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("model.",)
    names = (
        (r"embeddings\.tok_embeddings", "embeddings.word"),
        (r"layers\.(\d+)\.attn\.Wqkv", r"layers.\1.attention.query_key_value"),
        (r"layers\.(\d+)\.attn\.Wo", r"layers.\1.attention.out"),
        (r"layers\.(\d+)\.attn_norm", r"layers.\1.attention_norm"),
        (r"layers\.(\d+)\.mlp\.Wi", r"layers.\1.mlp.gate_up"),
        (r"layers\.(\d+)\.mlp\.Wo", r"layers.\1.mlp.down"),
    )
    head_names = ((r"head\.dense", "dense"), (r"head\.norm", "norm"), ("classifier", "out"))
    unused = ("head.", "decoder.")

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self._window = args.window
        self._sliding = "".join("s" if kind == SLIDING else "f" for kind in args.kinds)
        self.final_norm = LayerNorm(args.dims, args.eps, bias=args.norm_bias)

    def make_layer(self, args: Any, index: int) -> Module:
        """Return a layer."""
        base = args.bases[args.kinds[index] == SLIDING]
        return NormedFirst(
            RotaryAttention(args.dims, args.heads, base, bias=args.attention_bias),
            MLP(args.dims, args.hidden, args.activation, bias=args.mlp_bias, gated=True),
            args.dims,
            args.eps,
            bias=args.norm_bias,
            first=index == 0,
        )

    def make_head(self, args: Any, labels: Labels) -> ClassificationHead:
        """Return the head of a classifier."""
        return ClassificationHead(
            args.dims,
            labels,
            args.head_activation,
            bias=args.head_bias,
            norm=args.eps,
            norm_bias=args.norm_bias,
            mean=args.head_mean,
        )

    def masks(self, texts: Texts) -> Sequence[Sequence[mx.array | None] | None]:
        """Return what sliding layers see."""
        return windows.masks(texts, self._window, [kind == "s" for kind in self._sliding])

    def last(self, x: mx.array) -> mx.array:
        """Return the hidden states that the last layer's activations give."""
        return self.final_norm(x)
