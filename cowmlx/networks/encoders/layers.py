"""Layers over the tokens of texts side by side, without padding.

Activations are (N, D): the tokens of all texts of a batch, one text behind the other. Only
attention looks at texts: neighbours of one length are computed together.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.activations import gelu, gelu_approx, relu, silu
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear
from mlx.nn.layers.normalization import LayerNorm
from mlx.nn.layers.positional_encoding import RoPE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Group(NamedTuple):
    """Neighbouring texts of one length.

    Attributes:
        start: the place of their first token.
        texts: how many.
        length: tokens of each.
    """

    start: int
    texts: int
    length: int

    @property
    def end(self) -> int:
        """The place behind their last token."""
        return self.start + self.texts * self.length

    def heads(self, x: mx.array, heads: int) -> mx.array:
        """Return the group's part of activations (N, D) as (texts, heads, length, D / heads)."""
        own = x[self.start : self.end].reshape(self.texts, self.length, heads, -1)
        return own.transpose(0, 2, 1, 3)


class Texts:
    """Where the texts of a batch lie.

    Args:
        lengths: tokens of each text; sorted ones make the fewest groups.

    Attributes:
        lengths: the same.
        groups: neighbours of one length.
    """

    def __init__(self, lengths: Sequence[int]) -> None:
        self.lengths = list(lengths)
        self.groups: list[Group] = []
        start = 0
        for length in self.lengths:
            if self.groups and self.groups[-1].length == length:
                self.groups[-1] = self.groups[-1]._replace(texts=self.groups[-1].texts + 1)
            else:
                self.groups.append(Group(start, 1, length))
            start += length
        self.size = start

    @cached_property
    def positions(self) -> mx.array:
        """The place of every token in its text, (N,)."""
        parts = [
            mx.broadcast_to(mx.arange(group.length), (group.texts, group.length)).reshape(-1)
            for group in self.groups
        ]
        return mx.concatenate(parts) if len(parts) > 1 else parts[0]

    @cached_property
    def starts(self) -> list[int]:
        """The place of every text's first token."""
        starts, start = [], 0
        for length in self.lengths:
            starts.append(start)
            start += length
        return starts


class Activation(Module):
    """An activation without parameters.

    Args:
        kind: "gelu", "gelu_tanh", "relu", "silu" or "tanh".
    """

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def __call__(self, x: mx.array, up: mx.array | None = None) -> mx.array:
        """Return activation(x), times ``up`` where it is given."""
        made = _PLAIN[self.kind](x)
        return made if up is None else made * up


_PLAIN: dict[str, Callable[[mx.array], mx.array]] = {
    "gelu": gelu,
    "gelu_tanh": gelu_approx,
    "relu": relu,
    "silu": silu,
    "tanh": mx.tanh,
}


class Attend(Module):
    """softmax(q kT scale + mask) v.

    Args:
        scale: of the scores.
    """

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.scale = scale

    def __call__(
        self, q: mx.array, k: mx.array, v: mx.array, mask: mx.array | None = None
    ) -> mx.array:
        """Return (B, H, T, D); the mask is boolean, or added to the scores."""
        if mask is not None and mask.dtype != mx.bool_:
            mask = mask.astype(q.dtype)
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=self.scale, mask=mask)


class Attention(Module):
    """Attention of every token of a text to all others.

    Args:
        dims: D.
        heads: among which D is shared.
        bias: whether the layers have one.
    """

    def __init__(self, dims: int, heads: int, *, bias: bool = True) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (
            Linear(dims, dims, bias=bias) for _ in range(4)
        )
        self.attend = Attend((dims // heads) ** -0.5)

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D).

        Args:
            x: activations.
            texts: whose they are.
            masks: for each group, or None for none at all.
        """
        query, key, value = self.query(x), self.key(x), self.value(x)
        parts = []
        for index, group in enumerate(texts.groups):
            q, k, v = (group.heads(part, self.heads) for part in (query, key, value))
            q, k = self.turned(q), self.turned(k)
            made = self.attend(q, k, v, None if masks is None else masks[index])
            parts.append(made.transpose(0, 2, 1, 3).reshape(-1, x.shape[-1]))
        return self.out(parts[0] if len(parts) == 1 else mx.concatenate(parts))

    def turned(self, x: mx.array) -> mx.array:
        """Rotate queries or keys (B, H, T, D) by their positions; these stay as they are."""
        return x


class RotaryAttention(Attention):
    """The same with rotary positions (arXiv 2104.09864).

    Args:
        dims: D.
        heads: among which D is shared.
        base: of the angles.
        bias: whether the layers have one.
    """

    def __init__(self, dims: int, heads: int, base: float, *, bias: bool = True) -> None:
        super().__init__(dims, heads, bias=bias)
        self.rope = RoPE(dims // heads, base=base)

    def turned(self, x: mx.array) -> mx.array:
        """Rotate queries or keys (B, H, T, D) by their positions."""
        return self.rope(x)


class MLP(Module):
    """A layer up, an activation, a layer down.

    Args:
        dims: D.
        hidden: between the layers.
        activation: see :class:`Activation`.
        bias: whether the layers have one.
        gated: whether another layer's result is multiplied with the activation's.
    """

    def __init__(
        self, dims: int, hidden: int, activation: str, *, bias: bool = True, gated: bool = False
    ) -> None:
        super().__init__()
        self.up = Linear(dims, hidden, bias=bias)
        if gated:
            self.gate = Linear(dims, hidden, bias=bias)
        self.down = Linear(hidden, dims, bias=bias)
        self.activation = Activation(activation)

    def __call__(self, x: mx.array) -> mx.array:
        """Map (N, D) to (N, D)."""
        if "gate" in self:
            return self.down(self.activation(self.gate(x), self.up(x)))
        return self.down(self.activation(self.up(x)))


class Layer(Module):
    """Attention and an MLP, each with a norm behind its residual, as BERT has them.

    Args:
        attention: of the layer.
        mlp: of the layer.
        dims: D.
        eps: of the norms.
    """

    def __init__(self, attention: Module, mlp: MLP, dims: int, eps: float) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp
        self.attention_norm = LayerNorm(dims, eps)
        self.mlp_norm = LayerNorm(dims, eps)

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D)."""
        x = self.attention_norm(x + self.attention(x, texts, masks))
        return self.mlp_norm(x + self.mlp(x))


class NormedFirst(Module):
    """Attention and an MLP, each with a norm in front.

    Args:
        attention: of the layer.
        mlp: of the layer.
        dims: D.
        eps: of the norms.
        bias: whether the norms have one.
        first: whether it is the first layer, whose input is normalized already.
    """

    def __init__(
        self, attention: Module, mlp: MLP, dims: int, eps: float, *, bias: bool, first: bool
    ) -> None:
        super().__init__()
        self.attention, self.mlp = attention, mlp
        if not first:
            self.attention_norm = LayerNorm(dims, eps, bias=bias)
        self.mlp_norm = LayerNorm(dims, eps, bias=bias)

    def __call__(
        self, x: mx.array, texts: Texts, masks: Sequence[mx.array | None] | None = None
    ) -> mx.array:
        """Map (N, D) to (N, D)."""
        normed = self.attention_norm(x) if "attention_norm" in self else x
        x = x + self.attention(normed, texts, masks)
        return x + self.mlp(self.mlp_norm(x))
