"""Weights in PyTorch's files load as safetensors do, and nothing that they hold is run."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import zipfile

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_encoders, torch_files
from support.library import StatusError
from support.signatures import EFORMAT, ENOENT, EUNSUPPORTED
from support.tiny_encoders import TEXTS, written

from cowmlx.errors import CowMlxError
from cowmlx.folders import torch_file

TEXT = [written(text) for text in TEXTS]
FILE = "pytorch_model.bin"


def stored(folder):
    """Take a folder's safetensors away, and return what they held, as ``saved`` takes it."""
    file = folder / "model.safetensors"
    arrays = {}
    for name, array in mx.load(str(file)).items():
        dtype = str(array.dtype).rpartition(".")[2]
        bits = array.view(mx.uint16) if dtype == "bfloat16" else array
        arrays[name] = (np.array(bits), dtype)
    file.unlink()
    return arrays


@pytest.fixture
def bert(tmp_path):
    return tiny_encoders.make(tmp_path / "bert", "bert")


def refused(status, words, call):
    with pytest.raises(StatusError) as error:
        call()
    assert error.value.status == status, error.value
    for word in words.split():
        assert word in str(error.value), (word, str(error.value))


def test_numbers_are_not_read_as_bytes(tmp_path, monkeypatch):
    """An axis of mlx has less than 2 GiB elements, so a large tensor is no axis of bytes."""
    torch_files.saved(tmp_path / FILE, {"weight": (ARRAY, "float32")})
    counts, own = [], mx.array

    def array(values):
        counts.append(len(values))
        return own(values)

    with monkeypatch.context() as patched:
        patched.setattr(mx, "array", array)
        weight = torch_file.load(str(tmp_path / FILE))["weight"]
    assert counts == [ARRAY.size]
    assert weight.dtype == mx.float32 and (np.array(weight) == ARRAY).all()


@pytest.mark.parametrize("old", [False, True], ids=["archive", "old"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_vectors_are_those_of_safetensors(lib, tmp_path, name, dtype, old):
    folder = tiny_encoders.make(tmp_path / name, name, dtype=dtype)
    model = lib.load(folder)
    expected, parameters = lib.embed(model, TEXT), lib.info(model)["parameters"]
    lib.free_model(model)
    arrays = stored(folder)
    if name == "bert":
        arrays["embeddings.position_ids"] = (np.arange(40)[None], "int64")
    torch_files.saved(folder / FILE, arrays, old=old)
    for params in ({}, {"lazy": True}):
        model = lib.load(folder, **params)
        np.testing.assert_array_equal(lib.embed(model, TEXT), expected)
        assert lib.info(model)["parameters"] == parameters
        lib.free_model(model)


def test_a_decoder_in_shards(lib, folder, tiny, tmp_path):
    folder = shutil.copytree(folder("llama"), tmp_path / "llama")
    arrays = list(stored(folder).items())
    names = [f"pytorch_model-0000{index}-of-00002.bin" for index in (1, 2)]
    for name, part in zip(names, (arrays[::2], arrays[1::2]), strict=True):
        torch_files.saved(folder / name, dict(part))
    index = {"weight_map": {own: names[at % 2] for at, (own, _) in enumerate(arrays)}}
    (folder / f"{FILE}.index.json").write_text(json.dumps(index))
    model = lib.load(folder)
    expected = lib.embed(tiny("llama"), ["some words"])
    np.testing.assert_array_equal(lib.embed(model, ["some words"]), expected)
    lib.free_model(model)
    (folder / names[1]).unlink()
    refused(ENOENT, names[1], lambda: lib.load(folder))


def runs(marker):
    """Things that a pickle can do: call, build, import, in every protocol."""

    class Reduced:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    class Built:
        def __reduce__(self):
            return dict, (), None, None, iter([(str(marker), os.mkdir)])

    for protocol in range(6):
        yield pickle.dumps(Reduced(), protocol)
        yield pickle.dumps({"weight": Reduced()}, protocol)
    yield pickle.dumps(Built(), 2)
    path = str(marker).encode()
    yield b"(S'" + path + b"'\nios\nmkdir\n."
    yield b"(cos\nmkdir\nS'" + path + b"'\no."
    yield b"\x80\x02cos\nmkdir\n(X" + len(path).to_bytes(4, "little") + path + b"t\x81."
    yield b"\x80\x02cbuiltins\neval\n(X\x01\x00\x00\x001tR."
    yield b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(cos\nsystem\nK\x00))tR."


@pytest.mark.parametrize("place", ["archive", "old", "bare"])
def test_nothing_in_a_pickle_is_run(lib, bert, tmp_path, place):
    (bert / "model.safetensors").unlink()
    marker = tmp_path / "run"
    for made in runs(marker):
        if place == "archive":
            (bert / FILE).write_bytes(torch_files.archive(made, []))
        else:
            (bert / FILE).write_bytes(b"".join(torch_files._OLD) * (place == "old") + made)
        refused(EFORMAT, FILE, lambda: lib.load(bert))
        assert not marker.exists()


ARRAY = np.ones((4, 6), np.float32)
FAULTS = {
    "behind": ({"begin": 1}, "'weight' ends behind its storage"),
    "turned": ({"strides": (1, 4)}, "'weight' row contiguous"),
    "shape": ({"shape": (5, 6), "strides": (6, 1)}, "'weight' ends behind its storage"),
    "negative": ({"shape": (-1, 6)}, "odd form"),
    "axes": ({"shape": (1,) * 17, "strides": (1,) * 17}, "odd form"),
    "compressed": ({"compressed": True}, "byteorder compressed"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_an_odd_tensor_is_named(lib, bert, fault):
    (bert / "model.safetensors").unlink()
    changes, words = FAULTS[fault]
    torch_files.saved(bert / FILE, {"weight": (ARRAY, "float32")}, **changes)
    refused(EFORMAT, f"{FILE} {words}", lambda: lib.load(bert))


def test_names_of_a_pickle_are_short_texts(tmp_path):
    """Tuples of the same tuple twice would be a text of 2^20 characters."""
    doubled = b")q\x00" + b"".join(
        bytes([ord("h"), n, ord("h"), n, 0x86, ord("q"), n + 1]) for n in range(20)
    )
    long = b"X" + (2000).to_bytes(4, "little") + b"a" * 2000
    for part in (doubled, long, b"N"):
        for parts in (part + b"\x8c\x01a", b"\x8c\x01a" + part):
            made = b"\x80\x04" + parts + b"\x93."
            (tmp_path / FILE).write_bytes(torch_files.archive(made, []))
            with pytest.raises(CowMlxError, match="by no name, or by a long one"):
                torch_file.places(str(tmp_path / FILE))


def test_other_files_are_refused_by_name(lib, bert):
    arrays = stored(bert)
    (bert / FILE).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    refused(EFORMAT, f"{FILE} git lfs pull", lambda: lib.load(bert))
    (bert / FILE).write_bytes(b"")
    refused(EFORMAT, f"{FILE} begin", lambda: lib.load(bert))
    torch_files.saved(bert / FILE, {"weight": (ARRAY.astype(float), "float64")})
    refused(EFORMAT, f"{FILE} DoubleStorage", lambda: lib.load(bert))
    few = dict.fromkeys(("weight", "bias"), (ARRAY, "float32"))
    torch_files.saved(bert / FILE, few)
    refused(EFORMAT, "lacks embeddings.norm", lambda: lib.load(bert))
    whole = torch_files.saved(bert / FILE, arrays).read_bytes()
    (bert / FILE).write_bytes(whole[: len(whole) // 2])
    refused(EFORMAT, FILE, lambda: lib.load(bert))
    (bert / FILE).rename(bert / "weights.bin")
    refused(EUNSUPPORTED, f"weights.bin {FILE[:-4]}*.bin", lambda: lib.load(bert))


@pytest.mark.parametrize("old", [False, True], ids=["archive", "old"])
def test_changed_bytes_give_places_in_the_file_or_an_error(tmp_path, old):
    arrays = {"a": (ARRAY, "float32"), "b": (ARRAY[0], "float32")}
    whole = torch_files.saved(tmp_path / FILE, arrays, old=old).read_bytes()
    numbers, refusals = random.Random(5), 0
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(numbers.randint(1, 4)):
            changed[numbers.randrange(len(whole))] = numbers.randrange(256)
        (tmp_path / FILE).write_bytes(changed[: numbers.choice([len(whole), len(whole) - 9])])
        try:
            places = torch_file.places(str(tmp_path / FILE))
        except CowMlxError as error:
            refusals += 1
            assert FILE in str(error)
        else:
            assert all(0 <= own.begin <= len(whole) - own.nbytes for own in places.values())
    assert refusals > 100


def test_files_of_pytorch_itself(tmp_path):
    """The fixture holds what torch 2.8 saved: both forms, a view, types, a parameter."""
    with zipfile.ZipFile(tiny_encoders.FIXTURES / "torch-files.zip") as opened:
        opened.extractall(tmp_path)
    for name in ("new.bin", "old.bin"):
        got = torch_file.load(str(tmp_path / name))
        for key, dtype in (("float", mx.float32), ("half", mx.float16), ("bits", mx.bfloat16)):
            assert got[key].dtype == dtype
            np.testing.assert_array_equal(
                np.array(got[key].astype(mx.float32)), np.arange(6).reshape(2, 3)
            )
        assert got["row"].tolist() == [3, 4, 5] and got["count"].tolist() == 7
        assert got["none"].shape == (0, 3)
