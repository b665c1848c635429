"""Wirings and xLSTM folders with something wrong: a message that helps, and nothing left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from driver import greedy, opened, prompt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support import broken_wirings, tiny_models, wirings
from support.library import StatusError
from support.signatures import EFORMAT, ENOENT, EUNSUPPORTED

from cowmlx.networks.wiring.declaration import MAX_BLOCKS


@pytest.fixture
def refused(lib, tiny, oracle, open_context):
    """Loads a folder that must be refused; returns the message."""
    working = open_context(tiny("xlstm"))
    tokens = oracle("xlstm").after(prompt(5), 4)

    def refused(folder, *words, status=EFORMAT):
        lib.trim_memory()
        before = lib.info()
        with pytest.raises(StatusError) as error:
            lib.load(folder)
        message = error.value.message
        assert error.value.status == status, message
        assert message.startswith("model_load: ")
        assert len(message) < 1000 and "Traceback" not in message
        for word in words:
            assert str(word) in message, message
        lib.trim_memory()
        after = lib.info()
        assert after["handles"] == before["handles"]
        assert after["memory"]["active"] <= before["memory"]["active"] + 100_000
        lib.reset(working)
        assert greedy(lib, working, prompt(5), 4) == tokens
        return message

    return refused


@pytest.fixture
def mad(tmp_path):
    """A good folder with a wiring, to be spoilt."""
    return tiny_models.make(tmp_path / "mad", "mad-hybrid")


@pytest.fixture
def xlstm(tmp_path):
    """A good xLSTM folder, to be spoilt."""
    return tiny_models.make(tmp_path / "xlstm", "xlstm")


def edit(folder: Path, **changes):
    """Change keys of a config."""
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def rewire(folder: Path, change):
    """Change a config's wiring in place."""
    wiring = json.loads((folder / "config.json").read_text())["wiring"]
    change(wiring)
    edit(folder, wiring=wiring)


def block(wiring, name):
    return next(spec for spec in wiring["blocks"] if spec["name"] == name)


def reweigh(folder: Path, change):
    """Change a folder's weights in place."""
    import mlx.core as mx

    weights = {name: mx.array(x) for name, x in mx.load(str(folder / "model.safetensors")).items()}
    change(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})


# ------------------------------------------------------------------------- Wirings


@pytest.mark.parametrize("value", [None, [], "wiring", 5, {}])
def test_a_wiring_that_is_none(refused, mad, value):
    edit(mad, wiring=value)
    refused(mad, "wiring")


def test_a_wiring_that_is_missing(refused, mad):
    path = mad / "config.json"
    config = json.loads(path.read_text())
    del config["wiring"]
    path.write_text(json.dumps(config))
    refused(mad, "lacks wiring", "mad")


def parameters(name, **changes):
    return lambda wiring: block(wiring, name)["parameters"].update(changes)


def edge(source, target, polarity):
    def change(wiring):
        names = [spec["name"] for spec in wiring["blocks"]]
        wiring["adjacency"][names.index(source)][names.index(target)] = polarity

    return change


SPOILT = {
    "an unknown type": (lambda w: block(w, "norm").update(type="magic"), ["norm", "'magic'"]),
    "two names": (lambda w: block(w, "norm").update(name="head"), ["two blocks", "head"]),
    "no name": (lambda w: block(w, "norm").pop("name"), ["'name'"]),
    "a name with a dot": (lambda w: block(w, "norm").update(name="a.b"), ["'a.b'"]),
    "a missing parameter": (
        lambda w: block(w, "mlstm_0")["parameters"].pop("qk_dims"),
        ["mlstm_0 (mlstm)", "'qk_dims'"],
    ),
    "an unknown parameter": (parameters("slstm_2", speed=2), ["slstm_2 (slstm)", "'speed'"]),
    "a parameter of another type": (
        parameters("mlstm_0", num_heads="four"),
        ["mlstm_0 (mlstm)", "num_heads", "'four'"],
    ),
    "no heads": (parameters("mlstm_0", num_heads=0), ["mlstm_0", "num_heads", "0"]),
    "no chunks": (parameters("mlstm_0", chunk_size=0), ["mlstm_0", "chunk_size", "0"]),
    "heads that do not divide": (parameters("slstm_2", num_heads=5), ["slstm_2", "64", "5"]),
    "not a number": (parameters("mlstm_0", eps=float("nan")), ["mlstm_0", "eps", "nan"]),
    "infinity": (parameters("mlstm_0", eps=float("inf")), ["mlstm_0", "eps", "inf"]),
    "a huge number": (parameters("mlstm_0", eps=10**400), ["mlstm_0", "eps"]),
    "an odd head": (parameters("attention_1", head_dim=63), ["attention_1", "63"]),
    "a wide convolution": (parameters("slstm_2", conv_kernel=2**30), ["slstm_2", "conv_kernel"]),
    "other widths": (parameters("norm", dims=63), ["norm", "64", "63"]),
    "a polarity of 2": (edge("norm", "head", 2), ["norm → head", "2"]),
    "a polarity of 0.5": (edge("norm", "head", 0.5), ["norm → head", "0.5"]),
    "a cycle": (edge("norm", "mlstm_0", 1), ["cycle", "mlstm_0", "norm"]),
    "an edge to the input": (edge("head", "tokens", 1), ["cycle", "tokens"]),
    "an edge too few": (edge("norm", "head", 0), ["head"]),
    "a row too few": (lambda w: w["adjacency"].pop(), ["adjacency", "rows"]),
    "a column too few": (lambda w: w["adjacency"][1].pop(), ["columns", "row of mlstm_0"]),
    "an input that is no block": (lambda w: w.update(input="yak"), ["input", "'yak'"]),
    "an input that is no name": (lambda w: w.update(input=["tokens"]), ["input", "['tokens']"]),
    "an output that is no block": (lambda w: w.update(output={"a": 1}), ["output", "{'a': 1}"]),
    "an output with a successor": (lambda w: w.update(output="norm"), ["head", "norm"]),
    "vectors as input": (lambda w: w.update(input="norm"), ["norm"]),
    "an unknown key": (lambda w: w.update(edges=[]), ["'edges'"]),
}


@pytest.mark.parametrize("what", SPOILT)
def test_wirings_with_something_wrong(refused, mad, what):
    change, words = SPOILT[what]
    rewire(mad, change)
    refused(mad, *words)


@settings(max_examples=60, deadline=None, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_spoilt_wirings_are_refused_or_generate(lib, mad, data):
    size = json.loads((mad / "config.json").read_text())["vocab_size"]
    edit(mad, wiring=data.draw(broken_wirings.spoilt(size, [wirings.hybrid])))
    try:
        model = lib.load(mad)
    except StatusError as error:
        assert error.status == EFORMAT, error.message
        return
    with opened(lib, model) as context:
        assert len(greedy(lib, context, prompt(5), 2)) == 2
    lib.free_model(model)


@pytest.mark.parametrize("depth", [500, 100_000])
@pytest.mark.parametrize("place", ["wiring", "block", "parameter", "polarity"])
def test_nested_values(refused, mad, depth, place):
    deep = "[" * depth + "]" * depth
    text = (mad / "config.json").read_text()
    config = json.loads(text)
    wiring = config["wiring"]
    if place == "wiring":
        config["wiring"] = "HERE"
    elif place == "block":
        wiring["blocks"][1] = "HERE"
    elif place == "parameter":
        block(wiring, "mlstm_0")["parameters"]["eps"] = "HERE"
    else:
        wiring["adjacency"][0][1] = "HERE"
    (mad / "config.json").write_text(json.dumps(config).replace('"HERE"', deep))
    refused(mad)


def test_a_wiring_of_ten_thousand_blocks(refused, mad):
    """It is refused before its matrix, of a hundred million numbers, is read."""
    count = 10_000
    norm = {"type": "identity", "parameters": {"dims": 64}}
    blocks = [{"name": f"b{number}", **norm} for number in range(count)]
    edit(mad, wiring={"blocks": blocks, "adjacency": [[]] * count})
    refused(mad, f"more than {MAX_BLOCKS} blocks")


# -------------------------------------------------------------------------- Weights


@pytest.mark.parametrize("family", ["mad", "xlstm"])
def test_weights_that_are_missing(refused, request, family):
    folder = request.getfixturevalue(family)
    name = {
        "mad": "blocks.slstm_2.slstm_layer.recurrent",
        "xlstm": "blocks.xlstm_1.mlstm_layer.out_proj.weight",
    }[family]
    reweigh(folder, lambda weights: weights.pop(name))
    refused(folder, "lacks", name)


@pytest.mark.parametrize("family", ["mad", "xlstm"])
def test_weights_that_are_left_over(refused, request, family):
    import mlx.core as mx

    folder = request.getfixturevalue(family)
    reweigh(folder, lambda weights: weights.update({"blocks.more.weight": mx.zeros((2,))}))
    refused(folder, "blocks.more.weight")


def test_weights_of_more_layers_than_the_config_has(refused, xlstm):
    edit(xlstm, num_hidden_layers=2)
    refused(xlstm, "xlstm_2")


def test_weights_of_fewer_layers_than_the_config_has(refused, xlstm):
    edit(xlstm, num_hidden_layers=4)
    refused(xlstm, "xlstm_3")


@pytest.mark.parametrize("family", ["mad", "xlstm"])
def test_weights_of_other_shapes(refused, request, family):
    folder = request.getfixturevalue(family)
    name = {
        "mad": "blocks.mlstm_0.mlstm_layer.q.weight",
        "xlstm": "blocks.xlstm_1.mlstm_layer.q.weight",
    }[family]
    reweigh(folder, lambda weights: weights.update({name: weights[name][:-1]}))
    refused(folder, name, "31x64", "32x64")


@pytest.mark.parametrize("kind", ["int32", "uint8", "bool_", "complex64"])
@pytest.mark.parametrize("family", ["mad", "xlstm"])
def test_weights_that_are_no_floating_point_numbers(refused, request, family, kind):
    import mlx.core as mx

    folder = request.getfixturevalue(family)
    name = {
        "mad": "blocks.mlstm_0.mlstm_layer.q.weight",
        "xlstm": "blocks.xlstm_1.mlstm_layer.q.weight",
    }[family]
    reweigh(folder, lambda weights: weights.update({name: weights[name].astype(getattr(mx, kind))}))
    refused(folder, name, kind.removesuffix("_"), "float32")


def test_logits_of_more_tokens_than_the_embedding_has(refused, mad):
    """A token without a vector would be read from beyond the embedding."""
    import mlx.core as mx

    def change(wiring):
        embedding = block(wiring, wiring["input"])
        embedding["parameters"]["num_embeddings"] -= 1

    rewire(mad, change)
    wiring = json.loads((mad / "config.json").read_text())["wiring"]
    table = f"blocks.{wiring['input']}.table.weight"
    reweigh(mad, lambda weights: weights.update({table: mx.array(weights[table][:-1])}))
    refused(mad, wiring["input"], wiring["output"])


def test_the_embedding_under_both_of_its_names(refused, xlstm):
    def change(weights):
        weights["embedding.weight"] = weights["blocks.embedding.table.weight"]
        weights["backbone.embeddings.weight"] = weights.pop("blocks.embedding.table.weight")

    reweigh(xlstm, change)
    refused(xlstm, "both of its names")


def test_matrices_of_the_other_weight_mode(refused, xlstm):
    edit(xlstm, weight_mode="fused")
    refused(xlstm, "qkv_opreact")


def test_a_shard_that_is_missing(refused, xlstm):
    def change(weights):
        del weights["blocks.lm_head.linear.weight"]

    reweigh(xlstm, change)
    (xlstm / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"lm_head.weight": "model_7.safetensors"}})
    )
    refused(xlstm, "model_7.safetensors", status=ENOENT)


# --------------------------------------------------------------------------- Configs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_heads": 0}, ["num_heads", "0"]),
        ({"num_heads": 3}, ["num_heads 3"]),
        ({"num_heads": "x"}, ["num_heads", "'x'"]),
        ({"chunk_size": 0}, ["chunk_size", "0"]),
        ({"chunk_size": -5}, ["chunk_size", "-5"]),
        ({"num_hidden_layers": 10**9}, ["num_hidden_layers", 10**9]),
        ({"num_hidden_layers": -1}, ["num_hidden_layers", "-1"]),
        ({"num_hidden_layers": 200}, ["num_hidden_layers", 200, 48]),
        ({"vocab_size": 2**31}, ["num_embeddings", 2**31]),
        ({"vocab_size": 2**31 - 1}, [2**31 - 1]),
        ({"vocab_size": None}, ["None"]),
        ({"hidden_size": 2**31 - 1}, [2**31 - 1]),
        ({"hidden_size": 64, "embedding_dim": 128}, ["hidden_size", "embedding_dim", 64, 128]),
        ({"weight_mode": "x"}, ["weight_mode", "'x'", "single", "fused"]),
        ({"norm_eps": float("nan")}, ["norm_eps", "nan"]),
        ({"eps": float("inf")}, ["eps", "inf"]),
        ({"eps": 10**400}, ["eps"]),
        ({"gate_soft_cap": 0}, ["gate_soft_cap", "0"]),
        ({"ffn_proj_factor": 1e300}, ["ffn_proj_factor"]),
        ({"tie_word_embeddings": "no"}, ["tie_word_embeddings", "'no'"]),
        ({"add_out_norm": 0}, ["add_out_norm", "0"]),
    ],
    ids=lambda value: ",".join(value) if isinstance(value, dict) else "",
)
def test_configs_that_cannot_be(refused, xlstm, changes, words):
    edit(xlstm, **changes)
    refused(xlstm, *words)


@pytest.mark.parametrize("family", ["mad", "xlstm"])
@pytest.mark.parametrize("method", ["gptq", "awq", "bitsandbytes", "fp8"])
def test_packed_by_another_method(refused, request, family, method):
    folder = request.getfixturevalue(family)
    edit(folder, quantization_config={"quant_method": method, "bits": 4, "group_size": 64})
    refused(folder, family, method, status=EUNSUPPORTED)


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ("blocks.norm", ["RMSNorm"]),
        ("blocks.mlstm_0.mlstm_layer.q", ["blocks.mlstm_0.mlstm_layer.q.scales"]),
    ],
)
def test_layers_that_are_not_packed_but_named_so(refused, mad, layer, words):
    edit(mad, quantization={"group_size": 32, "bits": 4, layer: {"group_size": 32, "bits": 4}})
    refused(mad, *words)


@pytest.mark.parametrize(
    "settings", [{"bits": 3.5, "group_size": 64}, {"bits": 4}, {"group_size": 64}, "4", [4]]
)
@pytest.mark.parametrize("family", ["mad", "xlstm"])
def test_settings_of_packing_that_are_none(refused, request, family, settings):
    folder = request.getfixturevalue(family)
    edit(folder, quantization=settings)
    refused(folder, "quantization")
