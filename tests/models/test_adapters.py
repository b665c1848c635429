"""LoRA and DoRA adapters load as plain mlx-lm loads them."""

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
from support.rounding import FACTOR, assert_as_exact

from cowmlx.errors import BadFormat, CowMlxError, NotFound, OutOfMemory, Unsupported
from cowmlx.models import adapters

COUNT = 12
LORA = {"rank": 4, "scale": 10.0, "dropout": 0.0}
CASES: dict[str, tuple[str, dict[str, Any] | None, dict[str, Any]]] = {
    "lora": ("llama", None, {"fine_tune_type": "lora", "num_layers": 2}),
    "lora of all layers": ("llama", None, {"num_layers": -1}),
    "dora": ("llama", None, {"fine_tune_type": "dora", "num_layers": 2}),
    "named layers": (
        "qwen2",
        None,
        {"num_layers": 3, "lora_parameters": {**LORA, "keys": ["self_attn.q_proj", "lm_head"]}},
    ),
    "lora on 4 bits": ("llama", {"group_size": 32, "bits": 4}, {"num_layers": 2}),
    "dora on 4 bits": (
        "llama",
        {"group_size": 32, "bits": 4},
        {"fine_tune_type": "dora", "num_layers": 1},
    ),
    "experts": ("qwen3_moe", None, {"num_layers": 2}),
    "experts on 4 bits": ("qwen3_moe", {"group_size": 32, "bits": 4}, {"num_layers": 2}),
}


# Kernels add up products with packed numbers and with their biases apart: 5.3 times mlx's error.
CANCELLING = 6.0


def make(place: pathlib.Path, model: pathlib.Path, settings: dict[str, Any]) -> pathlib.Path:
    """Write an adapter that fits a model, of the same random weights every time."""
    from cowmlx.folders import weights
    from cowmlx.networks import light_route

    settings = {"lora_parameters": LORA, **settings}
    place.mkdir(parents=True, exist_ok=True)
    (place / "adapter_config.json").write_text(json.dumps(settings))
    network = load(model, lazy=True).network
    adapters.insert_layers(network, settings, light_route.ALIAS)
    arrays = {}
    for index, (name, array) in enumerate(sorted(weights.flatten(network.parameters()).items())):
        leaf = name.rsplit(".", 1)[-1]
        if leaf in ("lora_a", "lora_b", "m"):
            change = mx.random.normal(array.shape, scale=0.2, key=mx.random.key(index))
            # What mlx-lm begins with is random for lora_a, and follows from the model for m.
            arrays[name] = array + change if leaf == "m" else change
    assert arrays
    mx.save_safetensors(str(place / "adapters.safetensors"), arrays)
    return place


@pytest.fixture(scope="module")
def answers(folder: pathlib.Path, ask: Callable[..., Any]) -> dict[str, dict[str, Any]]:
    requests = []
    for number, (family, quantize, settings) in enumerate(CASES.values()):
        place = folder / f"adapted-{number}"
        path = tiny_models.make(place / "model", family, quantize=quantize)
        adapter = make(place / "adapter", path, settings)
        prompt = load(path, lazy=True).tokenizer.encode(
            PROMPT, add_special=False, parse_special=False
        )
        requests.append(
            {"path": str(path), "adapter": str(adapter), "prompt": prompt, "count": COUNT}
        )
    found = ask(requests)
    return {
        name: {**request, **answer}
        for name, request, answer in zip(CASES, requests, found, strict=True)
    }


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_equals_plain_mlx_lm(name: str, answers: dict[str, dict[str, Any]]) -> None:
    expected = answers[name]
    model = load(expected["path"], adapter=pathlib.Path(expected["adapter"]))
    tokens, logits = greedy(model, expected["prompt"], COUNT)
    assert model.route == "light"
    assert tokens == expected["tokens"]
    plain = mx.load(expected["logits"])
    factor = CANCELLING if name == "experts on 4 bits" else FACTOR
    assert_as_exact(logits, plain["logits"], plain["error"], factor=factor)
    _, without = greedy(load(expected["path"]), expected["prompt"], 1)
    assert not mx.allclose(logits[:1], without, rtol=1e-2, atol=1e-2).item()


def test_dora_of_experts_is_refused(tmp_path: pathlib.Path) -> None:
    model = tiny_models.make(tmp_path / "model", "qwen3_moe")
    place = make(tmp_path / "adapter", model, {"num_layers": 2})
    settings = json.loads((place / "adapter_config.json").read_text())
    (place / "adapter_config.json").write_text(json.dumps({**settings, "fine_tune_type": "dora"}))
    with pytest.raises(Unsupported, match="no DoRA for expert layers"):
        load(model, adapter=place)


def test_a_full_adapter_of_experts_replaces_their_weights(tmp_path: pathlib.Path) -> None:
    path = tiny_models.make(tmp_path / "model", "qwen3_moe")
    other = tiny_models.make(tmp_path / "other", "qwen3_moe", seed=1)
    place = tmp_path / "full"
    place.mkdir()
    (place / "adapter_config.json").write_text('{"fine_tune_type": "full"}')
    weights = mx.load(str(other / "model.safetensors"))
    mx.save_safetensors(str(place / "adapters.safetensors"), weights)
    found, expected = load(path, adapter=place), load(other)
    assert greedy(found, [3, 5, 7], COUNT)[0] == greedy(expected, [3, 5, 7], COUNT)[0]


def test_a_full_adapter_replaces_weights(llama: pathlib.Path, tmp_path: pathlib.Path) -> None:
    place = tmp_path / "full"
    place.mkdir()
    (place / "adapter_config.json").write_text('{"fine_tune_type": "full"}')
    mx.save_safetensors(str(place / "adapters.safetensors"), {"model.norm.weight": mx.zeros((64,))})
    network = load(llama, adapter=place).network
    assert not network(mx.array([[1]])).any().item()


def damage(place: pathlib.Path, what: str) -> None:
    config, weights = place / "adapter_config.json", place / "adapters.safetensors"
    settings = json.loads(config.read_text())
    if what == "no folder":
        config.unlink()
        weights.unlink()
        place.rmdir()
    elif what == "no config":
        config.unlink()
    elif what == "no weights":
        weights.unlink()
    elif what == "not json":
        config.write_text("{\n nope")
    elif what == "truncated":
        weights.write_bytes(weights.read_bytes()[:200])
    elif what == "other kind":
        config.write_text(json.dumps({**settings, "fine_tune_type": "magic"}))
    elif what == "no scale":
        del settings["lora_parameters"]["scale"]
        config.write_text(json.dumps(settings))
    elif what == "other rank":
        settings["lora_parameters"]["rank"] = 3
        config.write_text(json.dumps(settings))
    elif what == "other names":
        mx.save_safetensors(str(weights), {"model.layers.9.lora_a": mx.zeros((2, 2))})
    elif what == "no such rank":
        settings["lora_parameters"]["rank"] = 65536
        config.write_text(json.dumps(settings))
        mx.save_safetensors(str(weights), {})
    elif what in ("a part of a layer", "a layer of those that are named"):
        arrays: Any = mx.load(str(weights))
        name = next(name for name in arrays if name.endswith("q_proj.lora_a"))
        left_out = name if what == "a part of a layer" else name.removesuffix("lora_a")
        if left_out != name:
            keys = ["self_attn.q_proj", "self_attn.k_proj"]
            settings["lora_parameters"]["keys"] = keys
            config.write_text(json.dumps(settings))
            arrays = {full: a for full, a in arrays.items() if any(key in full for key in keys)}
        arrays = {full: a for full, a in arrays.items() if not full.startswith(left_out)}
        mx.save_safetensors(str(weights), arrays)
    elif what == "odd rank":
        settings["lora_parameters"]["rank"] = "many"
        config.write_text(json.dumps(settings))


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        ("no folder", NotFound, "no such adapter directory"),
        ("no config", NotFound, "adapter_config.json"),
        ("no weights", NotFound, "adapters.safetensors"),
        ("not json", BadFormat, "line 2, column 2"),
        ("truncated", BadFormat, "adapters.safetensors"),
        ("other kind", BadFormat, "'magic'"),
        ("no scale", BadFormat, "'scale'"),
        ("other rank", BadFormat, "lora_a"),
        ("other names", BadFormat, "model.layers.9.lora_a"),
        ("odd rank", BadFormat, "rank"),
        ("no such rank", BadFormat, "lacks all parameters"),
        ("a part of a layer", BadFormat, "q_proj.lora_a"),
        ("a layer of those that are named", BadFormat, "q_proj.lora_a, "),
    ],
)
def test_what_is_wrong_with_an_adapter_is_named(
    llama: pathlib.Path, tmp_path: pathlib.Path, what: str, error: type[CowMlxError], words: str
) -> None:
    place = make(tmp_path / "adapter", llama, {"num_layers": 1})
    damage(place, what)
    with pytest.raises(error) as failure:
        load(llama, adapter=place)
    assert words in str(failure.value)


def test_a_layer_that_a_file_has_nothing_of_stays_as_it_is(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    """Earlier versions of mlx-lm trained fewer layers than those that can have an adapter."""
    place = make(tmp_path / "adapter", llama, {"num_layers": 1})
    file = str(place / "adapters.safetensors")
    arrays: Any = mx.load(file)
    mx.save_safetensors(file, {name: a for name, a in arrays.items() if "q_proj" in name})
    found = load(llama, adapter=place).network
    assert [name.rpartition(".")[2] for name in adapters.layers_of(found)] == ["q_proj"]


def test_room_is_asked_for_before_an_adapter_is_read(
    llama: pathlib.Path, tmp_path: pathlib.Path
) -> None:
    place = make(tmp_path / "adapter", llama, {"num_layers": 1})
    arrays: Any = mx.load(str(place / "adapters.safetensors"))

    def require_room(size: int, what: str) -> None:
        assert (size, what) == (sum(array.nbytes for array in arrays.values()), "the adapter")
        raise OutOfMemory("no room")

    with pytest.raises(OutOfMemory, match="no room"):
        adapters.adapted(load(llama), str(place), 1.0, require_room)
