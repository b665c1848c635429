"""Folders of sentence-transformers: pooling, dense layers, prompts, cuts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_encoders, tiny_models, torch_files
from support.callbacks import refused
from support.signatures import (
    ADD_SPECIAL,
    ECONTEXT,
    EFORMAT,
    EINVAL,
    ENOENT,
    EUNSUPPORTED,
    POOLING_CLS,
    POOLING_LAST,
    POOLING_MEAN,
    POOLING_WEIGHTED,
)
from support.tiny_encoders import LENGTH, TEXTS, written

TEXT = [written(text) for text in TEXTS]
WANTED = tiny_encoders.fixture("bert")
CLOSE = 1e-4
MODULES = "sentence_transformers.models"
WEIGHT = np.random.default_rng(3).standard_normal((20, 96)).astype(np.float32) / 8
BIAS = np.random.default_rng(4).standard_normal(20).astype(np.float32) / 8


def unit(rows):
    rows = np.asarray(rows)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def write(path, value):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def modules(*kinds):
    named = enumerate((kind, f"{index}_{kind}" * bool(index)) for index, kind in enumerate(kinds))
    return [
        {"idx": index, "name": str(index), "path": path, "type": f"{MODULES}.{kind}"}
        for index, (kind, path) in named
    ]


def folder(path, *, pooling=None, dense=False, settings=None, tokens=None):
    tiny_encoders.make(path, "bert")
    kinds = ["Transformer", "Pooling", *["Dense"] * dense, "Normalize"]
    write(path / "modules.json", modules(*kinds))
    write(path / "1_Pooling/config.json", pooling or {"pooling_mode_cls_token": True})
    if dense:
        own = {"in_features": 96, "out_features": 20, "bias": True}
        own["activation_function"] = "torch.nn.modules.activation.Tanh"
        write(path / "2_Dense/config.json", own)
        arrays = {"linear.weight": mx.array(WEIGHT), "linear.bias": mx.array(BIAS)}
        mx.save_safetensors(str(path / "2_Dense/model.safetensors"), arrays)
    if settings is not None:
        write(path / "config_sentence_transformers.json", settings)
    if tokens is not None:
        write(path / "sentence_bert_config.json", tokens)
    return path


@pytest.fixture
def load(lib):
    loaded = []

    def load(path, **params):
        loaded.append(lib.load(path, **params))
        return loaded[-1]

    yield load
    for model in loaded:
        lib.free_model(model)


def test_the_folder_chooses_the_pooling_and_the_host_another(lib, load, tmp_path):
    model = load(folder(tmp_path / "cls"))
    np.testing.assert_allclose(lib.embed(model, TEXT), unit(WANTED["cls"]), atol=CLOSE)
    got = lib.embed(model, TEXT, pooling=POOLING_MEAN)
    np.testing.assert_allclose(got, unit(WANTED["mean"]), atol=CLOSE)
    told = lib.info(model)["sentences"]
    assert told["pooling"] == ["cls"] and told["normalized"] and told["prompts"] == {}


@pytest.mark.parametrize(
    "pooling",
    [
        {"pooling_mode_max_tokens": True, "pooling_mode_mean_tokens": True},
        {"pooling_mode": ["max", "mean"]},
    ],
    ids=["old", "new"],
)
def test_dense_layers_follow_joined_poolings(lib, load, tmp_path, pooling):
    model = load(folder(tmp_path / "dense", pooling=pooling, dense=True))
    joined = np.concatenate([WANTED["max"], WANTED["mean"]], axis=1)
    expected = np.tanh(joined @ WEIGHT.T + BIAS)
    got = lib.embed(model, TEXT, normalize=False)
    np.testing.assert_allclose(got, expected, atol=CLOSE)
    np.testing.assert_allclose(lib.embed(model, TEXT), unit(expected), atol=CLOSE)
    few = lib.embed(model, TEXT, truncate_dims=7)
    np.testing.assert_allclose(few, unit(expected[:, :7]), atol=CLOSE)
    refused(EINVAL, "truncate_dims 21 20", lambda: lib.embed(model, TEXT, truncate_dims=21))
    refused(EINVAL, "pooling 48 96", lambda: lib.embed(model, TEXT, pooling=POOLING_CLS))


def test_vectors_may_be_normalized_before_a_dense_layer(lib, load, tmp_path):
    path = folder(tmp_path / "model", pooling={"pooling_mode": ["max", "mean"]}, dense=True)
    write(path / "modules.json", modules("Transformer", "Pooling", "Normalize", "Dense"))
    (path / "2_Dense").rename(path / "3_Dense")
    model = load(path)
    joined = np.concatenate([WANTED["max"], WANTED["mean"]], axis=1)
    expected = np.tanh(unit(joined) @ WEIGHT.T + BIAS)
    np.testing.assert_allclose(lib.embed(model, TEXT, normalize=False), expected, atol=CLOSE)
    assert not lib.info(model)["sentences"]["normalized"]


def test_a_folder_may_keep_more_values_than_there_are(lib, load, tmp_path):
    """sentence-transformers allows this in a folder. A host may not ask for it."""
    model = load(folder(tmp_path / "model", settings={"truncate_dim": 49}))
    np.testing.assert_allclose(lib.embed(model, TEXT), unit(WANTED["cls"]), atol=CLOSE)
    refused(EINVAL, "truncate_dims 49 48", lambda: lib.embed(model, TEXT, truncate_dims=49))
    tokens = lib.embed(model, TEXT[:1], token_vectors=5)
    assert len(tokens[0]) == 5 * 48


def test_prompts_stand_in_front_of_texts(lib, load, tmp_path):
    prompts = {"query": "ba be: ", "document": "", "short": "ba be "}
    settings = {"prompts": prompts, "default_prompt_name": "query", "truncate_dim": 12}
    model = load(folder(tmp_path / "prompts", settings=settings))
    plain = load(folder(tmp_path / "plain"))
    expected = np.array(lib.embed(plain, [f"ba be: {text}" for text in TEXT[:3]], truncate_dims=12))
    np.testing.assert_allclose(lib.embed(model, TEXT[:3]), expected, atol=1e-6)
    got = lib.embed(model, TEXT[:3], prompt_name="query")
    np.testing.assert_allclose(got, expected, atol=1e-6)
    bare = lib.embed(plain, TEXT[:3], truncate_dims=12)
    for given in ({"prompt": ""}, {"prompt_name": "document"}):
        np.testing.assert_allclose(lib.embed(model, TEXT[:3], **given), bare, atol=1e-6)
    own = lib.embed(plain, TEXT[:3], prompt="ba be: ", truncate_dims=12)
    np.testing.assert_allclose(own, expected, atol=1e-6)
    refused(EINVAL, "prompt_name title query", lambda: lib.embed(model, TEXT, prompt_name="title"))
    both = {"prompt": "a", "prompt_name": "query"}
    refused(EINVAL, "prompt prompt_name", lambda: lib.embed(model, TEXT, **both))


def test_a_prompt_may_be_left_out_of_the_pooling(lib, load, tmp_path):
    pooling = {"pooling_mode_mean_tokens": True, "include_prompt": False}
    model = load(folder(tmp_path / "model", pooling=pooling))
    (got,) = lib.embed(model, ["ka ke"], prompt="ba be ", normalize=False)
    whole = "ba be ka ke"
    assert len(lib.tokenize(model, whole, ADD_SPECIAL)) == 6
    everything, first = (
        np.array(lib.embed(model, [whole], pooling=kind, normalize=False)[0])
        for kind in (POOLING_MEAN, POOLING_CLS)
    )
    assert not np.allclose(got, everything, atol=1e-3) and not np.allclose(got, first, atol=1e-3)
    last = np.array(lib.embed(model, [whole], pooling=POOLING_LAST, normalize=False)[0])
    parts = np.array(got) * 3 - last  # the states of ka and ke
    rest = everything * 6 - first - last - parts  # those of ba and be
    assert np.isfinite(rest).all() and not np.allclose(parts, rest, atol=1e-3)


def test_tokens_behind_a_prompt_keep_their_weights(lib, load, tmp_path):
    """The mean is weighted, and lower case changes the number of the prompt's tokens."""
    pooling = {"pooling_mode": "weightedmean", "include_prompt": False}
    path = folder(tmp_path / "model", pooling=pooling, tokens={"do_lower_case": True})
    tokenizer = json.loads((path / "tokenizer.json").read_text())
    tokenizer["normalizer"]["lowercase"] = False
    write(path / "tokenizer.json", tokenizer)
    model = load(path)
    (got,) = lib.embed(model, ["KA ke"], prompt="BAbe ", normalize=False)
    (flat,) = lib.embed(model, ["babe ka ke"], token_vectors=6, normalize=False)
    states = np.array(flat).reshape(6, 48)[3:]
    expected = (states * [[4], [5], [6]]).sum(axis=0) / 15
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_prompt_is_left_out_of_what_a_language_model_pools(lib, load, tmp_path):
    path = tmp_path / "model"
    tiny_models.make(path, "llama")
    write(path / "modules.json", modules("Transformer", "Pooling"))
    pooling = {"pooling_mode": "mean", "include_prompt": False}
    write(path / "1_Pooling/config.json", pooling)
    model, options = load(path), {"normalize": False, "add_special": False}
    prompt, text = "A fox:", " the cow eats"
    first, size = (len(lib.tokenize(model, own)) for own in (prompt, prompt + text))
    assert 0 < first < size
    for kind, weights in ((POOLING_MEAN, np.ones(size)), (POOLING_WEIGHTED, np.arange(size) + 1)):
        (got,) = lib.embed(model, [text], prompt=prompt, pooling=kind, **options)
        own = {"pooling": kind, "prompt": "", **options}
        before, whole = (np.array(lib.embed(model, [t], **own)[0]) for t in (prompt, prompt + text))
        rest = whole * weights.sum() - before * weights[:first].sum()
        np.testing.assert_allclose(got, rest / weights[first:].sum(), atol=1e-4)


def test_long_texts_are_refused_or_cut(lib, load, tmp_path):
    model = load(folder(tmp_path / "model", tokens={"max_seq_length": 9, "do_lower_case": True}))
    assert lib.info(model)["sentences"]["max_tokens"] == 9
    assert lib.info(model)["context_length"] == LENGTH
    long = " ".join(TEXT)
    refused(
        ECONTEXT, "texts[1] max_seq_length 9 max_tokens", lambda: lib.embed(model, ["ba", long])
    )
    tokens = lib.tokenize(model, long, ADD_SPECIAL)
    short = lib.detokenize(model, tokens[1:8])
    assert len(lib.tokenize(model, short, ADD_SPECIAL)) == 9
    for cut in ({}, {"max_tokens": 9}):
        expected = lib.embed(model, [short, TEXT[1]], **cut)
        got = lib.embed(model, [long.upper(), TEXT[1].upper()], max_tokens=9)
        np.testing.assert_allclose(got, expected, atol=1e-6)
    refused(EINVAL, "max_tokens 10 9", lambda: lib.embed(model, TEXT, max_tokens=10))


def test_every_token_may_have_a_vector(lib, load, tmp_path):
    model = load(folder(tmp_path / "model"))
    states = [np.array(lib.embed(model, TEXT, pooling=own)) for own in (POOLING_CLS, POOLING_LAST)]
    (mean,) = lib.embed(model, TEXT[2:3], pooling=POOLING_MEAN, normalize=False)
    got = np.array(lib.embed(model, TEXT, token_vectors=LENGTH)).reshape(len(TEXT), LENGTH, 48)
    for index, text in enumerate(TEXTS):
        own = got[index, : len(text) + 2]
        np.testing.assert_allclose(np.linalg.norm(own, axis=1), 1, atol=1e-6)
        assert not got[index, len(text) + 2 :].any()
        np.testing.assert_allclose(own[[0, -1]], [rows[index] for rows in states], atol=1e-6)
    few = np.array(lib.embed(model, TEXT[2:3], token_vectors=7, normalize=False, batch_tokens=1))
    np.testing.assert_allclose(few.reshape(7, 48).mean(0), mean, atol=1e-6)
    cut = np.array(lib.embed(model, TEXT[2:3], token_vectors=9, truncate_dims=5)).reshape(9, 5)
    np.testing.assert_allclose(cut[:7], unit(few.reshape(7, 48)[:, :5]), atol=1e-6)
    long = [TEXT[0], TEXT[-1]]
    refused(ECONTEXT, "texts[1] 40 39 max_tokens", lambda: lib.embed(model, long, token_vectors=39))
    assert lib.embed(model, long, token_vectors=39, max_tokens=39)


def test_a_folder_without_pooling_has_vectors_of_tokens(lib, load, tiny, tmp_path):
    """As ColBERT's: a dense layer without a bias that takes each hidden state."""
    path = folder(tmp_path / "colbert")
    write(path / "modules.json", modules("Transformer", "Dense"))
    own = {"activation_function": "torch.nn.modules.linear.Identity"}
    write(path / "1_Dense/config.json", own)
    weight = WEIGHT[:, :48]
    arrays = {"linear.weight": mx.array(weight)}
    mx.save_safetensors(str(path / "1_Dense/model.safetensors"), arrays)
    model = load(path)
    assert lib.info(model)["sentences"]["pooling"] == []
    got = np.array(lib.embed(model, TEXT[:3], token_vectors=8)).reshape(3, 8, 20)
    expected = unit(np.array(WANTED["cls"][:3]) @ weight.T)
    np.testing.assert_allclose(got[:, 0], expected, atol=CLOSE)
    refused(EINVAL, "token_vectors", lambda: lib.embed(model, TEXT))
    np.testing.assert_allclose(
        lib.embed(model, TEXT[:3], pooling=POOLING_CLS), expected, atol=CLOSE
    )
    llama = tiny("llama")
    refused(EUNSUPPORTED, "token_vectors llama", lambda: lib.embed(llama, ["a"], token_vectors=2))


def colbert(path, *layers):
    """PyLate's dense layers, each of a weight and what is mapped beside it, or None."""
    tiny_encoders.make(path, "bert")
    write(path / "modules.json", modules("Transformer", *["Dense"] * len(layers)))
    for index, (weight, residual) in enumerate(layers, 1):
        own = {"activation_function": "torch.nn.modules.activation.ReLU", "use_residual": True}
        own |= {"module_input_name": "token_embeddings", "module_output_name": "token_embeddings"}
        write(path / f"{index}_Dense/config.json", own)
        arrays = {"linear.weight": weight, "residual.weight": residual}
        arrays = {name: mx.array(array) for name, array in arrays.items() if array is not None}
        mx.save_safetensors(str(path / f"{index}_Dense/model.safetensors"), arrays)
    return path


def test_dense_layers_may_add_their_input(lib, load, tmp_path):
    first, residual = WEIGHT[:, :48], WEIGHT[:, 48:]
    square = np.random.default_rng(5).standard_normal((20, 20)).astype(np.float32)
    model = load(colbert(tmp_path / "model", (first, residual), (square, None)))
    states = np.array(WANTED["cls"][:3])
    made = np.maximum(states @ first.T, 0) + states @ residual.T
    expected = np.maximum(made @ square.T, 0) + made
    got = np.array(lib.embed(model, TEXT[:3], token_vectors=8, normalize=False))
    np.testing.assert_allclose(got.reshape(3, 8, 20)[:, 0], expected, atol=CLOSE)


@pytest.mark.parametrize(
    ("weight", "residual", "words"),
    [
        (WEIGHT[:, :48], None, "1_Dense lacks residual.weight"),
        (WEIGHT[:, :48], WEIGHT, "1_Dense residual.weight 96 48"),
        (np.eye(48, dtype=np.float32), WEIGHT, "1_Dense residual.weight place"),
    ],
    ids=["none", "shape", "unused"],
)
def test_weights_beside_a_dense_layer_must_fit(lib, tmp_path, weight, residual, words):
    path = colbert(tmp_path / "model", (weight, residual))
    refused(EFORMAT, words, lambda: lib.load(path))


def test_a_dense_layer_in_a_file_of_pytorch(lib, load, tmp_path):
    path = folder(tmp_path / "model", pooling={"pooling_mode": ["max", "mean"]}, dense=True)
    expected = lib.embed(load(path), TEXT)
    (path / "2_Dense/model.safetensors").unlink()
    arrays = {"linear.weight": (WEIGHT, "float32"), "linear.bias": (BIAS, "float32")}
    torch_files.saved(path / "2_Dense/pytorch_model.bin", arrays)
    np.testing.assert_array_equal(lib.embed(load(path), TEXT), expected)


def remove(name):
    return lambda path: (path / name).unlink()


def change(name, value):
    return lambda path: write(path / name, value)


def text(name, value):
    return lambda path: (path / name).write_text(value)


def empty(path):
    arrays = {"linear.weight": mx.zeros((0, 96)), "linear.bias": mx.zeros((0,))}
    mx.save_safetensors(str(path / "2_Dense/model.safetensors"), arrays)


def pipe(path):
    (path / "1_Pooling/config.json").unlink()
    os.mkfifo(path / "1_Pooling/config.json")


def link(name):
    def damage(path):
        (path / name).unlink(missing_ok=True)
        (path / name).symlink_to("nothing")

    return damage


SETTINGS = "config_sentence_transformers.json"
LENGTHS = "sentence_bert_config.json"
FAULTS = {
    "no pooling": (ENOENT, "config.json", remove("1_Pooling/config.json")),
    "no dense": (ENOENT, "2_Dense model.safetensors", remove("2_Dense/model.safetensors")),
    "no weights": (ENOENT, "model*.safetensors", remove("model.safetensors")),
    "no config": (ENOENT, "config.json", remove("config.json")),
    "no tokenizer": (ENOENT, "tokenizer.json", remove("tokenizer.json")),
    "no JSON": (EFORMAT, "modules.json line", text("modules.json", "[{]")),
    "no array": (EFORMAT, "modules.json array", change("modules.json", {})),
    "empty": (EFORMAT, "modules.json Transformer", change("modules.json", [])),
    "unknown": (EUNSUPPORTED, "modules.json CLIP", change("modules.json", modules("CLIPModel"))),
    "outside": (
        EFORMAT,
        "modules.json path",
        change("modules.json", [*modules("Transformer"), {"path": "../x", "type": "a.Pooling"}]),
    ),
    **{
        f"outside by {own}": (
            EFORMAT,
            "modules.json path",
            change("modules.json", [*modules("Transformer"), {"path": own, "type": "a.Dropout"}]),
        )
        for own in ("..", "../", "..//", "./", "/", "a/../", "..\\")
    },
    "odd pooling": (
        EUNSUPPORTED,
        "1_Pooling sqrt",
        change("1_Pooling/config.json", {"pooling_mode_mean_sqrt_len_tokens": True}),
    ),
    "none": (EFORMAT, "1_Pooling pooling", change("1_Pooling/config.json", {})),
    "activation": (
        EUNSUPPORTED,
        "2_Dense activation_function Softsign",
        change("2_Dense/config.json", {"activation_function": "torch.nn.Softsign"}),
    ),
    "tokens": (
        EUNSUPPORTED,
        "2_Dense module_input_name token_embeddings",
        change("2_Dense/config.json", {"module_input_name": "token_embeddings"}),
    ),
    "width": (EFORMAT, "2_Dense 96 48", change("1_Pooling/config.json", {"pooling_mode": "cls"})),
    "prompts": (EFORMAT, f"{SETTINGS} prompts", change(SETTINGS, {"prompts": ["a"]})),
    "default": (EFORMAT, f"{SETTINGS} default", change(SETTINGS, {"default_prompt_name": "a"})),
    "length": (
        EFORMAT,
        f"{LENGTHS} max_seq_length",
        change(LENGTHS, {"max_seq_length": -1}),
    ),
    "pooling of lists": (
        EUNSUPPORTED,
        "1_Pooling [1]",
        change("1_Pooling/config.json", {"pooling_mode": ["max", [1]]}),
    ),
    "pipe": (EFORMAT, "1_Pooling config.json neither", pipe),
    "no rows": (EFORMAT, "2_Dense linear.weight", empty),
    "cut short": (EFORMAT, "2_Dense", text("2_Dense/model.safetensors", "12345678")),
    "default of a list": (
        EFORMAT,
        f"{SETTINGS} default",
        change(SETTINGS, {"prompts": {"a": ""}, "default_prompt_name": ["a"]}),
    ),
    "pooling twice": (
        EFORMAT,
        "1_Pooling twice",
        change("1_Pooling/config.json", {"pooling_mode": ["max", "max"]}),
    ),
    "two poolings": (
        EUNSUPPORTED,
        "modules.json 2_Pooling",
        change("modules.json", modules("Transformer", "Pooling", "Pooling")),
    ),
    "late pooling": (
        EUNSUPPORTED,
        "modules.json 2_Pooling",
        change("modules.json", modules("Transformer", "Dense", "Pooling")),
    ),
    "no name": (
        EFORMAT,
        "modules.json path",
        change("modules.json", [*modules("Transformer"), {"path": "\ud800", "type": "a.Dense"}]),
    ),
    "link to no list": (ENOENT, "modules.json", link("modules.json")),
    "link to no settings": (ENOENT, SETTINGS, link(SETTINGS)),
    "link to no lengths": (ENOENT, LENGTHS, link(LENGTHS)),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("sentences") / "whole"
    return folder(path, pooling={"pooling_mode": ["max", "mean"]}, dense=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_missing_or_odd_file_is_named(lib, whole, tmp_path, fault):
    status, words, damage = FAULTS[fault]
    path = shutil.copytree(whole, tmp_path / "damaged")
    damage(path)
    refused(status, words, lambda: lib.load(path))


@pytest.mark.long
def test_a_converted_folder_keeps_its_modules(lib, load, whole, tmp_path):
    made = tmp_path / "converted"
    command = [sys.executable, "-m", "cowmlx", "convert", str(whole), str(made)]
    command += ["--bits", "8", "--mode", "mxfp8"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    own, plain = load(made), load(whole)
    assert lib.info(own)["sentences"] == lib.info(plain)["sentences"]
    assert lib.info(own)["quantization"]["mode"] == "mxfp8"
    got, expected = np.array(lib.embed(own, TEXT)), np.array(lib.embed(plain, TEXT))
    assert ((got * expected).sum(axis=1) > 0.97).all()
