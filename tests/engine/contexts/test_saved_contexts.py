"""Saved contexts: what is loaded is what was saved, and a failed load changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import mlx.core as mx
import pytest
from driver import KINDS, delivered, greedy, held_after, next_ok, opened, prompt, settle
from support import tiny_adapters
from support.compiler import compile_c, run
from support.library import StatusError
from support.paths import CALF, LIBRARY, ROOT
from support.signatures import (
    DONE,
    EBUFFER,
    ECONTEXT,
    EFORMAT,
    EIO,
    ENOENT,
    ESTATE,
    FINISH_CANCELED,
)
from xxhash import xxh3_64_intdigest

START = prompt(20)
# Every kind of cache: a family or variant, and the context's parameters.
CACHES = [
    *((kind, {}) for kind in KINDS),
    ("gpt_oss", {}),
    ("recurrent_gemma", {}),
    ("gemma3_text-wide", {"kv_bits": 4}),
    ("gemma2-wide", {"kv_bits": 8}),
    ("llama-wide", {"kv_bits": 4}),
    ("llama-wide", {"kv_bits": 8, "kv_group_size": 32}),
]
caches = pytest.mark.parametrize(
    "kind, params", CACHES, ids=[f"{kind}{params.get('kv_bits', '')}" for kind, params in CACHES]
)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "context.safetensors"


def saved(lib, model, path, tokens=START, **params):
    """A file with tokens, and the greedy tokens that follow them and one more."""
    with opened(lib, model, **params) as context:
        lib.begin(context, tokens, max_tokens=0)
        lib.save(context, path)
        return greedy(lib, context, [*tokens, 11])


def refused(lib, context, path, status=EFORMAT):
    """The message of a load that fails."""
    with pytest.raises(StatusError) as error:
        lib.restore(context, path)
    assert error.value.status == status, error.value.message
    assert str(path) in error.value.message
    return error.value.message


# --------------------------------------------------------------- There and back


@caches
@pytest.mark.parametrize("length", [1, 20, 300])
def test_a_loaded_context_goes_on_as_the_saved_one(
    lib, tiny, open_context, file, kind, params, length
):
    model, tokens = tiny(kind), prompt(length)
    expected = saved(lib, model, file, tokens, **params)
    context = open_context(model, **params)
    lib.restore(context, file)
    assert lib.tokens(context) == tokens
    assert greedy(lib, context, [*tokens, 11]) == expected
    assert lib.info(context)["reused"] == length
    fresh = open_context(model, **params)
    assert greedy(lib, fresh, [*tokens, 11]) == expected


@caches
def test_saved_while_generating(lib, tiny, open_context, file, kind, params):
    model = tiny(kind)
    context = open_context(model, **params)
    lib.begin(context, START, max_tokens=40)
    pieces = next_ok(lib, context, 5)
    settle(lib, model)
    held = lib.tokens(context)
    lib.save(context, file)
    loaded = open_context(model, **params)
    lib.restore(loaded, file)
    assert lib.tokens(loaded) == held
    pieces += lib.drain(context)
    assert lib.tokens(context) == held_after(START, pieces)
    with opened(lib, model, **params) as other:
        undisturbed = greedy(lib, other, START, 40)
    assert delivered(pieces) == undisturbed, "a save leaves the generation alone"
    assert greedy(lib, loaded, [*START, *undisturbed[:6]], 34) == undisturbed[6:]


PROGRAM = """
import json, sys
from support.library import Library

lib = Library()
lib.start()
context = lib.context(lib.load(sys.argv[1], lazy=True), **json.loads(sys.argv[3]))
lib.restore(context, sys.argv[2])
held = lib.tokens(context)
lib.begin(context, [*held, 11], max_tokens=16)
tokens = [piece.token for piece in lib.drain(context) if piece.status == 0]
print(json.dumps([held, tokens, lib.info(context)["reused"]]))
lib.stop()
"""


@pytest.mark.parametrize("kind, params", [CACHES[1], CACHES[-1]], ids=["ring", "quantized"])
def test_another_process_goes_on(lib, tiny, folder, file, tmp_path, kind, params):
    """From a copy of the model, lazily loaded."""
    expected = saved(lib, tiny(kind), file, **params)
    copy = shutil.copytree(folder(kind), tmp_path / "copy")
    command = [sys.executable, "-c", PROGRAM, copy, file, json.dumps(params)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "tests")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [START, expected, len(START)]


def test_half_precision(lib, folder, open_context, file, tmp_path):
    path = shutil.copytree(folder("llama"), tmp_path / "half")
    weights = mx.load(str(path / "model.safetensors"))
    halved = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), halved, {"format": "mlx"})
    model = lib.load(path)
    expected = saved(lib, model, file)
    context = open_context(model)
    lib.restore(context, file)
    assert greedy(lib, context, [*START, 11]) == expected
    assert mx.load(str(file))["layers.0.0"].dtype == mx.bfloat16
    lib.free_model(model)


def test_arrays_of_many_pieces(lib, tiny, open_context, file, monkeypatch):
    """As those of large models are."""
    from cowmlx.cache import disk, disk_reader

    monkeypatch.setattr(disk, "PIECE", 100)
    monkeypatch.setattr(disk, "_SYNC", 1000)
    monkeypatch.setattr(disk_reader, "PIECE", 99)
    expected = saved(lib, tiny("falcon_h1"), file)
    context = open_context(tiny("falcon_h1"))
    lib.restore(context, file)
    assert greedy(lib, context, [*START, 11]) == expected


def test_nothing_held(lib, tiny, open_context, file):
    lib.save(open_context(tiny("llama")), file)
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=0)
    lib.restore(context, file)
    assert lib.tokens(context) == []


def test_a_generation_ends_with_a_load(lib, tiny, oracle, open_context, file):
    saved(lib, tiny("llama"), file)
    context = open_context(tiny("llama"))
    lib.begin(context, prompt(30, seed=2), max_tokens=40)
    next_ok(lib, context, 3)
    lib.restore(context, file)
    assert lib.tokens(context) == START
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
    assert greedy(lib, context, [*START, 11]) == oracle("llama").after([*START, 11])


def test_into_a_context_of_another_size(lib, tiny, open_context, file):
    expected = saved(lib, tiny("gemma3_text"), file, max_tokens=400)
    for size in (100, 37):
        context = open_context(tiny("gemma3_text"), max_tokens=size)
        lib.restore(context, file)
        assert greedy(lib, context, [*START, 11]) == expected
    exact = open_context(tiny("gemma3_text"), max_tokens=20)
    lib.restore(exact, file)
    message = refused(lib, open_context(tiny("gemma3_text"), max_tokens=19), file, ECONTEXT)
    assert "20" in message
    assert "19" in message


def test_the_file_may_go_after_a_load(lib, tiny, oracle, open_context, file):
    saved(lib, tiny("llama"), file)
    before = len(os.listdir("/dev/fd"))
    context = open_context(tiny("llama"))
    lib.restore(context, file)
    assert len(os.listdir("/dev/fd")) == before
    file.write_bytes(bytes(file.stat().st_size))
    file.unlink()
    assert greedy(lib, context, [*START, 11]) == oracle("llama").after([*START, 11])


# --------------------------------------------------------------------- The file


def test_a_person_can_read_the_file(lib, tiny, open_context, file):
    """With mlx alone: the tokens, and keys and values without what is allocated ahead."""
    saved(lib, tiny("llama"), file)
    arrays, metadata = mx.load(str(file), return_metadata=True)
    assert arrays["tokens"].tolist() == START
    assert arrays["layers.0.0"].shape == (1, 2, len(START), 16)
    assert metadata["format"] == "cow_mlx_context"
    assert metadata["version"] == "1"
    assert metadata["tokens"] == "20"
    assert json.loads(metadata["layers"]) == ["KVCache"] * 3
    assert json.loads(metadata["scalars"]) == {f"{layer}.2": 20 for layer in range(3)}
    content = file.read_bytes()
    length = 8 + int.from_bytes(content[:8], "little")
    sums = [xxh3_64_intdigest(content[:length]), xxh3_64_intdigest(content[:-16])]
    assert arrays["xxh3_64"].tolist() == sums


def test_only_the_file_is_left(lib, tiny, file):
    for seed in range(2):
        saved(lib, tiny("llama"), file, prompt(20, seed))
    assert os.listdir(file.parent) == [file.name]


def test_a_link_stays_and_so_does_the_mode(lib, tiny, open_context, file):
    file.write_text("old")
    file.chmod(0o640)
    link = file.with_name("link")
    link.symlink_to(file.name)
    saved(lib, tiny("llama"), link)
    assert link.is_symlink()
    assert file.stat().st_mode & 0o777 == 0o640
    lib.restore(open_context(tiny("llama")), file)


# ------------------------------------------------------------- What does not fit


def untouched_by(lib, tiny, oracle, path, status=EFORMAT, **params):
    """A load fails on a context that is generating, which continues as if nothing had been."""
    with opened(lib, tiny("llama"), **params) as context:
        lib.begin(context, START, max_tokens=16)
        pieces = next_ok(lib, context, 4)
        held = lib.tokens(context)
        message = refused(lib, context, path, status)
        assert lib.tokens(context) == held
        pieces += lib.drain(context)
        assert delivered(pieces) == oracle("llama").after(START)
        return message


@pytest.mark.parametrize("other", ["llama-other", "llama-big", "mamba2"])
def test_of_another_model(lib, tiny, oracle, file, other):
    saved(lib, tiny(other), file)
    assert "another model" in untouched_by(lib, tiny, oracle, file)


def test_one_matrix_makes_another_model(lib, tiny, oracle, folder, file, tmp_path):
    path = shutil.copytree(folder("llama"), tmp_path / "tuned")
    weights = mx.load(str(path / "model.safetensors"))
    weights["model.layers.1.mlp.up_proj.weight"] *= 1.001
    mx.save_safetensors(str(path / "model.safetensors"), weights, {"format": "mlx"})
    model = lib.load(path)
    saved(lib, model, file)
    lib.free_model(model)
    assert "another model" in untouched_by(lib, tiny, oracle, file)


def test_another_tokenizer(lib, tiny, oracle, folder, file, tmp_path):
    path = shutil.copytree(folder("llama"), tmp_path / "other")
    text = json.loads((path / "tokenizer.json").read_text())
    merges = text["model"]["merges"]
    merges[-1], merges[-2] = merges[-2], merges[-1]
    (path / "tokenizer.json").write_text(json.dumps(text))
    model = lib.load(path)
    saved(lib, model, file)
    lib.free_model(model)
    message = untouched_by(lib, tiny, oracle, file)
    assert "another tokenizer" in message
    assert "another model" not in message


def test_the_same_model_elsewhere_is_the_same(lib, tiny, open_context, folder, file, tmp_path):
    model = lib.load(shutil.copytree(folder("llama"), tmp_path / "copy"), lazy=True)
    expected = saved(lib, model, file)
    lib.free_model(model)
    context = open_context(tiny("llama"))
    lib.restore(context, file)
    assert greedy(lib, context, [*START, 11]) == expected


@pytest.mark.parametrize(
    "one, other, reason",
    [
        ({"kv_bits": 4}, {}, "kv_bits 4, not 0"),
        ({}, {"kv_bits": 8}, "kv_bits 0, not 8"),
        ({"kv_bits": 8}, {"kv_bits": 4}, "kv_bits 8, not 4"),
        (
            {"kv_bits": 8, "kv_group_size": 32},
            {"kv_bits": 8, "kv_group_size": 64},
            "kv_group_size 32, not 64",
        ),
    ],
)
def test_quantized_otherwise(lib, tiny, open_context, file, one, other, reason):
    saved(lib, tiny("llama-wide"), file, **one)
    assert reason in refused(lib, open_context(tiny("llama-wide"), **other), file)


@pytest.mark.parametrize("kind", ["lora", "dora"])
def test_adapters(lib, tiny, folder, open_context, file, tmp_path, kind):
    """By their weights and scales, whether they came with the model or were set."""
    model, keys = tiny("llama"), ["q_proj", "down_proj"]
    paths = [
        tiny_adapters.make(tmp_path / f"{seed}", folder("llama"), keys, kind=kind, seed=seed)
        for seed in (1, 2)
    ]
    loaded = lib.load(folder("llama"), adapter_path=paths[0])
    expected = saved(lib, loaded, file)
    adapters = [lib.load_adapter(model, path) for path in paths]
    if kind == "lora":  # the other kind has no scale
        adapters.append(lib.load_adapter(model, paths[0], 0.5))
    context = open_context(model)
    assert "with an adapter" in refused(lib, context, file)
    for other in adapters[1:]:
        lib.set_adapter(context, other)
        message = refused(lib, context, file)
        assert "another adapter" in message
        assert "another model" not in message
    lib.set_adapter(context, adapters[0])
    lib.restore(context, file)
    assert greedy(lib, context, [*START, 11]) == expected
    lib.set_adapter(context, 0)
    lib.begin(context, START, max_tokens=0)
    lib.save(context, file)
    assert "no adapter" in refused(lib, open_context(loaded), file)
    for adapter in adapters:
        lib.free_adapter(adapter)
    lib.free_model(loaded)


# --------------------------------------------------------------------- Bad paths


@pytest.mark.parametrize(
    "name, status",
    [("", EIO), ("missing/file", ENOENT), ("folder", EIO), ("folder/", EIO), ("pipe", EIO)],
)
def test_where_nothing_can_be_written(lib, tiny, open_context, tmp_path, name, status):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=0)
    with pytest.raises(StatusError) as error:
        lib.save(context, f"{tmp_path}/{name}" if name else "")
    assert error.value.status == status
    assert name in error.value.message
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]
    assert lib.tokens(context) == START


@pytest.mark.parametrize(
    "name, status",
    [("", ENOENT), ("missing", ENOENT), ("file/x", ENOENT), ("folder", EIO), ("pipe", EIO)],
)
def test_where_nothing_can_be_read(lib, tiny, oracle, tmp_path, name, status):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    untouched_by(lib, tiny, oracle, tmp_path / name if name else "", status)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(lib, tiny, open_context, tmp_path):
    tmp_path.chmod(0o500)
    context = open_context(tiny("llama"))
    with pytest.raises(StatusError) as error:
        lib.save(context, tmp_path / "file")
    assert error.value.status == EIO


def test_a_piece_that_waits_and_cannot_be_taken_back(lib, tiny, open_context, file):
    """A recurrent model has processed a token that its host has not been given."""
    context = open_context(tiny("mamba2"))
    lib.begin(context, START, max_tokens=9)
    next_ok(lib, context, 2)
    while lib.next(context, capacity=1).status != EBUFFER:
        pass
    with pytest.raises(StatusError) as error:
        lib.save(context, file)
    assert error.value.status == ESTATE
    assert not file.exists()


# -------------------------------------------------------------------- The example


def test_the_example(calf, tmp_path):
    """Its first run processes the prompt, its second one loads it and continues alike."""
    source, rpath = ROOT / "examples/c/saved_session.c", f"-Wl,-rpath,{LIBRARY.parent}"
    program = compile_c([source], tmp_path / "saved_session", str(LIBRARY), rpath)
    command = [program, CALF, tmp_path / "session", " He said"]
    runs = [run(command) for _ in range(2)]
    assert [done.returncode for done in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    (processed, *first), (loaded, *second) = (done.stdout.splitlines() for done in runs)
    assert processed.startswith("processed ")
    assert loaded.startswith("loaded ")
    assert first == second
    count = processed.split()[1]
    assert second[-1].startswith(f"{count} of ")
    (tmp_path / "session").write_text("no context")
    damaged = run(command)
    assert damaged.returncode == 1
    assert "EFORMAT" in damaged.stderr
