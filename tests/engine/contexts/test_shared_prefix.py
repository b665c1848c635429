"""A prompt that one context has processed is a beginning for the model's others."""

from __future__ import annotations

import random

import mlx.core as mx
import pytest
from driver import KINDS, KV, RECURRENT, RWKV, SLIDING, delivered, greedy, next_ok, opened, prompt
from support.signatures import OVERFLOW_ROLL

from cowmlx.cache.sequence import Snapshot
from cowmlx.cache.shared import TOKEN_BYTES, WORTHWHILE, SharedPrefixes
from cowmlx.networks import light_route

caches = light_route.import_module("models.cache")
LONG = prompt(60)
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def model(lib, folder):
    """Loads models that nobody else has processed prompts with."""
    handles = []

    def model(name, **params):
        handles.append(lib.load(folder(name), **params))
        return handles[-1]

    yield model
    for handle in handles:
        lib.c.cow_mlx_model_free(handle)


@pytest.fixture
def sharing(open_context):
    """Opens contexts that share prompts."""
    return lambda model, **params: open_context(model, share_prefix=True, **params)


def shared(lib, context, tokens, **params):
    """How many tokens of a prompt another context had processed; it is processed now."""
    lib.begin(context, tokens, max_tokens=0, **params)
    return lib.info(context)["shared"]


# What a cache that cannot be cut has to have in common: all of it.
def whole(kind):
    return kind != KV


@kinds
def test_a_new_context_starts_from_what_another_has_processed(lib, model, sharing, oracle, kind):
    handle = model(kind)
    first, second = sharing(handle), sharing(handle)
    assert shared(lib, first, LONG) == 0
    after = LONG + prompt(20, seed=1)
    assert shared(lib, second, after) == len(LONG) - 1
    info = lib.info(second)
    assert info["reused"] == len(LONG) - 1
    assert info["recomputed"] == len(after) - info["reused"]
    assert (info["first_difference"], info["rebuilt"]) == (None, None)
    assert lib.stats(second).reused_tokens == info["reused"]
    assert greedy(lib, second, after) == oracle(kind).after(after)


@kinds
def test_a_hit_never_disturbs_the_context_that_left_it(lib, model, sharing, oracle, kind):
    handle = model(kind)
    first = sharing(handle)
    lib.begin(first, LONG, max_tokens=20)
    pieces = next_ok(lib, first, 4)
    others = []
    for seed in range(3):
        others.append(sharing(handle))
        after = LONG + prompt(9, seed=seed)
        lib.begin(others[-1], after, max_tokens=20)
        assert lib.info(others[-1])["shared"] >= len(LONG) - 1
        pieces += next_ok(lib, first, 2)
        next_ok(lib, others[-1], 3)
    for seed, other in enumerate(others):
        rest = delivered(lib.drain(other))
        assert rest == oracle(kind).after(LONG + prompt(9, seed=seed), 20)[3:]
    pieces += lib.drain(first)
    assert delivered(pieces) == oracle(kind).after(LONG, 20)


@kinds
def test_prompts_that_part_share_what_the_cache_can_be_cut_to(lib, model, sharing, oracle, kind):
    handle = model(kind)
    shared(lib, sharing(handle), LONG)
    other = LONG[:45] + prompt(20, seed=2)
    context = sharing(handle)
    assert shared(lib, context, other) == (0 if whole(kind) else 45)
    assert greedy(lib, context, other) == oracle(kind).after(other)


@kinds
def test_the_same_prompt_again_is_processed_for_its_last_token_alone(
    lib, model, sharing, oracle, kind
):
    handle = model(kind)
    shared(lib, sharing(handle), LONG)
    context = sharing(handle)
    assert shared(lib, context, LONG) == len(LONG) - 1
    assert greedy(lib, context, LONG) == oracle(kind).after(LONG)


@kinds
def test_a_prompt_outlives_the_context_that_processed_it(lib, model, sharing, oracle, kind):
    handle = model(kind)
    first = sharing(handle)
    shared(lib, first, LONG)
    lib.free(first)
    context = sharing(handle)
    assert shared(lib, context, LONG) == len(LONG) - 1
    assert greedy(lib, context, LONG) == oracle(kind).after(LONG)


@kinds
def test_what_a_context_holds_itself_is_kept_where_it_is_longer(lib, model, sharing, oracle, kind):
    handle = model(kind)
    shared(lib, sharing(handle), LONG[:40])
    context = sharing(handle)
    lib.begin(context, LONG, max_tokens=0)
    longer = LONG + prompt(3)
    assert shared(lib, context, longer) == 0
    assert lib.info(context)["reused"] == len(LONG)


@kinds
def test_a_context_that_holds_something_else_takes_the_longer_beginning(
    lib, model, sharing, oracle, kind
):
    handle = model(kind)
    shared(lib, sharing(handle), LONG)
    context = sharing(handle)
    lib.begin(context, LONG[:10] + prompt(5), max_tokens=0)
    assert shared(lib, context, LONG) == len(LONG) - 1
    assert lib.info(context)["first_difference"] == 10
    assert greedy(lib, context, LONG) == oracle(kind).after(LONG)


@kinds
def test_conversations_that_branch_all_find_their_beginning(lib, model, sharing, oracle, kind):
    handle = model(kind)
    known = []
    draw = random.Random(kind)
    for number in range(12):
        start = draw.choice([[], LONG[:40], *known])[:120]
        tokens = start + prompt(draw.randrange(1, 30), seed=number)
        context = sharing(handle)
        found = shared(lib, context, tokens)
        if start in known:
            assert found >= len(start) - 1 or len(start) <= WORTHWHILE
        assert greedy(lib, context, tokens, 4) == oracle(kind).after(tokens, 4)
        known.append(tokens)
        lib.free(context)


def test_short_prompts_are_not_kept(lib, model, sharing):
    handle = model(KV)
    for length, found in ((WORTHWHILE, 0), (WORTHWHILE + 1, WORTHWHILE)):
        start = prompt(length)
        shared(lib, sharing(handle), start)
        assert shared(lib, sharing(handle), start + prompt(9)) == found


@kinds
def test_contexts_that_do_not_share_neither_leave_nor_find(lib, model, open_context, sharing, kind):
    handle = model(kind)
    shared(lib, open_context(handle), LONG)
    assert shared(lib, sharing(handle), LONG) == 0
    assert shared(lib, open_context(handle), LONG) == 0
    assert lib.info(open_context(handle))["share_prefix"] is False
    assert shared(lib, sharing(handle), LONG) == len(LONG) - 1


def test_sharing_is_the_default(lib, model):
    context = lib.context(model(KV), share_prefix=True)
    assert lib.params("context", max_tokens=0).share_prefix is True
    assert lib.info(context)["share_prefix"] is True
    lib.free(context)


def test_what_was_processed_otherwise_is_not_found(lib, model, sharing):
    """By another model, though of the same weights, or for another type of cache."""
    handle, twin = model("llama-wide"), model("llama-wide")
    shared(lib, sharing(handle), LONG)
    assert shared(lib, sharing(twin), LONG) == 0
    assert shared(lib, sharing(handle, kv_bits=8), LONG) == 0
    assert shared(lib, sharing(handle, kv_bits=4), LONG) == 0
    assert shared(lib, sharing(handle, kv_bits=8, kv_group_size=32), LONG) == 0
    assert shared(lib, sharing(handle), LONG) == len(LONG) - 1
    assert shared(lib, sharing(handle, kv_bits=8), LONG) == len(LONG) - 1


@pytest.mark.parametrize("bits", [4, 8])
def test_quantized_prompts_are_shared(lib, model, sharing, open_context, bits):
    handle = model("llama-wide")
    expected = greedy(lib, open_context(handle, kv_bits=bits), LONG)
    shared(lib, sharing(handle, kv_bits=bits), LONG)
    context = sharing(handle, kv_bits=bits)
    assert shared(lib, context, LONG) == len(LONG) - 1
    assert greedy(lib, context, LONG) == expected


def test_no_bytes_keep_no_prompts(lib, model, sharing):
    handle = model(KV, prefix_cache_bytes=0)
    for _ in range(2):
        assert shared(lib, sharing(handle), LONG) == 0


def test_few_bytes_keep_what_was_used_last(lib, model, sharing):
    context = sharing(model(KV))
    lib.begin(context, LONG, max_tokens=0)
    size = lib.info(context)["bytes"] + TOKEN_BYTES * len(LONG)
    handle = model(KV, prefix_cache_bytes=3 * size)
    starts = [prompt(60, seed=seed) for seed in range(4)]
    for start in starts[:3]:
        shared(lib, sharing(handle), start)
    assert shared(lib, sharing(handle), starts[0]) == 59, "used, so no longer the oldest"
    shared(lib, sharing(handle), starts[3])
    assert [shared(lib, sharing(handle), start) for start in (starts[0], starts[3])] == [59, 59]
    assert shared(lib, sharing(handle), starts[1]) == 0


def test_a_prompt_larger_than_all_bytes_drops_no_other(lib, model, sharing):
    context = sharing(model(KV))
    lib.begin(context, LONG, max_tokens=0)
    size = lib.info(context)["bytes"] + TOKEN_BYTES * len(LONG)
    handle = model(KV, prefix_cache_bytes=size)
    shared(lib, sharing(handle), LONG)
    large = prompt(400)
    for _ in range(2):
        assert shared(lib, sharing(handle), large) == 0
    assert shared(lib, sharing(handle), LONG) == 59


@kinds
def test_trimming_memory_gives_the_prompts_back(lib, model, sharing, oracle, kind):
    handle = model(kind)
    with opened(lib, handle) as context:  # a model makes a few constants when it is first used
        shared(lib, context, LONG)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    context = sharing(handle)
    shared(lib, context, LONG)
    lib.free(context)
    assert lib.info()["memory"]["active"] > before
    lib.trim_memory()
    assert lib.info()["memory"]["active"] <= before
    context = sharing(handle)
    assert shared(lib, context, LONG) == 0
    assert greedy(lib, context, LONG) == oracle(kind).after(LONG)


def test_a_model_s_end_gives_the_prompts_back(lib, model, sharing):
    model(KV)
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    handle = model(KV)
    context = sharing(handle)
    shared(lib, context, LONG)
    lib.free_model(handle)
    lib.free(context)
    assert lib.info()["memory"]["active"] <= before


@pytest.mark.parametrize("kind", [SLIDING, RECURRENT, RWKV])
def test_a_trim_that_processes_again_may_use_what_is_known(lib, model, sharing, oracle, kind):
    handle = model(kind)
    shared(lib, sharing(handle), LONG[:40])
    context = sharing(handle)
    lib.begin(context, LONG, max_tokens=0)
    assert lib.trim_end(context, 15) == 15
    assert lib.tokens(context) == LONG[:45]
    after = LONG[:45] + prompt(2)
    assert greedy(lib, context, after) == oracle(kind).after(after)


@kinds
def test_a_rolling_window_finds_its_cut_prompt(lib, model, sharing, oracle, kind):
    handle = model(kind)
    settings = {"max_tokens": 50, "overflow": OVERFLOW_ROLL, "keep_tokens": 8}
    shared(lib, sharing(handle, **settings), LONG)
    context = sharing(handle, **settings)
    held = lib.info(context)["tokens"]
    assert shared(lib, context, LONG) == lib.info(context)["tokens"] - 1 > held
    tokens = lib.tokens(context)
    assert greedy(lib, context, LONG, 1) == oracle(kind).after(tokens, 1)


# ------------------------------------------------------------ The parts


def layer(length, trims):
    """A layer cache of as many tokens that can be cut, or not."""
    if not trims:
        recurrent = caches.ArraysCache(1)
        recurrent[0] = mx.zeros((512,))
        return recurrent
    made = caches.KVCache()
    made.update_and_fetch(mx.zeros((1, 1, length, 1)), mx.zeros((1, 1, length, 1)))
    return made


@pytest.mark.parametrize("trims", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_the_longest_beginning_is_found_as_by_comparing_all(seed, trims):
    """Few different tokens, so that many prompts begin alike."""
    draw = random.Random(seed)
    capacity, size = 100_000, layer(256, trims).nbytes
    prefixes = SharedPrefixes(capacity)
    known, hits = [], 0

    def some():
        base = draw.choice([[], *(tokens for _, tokens in known)])
        base = base if draw.random() < 0.5 else base[: draw.randrange(len(base) + 1)]
        return base[:200] + [draw.randrange(2) for _ in range(draw.randrange(1, 40))]

    for _ in range(400):
        kind, tokens = draw.randrange(2), some()
        if draw.random() < 0.4:
            prefixes.add(kind, Snapshot(tokens, [layer(len(tokens), trims)]))
            if len(tokens) >= WORTHWHILE:
                known = [
                    (other, held)
                    for other, held in known
                    if other != kind
                    or held != tokens[: len(held)]
                    or (not trims and len(held) < len(tokens))
                ]
                known.append((kind, tokens))
                while sum(size + TOKEN_BYTES * len(held) for _, held in known) > capacity:
                    known.pop(0)
            assert len(prefixes) == len(known)
            continue
        least = draw.choice([0, 0, 33, 50])
        counted = prefixes.known(kind, tokens, least, 0)  # which uses none
        found = prefixes.longest(kind, tokens, least)
        best = 0
        for number, (other, held) in enumerate(known):
            common = next((i for i in range(len(held)) if held[i : i + 1] != tokens[i : i + 1]), -1)
            common = len(held) if common < 0 else common
            if other == kind and common > best and (trims or common == len(held)):
                best, used = common, number
        if best < WORTHWHILE or best <= least:
            assert (found, counted) == (None, least)
            continue
        known.append(known.pop(used))
        assert counted == best
        assert found.tokens == tokens[:best]
        assert not trims or found.layers[0].offset == best
        hits += 1
    assert hits > 20
    prefixes.clear()
    assert (len(prefixes), prefixes.nbytes) == (0, 0)
