"""Recordings that the caller's thread computes, without a stream's."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.programs import bits

from cowmlx.accelerate import kernels

Recording = kernels.module().Recording


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def convolved(x, weight):
    axes = {"stride": [1], "padding": [(1, 1)], "kernel_dilation": [1], "input_dilation": [1]}
    return kernels.module().convolution(x, weight, **axes)


def alone(x, weight, window):
    return [x + 1]


def mlp(x, weight, window):
    z = mx.maximum(x @ weight + weight[:1], 0)
    return [mx.tanh(z @ weight.T), z]


def pictures(x, weight, window):
    return [mx.maximum(convolved(x, window) * 2, 0)]


def rows(x, weight, window):
    return [kernels.module().softmax(x) - x]


def views(x, weight, window):
    turned = mx.swapaxes(x * 2, 1, 2)
    return [mx.exp(turned.reshape(-1)), turned, mx.contiguous(turned) + 1, x[:, ::2] - 1, weight]


def several(x, weight, window):
    z = mx.sin(x) * x
    return [z, z, mx.sqrt(mx.abs(z)), x]


def none(x, weight, window):
    return [weight, x]


def given(seed=0):
    shapes = (2, 7, 5), (5, 5), (4, 3, 5)
    found = [mx.random.normal(shape, key=mx.random.key(seed)) for shape in shapes]
    mx.eval(found)
    return found


@pytest.mark.parametrize("function", [alone, mlp, pictures, rows, views, several, none])
def test_the_caller_computes_the_same_bits(function):
    recording = Recording(lambda *arrays: function(*arrays), given(), True)
    for seed in (0, 0, 0, 1, 2, 2, 2):
        arrays = given(seed)
        found = recording.compute([*arrays])
        assert kernels.module().available(found)
        wanted = recording.replay(arrays)
        assert [bits(one) for one in found] == [bits(one) for one in wanted]


def test_an_operation_that_stands_alone_has_the_bits_of_mlx():
    odd = mx.array([mx.nan, mx.inf, -mx.inf, 0.0, -0.0, 1e-42, 3e38, 1.5])
    other = odd[::-1]
    mx.eval(odd, other)
    for op in (mx.add, mx.divide, mx.maximum, mx.power, mx.logaddexp, mx.arctan2):
        recording = Recording(lambda x, y, op=op: [op(x, y)], [odd, odd])
        (found,) = recording.compute([odd, other])
        wanted = op(odd, other)
        found, wanted = (mx.where(mx.isnan(one), mx.nan, one) for one in (found, wanted))
        assert bits(found) == bits(wanted), op


def mixed(x, weight, window):
    """Operations of mlx's own and of the library, results in the memory of others, and views."""
    z = mx.sort(x * 2 + 1, axis=-1)
    y = mx.linalg.qr(weight, stream=mx.default_stream(mx.cpu))
    turned = mx.stop_gradient(z).transpose(2, 1, 0)
    total = mx.logsumexp(turned + turned, axis=0)
    parts = mx.split(kernels.module().softmax(total), 7, axis=0)
    return [*y, z @ weight.T, mx.array(parts[3]), mx.cumsum(parts[0] - 1, axis=1), turned, x]


def wide(x, weight, window):
    return [mx.ones(1 << 17) * x.sum() + 1, mx.sort(mx.tanh(x).reshape(-1))[::-1]]


def repeated(x, weight, window):
    z = mx.sin(x)
    return [mx.matmul(z, z.transpose(0, 2, 1)), mx.concatenate([z, z, x]), z, z]


@pytest.mark.parametrize("function", [mixed, wide, repeated])
def test_a_stream_computes_the_same_bits_when_the_caller_starts_it(function):
    recording = Recording(lambda *arrays: function(*arrays), given(), True)
    for seed in (0, 0, 0, 1, 2, 2, 2):
        arrays = given(seed)
        before = [bits(one) for one in arrays]
        found = recording.compute([*arrays])
        assert kernels.module().available(found)
        wanted = recording.replay(arrays)
        assert [bits(one) for one in found] == [bits(one) for one in wanted]
        assert [bits(one) for one in arrays] == before


def test_what_a_stream_throws_is_thrown_and_leaves_nothing():
    x = mx.ones((3, 3))
    mx.eval(x)
    recording = Recording(lambda x: [mx.linalg.inv(x) + 1, mx.sort(x)], [x])
    for _ in range(3):
        with pytest.raises((RuntimeError, ValueError), match="Inverse"):
            recording.compute([x])
    regular = 3 * mx.eye(3)
    mx.eval(regular)
    found, _ = recording.compute([regular])
    assert bool(mx.all(mx.isfinite(found)))


def copied(x, weight):
    """Reshapes that have to copy: a transposed array has gaps."""
    turned = x.transpose(2, 1, 0)
    return [turned.reshape(1 << at, -1) for at in range(8)]


def test_a_run_that_would_keep_too_much_needs_a_graph():
    arrays = [mx.ones((2, 7, 1 << 17)), mx.ones(3)]
    mx.eval(arrays)
    assert Recording(copied, arrays).compute([*arrays]) is None
    recording = Recording(lambda x, weight: [mx.sort(x * 2 + i) for i in range(8)], arrays)
    assert recording.compute([*arrays]) is None
    found = recording.replay(arrays)
    assert all(bool(mx.all(one == 2 + i)) for i, one in enumerate(found))


def test_streams_compute_what_is_recorded_of_lazy_or_other_arrays():
    x, weight, _ = given()
    recording = Recording(lambda x, weight: [x * 2 + 1], [x, weight])
    for other in ([x + 1, weight], [x[:1], weight], [x], [x.astype(mx.float16), weight]):
        assert recording.compute(other) is None
    with mx.stream(mx.new_stream(mx.cpu)):
        assert recording.compute([x, weight]) is not None
    long = Recording(lambda x, weight: [mx.cumsum(x)], [x, weight])
    with mx.stream(mx.new_stream(mx.cpu)):
        assert long.compute([x, weight]) is None
    assert long.compute([x, weight]) is not None


def test_elements_are_lent_to_a_short_recording_alone():
    x, weight, _ = given()
    recording = Recording(lambda x, weight: [x * 2, mx.stop_gradient(x)], [x, weight])
    for _ in range(2):
        memory = np.array(x)
        found, same = recording.launch([memory.ctypes.data, weight])
        memory[:] = 0
        assert bits(found) == bits(x * 2)
        assert bits(same) == bits(x)
    for other in ([x], [x, weight, x], [x, "weight"], [x, None], [x + 1, weight]):
        assert recording.launch(other) is None
    long = Recording(lambda x, weight: [mx.cumsum(x)], [x, weight])
    assert long.launch([x, weight]) is None


def test_a_task_that_a_stream_has_still_to_run_does_not_disturb():
    x, *_ = given()
    recording = Recording(lambda x: [mx.exp(x) * 2, x], [x])
    for _ in range(20):
        lazy = mx.exp(x) * 2
        mx.async_eval(lazy)
        (found, same) = recording.compute([x])
        assert bits(found) == bits(lazy)
        assert bits(same) == bits(x)


def deep(steps):
    """So many convolutions, each of which makes 1 MiB."""
    axes = {"stride": [1, 1], "kernel_dilation": [1, 1], "input_dilation": [1, 1]}

    def function(x, weight):
        for _ in range(steps):
            x = kernels.module().convolution(x, weight, padding=[(1, 1)] * 2, **axes)
        return [x]

    return function


def test_the_caller_gives_up_what_nothing_reads_afterwards():
    x, weight = mx.ones((1, 128, 128, 16)), mx.full((16, 3, 3, 16), 0.01)
    mx.eval(x, weight)
    recording = Recording(deep(20), [x, weight])
    assert recording.is_short()
    for _ in range(2):
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        (found,) = recording.compute([x, weight])
        assert mx.get_peak_memory() - before < 4 << 20
        del found
    assert not Recording(deep(33), [x, weight]).is_short()


def test_functions_with_their_own_gradients_are_their_operations():
    custom = mx.custom_function(lambda a, b: (a + b, a * b))
    custom.vjp(lambda arrays, cotangents, results: arrays)
    x = mx.array([[1.0, 2.0], [3.0, 4.0]])
    mx.eval(x)
    recording = Recording(lambda a: [*custom(a, mx.exp(a)), a], [x])
    assert recording.is_short()
    powers = mx.exp(x)
    for found, wanted in zip(recording.compute([x]), (x + powers, x * powers, x), strict=True):
        assert bits(found) == bits(wanted)


@pytest.mark.parametrize("side", [4, 200])
def test_constants_of_any_size_are_read_where_they_are_broadcast(side):
    def function(x):
        twos = mx.full(x.shape, 2.0)
        return [twos * x + mx.full(x.shape, 1.5), mx.maximum(x, mx.zeros(x.shape)), twos.T + x]

    x = mx.random.normal((side, side), key=mx.random.key(1))
    mx.eval(x)
    recording = Recording(function, [x])
    assert recording.is_short()
    for found in (recording.compute([x]), recording.replay([x])):
        for one, other in zip(found, function(x), strict=True):
            assert bits(one) == bits(other)


def test_a_large_constant_can_be_a_result():
    x = mx.ones((200, 200))
    mx.eval(x)
    recording = Recording(lambda x: [mx.full(x.shape, 2.0), x + mx.full(x.shape, 2.0)], [x])
    twos, threes = recording.replay([x])
    assert twos.tolist() == [[2.0] * 200] * 200
    assert threes.tolist() == [[3.0] * 200] * 200


def test_a_large_constant_can_be_read_by_strides():
    x = mx.ones((10, 5))
    mx.eval(x)

    def function(x):
        return [mx.as_strided(mx.full((5000,), 2.0), (10, 5), (3, 1), 2) + x]

    (found,) = Recording(function, [x]).replay([x])
    assert found.tolist() == [[3.0] * 5] * 10
