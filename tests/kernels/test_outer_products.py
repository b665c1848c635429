"""Gradients of weights over many rows, which kernels compute in recordings."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed
from support.programs import bits

MODULE = needed()
pytestmark = pytest.mark.usefixtures("instruction_set")
SIZES = [(1024, 1, 16), (1025, 12, 32), (2048, 64, 64), (1500, 28, 48), (1799, 101, 16)]


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def numbers(*shape):
    return mx.random.normal(shape, key=mx.random.key(sum(shape)))


def exactly(x, y):
    return np.array(x, np.float64).T @ np.array(y, np.float64)


def check(x, y):
    """A product is near the exact one, and is the same with other numbers of threads."""
    mx.eval(x, y)
    recording = MODULE.Recording(lambda x, y: [x.T @ y], [x, y])
    assert recording.is_short()
    (found,) = recording.compute([x, y])
    error = np.abs(np.array(found) - exactly(x, y))
    assert (error <= 1e-6 * exactly(mx.abs(x), mx.abs(y))).all()
    assert bits(recording.replay([x, y])[0]) == bits(found)
    known = MODULE.threads()
    for threads in (1, 3):
        MODULE.set_threads(threads)
        try:
            again = recording.compute([x, y])[0]
        finally:
            MODULE.set_threads(known)
        assert bits(again) == bits(found)


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_they_are_near_exact_products(sizes):
    rows, m, n = sizes
    check(numbers(rows, m), numbers(rows, n))


def test_operands_may_lie_anywhere():
    x, y = numbers(2 * 1100, 30), numbers(24, 1100)
    mx.eval(x, y)
    check(x[::2, 3:20], mx.concatenate([y, y[:8]]).T)
    check(mx.broadcast_to(x[:1], (1100, 30)), numbers(1100, 16))


def test_what_is_not_finite_spreads_as_in_other_products():
    x, y = np.zeros((1100, 14), np.float32), np.ones((1100, 16), np.float32)
    x[1099, 0], x[3, 2], y[500, 5] = np.inf, np.nan, -np.inf
    x[500, 7] = 2
    arrays = [mx.array(x), mx.array(y)]
    mx.eval(arrays)
    recording = MODULE.Recording(lambda x, y: [x.T @ y], arrays)
    found = np.array(recording.compute([*arrays])[0])
    with np.errstate(invalid="ignore"):
        wanted = x.T @ y
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(found[~np.isnan(wanted)], wanted[~np.isnan(wanted)])


def test_few_rows_and_uneven_sides_are_right_too():
    for rows, m, n in ((1023, 8, 16), (1100, 8, 17), (1100, 300, 256)):
        x, y = numbers(rows, m), numbers(rows, n)
        mx.eval(x, y)
        recording = MODULE.Recording(lambda x, y: [x.T @ y], [x, y])
        found = recording.replay([x, y])[0]
        np.testing.assert_allclose(np.array(found), exactly(x, y), rtol=1e-3, atol=1e-3)
