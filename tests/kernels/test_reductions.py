"""Norms of several arrays, integers out of bounds, and recorded sums."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed
from support.programs import bits

MODULE = needed()
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
SHAPES = [[(1,)], [(17,), (0, 3), (5, 7)], [(16385,), (3, 4099), (1024,)], [(40001,)]]


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


@pytest.mark.parametrize("shapes", SHAPES, ids=str)
def test_a_norm_is_that_of_all_numbers(shapes):
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    given = [mx.array(one) for one in arrays]
    given[-1] = given[-1].T
    wanted = np.sqrt(sum((one.astype(np.float64) ** 2).sum() for one in arrays))
    found = MODULE.norm(given)
    assert found.shape == () and abs(found.item() - wanted) <= 1e-6 * wanted
    known = MODULE.threads()
    for threads in (1, 5):
        MODULE.set_threads(threads)
        again = MODULE.norm(given).item()
        MODULE.set_threads(known)
        assert again == found.item()


def test_a_norm_of_nothing_infinite_and_other_numbers():
    assert MODULE.norm([mx.zeros((0, 2))]).item() == 0
    assert MODULE.norm([mx.array([3.0]), mx.array([mx.inf])]).item() == mx.inf
    assert np.isnan(MODULE.norm([mx.array([mx.nan, 1.0])]).item())
    assert MODULE.norm([mx.array([[1.0, 2.0], [3.0, 4.0]])[:, ::2]]).item() == np.sqrt(
        np.float32(10)
    )
    assert MODULE.norm([mx.broadcast_to(mx.array(2.0), (3, 3))]).item() == 6
    with pytest.raises(ValueError, match="must be float32"):
        MODULE.norm([mx.array([1, 2])])


def plainly(values: mx.array, low: int, high: int) -> list[int]:
    numbers = [int(value) for value in np.array(values).ravel()]
    is_signed = str(values.dtype).startswith("mlx.core.int")
    bad = [at for at, one in enumerate(numbers) if one > high or (is_signed and one < low)]
    place = bad[0] if bad else 0
    return [len(bad), place, numbers[place]]


@pytest.mark.parametrize("name", INTEGERS)
@pytest.mark.parametrize(
    ("low", "high"), [(-3, 5), (0, 0), (2, 5), (-100, 100), (0, 2**31 - 1), (-(2**40), 2**40)]
)
def test_integers_out_of_bounds_are_found(name, low, high):
    dtype = getattr(mx, name)
    least, most = np.iinfo(name).min, min(np.iinfo(name).max, 2**63 - 1)
    numbers = [0, 5, 6, 100, 101, 3, least, most, max(least, -4), 1, 2, 4]
    for values in (numbers, numbers[5:], numbers[::-1], [1, 0, 2], [0]):
        given = mx.array(np.array(values, name))
        assert given.dtype == dtype
        for one in (given, given[::-1], mx.stack([given, given])):
            assert MODULE.outside(one, low, high).tolist() == plainly(one, low, high)
    rows = mx.array(np.array([numbers, numbers[::-1]], name))
    mapped = mx.vmap(lambda row: MODULE.outside(row, low, high))(rows)
    assert mapped.tolist() == [plainly(row, low, high) for row in rows]


def test_what_has_no_bounds_is_refused():
    with pytest.raises(ValueError, match="must be integers"):
        MODULE.outside(mx.array([1.0]), 0, 1)
    with pytest.raises(ValueError, match="no values"):
        MODULE.outside(mx.zeros((0,), mx.int32), 0, 1)


SUMS = [
    ((7,), None), ((1, 1), 0), ((5, 6), 1), ((5, 6), (0, 1)), ((9, 700), 0),
    ((3, 129, 4, 5), (1, 2)), ((2, 3, 600), 1), ((3, 40001), -1), ((700, 33), 0),
    ((0, 4), 0), ((4, 0), 0), ((2, 0, 3), 1),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axes"), SUMS, ids=str)
@pytest.mark.parametrize("special", [0.5, -0.0, mx.nan, mx.inf])
def test_a_recorded_sum_has_the_bits_of_mlx(shape, axes, special):
    x = mx.random.normal(shape, key=mx.random.key(1))
    if x.size:
        x = x.flatten().at[x.size // 2].multiply(special).reshape(shape)
    wanted = x.sum(axis=axes)
    mx.eval(x, wanted)
    recording = MODULE.Recording(lambda x: [x.sum(axis=axes)], [x])
    assert recording.is_short()
    known = MODULE.threads()
    for threads in (1, 3):
        MODULE.set_threads(threads)
        (found,) = recording.compute([x])
        MODULE.set_threads(known)
        assert bits(found) == bits(wanted)


@pytest.mark.parametrize(("shape", "axis"), [((0, 4), 0), ((2, 0, 3), 1), ((3, 0), 1)])
def test_a_recorded_sum_of_nothing_is_zero(shape, axis):
    """With these strides, mlx's own sum may never end."""
    empty = mx.array(np.zeros(shape, np.float32)), mx.swapaxes(mx.zeros(shape[::-1]), 0, -1)
    for x in empty:
        mx.eval(x)
        recording = MODULE.Recording(lambda x: [x.sum(axis=axis)], [x])
        for compute in (recording.compute, recording.replay):
            (found,) = compute([x])
            assert not np.array(found).any() and found.ndim == len(shape) - 1


def test_a_recorded_sum_of_an_array_with_gaps():
    x = mx.random.normal((40, 70)).T
    mx.eval(x)
    for axis in (0, 1, None):
        (found,) = MODULE.Recording(lambda x, axis=axis: [x.sum(axis=axis)], [x]).compute([x])
        assert mx.allclose(found, x.sum(axis=axis), atol=1e-4)


def test_other_reductions_stay_those_of_mlx():
    x = mx.ones((2, 3, 4))
    mx.eval(x)
    for function in (
        lambda x: x.sum(axis=(0, 2)), lambda x: x.T.sum(), lambda x: x.max(),
        lambda x: x.astype(mx.int32).sum(), lambda x: x.astype(mx.float16).sum(),
    ):  # fmt: skip
        recording = MODULE.Recording(lambda x, function=function: [function(x)], [x], True)
        assert not recording.is_short()
        (found,) = recording.compute([x])
        assert mx.array_equal(found, function(x)) and found.dtype == function(x).dtype
