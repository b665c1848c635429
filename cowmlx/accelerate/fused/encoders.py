"""Encoder layers as one operation: described, proved on random activations, put in their places."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import mlx.core as mx

from cowmlx import failures
from cowmlx.accelerate import kernels, rope
from cowmlx.accelerate.blocks import InBlocks
from cowmlx.accelerate.fused import stand_in
from cowmlx.accelerate.linear import InMatrix
from cowmlx.modules import modules_of
from cowmlx.networks.encoders.layers import (
    MLP,
    Attention,
    Layer,
    NormedFirst,
    RotaryAttention,
    Texts,
)
from cowmlx.networks.encoders.model import Embeddings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "silu")
_LENGTHS = (3, 3, 5, 19)  # of the texts of the proof
# Of the largest value: float32 rounds to 1e-7 of it, wrong parts to 1e-3.
_TOLERANCE = 1e-4


class Unknown(Exception):
    """A layer that kernels do not have; the text says why."""


class Part(NamedTuple):
    """A layer as kernels take it.

    Attributes:
        halves: attention and MLP.
        width: D.
        angles: of its heads, or None.
    """

    halves: dict[str, Any]
    width: int
    angles: rope.RoPETables | None


class FusedEncoderLayer(stand_in.Fused):
    """One layer.

    Args:
        description: of its halves.
        width: D.
        angles: of its heads, or None.
        rounded: whether activations are rounded, as in :class:`InBlocks`.
    """

    def __init__(
        self,
        description: dict[str, Any],
        width: int,
        angles: rope.RoPETables | None,
        rounded: bool,
    ) -> None:
        self._module = kernels.module()
        self._layers = self._module.make_layers(width, [description], rounded, {})
        self._angles = angles

    def take(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array | None:
        """Return what the layer gives, or None if this call is not one that it takes."""
        own = [mask for mask in masks or () if mask is not None]
        if x.dtype != mx.float32 or len(own) not in (0, len(texts.groups)):
            return None
        longest = max(group.length for group in texts.groups)
        angles = [] if self._angles is None else self._angles.upto(longest)
        made: mx.array = self._module.encode_layers(self._layers, x, texts.groups, angles, own)
        return made


class FusedEncoderLayers:
    """All layers of an encoder, of which it takes any neighbours.

    Args:
        parts: the description, the width and the angles of each.
        rounded: whether activations are rounded, as in :class:`InBlocks`.
    """

    def __init__(self, parts: Sequence[Part], rounded: bool) -> None:
        self._module = kernels.module()
        descriptions = [part.halves for part in parts]
        self._layers = self._module.make_layers(parts[0].width, descriptions, rounded, {})
        self._angles = [part.angles for part in parts]
        self._keys = [None if part.angles is None else part.angles.key for part in parts]

    def __deepcopy__(self, memo: Any) -> None:
        return None

    def take(
        self,
        x: mx.array,
        texts: Texts,
        masks: Sequence[Sequence[mx.array | None] | None],
        first: int,
        end: int,
    ) -> mx.array | None:
        """Return what layers [first, end) give, or None if they have not all the same masks."""
        given, key = masks[first], self._keys[first]
        alike = all(own is given for own in masks[first:end])
        if not alike or any(own != key for own in self._keys[first:end]):
            return None
        own = [mask for mask in given or () if mask is not None]
        if stand_in.plainly.entered or x.dtype != mx.float32:
            return None
        if len(own) not in (0, len(texts.groups)):
            return None
        longest = max(group.length for group in texts.groups)
        table = self._angles[first]
        angles = [] if table is None else table.upto(longest)
        made: mx.array = self._module.encode_layers(
            self._layers, x, texts.groups, angles, own, first, end
        )
        return made


class FusedEmbeddings(stand_in.Fused):
    """Tables of embeddings, and the norm of their sums.

    Args:
        embeddings: of an encoder, in blocks.

    Raises:
        Unknown: kernels do not compute these.
    """

    def __init__(self, embeddings: Any) -> None:
        if not isinstance(embeddings, Embeddings) or "project" in embeddings:
            raise Unknown("its embeddings are others")
        tables = {
            name: _matrix(embeddings, name) if name in embeddings else None
            for name in ("word", "position", "token_type")
        }
        norm = embeddings.norm
        self._module = kernels.module()
        self._embeddings = self._module.make_embeddings(
            tables["word"],
            tables["position"],
            embeddings.first_position,
            tables["token_type"],
            norm.get("weight"),
            norm.get("bias"),
            norm.eps,
        )

    def take(self, tokens: mx.array, texts: Texts, segments: mx.array | None) -> mx.array | None:
        """Return the sums (N, D), or None if this call is not one that it takes."""
        made: mx.array | None = self._module.embed_texts(
            self._embeddings, tokens, segments, texts.groups
        )
        return made


def fuse(network: Any, rounded: bool) -> tuple[int, Counter[str]]:
    """Let kernels compute an encoder's layers; returns how many, and why others are not.

    Args:
        network: its weights in blocks (``cowmlx.accelerate.linear``) and read; changed in place.
        rounded: whether activations are rounded, as in :class:`InBlocks`.
    """
    rounding = [m for m in modules_of(network) if isinstance(m, InBlocks) and m.rounded]
    for module in rounding:
        module.rounded = False  # rounded activations prove nothing
    parts, reasons = [], Counter[str]()
    try:
        network.join(None)
        for layer in network.layers:
            try:
                stand_in.put(layer, None)
                parts.append(_proved(layer))
                stand_in.put(layer, FusedEncoderLayer(*parts[-1], rounded))
            except (Unknown, rope.UnsupportedRoPE) as why:
                reasons[str(why)] += 1
        _fuse_embeddings(network)
    finally:
        for module in rounding:
            module.rounded = True
    if len(parts) == len(network.layers) > 1:
        network.join(FusedEncoderLayers(parts, rounded))
    return len(parts), reasons


def _fuse_embeddings(network: Any) -> None:
    """Let kernels compute the embeddings, if they give the same."""
    embeddings = network.embeddings
    stand_in.put(embeddings, None)
    lengths = [min(length, network.context_length) for length in _LENGTHS]
    texts = Texts(lengths)
    tokens = mx.arange(texts.size, dtype=mx.int32) % network.vocabulary_size
    mx.eval(tokens)
    try:
        expected = embeddings(tokens, texts, None)
        fused = FusedEmbeddings(embeddings)
        made = fused.take(tokens, texts, None)
    except Unknown:
        return
    except ValueError as exc:
        failures.reraise_shortage(exc)
        return
    if made is not None and _is_same(made, expected):
        stand_in.put(embeddings, fused)


def _is_same(made: mx.array, expected: mx.array) -> bool:
    error = mx.abs(made - expected).max() / mx.abs(expected).max()
    return bool((error < _TOLERANCE).item())


def _proved(layer: Any) -> Part:
    """Return a layer as kernels take it.

    Raises:
        Unknown: they do not, or do not give the same.
        UnsupportedRoPE: its heads turn by no table.
    """
    part = _described(layer)
    x = mx.random.normal((sum(_LENGTHS), part.width), key=mx.random.key(9))
    texts = Texts(_LENGTHS)
    try:
        expected = layer(x, texts)
        made = FusedEncoderLayer(*part, rounded=False).take(x, texts)
        assert made is not None
        same = _is_same(made, expected)
    except ValueError as exc:
        failures.reraise_shortage(exc)
        raise Unknown(f"kernels refuse it: {exc}") from exc
    if not same:
        raise Unknown("kernels give other results")
    return part


def _described(layer: Any) -> Part:
    if not isinstance(layer, (Layer, NormedFirst)):
        raise Unknown(f"it is a {type(layer).__name__}")
    attention, mlp = layer.attention, layer.mlp
    if type(attention) not in (Attention, RotaryAttention):
        raise Unknown(f"its attention is a {type(attention).__name__}")
    if not isinstance(mlp, MLP) or mlp.activation.kind not in _ACTIVATIONS:
        raise Unknown("its MLP is not one that kernels have")
    angles = None
    width = attention.query.columns if isinstance(attention.query, InMatrix) else 0
    if isinstance(attention, RotaryAttention):
        angles = rope.tables_of(attention.rope, width // attention.heads)
    halves: dict[str, Any] = {
        "attention": {
            **{name: _matrix(attention, name) for name in ("query", "key", "value", "out")},
            **{"heads": attention.heads, "groups": attention.heads, "norm_per_head": True},
            **{"scale": attention.attend.scale, "soft_cap": 0.0, "residual": 1.0},
            **{"window": 0, "place": 0, "table": -1 if angles is None else 0},
            "turning": 0 if angles is None else angles.dims,
            "traditional": angles is not None and angles.traditional,
        },
        "mlp": {
            "gate": _matrix(mlp, "gate" if "gate" in mlp else "up"),
            "up": _matrix(mlp, "up") if "gate" in mlp else None,
            "down": _matrix(mlp, "down"),
            **{"residual": 1.0, "activation": mlp.activation.kind},
        },
    }
    place = "before" if isinstance(layer, NormedFirst) else "after"
    for half, own in halves.items():
        if f"{half}_norm" in layer:
            norm = layer[f"{half}_norm"]
            own[place] = ("layer", norm.get("weight"), norm.get("bias"), norm.eps)
    return Part(halves, width, angles)


def _matrix(module: Any, name: str) -> Any:
    linear = module[name]
    if not isinstance(linear, InMatrix):
        raise Unknown(f"its {name} is a {type(linear).__name__}")
    return linear.matrix()
