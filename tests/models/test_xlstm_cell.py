"""The mLSTM recurrence alone, in all its forms, against reference arrays and float64."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import recurrences
from support.xlstm_fixtures import CELL, STATES, far, hidden_is_near

from cowmlx.networks.blocks.mlstm_cell import (
    Inputs,
    chunkwise,
    empty_state,
    log_sigmoid,
    mlstm,
    sequential,
    step,
)

with np.load(CELL) as _file:
    ARRAYS = dict(_file)
CASES = sorted(name[:-2] for name in ARRAYS if name.endswith("_q"))
EPS = float(ARRAYS["eps"])


def case(name):
    """Inputs, the state before, and what comes out."""
    inputs = Inputs(*(mx.array(ARRAYS[f"{name}_{part}"]) for part in "qkvif"))
    state = tuple(mx.array(ARRAYS[f"{name}_{part}0"]) for part in "Cnm")
    return inputs, state, ARRAYS[f"{name}_h"], [ARRAYS[f"{name}_{part}1"] for part in "Cnm"]


def check(got, hidden, state):
    assert hidden_is_near(got[0], hidden)
    for part, reference in zip(got[1], state, strict=True):
        assert far(part, reference) <= STATES


def test_the_cases_that_matter_are_there():
    assert {"step", "step0", "short", "exact", "mixed", "lowgate", "tinykey", "forget"} <= {*CASES}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk_size", [1, 2, 7, 16, 64, 1000])
def test_any_chunk_size_gives_the_reference(name, chunk_size):
    inputs, state, hidden, after = case(name)
    check(mlstm(inputs, state, chunk_size=chunk_size, eps=EPS), hidden, after)


@pytest.mark.parametrize("name", CASES)
def test_one_position_after_the_other_gives_the_reference(name):
    inputs, state, hidden, after = case(name)
    check(sequential(inputs, state, eps=EPS), hidden, after)


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("step")])
def test_a_step_gives_the_reference(name):
    inputs, state, hidden, after = case(name)
    one, behind = step(inputs.at(0), state, eps=EPS)
    check((one[:, :, None], behind), hidden, after)


@pytest.mark.parametrize("name", CASES)
def test_chunks_give_the_reference(name):
    """Whole ones only; the others of ``mlstm`` are a chunk of what remains."""
    inputs, state, hidden, after = case(name)
    length = hidden.shape[2]
    for chunk_size in (size for size in (1, 4, 5, 8, 16, length) if length % size == 0):
        check(chunkwise(inputs, state, chunk_size=chunk_size, eps=EPS), hidden, after)


@pytest.mark.parametrize("name", ["mixed", "forget"])
@pytest.mark.parametrize("first", [1, 15, 16, 17, 40])
def test_a_state_carries_over(name, first):
    inputs, state, hidden, after = case(name)
    start, state = mlstm(inputs.at(slice(first)), state, chunk_size=16, eps=EPS)
    end, state = mlstm(inputs.at(slice(first, None)), state, chunk_size=16, eps=EPS)
    check((mx.concatenate([start, end], axis=2), state), hidden, after)


def test_a_fresh_state_is_all_zeros():
    """Also m: with minus infinity in its place, hidden states would have another scale."""
    memory, normalizer, scale = empty_state(2, 3, 4, 5)
    assert (memory.shape, normalizer.shape, scale.shape) == ((2, 3, 4, 5), (2, 3, 4), (2, 3, 1))
    assert not any(part.any().item() for part in (memory, normalizer, scale))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    sizes=st.tuples(*[st.integers(1, 4)] * 4),
    length=st.integers(1, 70),
    chunk_size=st.integers(1, 80),
    open_gates=st.floats(-12, 12),
    kept=st.floats(-12, 12),
    eps=st.sampled_from([1e-6, 1e-3, 0.5]),
)
def test_random_inputs_give_what_float64_gives(
    seed, sizes, length, chunk_size, open_gates, kept, eps
):
    batch, heads, qk_dims, v_dims = sizes
    draw = np.random.default_rng(seed)

    def normal(*shape):
        return draw.normal(size=shape).astype(np.float32)

    q, k = normal(batch, heads, length, qk_dims), normal(batch, heads, length, qk_dims)
    v = normal(batch, heads, length, v_dims)
    i, f = normal(batch, heads, length) + open_gates, normal(batch, heads, length) + kept
    state = (
        normal(batch, heads, qk_dims, v_dims),
        normal(batch, heads, qk_dims),
        normal(batch, heads, 1),
    )
    inputs = [np.float32(x) for x in (q, k, v, i, f)]
    hidden, after = recurrences.mlstm(*inputs, state, eps)
    got, behind = mlstm(
        Inputs(*map(mx.array, inputs)), tuple(map(mx.array, state)), chunk_size=chunk_size, eps=eps
    )
    # What is added up loses digits where it cancels out: measured by what is added up.
    size, _ = recurrences.mlstm(
        np.abs(q), np.abs(k), np.abs(v), i, f, [np.abs(state[0]), np.abs(state[1]), state[2]], eps
    )
    weight = np.abs(hidden) + size
    for part, reference in zip(behind, after, strict=True):
        assert far(part, reference) <= 2e-4 * max(1, np.abs(reference).max())
    relative = np.abs(np.asarray(got) - hidden) / weight
    assert np.median(relative) <= 1e-4


@pytest.mark.parametrize("length", [1, 2, 5, 16, 37])
@pytest.mark.parametrize("chunk_size", [1, 16])
def test_positions_with_shut_gates_change_nothing(length, chunk_size):
    """That is how padding is passed over."""
    inputs, state, _, _ = case("mixed")
    inputs = inputs.at(slice(length))
    shut = inputs._replace(i=mx.full(inputs.i.shape, -mx.inf), f=mx.full(inputs.f.shape, mx.inf))
    for start in (state, empty_state(2, 3, 8, 12)):
        hidden, after = mlstm(shut, start, chunk_size=chunk_size, eps=EPS)
        assert mx.isfinite(hidden).all().item()
        for part, before in zip(after, start, strict=True):
            assert mx.array_equal(part, before)


@pytest.mark.parametrize("form", ["chunks", "steps"])
@pytest.mark.parametrize("gate", [-1e4, -100.0, 100.0, 1e4])
def test_gates_of_any_size_overflow_nothing(form, gate):
    inputs, state, _, _ = case("mixed")
    for part in ("i", "f"):
        wild = inputs._replace(**{part: getattr(inputs, part) + gate})
        run = chunkwise if form == "chunks" else sequential
        extra = {"chunk_size": 25} if form == "chunks" else {}
        hidden, after = run(wild, state, eps=EPS, **extra)
        assert all(mx.isfinite(array).all().item() for array in (hidden, *after))


def test_log_sigmoid_is_exact_at_both_ends():
    x = np.array([-1e4, -100, -20, -1, 0, 1, 20, 100, 1e4], np.float32)
    expected = recurrences.log_sigmoid(x.astype(np.float64))
    assert np.allclose(np.asarray(log_sigmoid(mx.array(x))), expected, rtol=1e-5, atol=1e-12)
    assert log_sigmoid(mx.array(mx.inf)).item() == 0


@pytest.mark.parametrize("chunk_size", [16, 64, 256])
@pytest.mark.parametrize("closed", [-15.0, -1e4, -1e6, -3e38])
def test_forget_gates_that_close_cost_chunks_no_digits(closed, chunk_size):
    """Sums over a chunk lose the digits of what lies between two closed gates."""
    random = np.random.default_rng(5)
    shape = (1, 2, 256)
    q, k, v = (random.normal(size=(*shape, 8)) for _ in range(3))
    f = np.where(random.random(shape) < 0.2, closed, 4.0)
    arrays = (q, k, v, random.normal(0, 3, shape), f)
    inputs = Inputs(*(mx.array(array.astype(np.float32)) for array in arrays))
    start = empty_state(1, 2, 8, 8)
    hidden, state = chunkwise(inputs, start, chunk_size=chunk_size, eps=EPS)
    expected, after = sequential(inputs, start, eps=EPS)
    error = mx.abs(hidden - expected) / (mx.abs(expected) + 1e-2)
    assert error.max().item() < 5e-3
    for part, other in zip(state, after, strict=True):
        assert mx.allclose(part, other, rtol=1e-4, atol=1e-4)
