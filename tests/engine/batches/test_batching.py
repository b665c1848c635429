"""Contexts of one model that generate at the same time are decoded as one batch."""

from __future__ import annotations

import mlx.core as mx
import pytest
from driver import (
    CACHES,
    KV,
    QUANTIZED,
    RECURRENT,
    delivered,
    generate_at_once,
    greedy,
    next_ok,
    prompt,
    settle,
)
from support import tiny_models
from support.signatures import FINISH_CANCELED, OK
from support.threads import at_once

from cowmlx.cache import rows

caches = pytest.mark.parametrize(("kind", "bits"), CACHES)


@caches
def test_tokens_in_a_batch_are_those_alone(lib, tiny, open_context, oracle, kind, bits):
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 40, 17, 80, 9, 25))]
    contexts = [open_context(tiny(kind), kv_bits=bits) for _ in prompts]
    given = generate_at_once(lib, contexts, prompts, max_tokens=24)
    assert given == [oracle(kind, bits).after(tokens, 24) for tokens in prompts]
    assert [lib.info(context)["alone"] for context in contexts] == [None] * len(prompts)
    assert sum(lib.info(context)["batched"] for context in contexts) > 24
    for context, tokens, generated in zip(contexts, prompts, given, strict=True):
        assert lib.tokens(context) == tokens + generated[:-1]


@caches
def test_contexts_join_and_leave_between_steps(lib, tiny, open_context, oracle, kind, bits):
    """Generations of different length; each context begins again and again."""
    model, known = tiny(kind), oracle(kind, bits)
    contexts = [open_context(model, kv_bits=bits) for _ in range(4)]

    def work(index: int) -> None:
        for turn in range(4):
            tokens = prompt(5 + 11 * index + turn, seed=turn)
            count = 3 + (7 * index + 5 * turn) % 19
            assert greedy(lib, contexts[index], tokens, count) == known.after(tokens, count)

    for index in range(4):  # the oracle is asked by one thread
        for turn in range(4):
            known.after(prompt(5 + 11 * index + turn, seed=turn), 3 + (7 * index + 5 * turn) % 19)
    at_once(4, work)


@caches
def test_a_context_that_left_a_batch_has_its_own_cache(lib, tiny, open_context, oracle, kind, bits):
    """After a cancel, a trim and a fork in the middle."""
    model, known = tiny(kind), oracle(kind, bits)
    mates = [open_context(model, kv_bits=bits) for _ in range(3)]
    starts = [prompt(12, seed=seed) for seed in range(3)]
    for context, tokens in zip(mates, starts, strict=True):
        lib.begin(context, tokens, max_tokens=64)
    pieces = [next_ok(lib, context, 1) for context in mates]
    for _ in range(6):
        for context, own in zip(mates, pieces, strict=True):
            own += next_ok(lib, context, 1)
    forked = lib.fork(mates[0])
    lib.cancel(mates[1])
    lib.trim_end(mates[2], 2)
    try:
        for context in (forked, mates[1], mates[2]):
            held = lib.tokens(context)
            follow = known.after([*held, 20], 12)
            assert greedy(lib, context, [*held, 20], 12) == follow
        rest = delivered(lib.drain(mates[0]))
        whole = delivered(pieces[0]) + rest
        assert whole == known.after(starts[0], 64)
    finally:
        lib.free(forked)


def test_seeds_reproduce_in_a_batch(lib, tiny, open_context):
    model = tiny("soft")
    prompts = [prompt(10 + seed, seed) for seed in range(5)]
    settings = {"max_tokens": 20, "temperature": 0.9, "top_p": 0.95, "seed": 7}
    contexts = [open_context(model) for _ in prompts]
    alone = []
    for context, tokens in zip(contexts, prompts, strict=True):
        lib.begin(context, tokens, **settings)
        alone.append(delivered(lib.drain(context)))
        lib.reset(context)
    assert generate_at_once(lib, contexts, prompts, **settings) == alone


def test_every_context_keeps_its_own_options(lib, tiny, open_context):
    """Sampling, penalties, bias, logprobs and limits of batch mates have nothing in common."""
    model = tiny(KV)
    options = [
        {"max_tokens": 20},
        {"max_tokens": 5},
        {"max_tokens": 20, "repetition_penalty": 1.5},
        {"max_tokens": 20, "temperature": 0.8, "seed": 3},
        {"max_tokens": 20, "logprobs": 3},
        {"max_tokens": 20, "top_k": 5, "temperature": 1.2, "seed": 4},
    ]
    tokens = prompt(20)
    contexts = [open_context(model) for _ in options]
    alone = []
    for context, params in zip(contexts, options, strict=True):
        lib.begin(context, tokens, **params)
        alone.append([(p.token, p.text, p.finish) for p in lib.drain(context)])
        lib.reset(context)
    given: list = [None] * len(options)

    def work(index: int) -> None:
        lib.begin(contexts[index], tokens, **options[index])
        given[index] = [(p.token, p.text, p.finish) for p in lib.drain(contexts[index])]

    at_once(len(options), work)
    assert given == alone


DRAFTS = [("llama", "llama"), ("llama", "llama-rough"), ("llama", None), ("gemma3_text", None)]


@pytest.mark.parametrize(("kind", "draft"), DRAFTS)
@pytest.mark.parametrize("sampling", [{}, {"temperature": 1.0, "seed": 4}], ids=["best", "sampled"])
def test_drafts_of_several_contexts_are_checked_together(
    lib, tiny, open_context, kind, draft, sampling
):
    """Of different length, some without any; the tokens are those alone and without drafts."""
    model = tiny(kind)
    prompts = [(prompt(11, seed) * 9)[:length] for seed, length in enumerate((5, 40, 17, 60, 2))]
    params = [{"max_tokens": 24 + n, **sampling} for n in range(len(prompts))]
    alone = []
    for tokens, own in zip(prompts, params, strict=True):
        context = open_context(model, solo=True)
        lib.begin(context, tokens, **own)
        alone.append(delivered(lib.drain(context)))
    contexts = [open_context(model) for _ in prompts]
    drafted = {"draft": tiny(draft)} if draft else {}
    given: list = [None] * len(prompts)

    def work(index: int) -> None:
        own = {**params[index], **drafted, "draft_tokens": (0 if index == 2 else 2 + index)}
        if index == 2:
            own.pop("draft", None)
        lib.begin(contexts[index], prompts[index], **own)
        given[index] = delivered(lib.drain(contexts[index]))

    at_once(len(prompts), work)
    assert given == alone
    for context, tokens, generated in zip(contexts, prompts, given, strict=True):
        assert lib.tokens(context) == tokens + generated[:-1]
    if kind == KV:
        assert sum(lib.info(context)["batched"] for context in contexts) > 0
        assert lib.info(contexts[0])["alone"] is None


def test_unused_buffers_are_returned_once_for_all_rows(lib, tiny, open_context, monkeypatch):
    contexts = [open_context(tiny("llama")) for _ in range(8)]
    for seed, context in enumerate(contexts):
        lib.begin(context, prompt(9, seed), max_tokens=260)
    own, returned = mx.clear_cache, []

    def clear_cache():
        returned.append(1)
        own()

    monkeypatch.setattr(mx, "clear_cache", clear_cache)
    for _ in range(260):
        assert all(lib.next(context).status == OK for context in contexts)
    assert 1 <= len(returned) <= 3


def test_all_tokens_of_a_draft_count_as_batched(lib, tiny, open_context):
    model = tiny("llama")
    contexts = [open_context(model) for _ in range(2)]
    for seed, context in enumerate(contexts):
        lib.begin(context, prompt(9, seed), max_tokens=41, draft=model, draft_tokens=4)
    for _ in range(41):
        assert all(lib.next(context).status == OK for context in contexts)
    for context in contexts:
        assert lib.stats(context).accepted_tokens > 20
        assert 20 < lib.info(context)["batched"] <= 41


def test_a_context_with_a_draft_leaves_a_batch_in_every_state(lib, tiny, open_context, oracle):
    """Cancels and forks while others check drafts, too."""
    model, known = tiny(KV), oracle(KV)
    start = (prompt(11) * 4)[:40]
    expected = known.after(start, 40)
    contexts = [open_context(model) for _ in range(3)]
    for context in contexts:
        lib.begin(context, start, max_tokens=40, draft=tiny("llama-rough"), draft_tokens=3)
    pieces: list[list[int]] = [[], [], []]
    for turn in range(8):
        for index, context in enumerate(contexts):
            pieces[index] += delivered(next_ok(lib, context, 1))
            assert lib.tokens(context) == start + pieces[index]
        fork = lib.fork(contexts[turn % 3])
        held = start + pieces[turn % 3]
        assert (
            greedy(lib, fork, [*held, expected[len(held) - len(start)]], 4)
            == (expected[len(held) - len(start) + 1 :][:4])
        )
        lib.free(fork)
    lib.cancel(contexts[0])
    assert lib.next(contexts[0]).finish == FINISH_CANCELED
    assert lib.tokens(contexts[0]) == start + pieces[0]
    for index in (1, 2):
        pieces[index] += delivered(lib.drain(contexts[index]))
        assert pieces[index] == expected


def test_a_solo_context_says_so(lib, tiny, open_context):
    context = open_context(tiny(KV), solo=True)
    assert lib.info(context)["alone"] == "solo"


def test_what_cannot_be_batched_says_why(lib, tiny, open_context):
    model = tiny(RECURRENT)
    drafting = open_context(model)
    lib.begin(drafting, prompt(8), draft_tokens=2)
    assert "speculative" in lib.info(drafting)["alone"]
    assert lib.info(open_context(model))["alone"] is None


def test_a_network_that_takes_no_batches_decodes_alone(
    lib, tmp_path, monkeypatch, open_context, oracle
):
    monkeypatch.delitem(rows._KINDS, "ArraysCache")
    model = lib.load(tiny_models.make(tmp_path / "mamba", "mamba"))
    prompts = [prompt(6, seed) for seed in range(3)]
    contexts = [open_context(model) for _ in prompts]
    given = generate_at_once(lib, contexts, prompts, max_tokens=12)
    assert given == [oracle("mamba").after(tokens, 12) for tokens in prompts]
    assert "no batch form" in lib.info(contexts[0])["alone"]
    lib.free_model(model)


def test_one_failing_context_fails_alone(lib, tiny, open_context, oracle):
    """A context that is cancelled and one that is freed take nothing from the others."""
    model = tiny(KV)
    contexts = [open_context(model) for _ in range(3)]
    doomed = lib.context(model)
    prompts = [prompt(9, seed) for seed in range(4)]
    for context, tokens in zip([*contexts, doomed], prompts, strict=True):
        lib.begin(context, tokens, max_tokens=30)
    pieces = [next_ok(lib, context, 3) for context in [*contexts, doomed]]
    lib.free(doomed)
    lib.cancel(contexts[1])
    last = lib.drain(contexts[1])[-1]
    assert last.finish == FINISH_CANCELED
    for index in (0, 2):
        whole = delivered(pieces[index]) + delivered(lib.drain(contexts[index]))
        assert whole == oracle(KV).after(prompts[index], 30)


def test_a_reader_that_stops_reading_stalls_nobody(lib, tiny, open_context, oracle):
    model = tiny(KV)
    slow, quick = open_context(model), open_context(model)
    lib.begin(slow, prompt(9), max_tokens=200)
    first = next_ok(lib, slow, 2)
    for seed in range(4):
        tokens = prompt(12, seed)
        assert greedy(lib, quick, tokens, 40) == oracle(KV).after(tokens, 40)
    # It computed a few tokens ahead, no more, and continues exactly where it was.
    settle(lib, model)
    assert lib.tokens(slow) == prompt(9) + delivered(first)
    rest = delivered(lib.drain(slow))
    assert delivered(first) + rest == oracle(KV).after(prompt(9), 200)


def test_a_window_that_fills_in_a_batch_ends_one_generation(lib, tiny, open_context, oracle):
    model = tiny(KV)
    small, large = open_context(model, max_tokens=20), open_context(model)
    prompts = [prompt(15), prompt(15, seed=1)]
    given = generate_at_once(lib, [small, large], prompts, max_tokens=30)
    assert given[0] == oracle(KV).after(prompts[0], 30)[:6]
    assert given[1] == oracle(KV).after(prompts[1], 30)
    assert len(lib.tokens(small)) == 20


@pytest.mark.parametrize("kind", [KV, RECURRENT])
def test_many_contexts_with_random_ends(lib, tiny, kind):
    """Cancels and frees at random, from other threads: everyone ends, and memory returns."""
    model = tiny(kind)
    opened_before = lib.info()["handles"]["context"]
    handles = [lib.context(model) for _ in range(16)]
    ends = {index: index % 4 for index in range(16)}

    def work(index: int) -> None:
        context = handles[index]
        params = {"max_tokens": 30 + index, "temperature": index % 3 * 0.5, "seed": index}
        if index % 5 == 0:
            params["stop"] = ["a", "e"]
        lib.begin(context, prompt(3 + 7 * index, index), **params)
        for number in range(12 + index):
            piece = lib.next(context)
            if piece.status != 0:
                break
            if ends[index] == 1 and number == index:
                lib.cancel(context)
            elif ends[index] == 2 and number == index:
                lib.free(context)
                return
        lib.free(context)

    at_once(16, work)
    assert lib.info()["handles"]["context"] == opened_before


def test_background_work_is_not_batched_with_the_rest(lib, tiny, open_context, oracle):
    model = tiny(KV)
    front, back = open_context(model), open_context(model, priority=-1)
    prompts = [prompt(9), prompt(9, seed=1)]
    given = generate_at_once(lib, [front, back], prompts, max_tokens=20)
    assert given == [oracle(KV).after(tokens, 20) for tokens in prompts]


def test_caches_of_different_kinds_at_once(lib, tiny, open_context, oracle):
    """Those of one kind are a batch; one that has nobody like it is decoded alone, as it is."""
    model = tiny(QUANTIZED)
    kinds = [(0, 0), (8, 64), (4, 64), (8, 32), (0, 0), (4, 64), (8, 64)]
    prompts = [prompt(9 + 5 * seed, seed) for seed in range(len(kinds))]
    contexts = [open_context(model, kv_bits=bits, kv_group_size=size) for bits, size in kinds]
    expected = []
    for context, tokens in zip(contexts, prompts, strict=True):
        expected.append(greedy(lib, context, tokens, 40))
        lib.reset(context)
    for context, tokens in zip(contexts, prompts, strict=True):
        lib.begin(context, tokens, max_tokens=40)
    given: list[list[int]] = [[] for _ in kinds]
    for _ in range(40):
        for own, context in zip(given, contexts, strict=True):
            own += delivered([lib.next(context)])
    assert given == expected
    batched = [lib.info(context)["batched"] > 0 for context in contexts]
    assert batched == [kind != (8, 32) for kind in kinds]
