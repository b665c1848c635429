"""Sums, means and variances of many numbers are as accurate as those of few."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.programs import derive, graph, node, parse, value

from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of

ACCURACY = {"float32": 5e-5, "complex64": 5e-5, "bfloat16": 4e-3, "float16": 1e-3}


def computed(name, array, **attributes):
    row = find(name)
    return row.compute([array], attributes_of(row, attributes))[0]


@pytest.mark.parametrize("dtype", ACCURACY)
@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((1 << 20,), None),
        ((100_003,), 0),
        ((70_001, 3), 0),
        ((3, 70_001), -1),
        ((3, 70_001), None),
        ((600, 700), None),
        ((64, 784), None),
        ((7, 9, 2, 4000), [1, -1]),
        ((2, 300, 5, 400), [1, 3]),
    ],
)
def test_a_mean_of_equal_numbers_is_the_number(dtype, shape, axis):
    number = mx.array(0.1).astype(getattr(mx, dtype))
    found = computed("mean", mx.broadcast_to(number, shape), axis=axis, keepdims=True)
    assert found.dtype == number.dtype
    assert found.shape == tuple(
        1 if axis is None or at in np.atleast_1d(axis) % len(shape) else side
        for at, side in enumerate(shape)
    )
    wanted = complex(number.astype(mx.complex64).item())
    error = np.abs(np.array(found.astype(mx.complex64)) - wanted)
    assert error.max() <= ACCURACY[dtype] * abs(wanted)


@pytest.mark.parametrize("name", ["sum", "mean", "var", "std", "norm"])
def test_long_reductions_are_those_of_float64(name):
    numbers = np.random.default_rng(1).normal(3, 1, (4, 60_007)).astype(np.float32)
    for axis in (0, 1, None):
        found = computed(name, mx.array(numbers), axis=axis)
        wanted = computed(name, mx.array(numbers.astype(np.float64), mx.float64), axis=axis)
        np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=2e-6)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["cumsum", "cumprod", "logcumsumexp"])
def test_long_scans_of_16_bits_are_those_of_float32(name, dtype):
    """Rounded after each step, as in mlx, a sum of ones in bfloat16 stays at 256."""
    array = mx.full((3, 4000), 1.01 if name == "cumprod" else 1).astype(getattr(mx, dtype))
    found = computed(name, array, axis=1)
    assert found.dtype == array.dtype
    wanted = computed(name, array.astype(mx.float32), axis=1).astype(array.dtype)
    assert mx.array_equal(found, wanted)
    assert found[0, 300].item() > found[0, 255].item()


def test_a_mean_of_float16_does_not_overflow_on_its_way():
    assert computed("mean", mx.full((8192,), 10, mx.float16)).item() == 10
    assert computed("var", mx.array([-400.0, 400.0], mx.float16)).item() == np.inf
    assert computed("std", mx.array([-400.0, 400.0], mx.float16)).item() == 400


@pytest.mark.parametrize("name", ["sum", "mean", "var"])
def test_slopes_and_rows_of_long_reductions(name):
    """In a program: alone, vectorized over either axis, and differentiated twice."""
    node_of = node("y", name, "x")
    program = parse(graph([value("x", ["n"])], [node_of, node("z", "square", "y")], ["z"]))
    slopes = derive(program, gradient={"of": "z", "with_respect_to": ["x"]})
    rows = derive(slopes, vectorize={"x": 1})
    numbers = mx.random.normal((20_000, 2), key=mx.random.key(3))
    together = rows.run([numbers]).finish()[0]
    plain = {"sum": mx.sum, "mean": mx.mean, "var": mx.var}[name]
    for at in range(2):
        line = numbers[:, at]
        wanted = mx.grad(lambda x: mx.square(plain(x)))(line)
        alone = slopes.run([line]).finish()[0]
        np.testing.assert_allclose(np.array(alone), np.array(wanted), rtol=1e-3, atol=1e-7)
        np.testing.assert_allclose(np.array(together[at]), np.array(alone), rtol=1e-3, atol=1e-9)
    second = mx.grad(lambda x: mx.sum(mx.grad(lambda x: mx.square(computed(name, x)))(x) * x))
    wanted = mx.grad(lambda x: mx.sum(mx.grad(lambda x: mx.square(plain(x)))(x) * x))
    line = numbers[:, 0]
    np.testing.assert_allclose(np.array(second(line)), np.array(wanted(line)), rtol=2e-3, atol=1e-6)
