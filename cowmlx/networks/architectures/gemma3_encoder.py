"""``model_type: "gemma3_text"`` with ``use_bidirectional_attention``: EmbeddingGemma.

Gemma 3 (arXiv 2503.19786) as an encoder (arXiv 2509.20354).
"""

from __future__ import annotations

from dataclasses import dataclass

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.positional_encoding import RoPE

from cowmlx.folders.config import invalid_config
from cowmlx.networks.encoders import windows
from cowmlx.networks.encoders.layers import MLP, Attend, Texts
from cowmlx.networks.encoders.model import Encoder, EncoderArgs
from cowmlx.networks.encoders.options import Options
from cowmlx.networks.encoders.windows import FULL, SLIDING

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_BASES = {FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 1e4)}


@dataclass
class ModelArgs(EncoderArgs):
    """A config.

    Attributes:
        kinds: of the layers' attention.
        bases: of the angles of full and of sliding attention.
        window: distance of the tokens that a sliding layer sees, to each side.
        groups: heads of keys and values.
        head: the width of a head.
        scale: of the scores.
        attention_bias: whether the layers of attention have a bias.
    """

    kinds: tuple[str, ...] = ()
    bases: tuple[float, float] = (0.0, 0.0)
    window: int = 0
    groups: int = 0
    head: int = 0
    scale: float = 0.0
    attention_bias: bool = False

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        options = Options(config)
        options.fixed("attn_logit_softcapping")
        layers, heads = options.size("num_hidden_layers"), options.size("num_attention_heads")
        args = cls(
            vocabulary=options.size("vocab_size"),
            dims=options.size("hidden_size"),
            layers=layers,
            heads=heads,
            hidden=options.size("intermediate_size"),
            length=options.size("max_position_embeddings"),
            activation=options.activation("hidden_activation", "gelu_pytorch_tanh"),
            eps=options.number("rms_norm_eps", 1e-6),
            bases=windows.bases(config, options, _BASES),
            window=options.size("sliding_window", 4096) // 2,
            groups=options.size("num_key_value_heads", 4),
            head=options.size("head_dim", 256),
            scale=options.number("query_pre_attn_scalar", 256.0) ** -0.5,
            attention_bias=options.flag("attention_bias", False),
        )
        pattern = "sliding_window_pattern"
        every = options.size(pattern, options.size(f"_{pattern}", 6))
        args.kinds = windows.kinds(config, layers, every, every - 1)
        if heads % args.groups or args.head % 2 or options.labels() is not None:
            raise invalid_config(
                f"num_attention_heads is {heads}, num_key_value_heads {args.groups}, head_dim "
                f"{args.head} and architectures {str(config.get('architectures'))[:60]}: no "
                "encoder of Gemma 3",
            )
        return args


class Norm(Module):
    """A root mean square norm, whose weights are stored less 1.

    Args:
        dims: D.
        eps: added to the mean.
    """

    def __init__(self, dims: int, eps: float) -> None:
        super().__init__()
        self.weight, self.eps = mx.zeros((dims,)), eps

    def __call__(self, x: mx.array) -> mx.array:
        """Return the norm of (..., D)."""
        return mx.fast.rms_norm(x, 1.0 + self.weight, self.eps)


class GroupedAttention(Module):
    """Attention of every token to all others, with fewer heads of keys and values.

    Args:
        args: the network's.
        base: of the angles.
    """

    def __init__(self, args: ModelArgs, base: float) -> None:
        super().__init__()
        self.heads, self.groups, bias = args.heads, args.groups, args.attention_bias
        width, few = args.heads * args.head, args.groups * args.head
        self.query = Linear(args.dims, width, bias=bias)
        self.key, self.value = (Linear(args.dims, few, bias=bias) for _ in range(2))
        self.out = Linear(width, args.dims, bias=bias)
        self.query_norm, self.key_norm = (Norm(args.head, args.eps) for _ in range(2))
        self.rope, self.attend = RoPE(args.head, base=base), Attend(args.scale)

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D), as :class:`~cowmlx.networks.encoders.layers.Attention` does."""
        query, key, value = self.query(x), self.key(x), self.value(x)
        parts = []
        for index, group in enumerate(texts.groups):
            q = self.rope(self.query_norm(group.heads(query, self.heads)))
            k = self.rope(self.key_norm(group.heads(key, self.groups)))
            own = None if masks is None else masks[index]
            made = self.attend(q, k, group.heads(value, self.groups), own)
            parts.append(made.transpose(0, 2, 1, 3).reshape(-1, query.shape[-1]))
        return self.out(parts[0] if len(parts) == 1 else mx.concatenate(parts))


class NormedTwice(Module):
    """Attention and an MLP, each with a norm in front and one behind."""

    def __init__(self, args: ModelArgs, base: float) -> None:
        super().__init__()
        self.attention = GroupedAttention(args, base)
        self.mlp = MLP(args.dims, args.hidden, args.activation, bias=False, gated=True)
        self.attention_norm, self.attention_end = (Norm(args.dims, args.eps) for _ in range(2))
        self.mlp_norm, self.mlp_end = (Norm(args.dims, args.eps) for _ in range(2))

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D)."""
        x = x + self.attention_end(self.attention(self.attention_norm(x), texts, masks))
        return x + self.mlp_end(self.mlp(self.mlp_norm(x)))


class ScaledEmbeddings(Module):
    """Embeddings of tokens times the root of D."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__()
        self.word = Embedding(args.vocabulary, args.dims)
        self.scale = args.dims**0.5

    def __call__(self, tokens: mx.array, texts: Texts, segments: mx.array | None) -> mx.array:
        """Return (N, D) of tokens (N,)."""
        x = self.word(tokens)
        x = x * mx.array(self.scale).astype(x.dtype)
        # The sums of layers are too large for float16, and a CPU is no faster with 16 bits.
        wide = x.dtype == mx.float16 or mx.default_device().type == mx.cpu
        return x.astype(mx.float32) if wide else x


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("model.",)
    names = (
        ("embed_tokens", "embeddings.word"),
        (r"layers\.(\d+)\.self_attn\.q_proj", r"layers.\1.attention.query"),
        (r"layers\.(\d+)\.self_attn\.k_proj", r"layers.\1.attention.key"),
        (r"layers\.(\d+)\.self_attn\.v_proj", r"layers.\1.attention.value"),
        (r"layers\.(\d+)\.self_attn\.o_proj", r"layers.\1.attention.out"),
        (r"layers\.(\d+)\.self_attn\.q_norm", r"layers.\1.attention.query_norm"),
        (r"layers\.(\d+)\.self_attn\.k_norm", r"layers.\1.attention.key_norm"),
        (r"layers\.(\d+)\.mlp\.(gate|up|down)_proj", r"layers.\1.mlp.\2"),
        (r"layers\.(\d+)\.input_layernorm", r"layers.\1.attention_norm"),
        (r"layers\.(\d+)\.post_attention_layernorm", r"layers.\1.attention_end"),
        (r"layers\.(\d+)\.pre_feedforward_layernorm", r"layers.\1.mlp_norm"),
        (r"layers\.(\d+)\.post_feedforward_layernorm", r"layers.\1.mlp_end"),
        ("norm", "final_norm"),
    )
    unused = ("lm_head.",)

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self._window = args.window
        self._sliding = "".join("s" if kind == SLIDING else "f" for kind in args.kinds)
        self.final_norm = Norm(args.dims, args.eps)

    def make_embeddings(self, args: Any) -> Module:
        """Return what turns tokens into activations."""
        return ScaledEmbeddings(args)

    def make_layer(self, args: Any, index: int) -> Module:
        """Return a layer."""
        return NormedTwice(args, args.bases[args.kinds[index] == SLIDING])

    def masks(self, texts: Texts) -> Sequence[Sequence[mx.array | None] | None]:
        """Return what sliding layers see."""
        return windows.masks(texts, self._window, [kind == "s" for kind in self._sliding])

    def last(self, x: mx.array) -> mx.array:
        """Return the hidden states that the last layer's activations give."""
        return self.final_norm(x)
