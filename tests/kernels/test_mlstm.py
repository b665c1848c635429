"""The mLSTM recurrence against float64, on every instruction set at hand."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import exact, random
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
EPS = 1e-6


def recur(q, k, v, i, f, memory, normalizer, logarithm):
    """The definition, position by position."""
    hidden = np.zeros(v.shape)
    for t in range(q.shape[2]):
        kept = -np.logaddexp(0, -f[:, :, t])[..., None] + logarithm
        gate = i[:, :, t][..., None]
        logarithm = np.maximum(kept, gate)
        forget, take = np.exp(kept - logarithm), np.exp(gate - logarithm)
        memory = forget[..., None] * memory + (take * k[:, :, t])[..., None] * v[:, :, t, None]
        normalizer = forget * normalizer + take * k[:, :, t]
        query = q[:, :, t] * q.shape[-1] ** -0.5
        weight = np.abs((query * normalizer).sum(-1, keepdims=True))
        found = (query[..., None, :] @ memory)[..., 0, :]
        hidden[:, :, t] = found / (np.maximum(weight, np.exp(-logarithm)) + EPS)
    return hidden, memory, normalizer, logarithm


def inputs(rows: int, heads: int, positions: int, key_dim: int, value_dim: int, seed: int = 0):
    shape = rows, heads, positions
    gates = [random(shape, "float32", seed + place) for place in (3, 4)]
    return [
        random((*shape, key_dim), "float32", seed),
        random((*shape, key_dim), "float32", seed + 1),
        random((*shape, value_dim), "float32", seed + 2),
        gates[0],
        gates[1] + 2,
    ]


def state(rows: int, heads: int, key_dim: int, value_dim: int, seed: int = 9):
    return [
        random((rows, heads, key_dim, value_dim), "float32", seed),
        mx.abs(random((rows, heads, key_dim), "float32", seed + 1)),
        random((rows, heads, 1), "float32", seed + 2),
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(1, 3),
    st.sampled_from([0, 1, 2, 3, 4, 5, 30]),
    st.sampled_from([1, 8, 16, 33]),
    st.sampled_from([1, 16, 17, 48, 64, 100, 150]),
    st.booleans(),
    st.integers(0, 99),
)
def test_mlstm(rows, heads, positions, key_dim, value_dim, swapped, seed):
    given_ = inputs(rows, heads, positions, key_dim, value_dim, seed)
    if swapped:  # as projections give them
        given_ = [mx.contiguous(x.swapaxes(1, 2)).swapaxes(1, 2) for x in given_]
    before = state(rows, heads, key_dim, value_dim, seed)
    kept = [np.array(x) for x in before]
    found = MODULE.mlstm(*given_, *before, eps=EPS)
    wanted = recur(*map(exact, given_), *map(exact, before))
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert np.allclose(exact(one), other, rtol=1e-4, atol=1e-5 * np.abs(other).max(initial=1))
    for one, other in zip(before, kept, strict=True):  # arrays are values
        assert np.array_equal(np.array(one), other)


def test_padding_leaves_the_state_as_it_is():
    given_, before = inputs(2, 2, 3, 16, 32), state(2, 2, 16, 32)
    given_[3] = mx.full((2, 2, 3), -mx.inf)
    given_[4] = mx.full((2, 2, 3), mx.inf)
    after = MODULE.mlstm(*given_, *before, eps=EPS)[1:]
    for one, other in zip(after, before, strict=True):
        assert mx.array_equal(one, other)


def test_closed_gates_leave_nothing():
    given_, before = inputs(1, 1, 2, 16, 32), state(1, 1, 16, 32)
    given_[3] = given_[4] = mx.full((1, 1, 2), -mx.inf)
    hidden, memory, normalizer, _ = MODULE.mlstm(*given_, *before, eps=EPS)
    assert not hidden.any()
    assert not memory.any()
    assert not normalizer.any()


def test_positions_are_the_same_one_by_one():
    given_, before = inputs(2, 3, 11, 32, 80), state(2, 3, 32, 80)
    together = MODULE.mlstm(*given_, *before, eps=EPS)
    parts = []
    for t in range(11):
        one = MODULE.mlstm(*(x[:, :, t : t + 1] for x in given_), *before, eps=EPS)
        parts, before = [*parts, one[0]], one[1:]
    assert mx.array_equal(mx.concatenate(parts, axis=2), together[0])
    for one, other in zip(before, together[1:], strict=True):
        assert mx.array_equal(one, other)


def test_what_does_not_fit_is_refused():
    given_, before = inputs(1, 2, 3, 16, 32), state(1, 2, 16, 32)
    with pytest.raises(ValueError, match=r"the memory must be float32 \(1, 2, 16, 32\)"):
        MODULE.mlstm(*given_, before[0][:, :1], *before[1:], eps=EPS)
    with pytest.raises(ValueError, match=r"k must be float32 \(1, 2, 3, 16\)"):
        MODULE.mlstm(given_[0], given_[1].astype(mx.float16), *given_[2:], *before, eps=EPS)
    with pytest.raises(ValueError, match=r"q and v are \(B, H, S, numbers\)"):
        MODULE.mlstm(given_[0][0], *given_[1:], *before, eps=EPS)
