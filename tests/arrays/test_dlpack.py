"""DLPack both ways: numpy, and a consumer and a producer of our own."""

from __future__ import annotations

import gc
import threading
from ctypes import c_int64

import numpy as np
import pytest
from support import dlpack
from support.arrays import NUMPY
from support.library import StatusError
from support.signatures import DTYPES, EINVAL, EUNSUPPORTED

OTHERS = [name for name in DTYPES if name != "bfloat16"]


@pytest.mark.parametrize("dtype", OTHERS)
@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (0, 2), (1,) * 8])
def test_numpy_takes_a_tensor_and_lets_it_go(arrays, dtype, shape):
    array = np.ones(shape, NUMPY[dtype])
    handle = arrays.create(array, dtype)
    taken = np.from_dlpack(dlpack.Capsule(arrays.to_dlpack(handle)))
    arrays.free(handle)
    assert (taken.dtype, taken.shape) == (array.dtype, shape)
    assert taken.tobytes() == array.tobytes()
    assert not taken.flags.writeable
    del taken
    gc.collect()


def test_a_tensor_says_all_that_is_known(arrays):
    handle = arrays.create(np.arange(6, dtype=np.uint16).reshape(2, 3), "bfloat16")
    address = arrays.to_dlpack(handle)
    made = dlpack.at(address)
    tensor = made.tensor
    assert (made.major, made.minor) == (1, 0)
    assert made.flags & dlpack.READ_ONLY
    assert (tensor.code, tensor.bits, tensor.lanes) == (dlpack.CODES["bfloat"], 16, 1)
    assert (tensor.ndim, tensor.device_type, tensor.byte_offset) == (2, 1, 0)
    assert (tensor.shape[:2], tensor.strides[:2]) == ([2, 3], [3, 1])
    assert tensor.data == arrays.view(handle).ctypes.data  # shared, not copied
    dlpack.delete(address)
    arrays.free(handle)


def test_a_tensor_outlives_its_array(arrays):
    handle = arrays.create(np.arange(100_000))
    addresses = [arrays.to_dlpack(handle) for _ in range(3)]
    arrays.free(handle)
    others = [arrays.create(np.full(100_000, -1)) for _ in range(3)]
    for address in addresses:
        elements = np.from_dlpack(dlpack.Capsule(address))
        assert (elements == np.arange(100_000)).all()
        del elements
    for other in others:
        arrays.free(other)


def test_deleters_run_on_any_thread(arrays):
    handle = arrays.create(np.arange(1000))
    addresses = [arrays.to_dlpack(handle) for _ in range(64)]
    threads = [threading.Thread(target=dlpack.delete, args=(one,)) for one in addresses]
    for thread in threads:
        thread.start()
    arrays.free(handle)
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_is_copied_and_deleted_once(arrays, dtype):
    array = np.arange(2 * 3 * 4).reshape(2, 3, 4).astype(NUMPY[dtype]).transpose(2, 0, 1)[::-1]
    producer = dlpack.Producer(array, "bfloat" if dtype == "bfloat16" else "")
    handle = arrays.from_dlpack(producer.address)
    assert producer.deleted == 1
    assert arrays.type(handle) == (dtype, (4, 2, 3))
    assert arrays.read(handle).tobytes() == np.ascontiguousarray(array).tobytes()
    arrays.free(handle)
    assert producer.deleted == 1


@pytest.mark.parametrize("stride", [0, -1, 2**62, -(2**63)])
def test_a_dimension_of_one_may_have_any_stride(arrays, stride):
    producer = dlpack.Producer(np.arange(3, dtype=np.int32).reshape(3, 1))
    producer.managed.tensor.strides = (c_int64 * 2)(1, stride)
    handle = arrays.from_dlpack(producer.address)
    assert arrays.read(handle).tolist() == [[0], [1], [2]]
    arrays.free(handle)


def test_strides_and_deleter_may_be_missing(arrays):
    producer = dlpack.Producer(np.arange(6).reshape(2, 3))
    producer.managed.tensor.strides = None
    producer.managed.tensor.byte_offset = 8
    producer.managed.tensor.shape[0] = 1
    producer.managed.deleter = dlpack.DELETER()
    handle = arrays.from_dlpack(producer.address)
    assert arrays.read(handle).tolist() == [[1, 2, 3]]
    arrays.free(handle)


BAD = {
    "version": ({"major": 2}, {}, EUNSUPPORTED, "managed.version.major"),
    "device": ({}, {"device_type": 2}, EUNSUPPORTED, "managed.device_type"),
    "lanes": ({}, {"lanes": 4}, EUNSUPPORTED, "managed.dtype"),
    "bits": ({}, {"bits": 4}, EUNSUPPORTED, "managed.dtype"),
    "code": ({}, {"code": 3}, EUNSUPPORTED, "managed.dtype"),
    "rank": ({}, {"ndim": 9}, EINVAL, "managed.rank"),
    "rank_below_0": ({}, {"ndim": -1}, EINVAL, "managed.rank"),
    "no_shape": ({}, {"shape": None}, EINVAL, "managed.shape"),
    "no_data": ({}, {"data": None}, EINVAL, "managed.data"),
    "side": ({}, {"shape": (c_int64 * 2)(2, -3)}, EINVAL, "managed.shape[1]"),
    "offset": ({}, {"byte_offset": 2**64 - 1}, EINVAL, "managed"),
    "strides": ({}, {"strides": (c_int64 * 2)(2**62, 1)}, EINVAL, "managed"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_refused_tensor_is_still_its_owner_s(arrays, name):
    managed, tensor, status, argument = BAD[name]
    producer = dlpack.Producer(np.arange(6).reshape(2, 3))
    for member, value in managed.items():
        setattr(producer.managed, member, value)
    for member, value in tensor.items():
        setattr(producer.managed.tensor, member, value)
    with pytest.raises(StatusError) as error:
        arrays.from_dlpack(producer.address)
    assert (error.value.status, error.value.details["argument"]) == (status, argument)
    assert producer.deleted == 0
