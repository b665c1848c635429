"""Functions of float32 that fused operations compute in vectors, against float64."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cowmlx.accelerate import kernels

pytestmark = pytest.mark.skipif(
    not kernels.available(), reason="the kernels were not built: a C++ compiler is missing"
)
FUNCTIONS = ("expm1", "log", "log1p", "tanh", "sinh", "cosh")
MOST_UNITS = 3


def computed(function, *arrays: np.ndarray) -> np.ndarray:
    """Results of a fused operation, which adds 0 and nothing else."""
    given = [mx.array(array) for array in arrays]
    recording = kernels.module().Recording(
        lambda *arrays: [mx.maximum(function(*arrays), -mx.inf)], given
    )
    assert recording.steps() <= 2, "the function is not fused"
    (found,) = recording.replay(given)
    return np.array(found)


@np.errstate(all="ignore")
def require_close(found: np.ndarray, exact: np.ndarray) -> None:
    """Check float32 results in units in the last place of the exact ones."""
    wanted = exact.astype(np.float32)
    is_finite = np.isfinite(wanted)
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_array_equal(found[~is_finite], wanted[~is_finite])
    unit = np.spacing(np.abs(wanted[is_finite])).astype(np.float64)
    off = np.abs(found[is_finite].astype(np.float64) - exact[is_finite]) / unit
    assert off.max(initial=0) <= MOST_UNITS
    zeros = wanted == 0
    assert np.array_equal(np.signbit(found[zeros]), np.signbit(wanted[zeros]))


def all_sizes() -> np.ndarray:
    """Numbers of every exponent and both signs, and those at which functions change."""
    bits = np.arange(0, 1 << 32, 65_521, np.uint64).astype(np.uint32)
    ends = [0.0, 1.0, 0.625, 88.7, 89.4, 103.9, 1e-7, 1e-45, 1.1754944e-38, np.inf, np.nan]
    near = [np.nextafter(np.float32(end), np.float32(to)) for end in ends for to in (-9, 9)]
    edges = np.array([*ends, *near], np.float32)
    close = np.linspace(-3, 3, 100_001, dtype=np.float32)
    return np.concatenate([bits.view(np.float32), edges, -edges, close, 30 * close])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_is_close_to_the_exact_one(name):
    x = all_sizes()
    x = x[(np.abs(x) >= np.finfo(np.float32).tiny) | (x == 0) | np.isnan(x)]
    with np.errstate(all="ignore"):
        exact = getattr(np, name)(x.astype(np.float64))
    require_close(computed(getattr(mx, name), x), exact)


def test_subnormal_numbers_are_their_own_or_have_a_logarithm():
    x = np.arange(1, 1 << 23, 4_093, np.uint32).view(np.float32)
    for name in ("expm1", "log1p", "tanh", "sinh"):
        assert np.array_equal(computed(getattr(mx, name), x), x)
    require_close(computed(mx.log, x), np.log(x.astype(np.float64)))


@np.errstate(all="ignore")
@settings(deadline=None, max_examples=200)
@given(
    st.lists(st.tuples(*[st.floats(width=32, allow_subnormal=False) for _ in range(2)]), min_size=1)
)
def test_logaddexp_is_close_to_the_exact_one(pairs):
    a, b = np.array(pairs, np.float32).T
    exact = np.logaddexp(a.astype(np.float64), b.astype(np.float64))
    found = computed(mx.logaddexp, a, b)
    largest = np.maximum(np.abs(a), np.abs(b))
    is_lost = np.abs(exact) < 1e-3 * largest  # the sum has fewer digits than its parts
    require_close(found[~is_lost], exact[~is_lost])
    np.testing.assert_array_less(np.abs(found - exact)[is_lost], 1e-6 * (1 + largest[is_lost]))


@pytest.mark.parametrize("shape", [(7,), (2, 3), (4, 5, 6)])
def test_numbers_repeat_along_axes_beside_each_other(shape):
    """Along the first axes, the last ones, those between, and all."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for begin in range(len(shape) + 1):
        for end in range(begin, len(shape) + 1):
            sides = [1 if begin <= axis < end else side for axis, side in enumerate(shape)]
            y = np.random.default_rng(1).standard_normal(sides).astype(np.float32)
            given = [mx.array(x), mx.array(y)]
            recording = kernels.module().Recording(lambda x, y: [(x + y) * y], given)
            (found,) = recording.replay(given)
            np.testing.assert_array_equal(np.array(found), (x + y) * y)


@pytest.mark.parametrize("side", [1, 5, 16, 256, 1000])
def test_long_arrays_repeat_numbers(side):
    """Of more than a block of numbers, by several threads."""
    x = mx.random.normal((3000, side))
    of_rows, of_columns = mx.random.normal((3000, 1)), mx.random.normal((side,))
    recording = kernels.module().Recording(
        lambda x, a, b: [(x - a) * b, x * a + b], [x, of_rows, of_columns]
    )
    for _ in range(2):
        one, other = recording.replay([x, of_rows, of_columns])
        assert mx.array_equal(one, (x - of_rows) * of_columns)
        assert mx.array_equal(other, x * of_rows + of_columns)


def test_equal_steps_are_computed_once():
    def function(x, y):
        first = (x - x.mean()) * 2 + mx.sort(y)
        again = (x - x.mean()) * 2 - mx.sort(y)
        return [first, again, mx.sort(-y), (x - x.mean()) * 3]

    given = [mx.random.normal((4, 5)), mx.random.normal((4, 5))]
    recording = kernels.module().Recording(function, given)
    assert recording.steps() < 10
    for found, wanted in zip(recording.replay(given), function(*given), strict=True):
        assert mx.allclose(found, wanted)


def test_arrays_full_of_a_number_are_filled_once():
    def function(x):
        full = mx.full((2, 3), 2.5)
        return [x + full, full, x * mx.zeros((3,)), mx.ones((1 << 16,))]

    given = [mx.random.normal((2, 3))]
    recording = kernels.module().Recording(function, given)
    assert recording.steps() <= 5  # a sum, a product, and the long array with what it is made of
    for _ in range(2):
        for found, wanted in zip(recording.replay(given), function(*given), strict=True):
            assert mx.array_equal(found, wanted)


@pytest.mark.parametrize("view", [lambda x: x.T, lambda x: x[:, ::2], lambda x: x.T[None]])
def test_a_large_view_is_not_copied_for_one_step(view):
    """A step that no other follows stays mlx's where elements lie apart."""
    x = mx.random.normal((1024, 1024))
    recording = kernels.module().Recording(lambda x: [mx.abs(view(x)), mx.sort(x)], [x])
    mx.eval(x)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    found, _ = recording.replay([x])
    mx.eval(found)
    assert mx.get_peak_memory() - before < 1.5 * x.nbytes
    assert mx.array_equal(found, mx.abs(view(x)))


def test_logaddexp_vanishes_beside_a_zero():
    b = np.array([-1, -17, -86, -88, -95, -103, -104, -174, -1000, -3e38], np.float32)
    found = computed(mx.logaddexp, np.zeros_like(b), b)
    exact = np.log1p(np.exp(b.astype(np.float64)))
    np.testing.assert_allclose(found, exact, rtol=1e-6, atol=3e-45)
