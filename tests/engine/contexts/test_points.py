"""States inside prompts, for caches that cannot drop tokens: what parts from a prompt inside it."""

from __future__ import annotations

import json

import pytest
from driver import DROPS_THINKING, HYBRID, KV, RECURRENT, SLIDING, Oracle, greedy, prompt
from support import tiny_models
from support.library import StatusError
from support.signatures import EINVAL
from support.threads import at_once

INTERVAL = 64
OTHERS = ["qwen3_next", SLIDING, RECURRENT]
QUESTION = "The quick brown fox jumps over the lazy dog, and then it sleeps: question {}?"


@pytest.fixture(scope="module")
def thinker(lib, tmp_path_factory):
    """Loads models whose template leaves out the thinking of earlier answers."""
    handles = {}

    def thinker(family, fresh=False, **params):
        folder = tmp_path_factory.mktemp(family)
        tiny_models.make(folder, family, config={"max_position_embeddings": 8192})
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        settings["chat_template"] = DROPS_THINKING
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        if fresh:
            return lib.load(folder, **params)
        return handles.setdefault(family, handles.get(family) or lib.load(folder, **params))

    yield thinker
    for handle in handles.values():
        lib.free_model(handle)


def conversation(lib, model, context, turns, check):
    """Chat for some turns; ``check(prompt, info, answer, most)`` after each."""
    messages, before = [], []
    for turn in range(turns):
        messages.append({"role": "user", "content": QUESTION.format(turn)})
        tokens = lib.chat_prompt(model, messages)
        last_two = len(tokens) - len(before) if turn else len(tokens)
        answer = greedy(lib, context, tokens, 6)
        check(tokens, lib.info(context), answer, last_two)
        # What the next turn has in common with this one ends before the generation prompt.
        before = lib.chat_prompt(model, messages, add_generation_prompt=False)
        messages.append({"role": "assistant", "content": lib.detokenize(model, answer)})


@pytest.mark.parametrize(("family", "turns"), [(HYBRID, 20), *((each, 5) for each in OTHERS)])
def test_a_turn_processes_the_last_messages_alone(lib, thinker, open_context, family, turns):
    model = thinker(family)
    context = open_context(model, share_prefix=True, checkpoint_interval=INTERVAL)
    oracle = Oracle(lib, model)

    def check(tokens, info, answer, last_two):
        assert info["recomputed"] <= last_two + INTERVAL
        assert info["reused"] + info["recomputed"] == len(tokens)
        if info["prompt"] > most[-1] + 200:  # not in every turn: fresh contexts take long
            most.append(info["prompt"])
            assert answer == oracle.after(tokens, 6)

    most = [0]
    conversation(lib, model, context, turns, check)
    assert len(most) > 1


def test_a_chat_needs_no_interval(lib, thinker, open_context):
    model = thinker(HYBRID, fresh=True)
    context = open_context(model, share_prefix=True, checkpoint_interval=0)
    seen = []

    def check(tokens, info, answer, most):
        seen.append((info, most))

    conversation(lib, model, context, 4, check)
    assert all(info["recomputed"] <= most for info, most in seen)
    lib.free_model(model)


def test_contexts_chat_at_once(lib, thinker, open_context):
    """In batches, with forks and cancels between, they give the tokens of a fresh context."""
    model = thinker(HYBRID)
    oracle = Oracle(lib, model)
    contexts = [open_context(model, share_prefix=True, checkpoint_interval=32) for _ in range(3)]
    given = []

    def work(index):
        def check(tokens, info, answer, most):
            fork = lib.fork(contexts[index])
            lib.begin(fork, [*tokens, *answer, 11, 12], max_tokens=50)
            lib.cancel(fork)
            lib.free(fork)
            given.append((tokens, answer))

        conversation(lib, model, contexts[index], 2, check)

    at_once(len(contexts), work)
    assert len(given) == 6
    assert [answer for tokens, answer in given if oracle.after(tokens, 6) != answer] == []


@pytest.mark.parametrize("family", [HYBRID, SLIDING, RECURRENT])
def test_prompts_that_part_are_cut_at_the_interval(lib, thinker, open_context, family):
    model = thinker(family, fresh=True)
    oracle = Oracle(lib, model)
    start = prompt(300, seed=5)
    first, second = (
        open_context(model, share_prefix=True, checkpoint_interval=INTERVAL) for _ in range(2)
    )
    lib.begin(first, start, max_tokens=0)
    other = start[:200] + prompt(40, seed=6)
    for context in (first, second):
        assert greedy(lib, context, other) == oracle.after(other)
        assert lib.info(context)["reused"] >= 192
    again = start[:150] + prompt(9, seed=7)
    assert greedy(lib, second, again) == oracle.after(again)
    assert lib.info(second)["reused"] == 128
    assert lib.trim_end(second, 20) == 20
    held = lib.tokens(second)
    assert greedy(lib, second, [*held, 11]) == oracle.after([*held, 11])
    lib.free_model(model)


def test_points_are_dropped_with_the_least_recently_used(lib, thinker, open_context):
    model = thinker(HYBRID, fresh=True, prefix_cache_bytes=200_000)
    context = open_context(model, share_prefix=True, checkpoint_interval=32)
    for seed in range(3):
        start = prompt(400, seed=seed)
        lib.begin(context, start, max_tokens=0)
        lib.begin(context, [*start[:390], 11, 12, 13], max_tokens=0)
        assert lib.info(context)["reused"] == 384, "the last point is still there"
        lib.begin(context, [*start[:40], 11, 12, 13], max_tokens=0)
        assert lib.info(context)["reused"] < 40, "the first is not"
    lib.free_model(model)


def test_without_sharing_no_state_is_kept(lib, thinker, open_context):
    model = thinker(HYBRID)
    context = open_context(model, checkpoint_interval=32)
    start = prompt(100, seed=9)
    lib.begin(context, start, max_tokens=0)
    lib.begin(context, [*start[:90], 11, 12], max_tokens=0)
    assert lib.info(context)["reused"] == 0


@pytest.mark.parametrize("interval", [1, 31])
def test_an_interval_that_is_too_small(lib, tiny, interval):
    with pytest.raises(StatusError, match="checkpoint_interval") as failed:
        lib.context(tiny(KV), checkpoint_interval=interval)
    assert failed.value.status == EINVAL
