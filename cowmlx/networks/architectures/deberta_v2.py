"""``model_type: "deberta-v2"`` (arXiv 2111.09543): scores that also depend on distances of tokens.

A score is the sum of three: of two tokens, of a token and a distance, of a distance and a token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import mlx.core as mx
from mlx.nn.layers.base import Module
from mlx.nn.layers.embedding import Embedding
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm

from cowmlx.networks.architectures import bert
from cowmlx.networks.encoders.heads import ClassificationHead
from cowmlx.networks.encoders.layers import MLP, Attend, Attention, Group, Layer, Texts
from cowmlx.networks.encoders.model import Embeddings, EncoderArgs
from cowmlx.networks.encoders.options import Labels, Options

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_KINDS = ("c2p", "p2c")


@dataclass
class ModelArgs(EncoderArgs):
    """A config.

    Attributes:
        kinds: of the scores of distances: "c2p", "p2c".
        shares: whether distances go through the layers of tokens.
        buckets: kinds of distances to each side.
        farthest: the distance of the last kind; 0 if every distance is its own.
        norms: whether a norm precedes the layers of distances.
        head_activation: of the head.
    """

    kinds: tuple[str, ...] = ()
    shares: bool = False
    buckets: int = 0
    farthest: int = 0
    norms: bool = False
    head_activation: str = "gelu"

    @classmethod
    def from_dict(cls, config: dict[str, Any]) -> ModelArgs:
        """Read a config.

        Raises:
            BadFormat: a value is missing or odd.
        """
        options = Options(config)
        if not options.flag("relative_attention", False):
            options.fixed("relative_attention", True, missing=False)
        options.fixed("conv_kernel_size", 0)
        args = cls.read({"type_vocab_size": 0, "layer_norm_eps": 1e-7, **config})
        if not options.flag("position_biased_input", True):
            args.positions = 0
        named = config.get("pos_att_type") or []
        named = named.lower().split("|") if isinstance(named, str) else named
        args.kinds = tuple(kind for kind in _KINDS if kind in named)
        args.shares = options.flag("share_att_key", False)
        most = config.get("max_relative_positions")
        most = options.size("max_relative_positions", 4) if _is_above_0(most) else args.length
        if _is_above_0(config.get("position_buckets")):
            args.buckets, args.farthest = options.size("position_buckets", least=4), most
        else:
            args.buckets = most
        args.norms = "layer_norm" in str(config.get("norm_rel_ebd", "none")).lower().split("|")
        args.head_activation = options.activation("pooler_hidden_act")
        return args


def _is_above_0(value: object) -> bool:
    return isinstance(value, int) and value > 0


class _Embeddings(Embeddings):
    """BERT's, but mapped to D in front of the norm, without a bias."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        if "project" in self:
            self.project = Linear(args.embedding, args.dims, bias=False)
        self.norm = LayerNorm(args.dims, args.eps)

    def finished(self, x: mx.array) -> mx.array:
        """Map sums of embeddings to activations."""
        return self.norm(self.project(x) if "project" in self else x)


class _Attention(Attention):
    """Attention with scores of distances."""

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args.dims, args.heads)
        self._scored, self._span = "|".join(args.kinds), args.buckets
        self.attend = Attend((args.dims // args.heads * (1 + len(args.kinds))) ** -0.5)
        if not args.shares:
            if "c2p" in args.kinds:
                self.distance_key = Linear(args.dims, args.dims)
            if "p2c" in args.kinds:
                self.distance_query = Linear(args.dims, args.dims)

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D); the first mask is the embeddings of distances, others kinds."""
        assert masks is not None
        distances, *kinds = masks
        scored = self._of_distances(distances)
        query, key, value = self.query(x), self.key(x), self.value(x)
        parts = []
        for group, own in zip(texts.groups, kinds, strict=True):
            q, k, v = (group.heads(part, self.heads) for part in (query, key, value))
            made = self.attend(q, k, v, self._scores(q, k, *scored, own))
            parts.append(made.transpose(0, 2, 1, 3).reshape(-1, x.shape[-1]))
        return self.out(parts[0] if len(parts) == 1 else mx.concatenate(parts))

    def _of_distances(self, distances: Any) -> tuple[mx.array | None, mx.array | None]:
        """Return keys and queries (1, H, D / H, kinds) of all kinds of distances."""
        whole = Group(0, 1, distances.shape[0])
        key = self.distance_key if "distance_key" in self else self.key
        query = self.distance_query if "distance_query" in self else self.query
        made = [
            whole.heads(layer(distances), self.heads).swapaxes(-1, -2)
            if kind in self._scored
            else None
            for kind, layer in zip(_KINDS, (key, query), strict=True)
        ]
        return made[0], made[1]

    def _scores(
        self, q: mx.array, k: mx.array, keys: mx.array | None, queries: mx.array | None, kinds: Any
    ) -> mx.array | None:
        """Return what distances add to scores, (B, H, T, T), scaled."""
        shape = (*q.shape[:3], q.shape[2])
        total: Any = None
        if keys is not None:
            total = mx.take_along_axis(q @ keys, self._places(kinds, shape), axis=-1)
        if queries is not None:
            own = mx.take_along_axis(k @ queries, self._places(-kinds, shape), axis=-1)
            total = own.swapaxes(-1, -2) if total is None else total + own.swapaxes(-1, -2)
        return None if total is None else total * self.attend.scale

    def _places(self, kinds: mx.array, shape: tuple[int, ...]) -> mx.array:
        return mx.broadcast_to(mx.clip(kinds + self._span, 0, 2 * self._span - 1), shape)


class Model(bert.Model):
    """The network, and where its stored weights go."""

    prefixes = ("deberta.",)
    names = (
        *bert.EMBEDDING_NAMES,
        (r"embeddings\.embed_proj", "embeddings.project"),
        (r"encoder\.rel_embeddings", "relative"),
        (r"encoder\.LayerNorm", "relative_norm"),
        (
            r"encoder\.layer\.(\d+)\.attention\.self\.pos_(key|query)_proj",
            r"layers.\1.attention.distance_\2",
        ),
        (
            r"encoder\.layer\.(\d+)\.attention\.self\.(query|key|value)_proj",
            r"layers.\1.attention.\2",
        ),
        *bert.LAYER_NAMES,
    )
    unused: tuple[str, ...] = (*bert.UNUSED, "lm_predictions.", "mask_predictions.")

    def __init__(self, args: ModelArgs) -> None:
        super().__init__(args)
        self._buckets, self._farthest = args.buckets, args.farthest
        self.relative = Embedding(2 * args.buckets, args.dims)
        if args.norms:
            self.relative_norm = LayerNorm(args.dims, args.eps)

    def make_embeddings(self, args: Any) -> Module:
        """Return what turns tokens into activations."""
        return _Embeddings(args)

    def make_layer(self, args: Any, index: int) -> Module:
        """Return a layer."""
        mlp = MLP(args.dims, args.hidden, args.activation)
        return Layer(_Attention(args), mlp, args.dims, args.eps)

    def make_head(self, args: Any, labels: Labels) -> ClassificationHead:
        """Return the head of a classifier."""
        activation = None if labels.of_tokens else args.head_activation
        return ClassificationHead(args.dims, labels, activation)

    def masks(self, texts: Texts) -> Sequence[Sequence[mx.array | None] | None]:
        """Return the embeddings of distances, and the kinds of distances in each group."""
        known = self.relative(mx.arange(2 * self._buckets))
        known = known.astype(mx.float32) if mx.default_device().type == mx.cpu else known
        distances = self.relative_norm(known) if "relative_norm" in self else known
        own = [distances, *(self._kinds(group.length) for group in texts.groups)]
        return [own] * len(self.layers)

    def _kinds(self, length: int) -> mx.array:
        """Return the kind of the distance of two tokens, (T, T): near ones are their own."""
        places = mx.arange(length)
        distance = places[:, None] - places[None]
        if not self._farthest:
            return distance
        middle = self._buckets // 2
        size = mx.maximum(mx.abs(distance), middle - 1).astype(mx.float32)
        steps = mx.log(size / middle) / math.log((self._farthest - 1) / middle) * (middle - 1)
        far = mx.ceil(steps).astype(mx.int32) + middle
        return mx.where(mx.abs(distance) <= middle, distance, far * mx.sign(distance))
