"""Folders that are looked at without being loaded, and what stands in a model's place."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from ctypes import c_char
from pathlib import Path

import pytest
from driver import greedy, prompt
from support.library import StatusError
from support.paths import CALF, ROOT
from support.signatures import EFORMAT, EINVAL, ENOENT, EUNSUPPORTED

from cowmlx.errors import BadFormat, InputOutput
from cowmlx.folders import config as config_files
from cowmlx.folders import places


@pytest.fixture
def inspect(lib):
    def inspect(path, kv_bits=0):
        return json.loads(
            lib._fill(c_char, lib.c.cow_mlx_model_inspect, os.fsencode(path), kv_bits)
        )

    return inspect


def odd(place, kind):
    """Put a pipe, or a link to an endless device, in a file's place."""
    if kind == "pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/dev/zero")


@pytest.fixture
def hub(tmp_path) -> Path:
    """An entry of Hugging Face's cache with two snapshots, of which main is one."""
    entry = tmp_path / "hub/models--farm--calf-1M"
    shutil.copytree(CALF, entry / "snapshots/0a1b")
    (entry / "snapshots/2c3d").mkdir()
    (entry / "refs").mkdir()
    (entry / "refs/main").write_text("0a1b\n")
    return entry


@pytest.mark.parametrize("family", ["llama", "qwen3", "mixtral", "gemma3_text", "mamba"])
def test_what_is_told_is_what_a_load_shows(lib, folder, inspect, family):
    told = inspect(folder(family))
    model = lib.load(folder(family))
    info = lib.info(model)
    lib.free_model(model)
    assert told["loads"] and told["problem"] is None
    assert {key: info[key] for key in set(told) & set(info)} == {
        key: told[key] for key in set(told) & set(info)
    }


@pytest.mark.parametrize("kv_bits", [0, 8])
def test_the_cache_is_as_large_as_a_contexts(lib, calf, open_context, inspect, kv_bits):
    context = open_context(calf, kv_bits=kv_bits)
    greedy(lib, context, prompt(1000), 1)
    held = lib.info(context)["bytes"]
    assert inspect(CALF, kv_bits)["cache_bytes_per_1000_tokens"] == pytest.approx(held, rel=0.03)


def test_quantized_caches_are_smaller(inspect):
    sizes = [inspect(CALF, bits)["cache_bytes_per_1000_tokens"] for bits in (0, 8, 4)]
    assert sizes == sorted(sizes, reverse=True) and len(set(sizes)) == 3


def test_a_cache_that_cannot_be_quantized_is_a_problem(folder, inspect):
    told = inspect(folder("mamba"), 8)
    assert told["problem"]["status"] == "EUNSUPPORTED"
    assert (told["loads"], told["cache_bytes_per_1000_tokens"]) == (True, None)
    assert told["bytes"] > 0


@pytest.mark.parametrize("kv_bits", [-1, 1, 16])
def test_other_bits_are_refused(inspect, kv_bits):
    with pytest.raises(StatusError) as error:
        inspect(CALF, kv_bits)
    assert error.value.status == EINVAL and "0, 4 or 8" in error.value.message


def test_sampling_and_licence_are_told(folder, inspect, tmp_path):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    assert (inspect(path)["sampling"], inspect(path)["license"]) == ({}, None)
    recommended = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 7, "top_h": 1}
    (path / "generation_config.json").write_text(json.dumps(recommended))
    (path / "README.md").write_text("---\ntags: [x]\nlicense: apache-2.0\n---\n# A model\n")
    told = inspect(path)
    assert told["sampling"] == {"temperature": 0.6, "top_p": 0.95, "top_k": 20}
    assert told["license"] == "apache-2.0"
    (path / "generation_config.json").write_text(json.dumps({"do_sample": False, "top_k": 3}))
    assert inspect(path)["sampling"] == {"temperature": 0.0}


def test_what_would_not_load_says_why(inspect, folder, tmp_path):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_type": "no_such_type"}))
    told = inspect(path)
    assert not told["loads"] and told["parameters"] is None
    assert told["architecture"] == "no_such_type"
    problem = told["problem"]
    assert (problem["status"], problem["reason"]) == ("EUNSUPPORTED", "unknown_architecture")
    assert "no_such_type" in problem["message"]


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "README.md"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_file_is_not_read(inspect, folder, tmp_path, name, kind):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    (path / name).unlink(missing_ok=True)
    odd(path / name, kind)
    told = inspect(path)
    assert (told["loads"], told["sampling"], told["license"]) == (False, {}, None)
    assert f"{name} is neither a file nor a directory" in told["problem"]["message"]


@pytest.mark.parametrize("name", ["generation_config.json", "README.md"])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_files_may_change_behind_a_loaded_model(lib, folder, tmp_path, name, kind):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    model = lib.load(path)
    (path / name).unlink(missing_ok=True)
    odd(path / name, kind)
    info = lib.info(model)
    lib.free_model(model)
    assert (info["sampling"], info["license"]) == ({}, None)


def test_files_are_read_only_if_they_are_ordinary_ones_and_small(tmp_path):
    for kind in ("pipe", "device"):
        odd(tmp_path / kind, kind)
        with pytest.raises(BadFormat, match="neither a file nor a directory"):
            config_files.read_bytes(str(tmp_path / kind))
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(BadFormat, match="is larger than"):
        config_files.read_bytes(str(tmp_path / "large"))
    with pytest.raises(InputOutput, match="Is a directory"):
        config_files.read_bytes(str(tmp_path))


def test_lines_in_front_of_a_licence(tmp_path):
    for space in ("", " \t", "\r", "\n", "\n \n"):
        text = f"---{space}\ntags: [x]\nlicense: mit\n---{space}\n# A model\n"
        (tmp_path / "README.md").write_bytes(text.encode())
        assert config_files.licence(str(tmp_path), {}) == "mit"


def test_code_of_a_folder_is_not_run(inspect, folder, tmp_path):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps({**config, "model_file": "code.py"}))
    (path / "code.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    assert inspect(path)["problem"]["reason"] == "untrusted_code"
    assert not (tmp_path / "ran").exists()


# ------------------------------------------------------- What stands in a model's place


def test_an_entry_of_hugging_faces_cache_loads(lib, hub, inspect):
    for path in (hub, hub / "snapshots/0a1b"):
        model = lib.load(path)
        info = lib.info(model)
        assert info["name"] == "farm/calf-1M"
        assert Path(info["path"]) == hub / "snapshots/0a1b"
        lib.free_model(model)
        assert inspect(path)["name"] == "farm/calf-1M"


@pytest.mark.parametrize("main", ["ffff", None])
def test_snapshots_without_a_main_are_refused(lib, hub, main):
    (hub / "refs/main").unlink()
    if main:
        (hub / "refs/main").write_text(main)
    with pytest.raises(StatusError, match="2 snapshots") as error:
        lib.load(hub)
    assert error.value.status == ENOENT
    (hub / "snapshots/2c3d").rmdir()
    lib.free_model(lib.load(hub))


def test_a_download_that_has_not_ended(lib, hub):
    shutil.rmtree(hub / "snapshots")
    with pytest.raises(StatusError, match="download has not ended"):
        lib.load(hub)


@pytest.mark.parametrize("name", ["farm/calf-1M", "short"])
def test_a_name_of_the_cache_is_a_path(hub, name):
    """In the library, for models and adapters; in a process with that cache."""
    (hub.parent / "models--short").symlink_to(hub)
    script = """
import json, sys
sys.path.insert(0, sys.argv[1])
from support.library import Library, StatusError
lib = Library()
lib.start()
model = lib.load(sys.argv[2])
try:
    lib.load(sys.argv[2], adapter_path=sys.argv[2])
except StatusError as error:
    print(json.dumps([lib.info(model)["name"], lib.info(model)["path"], error.message]))
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(ROOT / "tests"), name],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "HF_HUB_CACHE": str(hub.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told, path, refused = json.loads(done.stdout)
    assert (told, Path(path).name) == (name, "0a1b")
    assert "adapter_config.json" in refused  # the folder was found


@pytest.mark.parametrize("name", ["../models--farm--calf-1M", "farm/../calf-1M", "farm/calf/1M"])
def test_no_name_leads_out_of_the_cache(monkeypatch, hub, tmp_path, name):
    monkeypatch.setenv("HF_HUB_CACHE", str(hub.parent))
    monkeypatch.chdir(tmp_path)
    assert places.resolved("farm/calf-1M") == str(hub / "snapshots/0a1b")
    if not os.path.isdir(name):
        assert places.resolved(name) == name


def test_a_folder_goes_before_a_name(monkeypatch, hub, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(hub.parent))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "farm/calf-1M").mkdir(parents=True)
    assert places.find("farm/calf-1M")[0] == "farm/calf-1M"


def test_a_name_points_outside_of_no_entry(lib, hub):
    (hub / "refs/main").write_text("../../../..")
    (hub / "snapshots/2c3d/x").write_text("")
    with pytest.raises(StatusError, match="names none of them"):
        lib.load(hub)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("org/name", ["hf download org/name", "models--org--name"]),
        ("~/models/x", ["shell", "pass"]),
    ],
)
def test_what_is_no_folder_gets_advice(lib, inspect, path, words):
    for call in (lib.load, inspect):
        with pytest.raises(StatusError) as error:
            call(path)
        assert error.value.status == ENOENT
        assert all(word in error.value.message for word in words)


def test_a_gguf_file_gets_advice(lib, tmp_path):
    file = tmp_path / "model-q4.gguf"
    file.write_bytes(b"GGUF")
    for path in (file, tmp_path):
        (tmp_path / "config.json").write_text('{"model_type": "llama"}')
        with pytest.raises(StatusError, match=r"GGUF is llama\.cpp's format") as error:
            lib.load(path)
        assert error.value.status == EUNSUPPORTED


@pytest.mark.parametrize("name", ["weights.bin", "consolidated.pth"])
def test_weights_of_pytorch_get_advice(lib, folder, tmp_path, name):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    next(path.glob("*.safetensors")).rename(path / name)
    with pytest.raises(StatusError, match="weights of PyTorch") as error:
        lib.load(path)
    assert error.value.status == EUNSUPPORTED


def test_a_pointer_of_git_lfs_gets_advice(lib, folder, tmp_path):
    path = Path(shutil.copytree(folder("llama"), tmp_path / "model"))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"
    next(path.glob("*.safetensors")).write_text(pointer)
    with pytest.raises(StatusError, match="git lfs pull") as error:
        lib.load(path)
    assert error.value.status == EFORMAT
