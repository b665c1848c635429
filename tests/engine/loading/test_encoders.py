"""Encoders give the vectors that transformers gives, whatever texts stand beside each other."""

from __future__ import annotations

import json
from ctypes import c_char

import mlx.core as mx
import numpy as np
import pytest
from mlx.utils import tree_flatten
from support import tiny_encoders
from support.callbacks import refused
from support.signatures import (
    ADD_SPECIAL,
    ECONTEXT,
    EFORMAT,
    EUNSUPPORTED,
    POOLING_CLS,
    POOLING_LAST,
    POOLING_MAX,
    POOLING_MEAN,
    POOLING_WEIGHTED,
)
from support.tiny_encoders import CONFIGS, LENGTH, TEXTS, framed, written

from cowmlx.accelerate import kernels
from cowmlx.networks import architectures
from cowmlx.networks.encoders import layers

POOLINGS = {
    "mean": POOLING_MEAN,
    "last": POOLING_LAST,
    "cls": POOLING_CLS,
    "max": POOLING_MAX,
}
NAMES = sorted(CONFIGS)
TEXT = [written(text) for text in TEXTS]
CLOSE = 1e-4


@pytest.fixture(scope="module")
def encoder(lib, once):
    """A loaded encoder, by its architecture and what ``tiny_encoders.make`` takes."""
    loaded = {}

    def encoder(name, head="", **options):
        key = "-".join(map(str, (name, head, *options.items())))
        key = "".join(letter for letter in key if letter.isalnum() or letter in "-_")
        if key not in loaded:
            folder = once(key, lambda path: tiny_encoders.make(path, name, head, **options))
            loaded[key] = lib.load(folder)
        return loaded[key]

    yield encoder
    for model in loaded.values():
        lib.free_model(model)


@pytest.mark.parametrize("name", NAMES)
def test_vectors_are_those_of_transformers(lib, encoder, name):
    model, wanted = encoder(name), tiny_encoders.fixture(name)
    assert lib.tokenize(model, TEXT[-1], ADD_SPECIAL) == framed(TEXTS[-1])
    assert len(framed(TEXTS[-1])) == LENGTH
    for pooling, number in POOLINGS.items():
        got = lib.embed(model, TEXT, pooling=number, normalize=False)
        np.testing.assert_allclose(got, wanted[pooling], rtol=CLOSE, atol=CLOSE)
    normalized = lib.embed(model, TEXT)
    lengths = np.linalg.norm(wanted["mean"], axis=1, keepdims=True)
    np.testing.assert_allclose(normalized, wanted["mean"] / lengths, atol=CLOSE)


@pytest.mark.parametrize("name", NAMES)
def test_a_text_has_the_same_vector_alone_and_beside_others(lib, encoder, name):
    model = encoder(name)
    texts = [*TEXT, *TEXT[1:3], *TEXT[::-1]]
    together = lib.embed(model, texts)
    alone = [lib.embed(model, [text])[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)
    np.testing.assert_allclose(lib.embed(model, texts, batch_tokens=1), alone, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_texts_of_every_length_have_the_same_vectors_alone_and_together(lib, encoder, name):
    model = encoder(name)
    texts = [written([5 + 11 * index % 105 for index in range(n)]) for n in range(1, LENGTH + 1)]
    counts = [len(lib.tokenize(model, text, 0)) for text in texts]
    assert counts == list(range(1, LENGTH + 1))
    together = lib.embed(model, texts[::-1], add_special=False)[::-1]
    alone = [lib.embed(model, [text], add_special=False)[0] for text in texts]
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_mlx_holds_the_rows_of_one_batch_at_a_time(lib, encoder):
    model, texts = encoder("bert"), TEXT[:2] * 8000
    lib.embed(model, TEXT)
    mx.reset_peak_memory()
    before = mx.get_active_memory()
    rows = lib.embed(model, texts)
    np.testing.assert_allclose(rows[-2:], lib.embed(model, TEXT[:2]), atol=1e-6)
    assert mx.get_peak_memory() - before < len(texts) * 48 * 4


def test_the_weighted_mean_counts_later_tokens_more(lib, encoder):
    model = encoder("bert")
    (short,) = lib.embed(model, TEXT[:1], pooling=POOLING_WEIGHTED, normalize=False)
    states = {
        name: lib.embed(model, TEXT[:1], pooling=POOLINGS[name], normalize=False)[0]
        for name in ("cls", "last", "mean")
    }
    cls, last, mean = (np.array(states[name]) for name in ("cls", "last", "mean"))
    middle = 3 * mean - cls - last
    np.testing.assert_allclose(short, (cls + 2 * middle + 3 * last) / 6, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "close"), [("float16", 0.02), ("bfloat16", 0.1)])
def test_weights_of_16_bits(lib, encoder, name, dtype, close):
    got = lib.embed(encoder(name, dtype=dtype), TEXT, normalize=False)
    np.testing.assert_allclose(got, tiny_encoders.fixture(name)["mean"], atol=close)


def test_what_is_added_to_scores_gets_their_type():
    """On a CPU encoders compute in float32; a GPU gets 16 bits and the mask of MPNet in float32."""
    q = mx.random.normal((1, 2, 5, 16), key=mx.random.key(0))
    mask = mx.random.normal((1, 2, 5, 5), key=mx.random.key(1))
    attend = layers.Attend(0.25)
    half = q.astype(mx.bfloat16)
    found = attend(half, half, half, mask)
    assert found.dtype == mx.bfloat16
    assert mx.allclose(found.astype(mx.float32), attend(q, q, q, mask), atol=0.05)


NOMIC = {
    "layers.": "encoder.layers.",
    "self_attn.o_proj": "attn.out_proj",
    "post_attention_layernorm": "norm1",
    "post_mlp_layernorm": "norm2",
    "mlp.up_proj": "mlp.fc11",
    "mlp.gate_proj": "mlp.fc12",
    "mlp.down_proj": "mlp.fc2",
    "embeddings.LayerNorm": "emb_ln",
}
NOMIC_KEYS = {
    "hidden_size": "n_embd",
    "num_hidden_layers": "n_layer",
    "num_attention_heads": "n_head",
    "intermediate_size": "n_inner",
    "max_position_embeddings": "n_positions",
    "layer_norm_eps": "layer_norm_epsilon",
}
PREFIXES = {
    "bert": "bert.",
    "roberta": "roberta.",
    "xlm-roberta": "roberta.",
    "distilbert": "distilbert.",
    "mpnet": "mpnet.",
    "electra": "electra.",
    "modernbert": "model.",
    "nomic_bert": "bert.",
    "deberta-v2": "deberta.",
}


@pytest.mark.parametrize("name", PREFIXES)
def test_names_of_weights_may_have_the_prefix_of_a_larger_model(lib, encoder, name):
    got = lib.embed(encoder(name, prefix=PREFIXES[name]), TEXT, normalize=False)
    np.testing.assert_allclose(got, tiny_encoders.fixture(name)["mean"], atol=CLOSE)


def test_the_first_form_of_nomic_bert(lib, tmp_path):
    """Other keys in the config, other names of weights, and three layers stored as one."""
    folder = tiny_encoders.make(tmp_path / "nomic", "nomic_bert")
    file = str(folder / "model.safetensors")
    stored, renamed = dict(mx.load(file)), {}
    for name, array in stored.items():
        for own, first in NOMIC.items():
            name = name.replace(own, first)
        renamed[name] = array
    for index in range(2):
        own = [f"layers.{index}.self_attn.{part}_proj.weight" for part in "qkv"]
        joined = mx.concatenate([renamed.pop(f"encoder.{name}") for name in own])
        renamed[f"encoder.layers.{index}.attn.Wqkv.weight"] = joined
    mx.eval(renamed)
    mx.save_safetensors(file, renamed)
    config = json.loads((folder / "config.json").read_text())
    for own, first in NOMIC_KEYS.items():
        config[first] = config.pop(own)
    config |= {"activation_function": "swiglu", "rotary_emb_fraction": 1.0, "prenorm": False}
    config.pop("hidden_act")
    (folder / "config.json").write_text(json.dumps(config))
    model = lib.load(folder)
    got = lib.embed(model, TEXT, normalize=False)
    np.testing.assert_allclose(got, tiny_encoders.fixture("nomic_bert")["mean"], atol=CLOSE)
    lib.free_model(model)
    (folder / "config.json").write_text(json.dumps({**config, "prenorm": True}))
    refused(EFORMAT, "prenorm True False", lambda: lib.load(folder))


@pytest.mark.parametrize("head", ["", "SequenceClassification", "TokenClassification"])
@pytest.mark.parametrize("name", NAMES)
def test_names_of_converted_weights_stay_as_they_are(name, head):
    config = tiny_encoders.config_of(name, head)
    module = architectures.load(name)
    network = module.Model(module.ModelArgs.from_dict(config))
    own = dict(tree_flatten(network.parameters()))
    assert network.sanitize(own).keys() == own.keys()
    stored = {
        key: mx.zeros(shape) for key, shape in tiny_encoders.fixture(name, head)["shapes"].items()
    }
    assert network.sanitize(stored).keys() == own.keys()


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_quantized_by_a_load(lib, once, name):
    folder = once(f"{name}-plain", lambda path: tiny_encoders.make(path, name))
    model = lib.load(folder, quantize_bits=8, quantize_group=0, quantize_mode=3)
    assert lib.info(model)["quantization"]["bits"] == 8
    got = np.array(lib.embed(model, TEXT))
    wanted = np.array(tiny_encoders.fixture(name)["mean"])
    wanted /= np.linalg.norm(wanted, axis=1, keepdims=True)
    assert ((got * wanted).sum(axis=1) > 0.98).all()
    lib.free_model(model)


@pytest.mark.parametrize("name", NAMES)
def test_kernels_compute_a_layer_as_one_operation(lib, encoder, name):
    told = lib.info(encoder(name))["kernels"]
    has_kernels = kernels.available() and name != "deberta-v2"  # whose scores are its own
    assert told["fused"] == (CONFIGS[name].get("num_hidden_layers", 2) if has_kernels else 0)
    assert bool(told["why_not"]) != has_kernels


def test_no_base_of_sliding_attention_is_that_of_full_attention(lib, encoder):
    null, same = (
        np.array(lib.embed(encoder("modernbert", config={"local_rope_theta": base}), TEXT))
        for base in (None, 160000.0)
    )
    np.testing.assert_array_equal(null, same)
    assert np.abs(null - lib.embed(encoder("modernbert"), TEXT)).max() > 1e-4


def test_info_says_what_an_encoder_can_do(lib, encoder, tiny):
    told = lib.info(encoder("bert"))
    assert told["tasks"] == ["embed"]
    assert told["context_length"] == LENGTH
    assert told["vocabulary_size"] == len(tiny_encoders.VOCABULARY)
    assert told["cache"] is None
    assert lib.info(encoder("roberta"))["context_length"] == LENGTH
    assert lib.info(tiny("llama"))["tasks"] == ["generate", "embed", "rank"]


def test_an_encoder_refuses_what_it_cannot_do(lib, encoder, tiny, open_context, tmp_path):
    model = encoder("bert")
    refused(EUNSUPPORTED, "context_create bert encoder embed", lambda: lib.context(model))
    refused(EUNSUPPORTED, "encoder adapter", lambda: lib.load_adapter(model, tmp_path))
    refused(EUNSUPPORTED, "bert head embed", lambda: lib.rank(model, "ba", ["be"]))
    context = open_context(tiny("llama"))
    refused(EUNSUPPORTED, "draft bert", lambda: lib.begin(context, [5, 6], draft=model))
    long = " ".join(TEXT[-1:] * 2)
    refused(ECONTEXT, f"texts[1] {LENGTH}", lambda: lib.embed(model, ["ba", long]))


def test_inspect_knows_encoders(lib, once):
    path = bytes(once("bert-plain", lambda path: tiny_encoders.make(path, "bert")))
    told = json.loads(bytes(lib._fill(c_char, lib.c.cow_mlx_model_inspect, path, 0)))
    assert told["loads"] and told["architecture"] == "bert" and told["problem"] is None
    assert told["cache_bytes_per_1000_tokens"] is None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_size": "48"}, "hidden_size integer"),
        ({"num_attention_heads": 5}, "num_attention_heads 5 48"),
        ({"hidden_act": "mish"}, "hidden_act mish gelu"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type absolute"),
        ({"is_decoder": True}, "is_decoder"),
        ({"intermediate_size": None}, "intermediate_size"),
        ({"num_hidden_layers": 3}, "layers.2"),
    ],
    ids=str,
)
def test_odd_configs_are_refused_by_key(lib, tmp_path, changes, words):
    folder = tiny_encoders.make(tmp_path / "odd", "bert", config=changes)
    refused(EFORMAT, words, lambda: lib.load(folder))


def test_a_weight_of_the_wrong_shape_is_refused_by_name(lib, tmp_path):
    folder = tiny_encoders.make(tmp_path / "odd", "bert")
    file = str(folder / "model.safetensors")
    stored = dict(mx.load(file))
    stored["embeddings.LayerNorm.weight"] = mx.zeros((7,))
    mx.eval(stored)
    mx.save_safetensors(file, stored)
    refused(EFORMAT, "embeddings.norm.weight 7", lambda: lib.load(folder))


def without_tokenizer(path, lines, settings):
    (path / "tokenizer.json").unlink()
    (path / "vocab.txt").write_text("".join(f"{line}\n" for line in lines))
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
    return path


@pytest.mark.parametrize("settings", [{}, {"tokenizer_class": "BertTokenizer"}], ids=str)
def test_a_vocabulary_alone_makes_berts_tokenizer(lib, encoder, tmp_path, settings):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    model = lib.load(without_tokenizer(folder, tiny_encoders.VOCABULARY, settings))
    assert lib.info(model)["route"] == "light"
    texts = ["Ba be, BÁ!", "babe 牛 ke", "", "[SEP] ba", *TEXT]
    for text in texts:
        wanted = lib.tokenize(encoder("bert"), text, ADD_SPECIAL)
        assert lib.tokenize(model, text, ADD_SPECIAL) == wanted
    assert lib.detokenize(model, lib.tokenize(model, "Babe ke", 0)) == "babe ke"
    wanted = tiny_encoders.fixture("bert")["mean"]
    np.testing.assert_allclose(lib.embed(model, TEXT, normalize=False), wanted, atol=CLOSE)
    lib.free_model(model)


def test_a_special_token_of_a_vocabulary_may_be_any_text(lib, encoder, tmp_path):
    """It may hold spaces, colons and words of templates."""
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    names = {"[CLS]": "a b:c", "[SEP]": "$A"}
    lines = [names.get(token, token) for token in tiny_encoders.VOCABULARY]
    settings = {"tokenizer_class": "BertTokenizer", "cls_token": "a b:c", "sep_token": "$A"}
    model = lib.load(without_tokenizer(folder, lines, settings))
    for text in ("", "ba be", *TEXT):
        wanted = lib.tokenize(encoder("bert"), text, ADD_SPECIAL)
        assert lib.tokenize(model, text, ADD_SPECIAL) == wanted
    lib.free_model(model)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["[PAD]", *tiny_encoders.VOCABULARY], "vocab.txt line 1"),
        (["[CLS]", "", *tiny_encoders.VOCABULARY[1:]], "vocab.txt line 2"),
        ([own for own in tiny_encoders.VOCABULARY if own != "[SEP]"], "vocab.txt [SEP]"),
    ],
    ids=["twice", "empty", "no end"],
)
def test_an_odd_vocabulary_is_refused(lib, tmp_path, lines, words):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    refused(EFORMAT, words, lambda: lib.load(without_tokenizer(folder, lines, {})))
