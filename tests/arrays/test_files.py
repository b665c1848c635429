"""Arrays in safetensors files: what is saved is loaded, whole or not at all."""

from __future__ import annotations

import json
import os

import mlx.core as mx
import numpy as np
import pytest
from support.arrays import NUMPY
from support.library import StatusError
from support.signatures import DTYPES, EFORMAT, EHANDLE, EINVAL, EIO, ENOENT, EUNSUPPORTED


def written(path, header, data=b""):
    """A file with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.fixture
def saved(arrays, tmp_path):
    """A file with an array of every dtype, and those arrays."""
    held = {}
    for index, dtype in enumerate(DTYPES):
        array = (np.arange(6) % 2 + index).astype(NUMPY[dtype]).reshape(2, 3)
        held[dtype] = array
    held["nothing"], held["scalar"] = np.zeros((0, 4), np.float32), np.array(7, np.int32)
    handles = {
        name: arrays.create(array, name if name in DTYPES else None) for name, array in held.items()
    }
    path = tmp_path / "all.safetensors"
    arrays.save(path, list(handles.items()))
    for handle in handles.values():
        arrays.free(handle)
    return path, held


def test_every_dtype_comes_back(arrays, saved):
    path, held = saved
    handles = arrays.load(path, *held)
    for handle, (name, array) in zip(handles, held.items(), strict=True):
        assert arrays.type(handle) == (name if name in DTYPES else array.dtype.name, array.shape)
        assert arrays.read(handle).tobytes() == array.tobytes()
        arrays.free(handle)
    assert os.listdir(path.parent) == [path.name]


def test_info_tells_what_is_there(arrays, saved):
    path, held = saved
    found = arrays.info(path)
    assert found["metadata"] == {}
    assert found["tensors"] == {
        name: {
            "dtype": name if name in DTYPES else array.dtype.name,
            "shape": list(array.shape),
            "bytes": array.nbytes,
        }
        for name, array in held.items()
    }


def test_other_readers_understand_the_file(arrays, tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    handle = arrays.create(array)
    arrays.save(tmp_path / "a.safetensors", [("ä", handle), ("b", handle)])
    arrays.free(handle)
    loaded = mx.load(str(tmp_path / "a.safetensors"))
    assert sorted(loaded) == ["b", "ä"]
    assert np.array(loaded["ä"]).tolist() == array.tolist()


def test_large_arrays_come_in_pieces(arrays, tmp_path):
    array = np.arange(3_000_000, dtype=np.int32).reshape(3, -1)
    handle = arrays.create(array)
    arrays.save(tmp_path / "large", [("a", handle), ("b", handle)])
    arrays.free(handle)
    for loaded in arrays.load(tmp_path / "large", "b", "a"):
        assert (arrays.view(loaded) == array).all()
        arrays.free(loaded)


def test_some_of_a_file_and_none_of_it(arrays, saved):
    path, _ = saved
    (handle,) = arrays.load(path, "scalar")
    assert arrays.read(handle) == 7
    arrays.free(handle)
    assert arrays.load(path) == []


def test_every_byte_of_a_truth_value_counts(arrays, tmp_path):
    entry = {"dtype": "BOOL", "shape": [4], "data_offsets": [0, 4]}
    path = written(tmp_path / "truth", {"a": entry}, bytes([0, 1, 2, 255]))
    (handle,) = arrays.load(path, "a")
    assert arrays.view(handle).view(np.uint8).tolist() == [0, 1, 1, 1]
    arrays.free(handle)


F32 = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
DAMAGED = {
    "empty": b"",
    "short": b"\x08",
    "long_header": (2**62).to_bytes(8, "little") + b"{}",
}
HEADERS = {
    "no_json": b"{",
    "a_list": [],
    "no_entry": {"a": 3},
    "lies_about_its_size": {"a": {**F32, "shape": [3]}},
    "beyond_the_file": {"a": {**F32, "shape": [4], "data_offsets": [0, 16]}},
    "below_0": {"a": {**F32, "data_offsets": [-8, 0]}},
    "size_overflows": {"a": {**F32, "shape": [2**62, 2**62, 0, 1]}},
    "overlap": {"a": F32, "b": {**F32, "data_offsets": [4, 12]}},
    "unknown_dtype": {"a": {**F32, "dtype": "Q9"}},
    "no_shape": {"a": {"dtype": "F32", "data_offsets": [0, 8]}},
}


@pytest.mark.parametrize("name", [*DAMAGED, *HEADERS])
def test_a_damaged_file_is_refused(arrays, tmp_path, name):
    path = tmp_path / "damaged"
    if name in DAMAGED:
        path.write_bytes(DAMAGED[name])
    else:
        written(path, HEADERS[name], bytes(12))
    for call in (lambda: arrays.load(path, "a"), lambda: arrays.info(path)):
        with pytest.raises(StatusError) as error:
            call()
        assert error.value.status == EFORMAT
        assert str(path) in str(error.value)
        assert error.value.details["file"] == str(path)


UNSUPPORTED = {
    "rank_9": {"dtype": "F32", "shape": [1] * 9, "data_offsets": [0, 4]},
    "side": {"dtype": "F32", "shape": [0, 2**31], "data_offsets": [0, 0]},
    "dtype": {"dtype": "F8_E4M3", "shape": [2], "data_offsets": [0, 2]},
    "empty_and_huge": {"dtype": "F32", "shape": [0, *[2**31 - 1] * 3], "data_offsets": [0, 0]},
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_no_array_can_be_is_told_and_refused(arrays, tmp_path, name):
    path = written(tmp_path / "file", {"b": UNSUPPORTED[name]}, bytes(16))
    assert "b" in arrays.info(path)["tensors"]
    with pytest.raises(StatusError) as error:
        arrays.load(path, "b")
    assert error.value.status == EUNSUPPORTED
    assert error.value.details["argument"] == "b"


def test_a_name_that_is_not_there_loads_nothing(arrays, saved):
    path, _ = saved
    with pytest.raises(StatusError) as error:
        arrays.load(path, "int8", "int9", "uint8")
    assert (error.value.status, error.value.reason) == (EINVAL, "missing")
    assert error.value.details == {"argument": "names[1]"}


def test_a_save_that_fails_leaves_the_old_file(arrays, tmp_path):
    handle = arrays.create(np.arange(4))
    path = tmp_path / "kept"
    arrays.save(path, [("a", handle)])
    before = path.read_bytes()
    for pairs, status in (
        ([("a", handle), ("a", handle)], EINVAL),
        ([("__metadata__", handle)], EINVAL),
        ([("a", handle), ("b", handle + 1)], EHANDLE),
    ):
        with pytest.raises(StatusError) as error:
            arrays.save(path, pairs)
        assert error.value.status == status
        assert path.read_bytes() == before
    for place, status in ((tmp_path / "none" / "file", ENOENT), (tmp_path, EIO)):
        with pytest.raises(StatusError) as error:
            arrays.save(place, [("a", handle)])
        assert error.value.status == status
    with pytest.raises(StatusError) as error:
        arrays.load(tmp_path / "none", "a")
    assert error.value.status == ENOENT
    assert os.listdir(tmp_path) == ["kept"]
    arrays.free(handle)
