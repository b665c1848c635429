"""The block of xLSTM with a matrix memory (arXiv 2405.04517; as in xLSTM 7B, arXiv 2503.13427)."""

from __future__ import annotations

import mlx.core as mx
from mlx.nn.layers.activations import gelu, silu
from mlx.nn.layers.base import Module
from mlx.nn.layers.linear import Linear

from cowmlx.networks import light_route
from cowmlx.networks.blocks import Block, invalid
from cowmlx.networks.blocks.mlstm_cell import Inputs, State, empty_state, mlstm
from cowmlx.networks.blocks.simple import RMSNorm

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class MLSTMBlock(Block):
    """x + mLSTM(norm(x)), then x + FFN(norm(x)).

    Its state is a cache of three float32 arrays: C, n and m of
    :mod:`cowmlx.networks.blocks.mlstm_cell`.

    Args:
        dims: D.
        num_heads: NH; divides the dimensions of queries and of values.
        qk_dims: of queries and keys, all heads together.
        v_dims: of values, all heads together.
        hidden_dims: values between the two layers of the FFN.
        chunk_size: positions of a prompt that are processed as one.
        gate_soft_cap: a, for a · tanh(gate / a) of the gates' pre-activations; None: no cap.
        norm_eps: of the three norms.
        eps: added to the recurrence's denominator.
        norm_float32: take the norms' means in float32, whatever the type of x is.
        bias: whether the projections have one; the gates always do.
        fused: whether projections that read the same vector are one matrix.
    """

    stateful = True

    def __init__(
        self,
        *,
        dims: int,
        num_heads: int,
        qk_dims: int,
        v_dims: int,
        hidden_dims: int,
        chunk_size: int = 64,
        gate_soft_cap: float | None = 15.0,
        norm_eps: float = 1e-6,
        eps: float = 1e-6,
        norm_float32: bool = True,
        bias: bool = False,
        fused: bool = False,
    ) -> None:
        super().__init__(dims, dims)
        for name, size in (("qk_dims", qk_dims), ("v_dims", v_dims)):
            if size % num_heads:
                raise invalid(f"{name} {size} is no multiple of num_heads {num_heads}", name, size)
        self.norm_mlstm = RMSNorm(dims=dims, eps=norm_eps, float32=norm_float32)
        self.mlstm_layer = MLSTMLayer(
            dims, num_heads, qk_dims, v_dims, chunk_size, gate_soft_cap, norm_eps, eps, bias, fused
        )
        self.norm_ffn = RMSNorm(dims=dims, eps=norm_eps, float32=norm_float32)
        self.ffn = FeedForward(dims, hidden_dims, bias, fused)

    def make_state(self) -> Any:
        """Return an empty cache of the three arrays."""
        return light_route.import_module("models.cache").ArraysCache(3)

    def __call__(self, x: mx.array, state: Any = None, *borrowed: Block) -> mx.array:
        """Map (B, T, D) to (B, T, D)."""
        x = x + self.mlstm_layer(self.norm_mlstm(x), state)
        return x + self.ffn(self.norm_ffn(x))


class MLSTMLayer(Module):
    """Projections, gates, the recurrence, a norm per head, and the output gate."""

    def __init__(
        self,
        dims: int,
        num_heads: int,
        qk_dims: int,
        v_dims: int,
        chunk_size: int,
        gate_soft_cap: float | None,
        norm_eps: float,
        eps: float,
        bias: bool,
        fused: bool,
    ) -> None:
        super().__init__()
        self._heads = num_heads
        self._sizes = (qk_dims, qk_dims, v_dims, v_dims)
        self._chunk_size = chunk_size
        self._gate_soft_cap = gate_soft_cap
        self._eps = eps
        self._fused = fused
        if fused:
            self.qkv_opreact = Linear(dims, sum(self._sizes), bias=bias)
            self.ifgate_preact = Linear(dims, 2 * num_heads, bias=True)
        else:
            self.q, self.k, self.v, self.ogate_preact = (
                Linear(dims, size, bias=bias) for size in self._sizes
            )
            self.igate_preact = Linear(dims, num_heads, bias=True)
            self.fgate_preact = Linear(dims, num_heads, bias=True)
        self.multihead_norm = MultiHeadNorm(v_dims, num_heads, norm_eps)
        self.out_proj = Linear(v_dims, dims, bias=bias)

    def __call__(self, x: mx.array, state: Any = None) -> mx.array:
        """Map the normed (B, S, D) to (B, S, D)."""
        q, k, v, o = self._projections(x)
        i, f = self._gates(x)
        length = x.shape[1]
        if state is not None and (mask := state.make_mask(length)) is not None:
            i = mx.where(mask[:, None], i, -mx.inf)
            f = mx.where(mask[:, None], f, mx.inf)
        qk_dims, _, v_dims, _ = (size // self._heads for size in self._sizes)
        before = empty_state(x.shape[0], self._heads, qk_dims, v_dims)
        if state is not None and state[0] is not None:
            before = state[0], state[1], state[2]
        inputs = Inputs(q, k, v, i, f)
        hidden, after = self._recur(inputs, before)
        if state is not None:
            state[0], state[1], state[2] = after
            state.advance(length)
        normed = self.multihead_norm(hidden.swapaxes(1, 2).astype(x.dtype))
        return self.out_proj(mx.sigmoid(o) * normed)

    def _recur(self, inputs: Inputs, before: State) -> tuple[mx.array, State]:
        """Return the hidden states (B, NH, S, DHV), and the state behind the last position."""
        return mlstm(inputs, before, chunk_size=self._chunk_size, eps=self._eps)

    def _projections(self, x: mx.array) -> tuple[mx.array, mx.array, mx.array, mx.array]:
        """Return q, k, v (B, NH, S, DH) in float32 and o (B, S, v_dims)."""
        if self._fused:
            ends = [sum(self._sizes[: count + 1]) for count in range(3)]
            q, k, v, o = mx.split(self.qkv_opreact(x), ends, axis=-1)
        else:
            q, k, v, o = self.q(x), self.k(x), self.v(x), self.ogate_preact(x)
        q, k, v = (self._per_head(part) for part in (q, k, v))
        return q, k, v, o

    def _per_head(self, x: mx.array) -> mx.array:
        heads = x.reshape(*x.shape[:2], self._heads, -1).swapaxes(1, 2)
        return heads.astype(mx.float32)

    def _gates(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the pre-activations of input and forget gates, (B, NH, S) in float32."""
        if self._fused:
            gates = self.ifgate_preact(x).astype(mx.float32)
        else:
            gates = mx.concatenate([self.igate_preact(x), self.fgate_preact(x)], axis=-1)
            gates = gates.astype(mx.float32)
        if self._gate_soft_cap is not None:
            gates = mx.tanh(gates / self._gate_soft_cap) * self._gate_soft_cap
        i, f = mx.split(gates.swapaxes(1, 2), 2, axis=1)
        return i, f


class MultiHeadNorm(Module):
    """A layer norm per head, without bias, and one weight for every value of every head."""

    def __init__(self, dims: int, num_heads: int, eps: float) -> None:
        super().__init__()
        self.weight = mx.ones((dims,))
        self._heads = num_heads
        self._eps = eps

    def __call__(self, x: mx.array) -> mx.array:
        """Map (B, S, NH, DHV) to (B, S, NH · DHV)."""
        normed = self._normed(x)
        return normed.reshape(*x.shape[:2], -1) * self.weight

    def _normed(self, x: mx.array) -> mx.array:
        return mx.fast.layer_norm(x, None, None, self._eps)


class FeedForward(Module):
    """proj_down(activation(gate) · up).

    Args:
        dims: D.
        hidden_dims: values that are gated.
        bias: whether the projections have one.
        fused: whether those up are one matrix.
        activation: "silu" or "gelu".
    """

    def __init__(
        self,
        dims: int,
        hidden_dims: int,
        bias: bool = False,
        fused: bool = False,
        activation: str = "silu",
    ) -> None:
        super().__init__()
        self._activation = activation
        self._fused = fused
        if fused:
            self.proj_up_gate_z = Linear(dims, 2 * hidden_dims, bias=bias)
        else:
            self.proj_up_gate = Linear(dims, hidden_dims, bias=bias)
            self.proj_up = Linear(dims, hidden_dims, bias=bias)
        self.proj_down = Linear(hidden_dims, dims, bias=bias)

    def __call__(self, x: mx.array) -> mx.array:
        """Map (B, S, D) to (B, S, D)."""
        if self._fused:
            gate, up = mx.split(self.proj_up_gate_z(x), 2, axis=-1)
        else:
            gate, up = self.proj_up_gate(x), self.proj_up(x)
        return self.proj_down(self._gated(gate, up))

    def _gated(self, gate: mx.array, up: mx.array) -> mx.array:
        return (silu if self._activation == "silu" else gelu)(gate) * up
