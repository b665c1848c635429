"""Quantized models on the light route equal plain mlx-lm, for all bits and modes."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from loading import PROMPT, greedy
from support import tiny_models
from support.loaded import load
from support.rounding import assert_as_exact

from cowmlx.errors import BadFormat
from cowmlx.quantized_formats import FORMATS

COUNT = 12
SETTINGS: dict[str, dict[str, Any]] = {
    **{f"affine-{bits}": {"group_size": 32, "bits": bits} for bits in (2, 3, 4, 5, 6, 8)},
    **{
        mode: {"group_size": known.groups[0], "bits": known.bits[0], "mode": mode}
        for mode, known in FORMATS.items()
        if not known.affine
    },
    "per-layer": {
        "group_size": 32,
        "bits": 4,
        "model.layers.0.self_attn.q_proj": {"group_size": 64, "bits": 8},
        "model.layers.1.mlp.down_proj": {"group_size": 32, "bits": 3},
        "model.layers.2.self_attn.o_proj": False,
        "lm_head": {"group_size": 32, "bits": 4, "mode": "mxfp4"},
    },
    "unnamed": {"group_size": 32, "bits": 4},
}


def make(folder: pathlib.Path, name: str, family: str = "llama") -> pathlib.Path:
    path = tiny_models.make(folder / f"{family}-{name}", family, quantize=SETTINGS[name])
    if name == "unnamed":
        # The weights tell their own bits where the config names others.
        config = json.loads((path / "config.json").read_text())
        config["quantization"]["bits"] = 8
        (path / "config.json").write_text(json.dumps(config))
    return path


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path, ask: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    names = [("llama", name) for name in SETTINGS] + [("qwen3_moe", "affine-4"), ("mamba", "mxfp4")]
    requests = []
    for family, name in names:
        path = make(folder, name, family)
        tokenizer = load(path, lazy=True).tokenizer
        prompt = tokenizer.encode(PROMPT, add_special=False, parse_special=False)
        requests.append({"path": str(path), "prompt": prompt, "count": COUNT})
    found = ask(requests)
    return {
        f"{family} {name}": {**request, **answer}
        for (family, name), request, answer in zip(names, requests, found, strict=True)
    }


@pytest.mark.plain
@pytest.mark.parametrize(
    "name", [*(f"llama {n}" for n in SETTINGS), "qwen3_moe affine-4", "mamba mxfp4"]
)
def test_equals_plain_mlx_lm(name: str, answers: dict[str, dict[str, Any]]) -> None:
    expected = answers[name]
    model = load(expected["path"])
    assert model.route == "light"
    tokens, logits = greedy(model, expected["prompt"], COUNT)
    assert tokens == expected["tokens"]
    plain = mx.load(expected["logits"])
    # Without kernels many vectors are multiplied with dequantized weights, in another order.
    assert_as_exact(logits, plain["logits"], plain["error"], strict=1e-4)
    if not name.startswith("mamba"):
        # mlx-lm leaves out what a module holds besides its layers, such as mamba's A_log.
        assert model.parameters == expected["parameters"]
    assert model.info()["quantization"]["bits"] == model.quantization["bits"]


def test_parameters_count_numbers_not_words(folder: pathlib.Path) -> None:
    whole = load(tiny_models.make(folder / "whole", "llama"))
    for name in ("affine-3", "affine-4", "affine-8", "mxfp4", "nvfp4"):
        packed = load(make(folder / "count", name))
        assert packed.parameters == whole.parameters
        assert packed.nbytes < whole.nbytes


def test_mxfp4_named_by_quantization_config(folder: pathlib.Path) -> None:
    path = make(folder / "foreign", "mxfp4")
    config = json.loads((path / "config.json").read_text())
    del config["quantization"]
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (path / "config.json").write_text(json.dumps(config))
    model = load(path)
    assert model.route == "light"
    assert model.quantization == SETTINGS["mxfp4"]


@pytest.mark.parametrize(
    ("quantization", "words"),
    [
        ("yes", "must be an object"),
        ({"bits": 4}, "group_size"),
        ({"group_size": 32, "bits": "four"}, "bits"),
        ({"group_size": 0, "bits": 4}, "'group_size', not 0"),
        ({"group_size": 32, "bits": -4}, "'bits', not -4"),
        ({"group_size": 32, "bits": 4, "lm_head": {"group_size": 0}}, "lm_head"),
        ({"group_size": 32, "bits": 4, "model.layers.0.self_attn.q_proj": {"bits": 77}}, ""),
        ({"group_size": 32, "bits": 4, "model.layers.0.self_attn.q_proj": 7}, ""),
    ],
)
def test_unusable_settings_are_named(folder: pathlib.Path, quantization: Any, words: str) -> None:
    path = make(folder / f"bad-{hash(str(quantization))}", "affine-4")
    config = json.loads((path / "config.json").read_text())
    config["quantization"] = quantization
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadFormat) as failure:
        load(path)
    assert words in str(failure.value)


def test_scales_that_are_wider_than_their_weights(folder: pathlib.Path) -> None:
    """Their groups would have no values, by whose number mlx divides."""
    path = make(folder / "scales", "affine-4")
    stored = {name: mx.array(x) for name, x in mx.load(str(path / "model.safetensors")).items()}
    name = "model.layers.1.self_attn.q_proj.scales"
    stored[name] = mx.zeros((stored[name].shape[0], 1000))
    mx.save_safetensors(str(path / "model.safetensors"), stored)
    with pytest.raises(BadFormat, match=r"q_proj\.scales is 1000 wide"):
        load(path)


@pytest.mark.parametrize("part", ["scales", "biases"])
def test_scales_and_biases_of_different_types(folder: pathlib.Path, part: str) -> None:
    path = make(folder / f"different-{part}", "affine-4")
    stored = {name: mx.array(x) for name, x in mx.load(str(path / "model.safetensors")).items()}
    name, logits = f"model.layers.1.self_attn.q_proj.{part}", []
    for type_ in (mx.float16, mx.float32):
        stored[name] = stored[name].astype(type_)
        mx.save_safetensors(str(path / "model.safetensors"), stored)
        model = load(path)
        logits.append(model.network(mx.array([[20, 30]]), cache=model.make_cache()))
    assert mx.array_equal(*logits).item()
