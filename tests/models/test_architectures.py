"""The light route runs every kind of architecture exactly as plain mlx-lm does."""

from __future__ import annotations

import dataclasses
import inspect
import pathlib
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import pytest
from loading import PROMPT, greedy
from support import tiny_models
from support.loaded import load
from support.rounding import assert_as_exact

from cowmlx.errors import Unsupported
from cowmlx.models import network
from cowmlx.networks import light_route

COUNT = 24


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path, ask: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    """Plain mlx-lm's tokens and logits for every family, from one process."""
    names = list(tiny_models.FAMILIES)
    requests = []
    for name in names:
        path = tiny_models.make(folder / name, name)
        model = load(path, lazy=True)
        prompt = model.tokenizer.encode(PROMPT, add_special=False, parse_special=False)
        requests.append({"path": str(path), "prompt": prompt, "count": COUNT})
    found = ask(requests)
    return {
        name: {**request, **answer}
        for name, request, answer in zip(names, requests, found, strict=True)
    }


@pytest.mark.plain
@pytest.mark.parametrize("family", list(tiny_models.FAMILIES))
def test_same_tokens_and_logits_as_plain_mlx_lm(
    family: str, answers: dict[str, dict[str, Any]]
) -> None:
    expected = answers[family]
    model = load(expected["path"])
    tokens, logits = greedy(model, expected["prompt"], COUNT)
    assert model.route == "light"
    assert tokens == expected["tokens"]
    plain = mx.load(expected["logits"])
    assert_as_exact(logits, plain["logits"], plain["error"])
    assert logits.shape[-1] == model.vocabulary_size
    if expected["end_tokens"] is not None:
        assert sorted(model.end_tokens) == expected["end_tokens"]


def test_a_config_that_transformers_refuses_still_runs(
    answers: dict[str, dict[str, Any]],
) -> None:
    """Their tokenizers depend on no architecture; the test above has compared their tokens."""
    assert "exaone4" in {name for name, answer in answers.items() if answer["refusal"]}


def test_greedy_tokens_are_no_near_ties(answers: dict[str, dict[str, Any]]) -> None:
    for answer in answers.values():
        plain = mx.sort(mx.load(answer["logits"])["logits"], axis=-1)
        assert mx.min(plain[:, -1] - plain[:, -2]).item() > 1e-3


def test_parameters_are_counted(answers: dict[str, dict[str, Any]]) -> None:
    for name in ("llama", "gemma2", "mixtral", "qwen3_moe"):
        assert load(answers[name]["path"]).parameters == answers[name]["parameters"]


@pytest.mark.plain
def test_weights_that_an_architecture_changes_in_place_are_changed(
    folder: pathlib.Path, ask: Callable[..., Any]
) -> None:
    """Falcon-H1 multiplies those of Hugging Face's layout, where a convolution lies turned."""
    path = tiny_models.make(folder / "multiplied", "falcon_h1", config={"lm_head_multiplier": 1.5})
    weights = mx.load(str(path / "model.safetensors"))
    for name in weights:
        if name.endswith("conv1d.weight"):
            weights[name] = mx.contiguous(weights[name].transpose(0, 2, 1))
    mx.eval(weights)  # they are read from the file that is written
    mx.save_safetensors(str(path / "model.safetensors"), weights, metadata={"format": "pt"})
    model = load(path)
    prompt = model.tokenizer.encode(PROMPT, add_special=False, parse_special=False)
    (expected,) = ask([{"path": str(path), "prompt": prompt, "count": COUNT}])
    tokens, logits = greedy(model, prompt, COUNT)
    assert tokens == expected["tokens"]
    plain = mx.load(expected["logits"])
    assert_as_exact(logits, plain["logits"], plain["error"])


def test_options_of_one_architecture_do_not_hide_those_of_another() -> None:
    """SmolLM 3's are llama's and two more, and were llama's alone once a llama was loaded."""
    known = sorted(set(light_route.supported_architectures()) - set(light_route.remappings()[0]))
    arguments = []
    for name in known:
        try:
            arguments.append(light_route.import_module(f"models.{name}").ModelArgs)
        except Unsupported:
            assert name == "olmo"  # needs another package
    for argument in arguments:
        network._sign(argument)
    for each in arguments:
        initial = {field.name for field in dataclasses.fields(each) if field.init}
        assert set(inspect.signature(each).parameters) == initial


def test_layers_without_positions_stay_so_after_a_llama(folder: pathlib.Path) -> None:
    load(tiny_models.make(folder / "llama-first", "llama"))
    own = load(tiny_models.make(folder / "smollm3", "smollm3"))
    ropes = [type(layer.self_attn.rope).__name__ for layer in own.network.layers]
    assert [name == "NoPE" for name in ropes] == [False, True, False]
