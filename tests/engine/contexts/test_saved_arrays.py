"""Contexts saved to memory: the bytes of a file, in an array."""

from __future__ import annotations

from ctypes import byref, c_int64

import mlx.core as mx
import numpy as np
import pytest
from driver import HYBRID, KINDS, KV, greedy, prompt
from support.arrays import Arrays
from support.library import StatusError
from support.outputs import poisoned
from support.signatures import EFORMAT, EHANDLE, EINVAL, EUNSUPPORTED

from cowmlx.cache import disk
from cowmlx.cache.disk_reader import Reader
from cowmlx.errors import Unsupported
from cowmlx.steps import finished

START = prompt(300)


@pytest.fixture
def arrays(lib):
    return Arrays(lib)


def saved(lib, context):
    """The array that a context is saved to."""
    out = poisoned(c_int64)
    lib.check(lib.c.cow_mlx_context_save_array(context, byref(out)), out)
    return out.value


def of_bytes(arrays, data):
    """An array of a host's bytes."""
    return arrays.create(np.frombuffer(data, np.uint8))


def loaded(lib, context, array):
    lib.check(lib.c.cow_mlx_context_load_array(context, array))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loaded_context_goes_on_as_the_saved_one(lib, tiny, open_context, arrays, kind):
    context, other = open_context(tiny(kind)), open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    array = saved(lib, context)
    expected = greedy(lib, context, [*START, 11])
    loaded(lib, other, array)
    assert lib.tokens(other) == START
    assert greedy(lib, other, [*START, 11]) == expected
    assert lib.info(other)["reused"] == len(START)


@pytest.mark.parametrize("kind", [KV, HYBRID])
def test_the_bytes_are_those_of_a_file(lib, tiny, open_context, arrays, tmp_path, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    lib.save(context, tmp_path / "file")
    data = (tmp_path / "file").read_bytes()
    assert arrays.read(saved(lib, context)).tobytes() == data
    lib.reset(context)
    loaded(lib, context, of_bytes(arrays, data))
    assert lib.tokens(context) == START


@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "another model"])
def test_damaged_bytes_change_nothing(lib, tiny, open_context, arrays, damage):
    context = open_context(tiny(KV))
    lib.begin(context, START, max_tokens=0)
    data = bytearray(arrays.read(saved(lib, context)).tobytes())
    lib.begin(context, START[:9], max_tokens=0)
    if damage == "flip":
        data[-50] ^= 1
    elif damage == "cut":
        del data[-50:]
    elif damage == "empty":
        data.clear()
    else:
        context = open_context(tiny("llama-other"))
    held = lib.tokens(context)
    with pytest.raises(StatusError) as failed:
        loaded(lib, context, of_bytes(arrays, bytes(data)))
    assert failed.value.status == EFORMAT
    assert lib.tokens(context) == held


def test_another_array_is_refused(lib, tiny, open_context, arrays):
    context = open_context(tiny(KV))
    with pytest.raises(StatusError, match="uint8 of one axis") as failed:
        loaded(lib, context, arrays.create(np.ones(2, np.float32)))
    assert failed.value.status == EINVAL
    with pytest.raises(StatusError) as failed:
        loaded(lib, context, 12345678)
    assert failed.value.status == EHANDLE


def test_a_context_too_large_for_an_array_is_refused(
    lib, tiny, open_context, tmp_path, monkeypatch
):
    context = open_context(tiny(KV))
    lib.begin(context, START, max_tokens=0)
    monkeypatch.setattr(disk, "MOST_IN_MEMORY", 1000)
    with pytest.raises(StatusError, match=r"an array at most 1000: .* context_save") as failed:
        saved(lib, context)
    assert failed.value.status == EUNSUPPORTED
    lib.save(context, tmp_path / "file")
    assert lib.tokens(context) == START


def test_an_array_has_no_room_for_2_gib():
    with pytest.raises(Unsupported):  # before its bytes are computed
        finished(disk.to_memory({}, {"keys": mx.zeros((1 << 16, 1 << 15), mx.uint8)}))


@pytest.mark.long
def test_a_file_may_hold_an_array_of_2_gib(tmp_path):
    path = str(tmp_path / "context")
    keys = mx.zeros((1 << 20, 1 << 10), mx.uint16)
    finished(disk.write(path, {}, {"keys": keys}))
    reader = Reader(path)
    assert mx.array_equal(finished(reader.read())["keys"], keys)
    reader.close()
