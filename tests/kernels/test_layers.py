"""Fused layers against a network's own: tokens, logits and the state of every cache."""

from __future__ import annotations

import copy
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from support import tiny_models
from support.loaded import load

from cowmlx.accelerate import kernels
from cowmlx.accelerate.blocks import InBlocks
from cowmlx.accelerate.fused import network as fused
from cowmlx.accelerate.fused import parts
from cowmlx.cache.batch import Batch
from cowmlx.cache.sequence import share
from cowmlx.cache.trimming import trim
from cowmlx.generated.constants import ACTIVATIONS_INT8
from cowmlx.generation.batched import feed
from cowmlx.models.model import Model

pytestmark = pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")

PROMPT = [3, 5, 7, 2, 9, 11, 4, 8, 1, 6, 12, 13]
STEPS = 24  # beyond every window of the tiny models
# Of the largest logit: float32 adds up the same numbers in another order.
NEAR = 5e-5

WHOLE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "phi3", "olmo2")
WHOLE = (*WHOLE, "olmo3", "exaone4")
HALVES = ("gpt_oss", "mixtral", "qwen3_moe")
FOUR_BITS = {"group_size": 32, "bits": 4}


def run(model: Model, caches: list[Any], tokens: list[int]) -> mx.array:
    """Return logits (T, V) behind tokens."""
    logits: mx.array = model.network(mx.array([tokens], mx.int32), cache=caches)[0]
    mx.eval(logits, [cache.state for cache in caches])
    return logits


def assert_near(own: mx.array, expected: mx.array) -> None:
    assert own.shape == expected.shape
    scale = mx.maximum(mx.abs(expected).max(), 1e-3)
    assert (mx.abs(own - expected).max() / scale).item() < NEAR


def columns(cache: Any, array: mx.array) -> mx.array:
    """Keys or values in the order of time, without the room that plain layers have more of."""
    if type(cache).__name__ == "RotatingKVCache":
        ordered: mx.array = cache._temporal_order(array)
        return ordered
    return array[..., : cache.offset, :] if type(cache).__name__ == "KVCache" else array


def assert_same_state(own: list[Any], expected: list[Any]) -> None:
    for one, other in zip(own, expected, strict=True):
        assert vars(one).keys() == vars(other).keys()
        for name, value in vars(other).items():
            if isinstance(value, mx.array):
                assert getattr(one, name).dtype == value.dtype
                assert_near(*(columns(cache, getattr(cache, name)) for cache in (one, other)))
            elif name != "_idx":  # where a ring begins
                assert getattr(one, name) == value, name


def follow(models: tuple[Model, Model], caches: tuple[list[Any], list[Any]], count: int) -> None:
    """Take the best tokens of the plain model through both."""
    token = PROMPT[-1]
    for _ in range(count):
        own, expected = (run(m, c, [token]) for m, c in zip(models, caches, strict=True))
        assert_near(own, expected)
        token = int(mx.argmax(expected[-1]).item())
        assert token == int(mx.argmax(own[-1]).item())
        assert_same_state(*caches)


@pytest.mark.parametrize("family", WHOLE)
def test_whole_networks_are_recognized(pair, family):
    model, _ = pair(family)
    layers = model.info()["kernels"]
    assert layers["fused"] == layers["layers"] == model.config["num_hidden_layers"]
    assert layers["whole"]
    assert layers["why_not"] == []


@pytest.mark.parametrize("family", HALVES)
def test_the_attention_of_mixtures_of_experts_is_recognized(pair, family):
    model, _ = pair(family)
    layers = model.info()["kernels"]
    assert layers["fused"] == layers["layers"]
    assert not layers["whole"]


@pytest.mark.parametrize("family", ["mamba", "gpt2", "deepseek_v3"])
def test_others_stay_what_they_are_and_say_why(pair, family):
    model, _ = pair(family)
    layers = model.info()["kernels"]
    assert layers["fused"] == 0
    assert all(layer["reason"] for layer in layers["why_not"])
    assert layers["why_not"]


@pytest.mark.parametrize("quantize", [None, FOUR_BITS], ids=["float32", "4 bits"])
@pytest.mark.parametrize("family", [*WHOLE, *HALVES])
def test_prompts_and_steps(pair, family, quantize):
    models = pair(family, quantize)
    caches = tuple(model.make_cache() for model in models)
    own, expected = (run(m, c, PROMPT[:-1]) for m, c in zip(models, caches, strict=True))
    assert_near(own, expected)
    assert_same_state(*caches)
    follow(models, caches, STEPS)
    own, expected = (run(m, c, PROMPT) for m, c in zip(models, caches, strict=True))
    assert_near(own, expected)
    assert_same_state(*caches)
    follow(models, caches, 3)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_a_long_prompt_in_chunks(pair, family):
    models = pair(family)
    caches = tuple(model.make_cache() for model in models)
    tokens = [(7 * i) % 300 for i in range(700)]
    for chunk in (tokens[:300], tokens[300:302], tokens[302:]):
        own, expected = (run(m, c, chunk) for m, c in zip(models, caches, strict=True))
        assert_near(own, expected)
    assert_same_state(*caches)
    follow(models, caches, 3)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gemma3_text", "gpt_oss"])
def test_few_tokens_behind_a_context_of_several_parts(pair, family):
    """Attention to 1,024 positions is a part."""
    models = pair(family)
    caches = tuple(model.make_cache() for model in models)
    for length in (1020, 1030):
        for model, cache in zip(models, caches, strict=True):
            run(model, cache, [(7 * i) % 300 for i in range(length)])
        own, expected = (run(m, c, PROMPT[:5]) for m, c in zip(models, caches, strict=True))
        assert_near(own, expected)
        follow(models, caches, 2)


def test_parts_of_a_very_long_context_are_longer(pair):
    models = pair("llama")
    caches = tuple(model.make_cache() for model in models)
    run(models[1], caches[1], PROMPT)
    for own, other in zip(*caches, strict=True):
        shape = (1, other.keys.shape[1], 17_000, other.keys.shape[3])
        keys, values = mx.random.normal(shape), mx.random.normal(shape)
        own.state = other.state = (keys, values, shape[2])
    follow(models, caches, 2)


@pytest.mark.parametrize("family", [*WHOLE, *HALVES])
def test_forks_share_nothing_that_is_written(pair, family):
    model, _ = pair(family)
    caches = model.make_cache()
    run(model, caches, PROMPT[:6])
    kept = share(caches)
    before = copy.deepcopy([vars(cache) for cache in kept])
    first = run(model, caches, PROMPT[6:7])
    run(model, caches, PROMPT[7:])
    for cache, values in zip(kept, before, strict=True):
        for name, value in values.items():
            if isinstance(value, mx.array):
                assert mx.array_equal(getattr(cache, name), value).item()
    assert mx.array_equal(run(model, kept, PROMPT[6:7]), first).item()


def address(array: mx.array) -> int:
    """Where an array lies."""
    return np.asarray(array).ctypes.data


def keep_busy() -> None:
    """Let the stream work for a while, so that what follows is queued and not yet computed."""
    much = mx.full((500, 500), 0.5)
    mx.async_eval(much @ much @ much)


def step(model: Model, caches: list[Any], token: int) -> mx.array:
    """Start a step and do not wait for it."""
    logits: mx.array = model.network(mx.array([[token]], mx.int32), cache=caches)
    mx.async_eval(logits)
    return logits


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_steps_that_are_queued_copy_no_cache(pair, family):
    model, plain = pair(family)
    caches, expected = model.make_cache(), plain.make_cache()
    run(model, caches, PROMPT[:4])
    run(model, caches, PROMPT[4:5])  # rings have all their room now
    places = [address(cache.keys) for cache in caches]
    keep_busy()
    for token in PROMPT[5:8]:
        logits = step(model, caches, token)
    run(plain, expected, PROMPT[:7])
    assert_near(logits[0], run(plain, expected, PROMPT[7:8]))
    assert [address(cache.keys) for cache in caches] == places


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_queued_steps_leave_what_others_see(pair, family):
    model, _ = pair(family)
    caches, others = model.make_cache(), model.make_cache()
    for each in (caches, others):
        run(model, each, PROMPT[:5])
    keep_busy()
    step(model, caches, 7)
    views = [cache.keys[..., 4:8, :] for cache in caches]
    mx.async_eval(views)  # in the same memory as the keys
    kept = share(caches)
    for token in (3, 4):
        step(model, caches, token)
    run(model, others, [7])
    for view, other in zip(views, others, strict=True):
        assert mx.array_equal(view, other.keys[..., 4:8, :]).item()
    assert_same_state(kept, others)


@pytest.mark.parametrize("family", ["llama", "gemma3_text"])
def test_what_is_dropped_while_steps_are_queued_is_nobody_elses_yet(pair, family):
    model, _ = pair(family)
    caches, other = model.make_cache(), mx.new_stream(mx.cpu)
    run(model, caches, PROMPT[:5])
    keep_busy()
    step(model, caches, 7)
    model.network(mx.array([PROMPT], mx.int32), cache=caches)  # its logits are never computed
    mx.async_eval([cache.state for cache in caches])
    sizes = {cache.keys.size for cache in caches} | {len(PROMPT) * width for width in (32, 64, 128)}
    del caches
    made = [mx.full((size,), 7.0, stream=other) for size in sizes for _ in range(20)]
    mx.eval(made)
    mx.synchronize()
    assert all(mx.array_equal(each, mx.full(each.shape, 7.0)).item() for each in made)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss"])
def test_trimmed_caches_go_on(pair, family):
    models = pair(family)
    caches = tuple(model.make_cache() for model in models)
    for model, own in zip(models, caches, strict=True):
        run(model, own, PROMPT[:6])
        assert trim(own, 3)
    follow(models, caches, 4)


@pytest.mark.parametrize("family", [*WHOLE, *HALVES])
def test_rows_of_a_batch_give_what_they_give_alone(pair, family):
    model, _ = pair(family)
    prompts = [PROMPT[:9], PROMPT[3:6], PROMPT[5:10]]
    batch = Batch(model.make_cache(), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        caches = model.make_cache()
        run(model, caches, prompt)
        batch.join(share(caches), len(prompt))
        alone.append(caches)
    for step in range(STEPS):
        tokens = [(step * 5 + row) % 300 for row in range(len(prompts))]
        batch.begin_step(batch.rows.all)
        together = model.network(mx.array(tokens, mx.int32)[:, None], cache=batch.layers)[:, -1]
        batch.end_step()
        mx.eval(together, batch.arrays)
        for row, (token, caches) in enumerate(zip(tokens, alone, strict=True)):
            assert mx.array_equal(together[row : row + 1], run(model, caches, [token])).item()


def test_prompts_of_a_batch_are_to_the_bit_what_they_are_alone(pair):
    """Few queries are attended for in another way than many: a neighbour's do not count."""
    model, _ = pair("llama")
    batch = Batch(model.make_cache(), mx.default_stream(mx.default_device()))
    rows = [batch.join(model.make_cache(), 0) for _ in range(4)]
    prompts = [PROMPT[:5], PROMPT * 7, [], PROMPT[:2]]
    together = feed(model.network, batch, rows, prompts)
    assert not mx.any(mx.isnan(together)).item()
    for row, prompt in zip(rows, prompts, strict=True):
        if prompt:
            alone = run(model, model.make_cache(), prompt)
            assert mx.array_equal(together[row.index, : len(prompt)], alone).item()


@pytest.mark.parametrize("family", ["llama", "qwen3", "gemma"])
def test_parts_of_a_row_of_a_batch_are_what_they_are_alone(pair, family):
    model, _ = pair(family)
    batch = Batch(model.make_cache(), mx.default_stream(mx.default_device()))
    alone, rows, prompts = [], [], [PROMPT[:2], PROMPT * 2, PROMPT[:1]]
    for length in (1500, 1100, 30):
        caches = model.make_cache()
        run(model, caches, [(5 * i) % 300 for i in range(length)])
        rows.append(batch.join(share(caches), length))
        alone.append(caches)
    together = feed(model.network, batch, rows, prompts)
    for row, prompt, caches in zip(rows, prompts, alone, strict=True):
        expected = run(model, caches, prompt)
        assert mx.array_equal(together[row.index, : len(prompt)], expected).item()


def test_a_prompt_whose_logits_nobody_wants_leaves_the_last_layer(pair):
    model, plain = pair("llama")
    caches = model.make_cache()
    logits = model.network(mx.array([PROMPT]), cache=caches)
    mx.eval([cache.state for cache in caches])
    expected = plain.make_cache()
    late = run(plain, expected, PROMPT)
    assert_same_state(caches, expected)
    assert_near(logits[0], late)  # and they can still be had


def test_calls_of_other_kinds_are_the_networks_own(pair):
    model, plain = pair("llama")
    ids = mx.array([PROMPT])
    assert_near(model.network(ids), plain.network(ids))  # without a cache
    embeddings = plain.network.model.embed_tokens(ids)
    caches = model.make_cache(), plain.make_cache()
    own, expected = (
        each.network(ids, cache=cache, input_embeddings=embeddings)
        for each, cache in zip((model, plain), caches, strict=True)
    )
    assert_near(own, expected)
    assert_same_state(*caches)
    quantized = [cache.to_quantized(group_size=32, bits=8) for cache in model.make_cache()]
    with pytest.raises(ValueError, match="32"):  # heads of 16, as without kernels
        model.network(ids, cache=quantized)


def test_sixteen_bits_keep_their_type_of_cache(tmp_path):
    path = tiny_models.make(tmp_path / "model", "llama")
    weights = mx.load(str(path / "model.safetensors"))
    half = {name: array.astype(mx.bfloat16) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), half)
    model = load(path)
    caches = model.make_cache()
    logits = run(model, caches, PROMPT)
    assert model.info()["kernels"]["whole"]
    assert {cache.keys.dtype for cache in caches} == {mx.bfloat16}
    model.network.set_dtype(mx.float32)
    caches = model.make_cache()
    assert mx.argmax(logits[-1]).item() == mx.argmax(run(model, caches, PROMPT)[-1]).item()


def test_a_layer_that_computes_something_else_is_left_alone(tmp_path):
    path = tiny_models.make(tmp_path / "model", "llama")
    model = load(path)
    fused.undo(model.network)
    odd = model.network.model.layers[1]
    plain = type(odd).__mro__[1]
    changed = type("Odd", (plain,), {"__call__": lambda s, *a, **k: plain.__call__(s, *a, **k) * 2})
    odd.__class__ = changed
    report = fused.fuse(model.network, model.make_cache)
    assert report.fused == report.layers - 1
    assert not report.whole
    assert any("differ" in reason for reason in report.reasons)
    caches = model.make_cache()
    own = run(model, caches, PROMPT)
    fused.undo(model.network)
    assert_near(own, run(model, model.make_cache(), PROMPT))


def test_an_mlp_that_limits_its_activations_is_left_alone(tmp_path):
    """None of a proof's random activations reaches the limit; those along a row of weights do."""
    options = {"use_head_wise_attn_gate": False, "swiglu_limits_shared": [12.0, 12.0, 12.0]}
    path = tiny_models.make(tmp_path / "model", "step3p5", config=options)
    row = mx.load(str(path / "model.safetensors"))["model.layers.0.mlp.gate_proj.weight"][0]
    model = load(path)
    x = 1e3 * row[None, None]
    own = model.network.layers[0](x, None, model.make_cache()[0]) - x
    fused.undo(model.network)
    assert_near(own, model.network.layers[0](x, None, model.make_cache()[0]) - x)


@pytest.mark.parametrize("size", [1e-4, 1.0, 3000.0])
def test_norms_are_told_apart_whatever_the_size_of_their_weights(size):
    for kind, module in (("rms", nn.RMSNorm(64)), ("layer", nn.LayerNorm(64))):
        module.weight = size * module.weight
        assert parts.norm_of(module, 64)[0] == kind


def test_weights_are_held_once(pair):
    model, _ = pair("llama", FOUR_BITS)
    for _, module in model.network.named_modules():
        if isinstance(module, InBlocks):
            assert module["weight"].ndim == 3


def test_gradients_pass_through_weights_in_blocks(pair):
    for quantize in (None, FOUR_BITS):
        model, _ = pair("llama", quantize)
        layer = model.network.model.layers[0].mlp.down_proj
        x = mx.random.normal((2, layer.columns), key=mx.random.key(1))
        layer.train()
        gradient = mx.grad(lambda x: layer(x).sum())(x)  # noqa: B023 called at once
        own = layer(x)
        layer.eval()
        assert_near(layer(x), own)
        assert gradient.shape == x.shape
        assert mx.abs(gradient).max().item() > 0


def test_rounded_activations_stay_near(tmp_path):
    path = tiny_models.make(tmp_path / "model", "llama", quantize=FOUR_BITS)
    exact, rounded = load(path), load(path, activations=ACTIVATIONS_INT8)
    assert rounded.info()["kernels"]["whole"]
    own, expected = (run(model, model.make_cache(), PROMPT) for model in (rounded, exact))
    difference = mx.abs(own - expected).max() / mx.abs(expected).max()
    assert 0 < difference.item() < 0.1
    plain = run(rounded, rounded.make_cache(), PROMPT[:1])
    fused.undo(rounded.network)  # single products round alike
    assert_near(run(rounded, rounded.make_cache(), PROMPT[:1]), plain)
