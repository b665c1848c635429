"""The block of xLSTM with a scalar memory (arXiv 2405.04517, section 2.2 and figure 10).

The recurrence is eq. 8-18, with the stabilizer of eq. 15-17. Its state is c, n, h and m, each
(B, NH, DH) in float32: cell, normalizer, hidden state, and the logarithm by which c and n are
scaled down. The hidden state is fed back, head by head, so positions are taken one by one.
"""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.activations import silu
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from cowmlx.networks import light_route
from cowmlx.networks.blocks import Block, invalid
from cowmlx.networks.blocks.mlstm import FeedForward
from cowmlx.networks.blocks.mlstm_cell import log_sigmoid
from cowmlx.networks.blocks.simple import RMSNorm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

State = tuple[mx.array, mx.array, mx.array, mx.array]

_LONGEST = 64  # positions that a convolution reaches back


class SLSTMBlock(Block):
    """x + sLSTM(norm(x)), then x + FFN(norm(x)), the FFN gated with GELU.

    Its layer cache has c, n, h and m, and the last inputs of the convolution, if there is one.

    Args:
        dims: D.
        num_heads: NH, between which nothing is fed back; divides D.
        hidden_dims: values between the two layers of the FFN.
        conv_kernel: positions of the causal convolution before the input and forget gates;
            None: none.
        norm_eps: of the three norms.
    """

    stateful = True

    def __init__(
        self,
        *,
        dims: int,
        num_heads: int,
        hidden_dims: int,
        conv_kernel: int | None = 4,
        norm_eps: float = 1e-6,
    ) -> None:
        super().__init__(dims, dims)
        if conv_kernel is not None and not 2 <= conv_kernel <= _LONGEST:
            message = f"conv_kernel is {conv_kernel}; it can be 2 to {_LONGEST}, or null"
            raise invalid(message, "conv_kernel", conv_kernel)
        if dims % num_heads:
            raise invalid(f"dims {dims} is no multiple of num_heads {num_heads}", "dims", dims)
        self.norm_slstm = RMSNorm(dims=dims, eps=norm_eps)
        self.slstm_layer = SLSTMLayer(dims, num_heads, conv_kernel, norm_eps)
        self.norm_ffn = RMSNorm(dims=dims, eps=norm_eps)
        self.ffn = FeedForward(dims, hidden_dims, activation="gelu")
        self._parts = 4 if conv_kernel is None else 5

    def make_state(self) -> Any:
        """Return an empty cache of the arrays."""
        return light_route.import_module("models.cache").ArraysCache(self._parts)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        x = x + self.slstm_layer(self.norm_slstm(x), state)
        return x + self.ffn(self.norm_ffn(x))


class SLSTMLayer(Module):
    """Convolution, gates, the recurrence, and a norm per head."""

    def __init__(self, dims: int, num_heads: int, kernel: int | None, eps: float) -> None:
        super().__init__()
        size = dims // num_heads
        self._heads = num_heads
        self._kernel = kernel
        self._eps = eps
        if kernel is not None:
            self.conv = CausalConvolution(dims, kernel)
        self.if_preact = Linear(dims, 2 * dims, bias=True)
        self.zo_preact = Linear(dims, 2 * dims, bias=True)
        self.recurrent = mx.zeros((num_heads, 4 * size, size))
        self.norm_weight = mx.ones((dims,))

    def __call__(self, x: mx.array, state: Any = None) -> mx.array:
        """Map the normed (B, S, D) to (B, S, D)."""
        batch, length, dims = x.shape
        mask = state.make_mask(length) if state is not None else None
        gated = x
        if self._kernel is not None:
            before = state[4] if state is not None else None
            convolved, last = self.conv(x, before, mask)
            gated = silu(convolved)
            if state is not None:
                state[4] = last
        size = dims // self._heads
        shape = (batch, length, 2, self._heads, size)
        gates = mx.concatenate(
            [self.if_preact(gated).reshape(shape), self.zo_preact(x).reshape(shape)], axis=2
        )
        gates = gates.swapaxes(2, 3).astype(mx.float32)
        start = empty_state(batch, self._heads, size)
        if state is not None and state[0] is not None:
            start = state[0], state[1], state[2], state[3]
        hidden, after = slstm(gates, self.recurrent.astype(mx.float32), start, mask)
        if state is not None:
            for index, part in enumerate(after):
                state[index] = part
            state.advance(length)
        normed = mx.fast.layer_norm(hidden, None, None, self._eps).astype(x.dtype)
        return normed.reshape(batch, length, dims) * self.norm_weight


class CausalConvolution(Module):
    """A depthwise convolution over the last ``kernel`` positions."""

    def __init__(self, dims: int, kernel: int) -> None:
        super().__init__()
        self.weight = mx.ones((dims, kernel)) / kernel
        self.bias = mx.zeros((dims,))

    def __call__(
        self, x: mx.array, before: mx.array | None, mask: mx.array | None
    ) -> tuple[mx.array, mx.array]:
        """Convolve (B, S, D).

        Args:
            x: the inputs.
            before: the ``kernel - 1`` inputs before them; None: zeros.
            mask: (B, S) false where a position is padding, or None.

        Returns:
            The outputs (B, S, D), and the last ``kernel - 1`` inputs that are no padding.
        """
        batch, length, dims = x.shape
        reach = self.weight.shape[1] - 1
        if before is None:
            before = mx.zeros((batch, reach, dims), x.dtype)
        if mask is not None:
            x = mx.where(mask[..., None], x, 0)
        padded = mx.concatenate([before, x], axis=1)
        total = sum(
            padded[:, offset : offset + length] * self.weight[:, offset]
            for offset in range(reach + 1)
        )
        if mask is None:
            return total + self.bias, padded[:, length:]
        # What stands before the end of each row, which padding may follow.
        ends = (mx.arange(1, length + 1) * mask).max(axis=1)
        places = (ends[:, None] + mx.arange(reach))[..., None]
        return total + self.bias, mx.take_along_axis(padded, places, axis=1)


def empty_state(batch: int, heads: int, dims: int) -> State:
    """Return the state before the first position; nothing is in it, so m is minus infinity."""
    zeros = mx.zeros((batch, heads, dims))
    return zeros, zeros, zeros, mx.full((batch, heads, dims), -mx.inf)


def step(gates: mx.array, recurrent: mx.array, state: State) -> State:
    """Take one position.

    Args:
        gates: what the input adds to the pre-activations of i, f, z and o, (B, NH, 4, DH).
        recurrent: what the hidden state is mapped to them with, (NH, 4 · DH, DH).
        state: before the position.

    Returns:
        The state behind it; its third part is the position's hidden state.
    """
    cell, normalizer, hidden, scale = state
    fed_back = (recurrent @ hidden[..., None]).squeeze(-1)
    gates = gates + fed_back.reshape(gates.shape)
    i, f, z, o = (gates[:, :, index] for index in range(4))
    kept = log_sigmoid(f) + scale
    new_scale = mx.maximum(kept, i)
    forget, take = mx.exp(kept - new_scale), mx.exp(i - new_scale)
    cell = forget * cell + take * mx.tanh(z)
    normalizer = forget * normalizer + take
    return cell, normalizer, mx.sigmoid(o) * cell / normalizer, new_scale


def slstm(
    gates: mx.array, recurrent: mx.array, state: State, mask: mx.array | None
) -> tuple[mx.array, State]:
    """Take S positions one after the other.

    Args:
        gates: (B, S, NH, 4, DH), see :func:`step`.
        recurrent: (NH, 4 · DH, DH).
        state: before the first position.
        mask: (B, S) false where a position is padding, which leaves the state as it is; or None.

    Returns:
        The hidden states (B, S, NH, DH), and the state behind the last position.
    """
    hidden = []
    for position in range(gates.shape[1]):
        after = step(gates[:, position], recurrent, state)
        if mask is not None:
            counts = mask[:, position, None, None]
            after = tuple(mx.where(counts, new, old) for new, old in zip(after, state, strict=True))  # type: ignore[assignment]
        state = after
        hidden.append(state[2])
    return mx.stack(hidden, axis=1), state
