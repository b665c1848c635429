"""Functions of arrays that are recorded once and done again for other arrays."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import weakref

import mlx.core as mx
import numpy as np
import pytest
from support.paths import ROOT
from support.programs import bits

from cowmlx.accelerate import kernels

Recording = kernels.module().Recording


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def gradient(x, w):
    return list(mx.grad(lambda x, w: mx.logsumexp(x @ w).sum(), argnums=[0, 1])(x, w))


def rows(x, w):
    q, r = mx.linalg.qr(x, stream=mx.cpu)
    return [*mx.vmap(lambda x: [mx.softmax(x @ w), mx.sort(x)])(x), q, r, x, w]


def chain(x, w):
    for _ in range(30_000):  # deep: nothing may recurse
        x = mx.sin(x)
    return [x, x.sum()]


@pytest.mark.parametrize("function", [gradient, rows, chain])
def test_a_recording_gives_the_same_bits_for_other_arrays(function):
    shapes = (4, 3), (3, 5)
    calls = []

    def counted(*arrays):
        calls.append(len(arrays))
        return function(*arrays)

    recording = Recording(counted, [mx.zeros(shape) for shape in shapes])
    for seed in range(3):
        arrays = [mx.random.normal(shape, key=mx.random.key(seed)) for shape in shapes]
        wanted = function(*arrays)
        found = recording.replay(arrays)
        assert [bits(each) for each in found] == [bits(each) for each in wanted]
    assert calls == [2]


def test_what_a_function_reads_beside_its_inputs_is_kept():
    def reading(constant):
        mx.eval(constant)
        return Recording(lambda x: [x + constant + mx.array(1.0), constant], [mx.zeros(2)])

    recording = reading(mx.array([1.5, 2.5]))
    gc.collect()
    found = recording.replay([mx.array([1.0, 2.0])])
    assert [each.tolist() for each in found] == [[3.5, 5.5], [1.5, 2.5]]


def test_other_shapes_dtypes_and_streams_do_not_fit():
    recording = Recording(lambda x: [x + x], [mx.zeros(2)])
    assert recording.fits([mx.ones(2)])
    others = [[mx.ones(3)], [mx.ones(2, mx.int32)], [], [mx.ones(2), mx.ones(2)]]
    for other in others:
        assert not recording.fits(other)
        with pytest.raises(ValueError, match="recorded for other"):
            recording.replay(other)
    with mx.stream(mx.new_stream(mx.cpu)):
        assert not recording.fits([mx.ones(2)])


def test_a_function_that_fails_or_asks_for_values_is_no_recording():
    with pytest.raises(ZeroDivisionError):
        Recording(lambda x: [x / (1 // 0)], [mx.zeros(2)])
    with pytest.raises((ValueError, RuntimeError)):
        Recording(lambda x: [x + x.sum().item()], [mx.zeros(2)])
    with pytest.raises(Exception, match="cast"):
        Recording(lambda x: 3, [mx.zeros(2)])


def test_inputs_that_nobody_else_holds_are_computed_in_place():
    recording = Recording(lambda x: [mx.sin(x) + 1], [mx.zeros(1 << 20)])
    given = [mx.ones(1 << 20)]
    mx.eval(given)
    mx.clear_cache()
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    found = recording.replay(given)
    given.clear()
    mx.eval(found)
    assert mx.get_peak_memory() - before < 1 << 20


def test_a_recording_holds_no_function():
    class Held:
        def __call__(self, x):
            return [x + 1]

    held = Held()
    recording = Recording(held, [mx.zeros(2)])
    gone = weakref.ref(held)
    del held
    gc.collect()
    assert gone() is None and recording.steps() >= 1


def test_a_recording_runs_no_other_program(tmp_path):
    """As mlx's own compile runs a compiler, to see whether there is one."""
    log = tmp_path / "log"
    for name in ("g++", "c++", "sh"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {name} >> {log}\n")
        (tmp_path / name).chmod(0o755)
    code = """
import mlx.core as mx
from cowmlx.accelerate import kernels
mx.set_default_device(mx.cpu)
recording = kernels.module().Recording(lambda x: [mx.exp(mx.sin(x) + 1)], [mx.zeros(3)])
print(recording.replay([mx.zeros(3)])[0].shape)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
    )
    assert (done.stdout, done.stderr) == ("(3,)\n", "")
    assert not log.exists()


def convolved(x, weight, *, padding=1, groups=1):
    steps = {"stride": [1, 1], "padding": [(padding, padding)] * 2, "kernel_dilation": [1, 1]}
    return kernels.module().convolution(x, weight, **steps, input_dilation=[1, 1], groups=groups)


def bias_and_relu(x, weight, bias):
    return [mx.maximum(convolved(x, weight) + bias, 0)]


def relu_alone(x, weight, bias):
    return [mx.maximum(0, convolved(x, weight)), bias]


def bias_first(x, weight, bias):
    return [bias.reshape(1, 1, 1, -1) + convolved(x, weight)]


def twice(x, weight, bias):
    return [mx.maximum(bias + convolved(convolved(x, weight), weight) + bias, 0)]


def read_twice(x, weight, bias):
    found = convolved(x, weight)
    return [mx.maximum(found + bias, 0), found]


def given_back(x, weight, bias):
    found = convolved(x, weight) + bias
    return [mx.maximum(found, 0), found]


def not_zero(x, weight, bias):
    return [mx.maximum(convolved(x, weight), 1)]


def of_rows(x, weight, bias):
    return [convolved(x, weight) + x.reshape(2, 5, 4, 4)[..., :1]]


def differentiated(x, weight, bias):
    return list(mx.grad(lambda *given: bias_and_relu(*given)[0].sum(), [0, 1, 2])(x, weight, bias))


@pytest.mark.parametrize(
    ("function", "operations"),
    [
        (bias_and_relu, 1),
        (relu_alone, 1),
        (bias_first, 2),
        (twice, 6),
        (read_twice, None),
        (given_back, None),
        (not_zero, None),
        (of_rows, None),
        (differentiated, None),
    ],
)
def test_a_convolution_takes_over_its_bias_and_relu(function, operations):
    def given(seed):
        shapes = (2, 5, 4, 4), (4, 3, 3, 4), (4,)
        return [mx.random.normal(shape, key=mx.random.key(seed)) for shape in shapes]

    recording = Recording(lambda *arrays: function(*arrays), given(0))
    for seed in range(3):
        arrays = given(seed)
        for found, wanted in zip(recording.replay(arrays), function(*arrays), strict=True):
            assert mx.allclose(found, wanted, rtol=1e-5, atol=1e-5)
    if operations is not None:
        assert recording.steps() <= operations


def test_a_convolution_that_keeps_a_weight_sees_each_change():
    x = mx.random.normal((1, 6, 6, 3))
    weights = [mx.random.normal((5, 3, 3, 3), key=mx.random.key(seed)) for seed in range(2)]
    mx.eval(weights)
    recording = Recording(lambda x, weight: [convolved(x, weight)], [x, weights[0]])
    for at in (0, 0, 0, 1, 0, 1, 1, 1, 0):
        (found,) = recording.replay([x, weights[at]])
        assert bits(found) == bits(convolved(x, weights[at]))
    turned = weights[1].transpose(0, 2, 1, 3)  # the same memory, read in another way
    for weight in (turned, turned, weights[1], turned):
        (found,) = recording.replay([x, weight])
        assert bits(found) == bits(convolved(x, weight))


def test_a_weight_that_is_computed_in_place_is_read_again():
    x = mx.random.normal((1, 6, 6, 3))
    weight = mx.random.normal((5, 3, 3, 3)) + 1
    recording = Recording(lambda x, weight: [convolved(x, weight)], [x, weight])
    for _ in range(6):
        for _ in range(3):
            (found,) = recording.replay([x, weight])
            assert bits(found) == bits(convolved(x, weight))
        weight = weight * 2
        mx.eval(weight)


def dense(x, weight, bias):
    return [mx.maximum(x @ weight + bias, 0)]


def turned(x, weight, bias):
    return [mx.maximum(bias + x @ weight.T.T, 0) * 2]


def strided(x, weight, bias):
    return [x[..., ::-1] @ weight[::-1] + bias[::-1]]


def shaped(x, weight, bias):
    return [(x @ weight).reshape(-1, 1, weight.shape[1]) + bias[None]]


def split(x, weight, bias):
    return [(x @ weight).reshape(-1) + 1, (x @ weight) + x[..., :1]]


def of_results(x, weight, bias):
    return [x @ (weight + 1) + bias, (x * 2) @ weight]


@pytest.mark.parametrize("function", [dense, turned, strided, shaped, split, of_results])
@pytest.mark.parametrize("shape", [(1, 5), (2, 3, 5), (17, 5), (300, 5), (1,), (5,), (0, 5)])
@pytest.mark.parametrize("outputs", [1, 16, 37])
def test_a_product_with_a_matrix_is_that_of_mlx(function, shape, outputs):
    sides = shape, (shape[-1], outputs), (outputs,)
    first = [mx.random.normal(side, key=mx.random.key(0)) for side in sides]
    recording = Recording(lambda *arrays: function(*arrays), first, True)
    for seed in (0, 0, 0, 1, 1, 0):
        given = [mx.random.normal(side, key=mx.random.key(seed)) for side in sides]
        for arrays in (given, [first[0], *given[1:]], first):
            wanted = function(*arrays)
            for found, exact in zip(recording.replay(arrays), wanted, strict=True):
                assert found.shape == exact.shape
                assert mx.allclose(found, exact, rtol=1e-5, atol=1e-5)


def test_a_product_takes_over_its_bias_relu_and_axes():
    x, weight, bias = (mx.random.normal(side) for side in ((2, 3, 5), (5, 7), (7,)))
    recording = Recording(lambda *arrays: dense(*arrays), [x, weight, bias], True)
    assert recording.steps() == 2  # the axes of x, and the product
    (found,) = recording.replay([x, weight, bias])
    assert mx.allclose(found, dense(x, weight, bias)[0], rtol=1e-5, atol=1e-5)


def test_numbers_that_are_not_finite_spread_through_a_product():
    x, weight = mx.random.normal((3, 5)), mx.random.normal((5, 18))
    x[1, 2], weight[0, 17] = mx.inf, mx.nan
    recording = Recording(lambda *arrays: [arrays[0] @ arrays[1]], [x, weight], True)
    for _ in range(3):
        (found,) = recording.replay([x, weight])
        assert mx.array_equal(mx.isnan(found), mx.isnan(x @ weight))
        assert mx.array_equal(mx.isinf(found), mx.isinf(x @ weight))


def test_other_dtypes_of_products_stay_those_of_mlx():
    for dtype in (mx.float16, mx.bfloat16, mx.float64, mx.complex64):
        x, weight = (mx.random.normal(side).astype(dtype) for side in ((3, 5), (5, 4)))
        recording = Recording(lambda *arrays: [arrays[0] @ arrays[1]], [x, weight], True)
        assert mx.array_equal(recording.replay([x, weight])[0], x @ weight)


def test_a_matrix_that_is_computed_in_place_is_packed_again():
    x, weight = mx.random.normal((2, 6)), mx.random.normal((6, 20))
    recording = Recording(lambda *arrays: [arrays[0] @ arrays[1]], [x, weight], True)
    for _ in range(6):
        for _ in range(3):
            assert mx.allclose(recording.replay([x, weight])[0], x @ weight, atol=1e-5)
        weight = weight + 1
        mx.eval(weight)


def chained(x, y):
    z = mx.exp(mx.sin(x) + y) / 3
    return [mx.maximum(z, x) - z, z, mx.erf(z * 2)]


def beside_a_sum(x, y):
    z = x * y + 1
    total = z.sum(axis=-1, keepdims=True)
    return [mx.sigmoid(z) * 2 - total, mx.square(total) + 1, -z]


def broadcast(x, y):
    row, column = x[..., :1, :], y[..., :1]
    return [(x + row) * (row[0] - 2), (x + column) / 2, mx.abs(mx.broadcast_to(row, x.shape)) - x]


def views(x, y):
    z = mx.swapaxes(x, -1, -2) * 2
    return [mx.swapaxes(z, -1, -2) + y[::-1], mx.cos(z) - 1, (z * z).reshape(-1) + 1]


def of_scalars(x, y):
    a = mx.sqrt(x.reshape(-1)[0] * 4) + 1
    return [x * a + y, a, mx.erf(a * a)]


def long(x, y):
    for _ in range(700):
        x = mx.minimum(mx.sin(x) * y, y)
    return [x]


def wide(x, y):
    for at in range(90):
        x = x + (y.reshape(-1)[:1] + at).reshape(()) * mx.full(x.shape, float(at))
    return [x]


CHAINS = [chained, beside_a_sum, broadcast, views, of_scalars]
SHAPES = [(1, 1), (3, 5), (2, 3, 5), (1, 256), (257, 1)]


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        *itertools.product([*CHAINS, long, wide], SHAPES),
        *((chain, (300, 700)) for chain in CHAINS),
    ],
)
def test_a_chain_has_the_bits_of_its_operations(function, shape):
    x, y = (mx.random.normal(shape, key=mx.random.key(seed)) for seed in range(2))
    recording = Recording(lambda *arrays: function(*arrays), [x, y])
    odd = mx.array([mx.nan, mx.inf, -mx.inf, 0.0, -0.0, 1e-42, 3e38])
    strange = odd[mx.arange(x.size) % odd.size].reshape(shape)
    turned = mx.swapaxes(mx.random.normal(mx.swapaxes(x, -1, -2).shape), -1, -2)
    for given in ([x, y], [strange, y], [x, strange], [turned, y], [strange, strange]):
        for found, wanted in zip(recording.replay(given), function(*given), strict=True):
            # The sign of a nan depends on the order in which a processor meets two of them.
            found, wanted = (mx.where(mx.isnan(one), mx.nan, one) for one in (found, wanted))
            assert bits(found) == bits(wanted)


VECTORS = {
    "exp": mx.exp,
    "sigmoid": mx.sigmoid,
    "erf": mx.erf,
    "sin": mx.sin,
    "cos": mx.cos,
    "sqrt": mx.sqrt,
    "rsqrt": mx.rsqrt,
    "floor": mx.floor,
}
EDGES = [0.0, 88.0, 127.5, 128.0, 8_388_608.0, 16_777_216.0, 2.0**31, 2.0**32, 3e38, 1e-42]


@pytest.mark.parametrize("name", VECTORS)
def test_numbers_of_all_kinds_have_the_bits_of_mlx(instruction_set, name):
    """Numbers near the edges of formulas, and of random bits; with large ones and without."""
    function = VECTORS[name]
    sides = np.array(EDGES, np.float32).view(np.int32)[:, None] + np.arange(-40, 40)
    random = np.random.default_rng(7).integers(0, 1 << 32, 1 << 16, dtype=np.uint32)
    numbers = np.concatenate([np.abs(sides).ravel().view(np.uint32), random.ravel()])
    numbers = np.concatenate([numbers, numbers ^ np.uint32(1 << 31)]).view(np.float32)
    small = numbers[np.abs(numbers) < 8_388_608]
    for given in (numbers, small, np.float32([np.nan, np.inf, -np.inf, -0.0])):
        x = mx.array(given)
        recording = Recording(lambda x: [mx.abs(function(x)), function(x) - 0.0], [x])
        assert recording.steps() == 1
        wanted = [mx.abs(function(x)), function(x) - 0.0]
        found = [recording.replay([x]), recording.compute([x])]
        for pair in found:
            for one, other in zip(pair, wanted, strict=True):
                one, other = (mx.where(mx.isnan(each), mx.nan, each) for each in (one, other))
                assert bits(one) == bits(other)


def test_a_chain_is_one_operation():
    x = mx.random.normal((3, 5))
    recording = Recording(lambda x: [mx.exp(mx.sin(x) * 2 + x[0]) - x], [x])
    assert recording.steps() == 3  # two for the row


def test_a_chain_of_large_arrays_is_several_operations():
    """A cancelled operation runs to its end, so a long one would keep a processor busy."""

    def sines(x):
        for _ in range(200):
            x = mx.sin(x)
        return [x]

    x = mx.ones(1 << 20)
    recording = Recording(sines, [x])
    assert 200 // 16 <= recording.steps() <= 20
    assert bits(recording.replay([x])[0]) == bits(sines(x)[0])
    assert Recording(sines, [mx.ones(100)]).steps() == 1


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float64, mx.complex64, mx.int32])
def test_chains_of_other_dtypes_stay_those_of_mlx(dtype):
    x = (4 * mx.random.normal((3, 5))).astype(dtype)
    recording = Recording(lambda x: [(x * x + x) - 2, mx.abs(x) + x], [x])
    for found, wanted in zip(recording.replay([x]), [(x * x + x) - 2, mx.abs(x) + x], strict=True):
        assert bits(found) == bits(wanted)


def test_chains_without_elements_have_none():
    x = mx.zeros((0, 3))
    recording = Recording(lambda x: [mx.exp(x * 2) + 1], [x])
    assert recording.replay([x])[0].shape == (0, 3)


@pytest.mark.parametrize("rows", [1, 8, 64])
def test_a_contiguous_part_of_a_large_array_is_computed_when_the_caller_has_it(rows):
    """Mlx copies the part of a much larger buffer on its stream, which nothing waits for here."""

    def function(x):
        return [mx.contiguous(x[:rows])]

    made = [mx.full((256, 1024), number, mx.float32) for number in range(40)]
    mx.eval(made)
    recording = Recording(function, made[:1])
    assert recording.is_short()
    parts = [recording.compute([one])[0] for one in made]
    numbers = [np.array(memoryview(part)) for part in parts]  # as they are now
    for number, part in enumerate(numbers):
        assert part.shape == (rows, 1024)
        assert (part == number).all()
