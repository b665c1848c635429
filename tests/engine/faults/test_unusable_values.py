"""Values in a model's files that no network can use are refused where they are read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from driver import greedy, prompt
from support import tiny_adapters
from support.library import StatusError
from support.signatures import ADD_SPECIAL, EFORMAT, EIO

HUGE = "1" + "0" * 400


@pytest.fixture
def copy(folder, tmp_path):
    return Path(shutil.copytree(folder("llama"), tmp_path / "model"))


def write(path: Path, key: str, value: str) -> None:
    """Set a key to a value that json.dumps would not write."""
    settings = {**json.loads(path.read_text()), key: "HERE"}
    path.write_text(json.dumps(settings).replace('"HERE"', value))


def refused(status, *words, call):
    with pytest.raises(StatusError) as error:
        call()
    assert error.value.status == status, error.value.message
    for word in words:
        assert str(word) in error.value.message


@pytest.mark.parametrize(
    "value", [HUGE, f"-{HUGE}", "1e400", "-1e400", "NaN", "1e39"], ids=lambda v: v[:9]
)
@pytest.mark.parametrize("key", ["rms_norm_eps", "rope_theta"])
def test_a_number_that_is_none(lib, copy, key, value):
    write(copy / "config.json", key, value)
    refused(EFORMAT, "config.json", f"{key} is ", "3.4e+38", call=lambda: lib.load(copy))


@pytest.mark.parametrize("factor", [HUGE, "Infinity", "NaN"], ids=lambda v: v[:9])
def test_a_number_in_an_object(lib, copy, factor):
    scaling = f'{{"type": "linear", "factor": {factor}}}'
    write(copy / "config.json", "rope_scaling", scaling)
    refused(EFORMAT, "config.json: rope_scaling.factor is ", call=lambda: lib.load(copy))


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("rms_norm_eps", '"small"', "a number"),
        ("rms_norm_eps", "[1e-6]", "a number"),
        ("rms_norm_eps", "{}", "a number"),
        ("num_attention_heads", '"4"', "an integer"),
        ("rope_theta", '["10000"]', "a number"),
        ("hidden_size", "{}", "an integer"),
    ],
)
@pytest.mark.parametrize("lazy", [False, True])
def test_a_value_of_another_type(lib, copy, key, value, wanted, lazy):
    write(copy / "config.json", key, value)
    words = ("config.json", f"{key} is", f"not {wanted}")
    refused(EFORMAT, *words, call=lambda: lib.load(copy, lazy=lazy))


@pytest.mark.parametrize("place", ["load", "adapter_load"])
@pytest.mark.parametrize("scale", [HUGE, "Infinity", "1e39", '"1"', "true"], ids=lambda v: v[:9])
def test_a_scale_of_an_adapter(lib, tiny, folder, tmp_path, scale, place):
    model = folder("llama")
    adapter = tmp_path / "adapter"
    tiny_adapters.make(adapter, model, ["q_proj"])
    settings = json.loads((adapter / "adapter_config.json").read_text())
    settings["lora_parameters"]["scale"] = "HERE"
    text = json.dumps(settings).replace('"HERE"', scale)
    (adapter / "adapter_config.json").write_text(text)
    if place == "load":
        call = lambda: lib.load(model, adapter_path=adapter)  # noqa: E731
    else:
        call = lambda: lib.load_adapter(tiny("llama"), adapter)  # noqa: E731
    refused(EFORMAT, "adapter_config.json: lora_parameters.scale is ", call=call)


@pytest.mark.parametrize("token", [2**31, 2**32 - 1, 2_000_000])
def test_a_token_that_no_model_has(lib, copy, token):
    """A post-processor of tokenizer.json can add any; a buffer is then left as it was."""
    path = copy / "tokenizer.json"
    settings = json.loads(path.read_text())
    added, text = (
        {"SpecialToken": {"id": "<x>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}},
    )
    settings["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [text, added],
        "pair": [text, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {"<x>": {"id": "<x>", "ids": [0, token], "tokens": ["<x>", "<y>"]}},
    }
    path.write_text(json.dumps(settings))
    model = lib.load(copy)
    refused(EFORMAT, token, call=lambda: lib.tokenize(model, "a b", ADD_SPECIAL))
    refused(EFORMAT, token, call=lambda: lib.embed(model, ["a b"]))
    assert lib.tokenize(model, "a b")
    lib.free_model(model)


def test_weights_that_shrink_before_they_are_read(lib, tiny, oracle, open_context, copy):
    """What mlx could not read it would take for read: the model is never used again."""
    model = lib.load(copy, lazy=True)
    contexts = [open_context(model), open_context(model, solo=True)]
    weights = copy / "model.safetensors"
    data = weights.read_bytes()
    with weights.open("r+b") as file:
        file.truncate(len(data) // 2)
    for _ in range(2):
        for context in contexts:
            call = lambda context=context: lib.generate(context, prompt(5), max_tokens=1)  # noqa: E731
            refused(EIO, weights, f"{len(data) // 2} bytes", "load the model again", call=call)
        refused(EIO, weights, call=lambda: lib.embed(model, ["a"]))
        with weights.open("r+b") as file:
            file.write(data)
    expected = oracle("llama").after(prompt(5), 4)
    for params in ({}, {"solo": True}):
        assert greedy(lib, open_context(tiny("llama"), **params), prompt(5), 4) == expected
    lib.free_model(model)
    again = lib.load(copy, lazy=True)
    assert greedy(lib, open_context(again), prompt(5), 4) == expected
    lib.free_model(again)
