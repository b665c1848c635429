"""The mLSTM recurrence in its three forms (arXiv 2405.04517, eq. 19-27; arXiv 2503.13427).

Queries and keys are (B, NH, S, DHQK), values (B, NH, S, DHV), the pre-activations of input and
forget gates (B, NH, S), hidden states (B, NH, S, DHV). The state is C (B, NH, DHQK, DHV),
n (B, NH, DHQK) and m (B, NH, 1): a matrix memory, its normaliser, and the logarithm by which both
are scaled down. All is float32. A fresh state is all zeros.

A position whose input gate is minus infinity and whose forget gate is plus infinity leaves the
state as it is: that is how padding is passed over.
"""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx

State = tuple[mx.array, mx.array, mx.array]

# Prompts shorter than this are stepped through: building a chunk's matrices does not pay.
SHORTEST_CHUNK = 3
# Stands for minus infinity where infinities would be subtracted from each other.
_NOTHING = -1e30


class Inputs(NamedTuple):
    """What arrives at S positions."""

    q: mx.array
    """Queries (B, NH, S, DHQK), not scaled: the recurrence multiplies them by 1/sqrt(DHQK)."""
    k: mx.array
    """Keys (B, NH, S, DHQK)."""
    v: mx.array
    """Values (B, NH, S, DHV)."""
    i: mx.array
    """Pre-activations of the input gates (B, NH, S)."""
    f: mx.array
    """Pre-activations of the forget gates (B, NH, S)."""

    def at(self, positions: int | slice) -> Inputs:
        """Return what arrives at some of the positions."""
        return Inputs(*(x[:, :, positions] for x in self))


def empty_state(batch: int, heads: int, qk_dims: int, v_dims: int) -> State:
    """Return the state before the first position."""
    return (
        mx.zeros((batch, heads, qk_dims, v_dims)),
        mx.zeros((batch, heads, qk_dims)),
        mx.zeros((batch, heads, 1)),
    )


def log_sigmoid(x: mx.array) -> mx.array:
    """Return log(1 / (1 + e⁻ˣ)) without overflow."""
    return -mx.logaddexp(mx.zeros_like(x), -x)


def mlstm(inputs: Inputs, state: State, *, chunk_size: int, eps: float) -> tuple[mx.array, State]:
    """Run the recurrence in the form that suits S: the step, or chunks and a shorter one.

    Args:
        inputs: what arrives at S positions.
        state: before the first position.
        chunk_size: positions that are processed as one.
        eps: added to the denominator.

    Returns:
        The hidden states (B, NH, S, DHV), and the state behind the last position.
    """
    length = inputs.q.shape[2]
    whole = length - length % chunk_size
    rest = length - whole
    parts = []
    if whole:
        first = inputs.at(slice(whole)) if rest else inputs
        hidden, state = chunkwise(first, state, chunk_size=chunk_size, eps=eps)
        parts.append(hidden)
    if rest:
        last = inputs.at(slice(whole, None)) if whole else inputs
        if rest < SHORTEST_CHUNK:
            hidden, state = sequential(last, state, eps=eps)
        else:
            hidden, state = chunkwise(last, state, chunk_size=rest, eps=eps)
        parts.append(hidden)
    return (parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)), state


def step(inputs: Inputs, state: State, *, eps: float) -> tuple[mx.array, State]:
    """Take one position, whose inputs have no axis S.

    Returns:
        The hidden state (B, NH, DHV), and the state behind it.
    """
    q, k, v, i, f = inputs
    memory, normalizer, scale = state
    gate = i[..., None]
    kept = log_sigmoid(f)[..., None] + scale
    new_scale = mx.maximum(kept, gate)
    forget, take = mx.exp(kept - new_scale), mx.exp(gate - new_scale)
    taken = take * k
    memory = forget[..., None] * memory + taken[..., None] * v[..., None, :]
    normalizer = forget * normalizer + taken
    q = q * q.shape[-1] ** -0.5
    found = (q[..., None, :] @ memory).squeeze(-2)
    weight = mx.abs((q * normalizer).sum(axis=-1, keepdims=True))
    hidden = found / (mx.maximum(weight, mx.exp(-new_scale)) + eps)
    return hidden, (memory, normalizer, new_scale)


def sequential(inputs: Inputs, state: State, *, eps: float) -> tuple[mx.array, State]:
    """Take the positions one after the other; results as for :func:`mlstm`."""
    hidden = []
    for position in range(inputs.q.shape[2]):
        one, state = step(inputs.at(position), state, eps=eps)
        hidden.append(one)
    return mx.stack(hidden, axis=2), state


def chunkwise(
    inputs: Inputs, state: State, *, chunk_size: int, eps: float
) -> tuple[mx.array, State]:
    """Take S positions, a multiple of L, in chunks of L: parallel in and across the chunks.

    Only the states between the chunks are computed one after the other. With b the sums of
    log(sigmoid(f)) in a chunk, position t of it sees position j <= t with the weight
    exp(b_t - b_j + i_j), and the state before the chunk with exp(b_t + m).

    Arguments and results are those of :func:`mlstm`.
    """
    batch, heads, length, qk_dims = inputs.q.shape
    chunks = length // chunk_size

    def split(x: mx.array) -> mx.array:
        return x.reshape(batch, heads, chunks, chunk_size, *x.shape[3:])

    q, k, v, i, f = (split(x) for x in inputs)
    q = q * qk_dims**-0.5
    forget = log_sigmoid(f)
    weights = _weights(forget, i)
    sums = mx.cumsum(forget, axis=-1)
    before, state = _states(k, v, weights[..., -1, :], sums[..., -1:], state)
    memory, normalizer, scale = before

    of_state = sums + scale
    largest = mx.maximum(mx.maximum(of_state, weights.max(axis=-1)), _NOTHING)
    seen = mx.exp(weights - largest[..., None]) * (q @ k.swapaxes(-1, -2))
    kept = mx.exp(of_state - largest)[..., None]
    found = kept * (q @ memory) + seen @ v
    weight = kept * (q @ normalizer[..., None]) + seen.sum(axis=-1, keepdims=True)
    hidden = found / (mx.maximum(mx.abs(weight), mx.exp(-largest)[..., None]) + eps)
    return hidden.reshape(batch, heads, length, -1), state


def _weights(forget: mx.array, i: mx.array) -> mx.array:
    """Return b_t - b_j + i_j for j <= t, and minus infinity for j > t: (B, NH, S / L, L, L).

    The differences are summed up, position by position: taken from sums over the whole chunk they
    would lose their digits to gates that are nearly closed.
    """
    positions = mx.arange(forget.shape[-1])
    later = positions[:, None] > positions
    between = mx.cumsum(mx.where(later, forget[..., None], 0), axis=-2)
    past = positions[:, None] >= positions
    return mx.where(past, between + i[..., None, :], -mx.inf)


def _states(
    k: mx.array, v: mx.array, gates: mx.array, total: mx.array, state: State
) -> tuple[State, State]:
    """Return the states before every chunk, stacked on axis 2, and the one behind the last.

    Args:
        k: keys (B, NH, S / L, L, DHQK).
        v: values (B, NH, S / L, L, DHV).
        gates: with which logarithm a position is seen from its chunk's end, (B, NH, S / L, L).
        total: with which the state before a chunk is, (B, NH, S / L, 1).
        state: before the first position.
    """
    largest = mx.maximum(gates.max(axis=-1, keepdims=True), _NOTHING)
    taken = mx.exp(gates - largest)[..., None] * k
    products = taken.swapaxes(-1, -2) @ v
    additions = taken.sum(axis=-2)

    memory, normalizer, scale = state
    before: tuple[list[mx.array], ...] = ([], [], [])
    for chunk in range(k.shape[2]):
        for states, now in zip(before, (memory, normalizer, scale), strict=True):
            states.append(now)
        kept = total[:, :, chunk] + scale
        scale = mx.maximum(kept, largest[:, :, chunk])
        forget, take = mx.exp(kept - scale), mx.exp(largest[:, :, chunk] - scale)
        memory = forget[..., None] * memory + take[..., None] * products[:, :, chunk]
        normalizer = forget * normalizer + take * additions[:, :, chunk]
    stacked = tuple(mx.stack(states, axis=2) for states in before)
    return (stacked[0], stacked[1], stacked[2]), (memory, normalizer, scale)
