"""Fused layers over quantized keys and values: the bits of mlx's own packing, and its tokens."""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from numbers_of_kernels import DIM, TYPES, exact, identity, random
from support.kernel_module import needed

from cowmlx.accelerate.fused.decode import logits_behind
from cowmlx.cache.batch import Batch
from cowmlx.cache.sequence import share
from cowmlx.cache.trimming import trim
from cowmlx.models.model import Model

MODULE = needed()
PROMPT = [3, 5, 7, 2, 9, 11, 4, 8, 1, 6, 12, 13]
WIDE = {"hidden_size": 256, "head_dim": 64}
FAMILIES = ("llama", "qwen2", "qwen3", "olmo2", "mixtral")
FOUR_BITS = {"group_size": 32, "bits": 4}
FORMATS = [(8, 64), (4, 64), (8, 32), (4, 32)]
# Of the largest logit. Sums of float32 in another order may fall to another step of the packing.
NEAR = {8: 2e-3, 4: 2e-2}


def numbers(type_: str) -> mx.array:
    """Activations (1, T, DIM): of all sizes, level ones, of one sign, and on steps."""
    rows = [random((6, DIM), "float32", 1, scale) for scale in (1e-9, 1e-3, 1, 300)]
    rows += [mx.full((1, DIM), value) for value in (0.0, 1.0, -7.5, 1e-12, -1e4)]
    rows += [mx.abs(rows[2]) + 3, -mx.abs(rows[2]), mx.round(rows[2] * 7) / 4]
    made = mx.concatenate(rows)[None]
    return made.astype(TYPES[type_]).astype(mx.float32)


def empty(tokens: int, bits: int, group: int, dtype: mx.Dtype) -> list[mx.array]:
    each = [mx.zeros((1, 1, tokens, DIM * bits // 32), mx.uint32)]
    each += [mx.zeros((1, 1, tokens, DIM // group), dtype) for _ in range(2)]
    return [mx.array(part) for part in (*each, *each)]


def stepped(x: mx.array, bits: int, group: int, type_: str) -> list[mx.array]:
    tokens = x.shape[1]
    made: list[mx.array] = MODULE.step_layers(
        *(identity(), x, [0], [([0], [tokens], [0], False)], []),
        empty(tokens, bits, group, TYPES[type_]),
        **{"bits": bits, "group": group},
    )
    return made


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("type_", list(TYPES))
@pytest.mark.parametrize("group", [32, 64, 128])
@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_stored_has_the_bits_of_mlx(bits, group, type_):
    x = numbers(type_)
    made = stepped(x, bits, group, type_)
    wanted = mx.quantize(x.astype(TYPES[type_])[:, None], group_size=group, bits=bits)
    for own, expected in zip(made[1:], (*wanted, *wanted), strict=True):
        assert own.dtype == expected.dtype
        assert bytes(np.array(own.view(mx.uint8))) == bytes(np.array(expected.view(mx.uint8)))


@pytest.mark.usefixtures("instruction_set")
@pytest.mark.parametrize("type_", list(TYPES))
@pytest.mark.parametrize("tokens", [1, 7, 70])
@pytest.mark.parametrize("bits", [4, 8])
def test_attention_to_what_is_stored(bits, tokens, type_):
    x = random((1, tokens, DIM), "float32", 3)
    made = stepped(x, bits, 64, type_)
    parts = [part if part.dtype == mx.uint32 else part.astype(mx.float32) for part in made[1:4]]
    keys = exact(mx.dequantize(*parts, group_size=64, bits=bits))[0, 0]
    scores = 0.1 * exact(x)[0] @ keys.T
    scores = np.where(np.tri(tokens, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result = exact(x)[0] + weights / weights.sum(-1, keepdims=True) @ keys
    assert np.allclose(exact(made[0])[0], result, rtol=1e-5, atol=1e-5)


def test_a_format_that_no_kernel_writes_is_refused():
    x, layers = numbers("float32")[:, :3], identity()
    place = [([0], [3], [0], False)]
    for bits, group in ((2, 64), (8, 0), (8, 48), (4, 256), (0, 64)):
        with pytest.raises(ValueError, match=f"{bits} bits in groups of {group}"):
            MODULE.step_layers(layers, x, [0], place, [], [], bits=bits, group=group)
    good = empty(3, 8, 64, mx.float32)
    odd = [good[0].astype(mx.int32), good[0][:, :, :2], good[1], good[1].astype(mx.uint8)]
    for index, other in zip((0, 0, 0, 1), odd, strict=True):
        caches = [other if at == index else each for at, each in enumerate(good)]
        with pytest.raises(ValueError, match=r"not those of the layer|can be float32"):
            MODULE.step_layers(layers, x, [0], place, [], caches, bits=8, group=64)


def empty_caches(model: Model, bits: int, group: int) -> list[Any]:
    return [cache.to_quantized(group_size=group, bits=bits) for cache in model.make_cache()]


def run(model: Model, caches: list[Any], tokens: list[int]) -> mx.array:
    """Return logits (T, V) behind tokens."""
    logits: mx.array = model.network(mx.array([tokens], mx.int32), cache=caches)[0]
    mx.eval(logits, [cache.state for cache in caches])
    return logits


def assert_near(own: mx.array, expected: mx.array, bits: int) -> None:
    assert own.shape == expected.shape
    assert (mx.abs(own - expected).max() / mx.abs(expected).max()).item() < NEAR[bits]


def held(caches: list[Any]) -> list[mx.array]:
    """All that caches hold, without columns for tokens to come."""
    return [
        part[..., : cache.offset, :] for cache in caches for part in (*cache.keys, *cache.values)
    ]


@pytest.mark.parametrize("quantize", [None, FOUR_BITS], ids=["float32", "4 bits"])
@pytest.mark.parametrize("family", FAMILIES)
def test_prompts_and_steps(pair, family, quantize):
    models = pair(family, quantize, WIDE)
    for bits, group in FORMATS if family == "llama" else FORMATS[:2]:
        caches = tuple(empty_caches(model, bits, group) for model in models)
        for tokens in (PROMPT, [9], [(7 * i) % 300 for i in range(270)], [5], [3]):
            own, expected = (run(m, c, tokens) for m, c in zip(models, caches, strict=True))
            assert_near(own, expected, bits)
            assert mx.argmax(own[-1]).item() == mx.argmax(expected[-1]).item()
        assert {cache.offset for cache in caches[0]} == {len(PROMPT) + 273}
        for a, b in zip(*(held(each) for each in caches), strict=True):
            assert (a.shape, a.dtype) == (b.shape, b.dtype)


def test_short_texts_take_no_whole_block(pair):
    """Plain layers take 256 columns: so it is seen that the others are not taken."""
    model, plain = pair("llama", config=WIDE)
    caches, others = (empty_caches(each, 8, 64) for each in (model, plain))
    run(model, caches, PROMPT)
    run(plain, others, PROMPT)
    assert (caches[0].keys[0].shape[2], others[0].keys[0].shape[2]) == (128, 256)


@pytest.mark.parametrize("bits", [4, 8])
def test_trimmed_shared_and_foreign_caches_go_on(pair, bits):
    model, plain = pair("llama", config=WIDE)
    caches = empty_caches(model, bits, 64)
    run(model, caches, PROMPT[:8])
    kept = share(caches)
    before = [mx.array(part) for part in held(kept)]
    mx.eval(before)
    after = run(model, caches, PROMPT[8:])
    assert all(mx.array_equal(a, b).item() for a, b in zip(held(kept), before, strict=True))
    assert mx.array_equal(run(model, kept, PROMPT[8:]), after).item()
    assert trim(kept, 4)
    assert mx.array_equal(run(model, kept, PROMPT[8:]), after).item()
    theirs = empty_caches(plain, bits, 64)
    run(plain, theirs, PROMPT[:8])  # what one side has begun the other continues with
    ours = share(theirs)
    assert_near(run(model, ours, PROMPT[8:]), run(plain, theirs, PROMPT[8:]), bits)
    assert_near(run(plain, ours, [7]), run(model, theirs, [7]), bits)
    made = []
    for each in (model, plain):
        filled = each.make_cache()
        run(each, filled, PROMPT[:8])  # quantized afterwards
        late = [cache.to_quantized(group_size=64, bits=bits) for cache in filled]
        made.append(run(each, late, PROMPT[8:]))
    assert_near(*made, bits)


@pytest.mark.parametrize("bits", [4, 8])
def test_tokens_to_logits_at_once(pair, bits):
    model, _ = pair("qwen3", FOUR_BITS, WIDE)
    own, called = empty_caches(model, bits, 64), empty_caches(model, bits, 64)
    for caches in (own, called):
        run(model, caches, PROMPT)
    decode = vars(model.network)["_decode"]
    assert decode.logits(mx.array([1], mx.uint32), empty_caches(model, bits, 64)) is None
    for token in range(4):
        logits = decode.logits(mx.array([token], mx.uint32), own)
        assert mx.array_equal(logits, model.network(mx.array([[token]]), cache=called)[:, -1])
    assert own[0].offset == called[0].offset == len(PROMPT) + 4
    for a, b in zip(held(own), held(called), strict=True):
        assert mx.array_equal(a, b).item()
    own[0].bits = 12 - bits  # another packing than what lies there
    assert decode.logits(mx.array([1], mx.uint32), own) is None


def test_queued_steps_copy_no_cache(pair):
    model, _ = pair("llama", config=WIDE)
    caches = empty_caches(model, 8, 64)
    run(model, caches, PROMPT)

    def places() -> list[int]:
        mx.eval([cache.state for cache in caches])
        return [np.asarray(part).ctypes.data for c in caches for part in (*c.keys, *c.values)]

    mx.eval(logits_behind(model.network, mx.array([1], mx.uint32), caches))
    before = places()
    for token in (4, 5, 6):
        logits = logits_behind(model.network, mx.array([token], mx.uint32), caches)
        mx.async_eval(logits)
    assert places() == before


@pytest.mark.parametrize("family", ["llama", "mixtral"])
@pytest.mark.parametrize("bits", [4, 8])
def test_rows_of_a_batch_give_what_they_give_alone(pair, family, bits):
    model, _ = pair(family, config=WIDE)
    prompts = [PROMPT[:9], PROMPT[3:6], PROMPT[5:10]]
    batch = Batch(empty_caches(model, bits, 64), mx.default_stream(mx.default_device()))
    alone = []
    for prompt in prompts:
        caches = empty_caches(model, bits, 64)
        run(model, caches, prompt)
        batch.join(share(caches), len(prompt))
        alone.append(caches)
    for step in range(6):
        tokens = [(step * 5 + row) % 300 for row in range(len(prompts))]
        batch.begin_step(batch.rows.all)
        together = logits_behind(model.network, mx.array(tokens, mx.int32), batch.layers)
        batch.end_step()
        mx.eval(together, batch.arrays)
        for row, (token, caches) in enumerate(zip(tokens, alone, strict=True)):
            expected = run(model, caches, [token])
            if family == "llama":
                assert mx.array_equal(together[row : row + 1], expected).item()
            else:
                assert_near(together[row : row + 1], expected, bits)
    left = batch.layers[0].take(batch.rows.all[1])
    for a, b in zip((*left.keys, *left.values), held(alone[1][:1]), strict=True):
        assert a.shape == b.shape
        assert family != "llama" or mx.array_equal(a, b).item()
