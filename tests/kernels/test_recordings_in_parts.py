"""Recordings that the caller's thread computes some operations at a time."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed
from support.programs import bits

MODULE = needed()
Recording = MODULE.Recording
ROWS, WIDE = 40, 24


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def layers(x, weight):
    y = mx.tanh(x @ weight)
    z = MODULE.softmax(y @ weight.T)
    return [z, (z * y).sum(axis=0), y, y.reshape(2, -1, WIDE).transpose(1, 0, 2)]


def given(seed=0):
    arrays = [
        mx.random.normal(shape, key=mx.random.key(seed)) for shape in ((ROWS, WIDE), (WIDE, WIDE))
    ]
    mx.eval(arrays)
    return arrays


def test_parts_give_the_bits_of_the_whole():
    recording = Recording(lambda *arrays: layers(*arrays), given(), True)
    for seed in range(3):
        wanted = recording.compute(given(seed))
        assert [bits(one) for one in recording.replay(given(seed))] == [bits(one) for one in wanted]
        arrays = given(seed)
        running = recording.begin(arrays)
        assert arrays == []
        parts = 1
        while not running.advance(0):
            parts += 1
            with pytest.raises(ValueError, match="not all is computed"):
                running.results()
        assert parts == recording.steps()
        assert [bits(one) for one in running.results()] == [bits(one) for one in wanted]
        assert running.advance(0)
        at_once = recording.begin(given(seed))
        assert at_once.advance(60)
        assert [bits(one) for one in at_once.results()] == [bits(one) for one in wanted]


def test_runs_of_a_recording_do_not_disturb_each_other():
    recording = Recording(lambda *arrays: layers(*arrays), given(), True)
    wanted = [recording.compute(given(seed)) for seed in range(3)]
    running = [recording.begin(given(seed)) for seed in range(3)]
    recording.begin(given()).advance(0)  # and is given up
    for _ in range(recording.steps()):
        for one in running:
            one.advance(0)
    for one, results in zip(running, wanted, strict=True):
        assert [bits(array) for array in one.results()] == [bits(array) for array in results]


def test_a_run_outlives_the_name_of_its_recording():
    recording = Recording(lambda *arrays: layers(*arrays), given(), True)
    wanted = [bits(one) for one in recording.compute(given())]
    running = recording.begin(given())
    del recording
    assert running.advance(60)
    assert [bits(one) for one in running.results()] == wanted


def test_other_arrays_and_operations_of_mlx_have_no_parts():
    recording = Recording(lambda *arrays: layers(*arrays), given(), True)
    x, weight = given()
    for other in ([x], [x + 1, weight], [x[:1], weight], [x.astype(mx.float16), weight]):
        count = len(other)
        assert recording.begin(other) is None
        assert len(other) == count
    assert Recording(lambda x, weight: [mx.sort(x @ weight)], given(), True).begin(given()) is None


def test_the_memory_of_a_run_is_no_bound():
    x = mx.ones((1 << 20,))
    mx.eval(x)
    recording = Recording(lambda x: [mx.exp(x + at) for at in range(9)], [x])
    assert not recording.is_short()
    running = recording.begin([x])
    assert running.advance(60)
    assert all(
        bits(one[:9]) == bits(mx.exp(x[:9] + at)) for at, one in enumerate(running.results())
    )


@pytest.mark.parametrize("dtype", [mx.int32, mx.int64, mx.uint8])
def test_rows_that_are_chosen_are_those_of_mlx(dtype):
    """And are bounded, and added up for the gradient."""
    matrix = mx.random.normal((11, 5), key=mx.random.key(0))
    ids = mx.array(np.array([[0, 10, 3], [7, 200, 3]], np.uint8)).astype(dtype)
    mx.eval(matrix, ids)

    def function(matrix, ids):
        low, high = mx.array(0, dtype), mx.array(10, dtype)
        at = mx.minimum(mx.maximum(ids, low), high)
        return [matrix[at], mx.maximum(low, at.T), matrix[at.T] * 2]

    def loss(matrix, ids):
        return function(matrix, ids)[0].square().sum()

    for one in (function, lambda *arrays: [mx.grad(loss)(*arrays)]):
        recording = Recording(lambda *arrays, one=one: one(*arrays), [matrix, ids])
        assert recording.is_short()
        found = recording.compute([matrix, ids])
        assert [bits(array) for array in found] == [bits(array) for array in one(matrix, ids)]


def test_rows_before_the_first_count_from_the_end():
    matrix = mx.random.normal((4, 2, 3), key=mx.random.key(0))
    ids = mx.array([-1, 0, -4, 3], mx.int32)
    mx.eval(matrix, ids)
    recording = Recording(lambda matrix, ids: [matrix[ids[::2]], matrix[ids]], [matrix, ids])
    found = recording.compute([matrix, ids])
    assert bits(found[0]) == bits(matrix[ids[::2]])
    assert bits(found[1]) == bits(matrix[ids])


def test_sums_of_what_lies_in_order_or_is_repeated_are_those_of_mlx():
    shape = (3, 4, 9, 6)  # rows, heads, positions, numbers
    q, k, v, by = (mx.random.normal(shape, key=mx.random.key(at)) for at in range(4))
    small = mx.random.normal((3, 1, 24), key=mx.random.key(5))
    mx.eval(q, k, v, by, small)

    def joined(x):
        return x.transpose(0, 2, 1, 3).reshape(3, 9, 24)

    def function(q, k, v, by, small):
        def attend(*arrays):
            return MODULE.trained_attention(*arrays, scale=0.5)

        results, gradients = mx.vjp(attend, [q, k, v], [by])
        sums = [joined(one).sum(axis=(0, 1)) for one in (*results, *gradients)]
        wide = mx.broadcast_to(small, (3, 9, 24))
        return [*sums, wide.sum(axis=(0, 1)), (wide + 1).sum(axis=1)]

    arrays = [q, k, v, by, small]
    recording = Recording(lambda *arrays: function(*arrays), arrays)
    assert recording.is_short()
    found, wanted = recording.compute([*arrays]), function(*arrays)
    assert [bits(one) for one in found] == [bits(one) for one in wanted]


@pytest.mark.parametrize(
    ("source", "to"),
    [((1, 5, 8), (3, 5, 8)), ((3, 1, 8), (3, 5, 8)), ((5, 1), (5, 8)), ((8,), (4, 5, 8))],
    ids=str,
)
def test_sums_of_what_is_repeated_are_those_of_mlx(source, to):
    x = mx.random.normal(source, key=mx.random.key(0))
    mx.eval(x)
    for axes in [(0,), (0, 1), tuple(range(len(to)))]:

        def function(x, axes=axes):
            return [mx.broadcast_to(x, to).sum(axis=axes)]

        recording = Recording(function, [x])
        found = recording.compute([x]) or recording.replay([x])
        assert bits(found[0]) == bits(function(x)[0]), axes
