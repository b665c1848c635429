"""Functions of arrays that are recorded once and done again for other arrays."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref

import mlx.core as mx
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
