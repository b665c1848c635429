"""Folders for embeddings, whose weights have no head for tokens, and shorter names."""

from __future__ import annotations

import json
import shutil
from ctypes import c_char

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_models
from support.callbacks import refused
from support.signatures import EFORMAT, EUNSUPPORTED, POOLING_LAST

from cowmlx.models.converting import output, sources
from cowmlx.models.quantizing import Quantizing
from cowmlx.steps import finished

TEXTS = ["A fox is red.", "cow", "The quick brown fox jumps over the lazy dog."]
SENTENCES = "sentence_transformers.models"
MODULES = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
PACKED = {"group_size": 32, "bits": 8, "mode": "affine"}
# The family; whether its weights have their full names; whether a list of modules is there, and
# the class in config.json.
KINDS = {
    "tied": ("qwen3", False, True, "Qwen3ForCausalLM", None),
    "untied": ("llama", True, True, "LlamaForCausalLM", None),
    "packed": ("llama", False, True, "LlamaForCausalLM", PACKED),
    "inner": ("mistral", False, False, "MistralModel", None),
}


def headless(path, family, *, full, modules, named, quantize=None):
    """A tiny model in a folder for embeddings, and one with everything."""
    whole = tiny_models.make(path / "whole", family, quantize=quantize)
    folder = shutil.copytree(whole, path / "headless")
    stored = dict(mx.load(str(whole / "model.safetensors")))
    kept = {name: own for name, own in stored.items() if not name.startswith("lm_head.")}
    if not full:
        kept = {name.removeprefix("model."): own for name, own in kept.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), kept, {"format": "mlx"})
    tiny_models.change_config(folder, {"architectures": [named]})
    if modules:
        listed = [{"path": own, "type": f"{SENTENCES}.{kind}"} for own, kind in MODULES]
        (folder / "modules.json").write_text(json.dumps(listed))
        for own, _ in MODULES[1:]:
            (folder / own).mkdir()
        pooling = {"pooling_mode_lasttoken": True}
        (folder / "1_Pooling/config.json").write_text(json.dumps(pooling))
    return whole, folder


@pytest.fixture(params=KINDS)
def folders(request, tmp_path):
    family, full, modules, named, quantize = KINDS[request.param]
    return headless(tmp_path, family, full=full, modules=modules, named=named, quantize=quantize)


@pytest.fixture
def vectors(lib):
    def vectors(path):
        model = lib.load(path)
        made = lib.embed(model, TEXTS, pooling=POOLING_LAST)
        tasks = lib.info(model)["tasks"]
        lib.free_model(model)
        return np.array(made), tasks

    return vectors


def test_vectors_are_those_of_the_whole_network(vectors, folders):
    (expected, all_tasks), (got, tasks) = map(vectors, folders)
    np.testing.assert_array_equal(got, expected)
    assert (all_tasks, tasks) == (["generate", "embed", "rank"], ["embed"])


def test_what_needs_a_head_is_refused(lib, folders):
    model = lib.load(folders[1])
    refused(EUNSUPPORTED, "no head for tokens", lambda: lib.context(model))
    refused(EUNSUPPORTED, "head embed", lambda: lib.rank(model, "a", ["b"], yes="a", no="b"))
    lib.check(lib.c.cow_mlx_model_sleep(model))
    before = lib.embed(model, TEXTS)  # awake again
    assert lib.info(model)["tasks"] == ["embed"] and np.isfinite(before).all()
    lib.free_model(model)
    told = json.loads(lib._fill(c_char, lib.c.cow_mlx_model_inspect, bytes(folders[1]), 0))
    assert told["loads"], told


def test_converted_folders_give_the_same(vectors, folders, tmp_path):
    expected, _ = vectors(folders[1])
    packed = "quantization" in json.loads((folders[1] / "config.json").read_text())
    for name, how in (("plain", None), *[("eight", Quantizing(8, 32, "affine"))] * (not packed)):
        source = sources.read(str(folders[1]), how, None)
        finished(output.write(source, str(tmp_path / name), {}, 1 << 20))
        got, tasks = vectors(tmp_path / name)
        np.testing.assert_allclose(got, expected, atol=0.02 if how else 0)
        assert tasks == ["embed"]


@pytest.mark.parametrize("full", [True, False])
def test_a_folder_for_generation_needs_all_of_its_weights(lib, tmp_path, full):
    _, folder = headless(tmp_path, "llama", full=full, modules=False, named="LlamaForCausalLM")
    refused(EFORMAT, "lm_head.weight", lambda: lib.load(folder))


def test_a_classifier_may_have_short_names_too(lib, tmp_path):
    made = []
    for full in (True, False):
        named = "LlamaForSequenceClassification"
        _, folder = headless(tmp_path / str(full), "llama", full=full, modules=True, named=named)
        file = str(folder / "model.safetensors")
        stored = dict(mx.load(file))
        mx.eval(stored)
        stored["score.weight"] = mx.random.normal((2, 64), key=mx.random.key(7))
        mx.save_safetensors(file, stored, {"format": "mlx"})
        tiny_models.change_config(folder, {"num_labels": 2})
        model = lib.load(folder)
        made.append(lib.rank(model, "fox", TEXTS, normalize=False))
        assert lib.info(model)["tasks"] == ["embed", "rank", "classify"]
        lib.free_model(model)
    assert made[0] == made[1]
