"""The sLSTM recurrence (arXiv 2405.04517, eq. 8-18, with the stabiliser of eq. 15-17).

The state is c, n, h and m, each (B, NH, DH) in float32: cell, normaliser, hidden state, and the
logarithm by which c and n are scaled down. The hidden state is fed back, head by head, so the
positions can only be taken one after the other.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx.networks.blocks.mlstm_cell import log_sigmoid

State = tuple[mx.array, mx.array, mx.array, mx.array]


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
