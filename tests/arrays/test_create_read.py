"""Arrays from host memory and back: every dtype, every layout, every kind of bad tensor."""

from __future__ import annotations

import random
from ctypes import c_int64

import numpy as np
import pytest
from support.arrays import NUMPY
from support.library import StatusError
from support.signatures import DTYPES, EINVAL


def sample(dtype: str, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    """Random bytes as elements; truth values of 0 and 1."""
    kind = NUMPY[dtype]
    count = int(np.prod(shape))
    raw = np.random.default_rng(seed).integers(0, 256, count * kind.itemsize, np.uint8)
    return (raw & 1 if dtype == "bool" else raw).view(kind).reshape(shape)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    """Whether every bit is the same."""
    return found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3), (0,), (3, 0, 2), (2,) * 8])
def test_every_dtype_and_shape_comes_back(arrays, dtype, shape):
    array = sample(dtype, shape)
    handle = arrays.create(array, dtype)
    assert arrays.type(handle) == (dtype, shape)
    assert same(arrays.read(handle), array)
    assert same(arrays.view(handle), array)
    arrays.wait(handle, 0)
    arrays.free(handle)


def random_view(array: np.ndarray, source: random.Random) -> np.ndarray:
    """Some slice, with steps of both signs, in some order of the dimensions."""
    cuts = []
    for side in array.shape:
        step = source.choice([-3, -2, -1, 1, 2, 3])
        begin, end = sorted(source.randint(0, side) for _ in range(2))
        cut = slice(begin, end, step)
        if step < 0:
            cut = slice(end - 1 if end else None, begin - 1 if begin else None, step)
        cuts.append(cut)
    axes = list(range(array.ndim))
    source.shuffle(axes)
    return array[tuple(cuts)].transpose(axes)


@pytest.mark.parametrize("seed", range(60))
def test_random_views_in_both_directions(arrays, seed):
    source = random.Random(seed)
    dtype = source.choice(list(DTYPES))
    shape = tuple(source.randint(1, 9) for _ in range(source.randint(1, 5)))
    view = random_view(sample(dtype, shape, seed), source)
    handle = arrays.create(view, dtype)
    assert same(arrays.read(handle), np.ascontiguousarray(view))
    around = sample(dtype, tuple(side * 2 + 3 for side in view.shape), seed + 1)
    expected = around.copy()
    cuts = tuple(slice(2, 2 + 2 * side, 2) for side in view.shape)
    expected[cuts][...] = view
    arrays.read_into(handle, around[cuts], dtype)
    assert same(around, expected)
    arrays.free(handle)


@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (0, 0), (1, 1), (-1, 1)])
def test_a_source_may_repeat_its_elements(arrays, strides):
    row = np.arange(10, dtype=np.int16)
    first = row[4:]
    view = np.lib.stride_tricks.as_strided(first, (3, 3), [step * 2 for step in strides])
    handle = arrays.create(
        first, shape=(c_int64 * 2)(3, 3), strides=(c_int64 * 2)(*strides), rank=2
    )
    assert same(arrays.read(handle), np.ascontiguousarray(view))
    arrays.free(handle)


def test_elements_need_no_alignment(arrays):
    raw = np.zeros(41, np.uint8)
    raw[1:].view(np.uint8)[:] = np.arange(40)
    expected = raw[1:].copy().view(np.float64)
    shape = (c_int64 * 1)(5)
    handle = arrays.create(raw, "float64", offset=1, rank=1, shape=shape, strides=None)
    assert same(arrays.read(handle), expected)
    arrays.free(handle)


def test_every_byte_but_0_is_true(arrays):
    raw = np.array([0, 1, 2, 128, 255], np.uint8)
    handle = arrays.create(raw, "bool")
    assert arrays.view(handle).view(np.uint8).tolist() == [0, 1, 1, 1, 1]
    arrays.free(handle)


BASE = np.arange(24, dtype=np.float32).reshape(4, 6)


def sides(*values: int):
    return (c_int64 * len(values))(*values)


BAD = {
    "size_0": ({"struct_size": 0}, "out_of_range", "struct_size"),
    "dtype_0": ({"dtype": 0}, "out_of_range", "dtype"),
    "dtype_15": ({"dtype": 15}, "out_of_range", "dtype"),
    "rank_9": ({"rank": 9, "shape": sides(*[1] * 9), "strides": None}, "out_of_range", "rank"),
    "rank_below_0": ({"rank": -1}, "out_of_range", "rank"),
    "no_shape": ({"shape": None}, "null_argument", "shape"),
    "no_data": ({"data": None}, "null_argument", "data"),
    "side_below_0": ({"shape": sides(4, -1)}, "out_of_range", "shape[1]"),
    "side_beyond_int32": ({"shape": sides(2**31, 1)}, "out_of_range", "shape[0]"),
    "size_overflows": ({"rank": 4, "shape": sides(*[2**31 - 1] * 4)}, "out_of_range", "shape"),
    "empty_and_overflows": (
        {"rank": 5, "shape": sides(0, *[2**31 - 1] * 4)},
        "out_of_range",
        "shape",
    ),
    "one_row_too_many": ({"shape": sides(5, 6)}, "out_of_bounds", ""),
    "one_byte_too_few": ({"bytes": 95}, "out_of_bounds", ""),
    "offset_beyond": ({"offset": 1}, "out_of_bounds", ""),
    "offset_far_beyond": ({"offset": 2**64 - 1}, "out_of_bounds", ""),
    "before_the_buffer": ({"strides": sides(-6, 1)}, "out_of_bounds", ""),
    "stride_overflows": ({"strides": sides(2**62, 1)}, "out_of_bounds", ""),
    "least_stride": ({"strides": sides(-(2**63), 1)}, "out_of_bounds", ""),
    "sum_overflows": ({"strides": sides(2**61 // 3, 2**61 // 5)}, "out_of_bounds", ""),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_tensor_is_refused_and_named(arrays, name):
    members, reason, argument = BAD[name]
    handle = arrays.create(BASE)
    to = np.zeros_like(BASE)
    for parameter, call in (
        ("from", lambda: arrays.create(BASE, **members)),
        ("to", lambda: arrays.read_into(handle, to, **members)),
    ):
        with pytest.raises(StatusError) as error:
            call()
        assert error.value.status == EINVAL
        assert error.value.reason == reason
        named = f"{parameter}.{argument}" if argument else parameter
        assert error.value.details["argument"] == named
    arrays.free(handle)


def test_bytes_out_of_bounds_are_told(arrays):
    with pytest.raises(StatusError) as error:
        arrays.create(BASE, strides=sides(-6, 1), offset=8)
    details = error.value.details
    assert details == {"argument": "from", "first": -64, "last": 31, "limit": 96}


def test_a_view_without_elements_needs_no_memory(arrays):
    handle = arrays.create(BASE, data=None, bytes=0, shape=sides(4, 0), strides=sides(2**62, 1))
    assert arrays.type(handle) == ("float32", (4, 0))
    arrays.free(handle)


def refused(arrays, handle, to, reason, **members):
    with pytest.raises(StatusError) as error:
        arrays.read_into(handle, to, **members)
    assert (error.value.status, error.value.reason) == (EINVAL, reason)
    return error.value.details


def test_a_destination_of_another_type_is_refused(arrays):
    handle = arrays.create(BASE)
    found = refused(arrays, handle, BASE.astype(np.int32), "dtype_mismatch")
    assert found == {"argument": "to", "value": "int32", "accepted": "float32"}
    found = refused(arrays, handle, np.zeros((6, 4), np.float32), "shape_mismatch")
    assert found == {"argument": "to", "value": "[6, 4]", "accepted": "[4, 6]"}
    refused(arrays, handle, np.zeros((24,), np.float32), "shape_mismatch")
    arrays.free(handle)


@pytest.mark.parametrize("strides", [(0, 1), (1, 0), (5, 1), (-5, 1), (1, 3), (3, 2)])
def test_a_destination_whose_elements_share_memory_is_refused(arrays, strides):
    handle = arrays.create(BASE)
    to = np.zeros(64, np.float32)
    members = {"rank": 2, "shape": sides(4, 6), "strides": sides(*strides), "offset": 100}
    assert refused(arrays, handle, to, "overlapping", **members) == {"argument": "to"}
    arrays.free(handle)


@pytest.mark.parametrize("stride", [0, 5, -1, 2**62, 2**63 - 1, -(2**63)])
def test_a_dimension_of_one_may_have_any_stride(arrays, stride):
    """In sources and in destinations: no step is taken along it."""
    for shape, strides in (((1, 6), (stride, 1)), ((6, 1), (1, stride)), ((1, 1), (stride,) * 2)):
        view = {"rank": 2, "shape": sides(*shape), "strides": sides(*strides)}
        count = shape[0] * shape[1]
        handle = arrays.create(BASE[0], **view)
        assert same(arrays.read(handle), BASE[0, :count].reshape(shape))
        to = np.zeros(6, np.float32)
        arrays.read_into(handle, to, **view)
        assert same(to[:count], BASE[0, :count]) and not to[count:].any()
        arrays.free(handle)
