"""Statistics and sums of channels against float64, on every instruction set at hand."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import exact, random, viewed, views
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
CHANNELS = st.sampled_from([1, 3, 10, 16, 17, 32, 63, 64, 65, 100, 333])
ROWS = st.sampled_from([(), (1,), (7,), (3, 5), (64, 3), (7, 11, 13), (2000,), (5003,)])
SHAPES = st.tuples(ROWS, CHANNELS).map(lambda parts: (*parts[0], parts[1]))

settled = settings(max_examples=50, deadline=None)


def rows_of(array: mx.array) -> np.ndarray:
    return exact(array).reshape(-1, array.shape[-1])


@settled
@given(SHAPES, views, st.sampled_from([0.0, 1.0, 300.0]))
def test_moments(shape, view, mean):
    x = viewed(random(shape, "float32", scale=3), view) + mean
    found = np.array(MODULE.channel_moments(x))
    rows = rows_of(x)
    assert np.allclose(found[0], rows.mean(0), rtol=1e-6, atol=1e-6)
    assert np.allclose(found[1], rows.var(0), rtol=2e-6, atol=1e-9)


@settled
@given(SHAPES, views)
def test_sums(shape, view):
    a = viewed(random(shape, "float32", 0), view)
    b = viewed(random(shape, "float32", 1), view) + 5
    centre = random(shape[-1:], "float32", 2)
    found = np.array(MODULE.channel_sums(a, b, centre))
    products = rows_of(a) * (rows_of(b) - exact(centre))
    error = 1e-6 * np.abs(products).sum(0) + 1e-6
    assert np.all(np.abs(found[0] - rows_of(a).sum(0)) <= 1e-6 * np.abs(rows_of(a)).sum(0) + 1e-6)
    assert np.all(np.abs(found[1] - products.sum(0)) <= error)


@pytest.mark.parametrize("shape", [(1, 40_000), (3, 30_000), (16, 100_000)])
def test_more_channels_than_rows(shape):
    x, centre = random(shape, "float32"), random(shape[1:], "float32", 1)
    moments = np.array(MODULE.channel_moments(x))
    assert np.allclose(moments[0], rows_of(x).mean(0), rtol=1e-5, atol=1e-6)
    assert np.allclose(moments[1], rows_of(x).var(0), rtol=1e-5, atol=1e-6)
    sums = np.array(MODULE.channel_sums(x, x, centre))  # of one array
    assert np.allclose(sums[0], rows_of(x).sum(0), rtol=1e-5, atol=1e-5)
    products = rows_of(x) * (rows_of(x) - exact(centre))
    assert np.allclose(sums[1], products.sum(0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(70_001, 3), (40_000, 16), (300, 1000), (3, 30_000)])
def test_bits_do_not_depend_on_threads(shape):
    x, y = random(shape, "float32", 3), random(shape, "float32", 4)
    found = {}
    for count in (1, 2, 7):
        MODULE.set_threads(count)
        moments = MODULE.channel_moments(x)
        sums = MODULE.channel_sums(x, y, moments[0])
        found[count] = np.array(moments).tobytes() + np.array(sums).tobytes()
    MODULE.set_threads(0)
    assert np.isfinite(np.array(moments)).all()
    assert found[1] == found[2] == found[7]


def test_a_number_that_is_not_finite_stays_in_its_channel():
    x = np.ones((1000, 20), np.float32)
    x[500, 3], x[900, 7] = np.nan, np.inf
    found = np.array(MODULE.channel_moments(mx.array(x)))
    assert not np.isfinite(found[:, [3, 7]]).any()
    rest = np.delete(found, [3, 7], axis=1)
    assert (rest[0] == 1).all() and (rest[1] == 0).all()


def test_no_rows():
    assert np.isnan(np.array(MODULE.channel_moments(mx.zeros((0, 5))))).all()
    sums = MODULE.channel_sums(mx.zeros((0, 5)), mx.zeros((0, 5)), mx.zeros(5))
    assert not np.array(sums).any() and sums.shape == (2, 5)
    assert MODULE.channel_moments(mx.zeros((4, 0))).shape == (2, 0)


@pytest.mark.parametrize(
    "arguments",
    [
        (mx.zeros((2, 3)), mx.zeros((3, 3)), mx.zeros(3)),
        (mx.zeros((2, 3)), mx.zeros((2, 3)), mx.zeros(2)),
        (mx.zeros((2, 3), mx.float16), mx.zeros((2, 3)), mx.zeros(3)),
    ],
)
def test_what_does_not_fit_is_refused(arguments):
    with pytest.raises(ValueError, match="float32"):
        MODULE.channel_sums(*arguments)
