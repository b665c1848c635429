"""Keys and values of 4 and 8 bits: mlx-lm's tokens, in less memory, where the model can."""

from __future__ import annotations

from math import exp, log

import mlx.core as mx
import pytest
from driver import (
    DEQUANTIZED,
    KV,
    QUANTIZED_SLIDING,
    delivered,
    generate_at_once,
    greedy,
    next_ok,
    opened,
    prompt,
)
from support import loaded, tiny_models
from support.library import StatusError
from support.signatures import EUNSUPPORTED, FINISH_CANCELED
from tasks import BEYOND_WINDOWS, LONG, TASKS

from cowmlx.accelerate.fused.stand_in import plainly
from cowmlx.cache import layers
from cowmlx.cache.layers import KVQuantization
from cowmlx.networks import light_route

MODEL = "llama-wide"
START = prompt(40)
QUANTIZED = [name for name, task in TASKS.items() if "kv_bits" in task]
bits_of_both = pytest.mark.parametrize("bits", [4, 8])


def fresh(lib, model, bits, tokens, count=8):
    """What a fresh context with a quantized cache gives."""
    with opened(lib, model, kv_bits=bits) as context:
        return greedy(lib, context, tokens, count)


@pytest.mark.parametrize("name", QUANTIZED)
def test_greedy_tokens_equal_mlx_lm_s(lib, tiny, mlx_lm, open_context, name):
    task = TASKS[name]
    settings = {key: task[key] for key in ("kv_bits", "kv_group_size")}
    context = open_context(tiny(task["model"]), **settings)
    assert greedy(lib, context, task["prompt"], task["max_tokens"]) == mlx_lm(name)["tokens"]


def test_what_quantized_caches_give_is_not_all_the_same(mlx_lm):
    """So the test above could see a cache that is not quantized."""
    given = {tuple(mlx_lm(f"{MODEL} {bits} 64 {LONG}")["tokens"]) for bits in (4, 8)}
    assert len(given) == 2


@pytest.mark.parametrize("on_cuda", [False, True])
def test_layers_get_numbers_on_an_nvidia_gpu(monkeypatch, folder, on_cuda):
    """The held tokens are a part of a buffer, with which mlx multiplies nothing there."""
    monkeypatch.setattr(layers, "_on_cuda", lambda: on_cuda)
    model = loaded.load(folder(MODEL))
    how = KVQuantization(model, 8, 0)
    assert how.dequantizes is on_cuda
    names = {type(layer).__name__ for layer in how.maker(model)()}
    assert names == {"DequantizedKVCache" if on_cuda else "QuantizedKVCache"}


def test_the_cache_shrinks(lib, tiny, open_context):
    sizes = {}
    for bits in (0, 8, 4):
        context = open_context(tiny(MODEL), kv_bits=bits)
        lib.begin(context, prompt(300), max_tokens=0)
        sizes[bits] = lib.info(context)["bytes"]
    assert sizes[4] < 0.6 * sizes[8] < 0.6 * sizes[0]


@pytest.mark.parametrize("family", tiny_models.FAMILIES)
def test_the_model_says_truly_whether_its_cache_can_be_quantized(lib, tiny, open_context, family):
    """With heads of 64 values, where its kind of cache and of attention decide."""
    model = tiny(f"{family}-wide")
    how, why_not = (lib.info(model)["cache"][key] for key in ("quantise", "why_not"))
    assert how in ("in_place", "no")
    assert (how == "no") == (why_not is not None)
    before = lib.info()["handles"]
    for bits in (4, 8):
        if how == "no":
            with pytest.raises(StatusError) as refused:
                lib.context(model, kv_bits=bits)
            assert refused.value.status == EUNSUPPORTED
            assert f"kv_bits is {bits}" in refused.value.message
            assert why_not.partition("cannot be")[2] in refused.value.message
            assert "\n" not in refused.value.message
            continue
        context = open_context(model, kv_bits=bits)
        assert (lib.info(context)["kv_bits"], lib.info(context)["kv_group_size"]) == (bits, 64)
        assert len(greedy(lib, context, prompt(BEYOND_WINDOWS), 4)) == 4
        assert len(greedy(lib, context, lib.tokens(context) + prompt(9), 4)) == 4
    if how == "no":
        assert lib.info()["handles"] == before


def test_both_answers_are_given(lib, tiny):
    assert lib.info(tiny(MODEL))["cache"]["quantise"] == "in_place"
    assert lib.info(tiny("mamba2"))["cache"]["quantise"] == "no"


def test_a_group_s_size_fits_the_heads(lib, tiny, open_context):
    assert lib.info(open_context(tiny(MODEL), kv_bits=4))["kv_group_size"] == 64
    assert lib.info(open_context(tiny(MODEL), kv_bits=4, kv_group_size=32))["kv_group_size"] == 32
    assert lib.info(open_context(tiny("llama-narrow"), kv_bits=4))["kv_group_size"] == 32
    for model, size in ((MODEL, 128), ("llama-narrow", 64), (KV, 32)):  # 64, 32 and 16 wide
        with pytest.raises(StatusError) as refused:
            lib.context(tiny(model), kv_bits=8, kv_group_size=size)
        assert refused.value.status == EUNSUPPORTED
        assert f"group size {size}" in refused.value.message


@pytest.mark.parametrize(("name", "bits"), [(MODEL, 4), (MODEL, 8), (DEQUANTIZED, 4)])
def test_trims_forks_and_rewinds_are_exact(lib, tiny, open_context, name, bits):
    model = tiny(name)
    context = open_context(model, kv_bits=bits)
    greedy(lib, context, START, 10)
    held = lib.tokens(context)
    checkpoint = lib.checkpoint(context)
    fork = lib.fork(context)
    assert lib.trim_end(context, 7) == 7
    after = held[:-7] + prompt(3)
    assert greedy(lib, context, after, 8) == fresh(lib, model, bits, after)
    assert lib.info(context)["reused"] == len(held) - 7
    lib.trim_front(context, 5)
    after = lib.tokens(context) + prompt(2)
    assert greedy(lib, context, after, 8) == fresh(lib, model, bits, after)
    lib.rewind(context, checkpoint)
    after = held + prompt(4)
    for one in (context, fork):
        assert lib.tokens(one) == held
        assert greedy(lib, one, after, 8) == fresh(lib, model, bits, after)
    lib.free(fork)


@bits_of_both
def test_a_cancel_leaves_what_was_delivered(lib, tiny, open_context, bits):
    model = tiny(MODEL)
    context = open_context(model, kv_bits=bits)
    lib.begin(context, START, max_tokens=30)
    held = START + delivered(next_ok(lib, context, 5))
    lib.cancel(context)
    assert lib.next(context).finish == FINISH_CANCELED
    assert lib.tokens(context) == held
    after = held + prompt(2)
    assert greedy(lib, context, after, 8) == fresh(lib, model, bits, after)


@pytest.mark.parametrize("name", ["qwen3_next-wide", QUANTIZED_SLIDING, "gpt_oss-wide"])
def test_a_quantized_cache_is_rebuilt_to_trim(lib, tiny, open_context, name):
    """Where recurrent layers, or windows that are full, can drop nothing."""
    model = tiny(name)
    context = open_context(model, kv_bits=8)
    greedy(lib, context, START, 6)
    held = lib.tokens(context)
    checkpoint = lib.checkpoint(context)
    assert lib.trim_end(context, 3) == 3
    after = held[:-3] + prompt(3)
    assert greedy(lib, context, after, 8) == fresh(lib, model, 8, after)
    lib.rewind(context, checkpoint)
    after = held + prompt(3)
    assert greedy(lib, context, after, 8) == fresh(lib, model, 8, after)


# ------------------------------------------------- Sliding windows, soft caps, sinks

# Windows, a soft cap, and windows with sinks.
OTHERS = [QUANTIZED_SLIDING, DEQUANTIZED, "gpt_oss-wide"]


def distribution(lib, model, **params):
    """The probabilities of the token behind a prompt that leaves all windows."""
    with opened(lib, model, **params) as context:
        lib.begin(context, prompt(BEYOND_WINDOWS), max_tokens=0)
        logits = lib.logits(context)
    highest = max(logits)
    weights = [exp(logit - highest) for logit in logits]
    return [weight / sum(weights) for weight in weights]


def divergence(first, second):
    """KL divergence in nats."""
    return sum(p * log(p / max(q, 1e-30)) for p, q in zip(first, second, strict=True) if p > 0)


@pytest.mark.parametrize("name", OTHERS)
def test_fewer_bits_cost_more(lib, tiny, name):
    exact = distribution(lib, tiny(name))
    eight, four = (
        divergence(exact, distribution(lib, tiny(name), kv_bits=bits)) for bits in (8, 4)
    )
    assert 0 < eight < four


@bits_of_both
def test_an_attention_that_takes_numbers_gets_rounded_ones(folder, bits):
    """Those of a plain cache in which keys and values are rounded as they come."""
    model = loaded.load(folder(DEQUANTIZED))
    quantized = KVQuantization(model, bits, 0)

    class Rounded(light_route.cache_module(model.package).KVCache):
        def update_and_fetch(self, *arrays):
            how = {"group_size": 64, "bits": bits}
            return super().update_and_fetch(
                *(mx.dequantize(*mx.quantize(array, **how), **how) for array in arrays)
            )

    caches = quantized.maker(model)(), [Rounded() for _ in model.make_cache()]
    ids = mx.array([START])
    with plainly():
        given, expected = (model.network(ids, cache=cache) for cache in caches)
    assert mx.array_equal(given, expected)
    fused = model.network(ids, cache=quantized.maker(model)())
    assert mx.abs(fused - expected).max() < 1e-3 * mx.abs(expected).max()


@pytest.mark.parametrize("name", OTHERS)
def test_caches_beyond_windows_shrink(lib, tiny, open_context, name):
    """Those of windows do not; and few tokens take whole blocks."""
    sizes = {}
    for bits in (0, 8, 4):
        context = open_context(tiny(name), kv_bits=bits)
        lib.begin(context, prompt(400), max_tokens=0)
        sizes[bits] = lib.info(context)["bytes"]
    assert sizes[4] < sizes[8] < sizes[0]


@pytest.mark.parametrize("name", OTHERS)
def test_contexts_at_once_get_the_tokens_that_they_get_alone(lib, tiny, open_context, name):
    """Beside one that is not quantized."""
    model = tiny(name)
    lengths, wanted = (5, 40, 40), (8, 8, 0)
    prompts = [prompt(length, seed) for seed, length in enumerate(lengths)]
    asked = zip(prompts, wanted, strict=True)
    alone = [fresh(lib, model, bits, tokens, 12) for tokens, bits in asked]
    contexts = [open_context(model, kv_bits=bits) for bits in wanted]
    assert generate_at_once(lib, contexts, prompts, max_tokens=12) == alone


@pytest.mark.parametrize("name", OTHERS)
def test_a_cancel_leaves_what_windows_held(lib, tiny, open_context, name):
    model = tiny(name)
    context = open_context(model, kv_bits=8)
    lib.begin(context, START, max_tokens=30)
    held = START + delivered(next_ok(lib, context, 3))
    lib.cancel(context)
    assert lib.next(context).finish == FINISH_CANCELED
    assert lib.tokens(context) == held
    after = held + prompt(2)
    assert greedy(lib, context, after, 8) == fresh(lib, model, 8, after)


def test_a_network_with_windows_alone_is_refused(lib, tiny):
    with pytest.raises(StatusError, match="no keys and values but behind windows") as refused:
        lib.context(tiny("recurrent_gemma-wide"), kv_bits=8)
    assert refused.value.status == EUNSUPPORTED
