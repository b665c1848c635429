"""``model_type: "mpnet"`` (arXiv 2004.09297): scores that also depend on distances of tokens."""

from __future__ import annotations

import math

import mlx.core as mx
from mlx.nn.layers.embedding import Embedding

from cowmlx.networks.architectures.bert import EMBEDDING_NAMES, LAYER_NAMES, UNUSED
from cowmlx.networks.encoders.model import Encoder, EncoderArgs
from cowmlx.networks.encoders.options import Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from cowmlx.networks.encoders.layers import Texts

_BUCKETS = 32  # kinds of distances; transformers has no other number
_FAR = 128  # from which distance on all are one


class ModelArgs(EncoderArgs):
    """A config."""

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> EncoderArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        Options(config).fixed("relative_attention_num_buckets", _BUCKETS)
        Options(config).fixed("pad_token_id", 1)
        return cls.read({**config, "type_vocab_size": 0}, offset=True)


class Model(Encoder):
    """The network, and where its stored weights go."""

    prefixes = ("mpnet.",)
    names = (
        *EMBEDDING_NAMES,
        (r"encoder\.relative_attention_bias", "relative"),
        (r"encoder\.layer\.(\d+)\.attention\.attn\.q", r"layers.\1.attention.query"),
        (r"encoder\.layer\.(\d+)\.attention\.attn\.k", r"layers.\1.attention.key"),
        (r"encoder\.layer\.(\d+)\.attention\.attn\.v", r"layers.\1.attention.value"),
        (r"encoder\.layer\.(\d+)\.attention\.attn\.o", r"layers.\1.attention.out"),
        (r"encoder\.layer\.(\d+)\.attention\.LayerNorm", r"layers.\1.attention_norm"),
        *LAYER_NAMES,
    )
    head_names = (
        (r"classifier\.dense", "dense"),
        (r"classifier\.out_proj", "out"),
        ("classifier", "out"),  # of tokens
    )
    unused: tuple[str, ...] = UNUSED

    def __init__(self, args: EncoderArgs) -> None:
        super().__init__(args)
        self.relative = Embedding(_BUCKETS, args.heads)

    def masks(self, texts: Texts) -> Sequence[Sequence[mx.array | None] | None]:
        """Return what is added to scores, the same for all layers."""
        made = [self._bias(group.length) for group in texts.groups]
        return [made] * len(self.layers)

    def _bias(self, length: int) -> mx.array:
        """Return (1, H, T, T): the bias of each distance, as T5 has it (arXiv 1910.10683)."""
        places = mx.arange(length)
        distance = places[:, None] - places[None]
        half = _BUCKETS // 2
        sign = mx.where(distance < 0, half, 0)
        distance = mx.abs(distance)
        exact = half // 2
        near = mx.maximum(distance, 1).astype(mx.float32)
        scaled = mx.log(near / exact) / math.log(_FAR / exact) * (half - exact)
        far = mx.minimum(exact + scaled.astype(mx.int32), half - 1)
        kind = sign + mx.where(distance < exact, distance, far)
        return self.relative(kind).astype(mx.float32).transpose(2, 0, 1)[None]
