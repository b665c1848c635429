"""Guessing ahead changes how fast tokens come, and nothing else."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from driver import (
    QUANTIZED_SLIDING,
    delivered,
    greedy,
    held_after,
    next_ok,
    opened,
    prompt,
    settle,
    text_of,
)
from support import tiny_models
from support.library import StatusError
from support.signatures import (
    EHANDLE,
    EINVAL,
    FINISH_CANCELED,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_STOP_TEXT,
    GRAMMAR_REGEX,
)

START = prompt(30)
# Drafts that are all right, often right and never right, and drafts without a model.
DRAFTS = ["llama", "llama-rough", "llama-other", None]
COUNT = 40
# A model that checks its own drafts disagrees with itself by rounding alone.
SAMPLED = [
    {"temperature": 1.0},
    {"temperature": 2.0, "top_p": 0.9, "top_k": 40},
    {"temperature": 0.7, "min_p": 0.02, "repetition_penalty": 1.3},
    {"temperature": 1.0, "repetition_penalty": 1.2, "repetition_window": 3},
]


def drafted(tiny, draft, tokens=4):
    """The parameters that ask for a draft."""
    return {"draft_tokens": tokens} | ({"draft": tiny(draft)} if draft else {})


def echo(length=40):
    """A prompt whose last tokens have been there before."""
    return (prompt(11) * length)[:length]


def run(lib, context, tokens, **params):
    """The pieces of a generation, but for logprobs, which are NaN and so never equal."""
    lib.begin(context, tokens, **params)
    return [replace(piece, logprob=None) for piece in lib.drain(context)]


drafts = pytest.mark.parametrize("draft", DRAFTS)


@pytest.mark.parametrize("count", [1, 4])
def test_rejected_drafts_of_quantized_layers_beside_windows(lib, tiny, open_context, count):
    """Later tokens are processed on the context's stream, also after a batch was left."""
    model = tiny(QUANTIZED_SLIDING)
    plain, context = open_context(model, kv_bits=8), open_context(model, kv_bits=8)
    params = {"grammar": "[a-h ]{30}", "grammar_kind": GRAMMAR_REGEX, "max_tokens": 20}
    pieces = run(lib, context, prompt(25), draft_tokens=count, **params)
    assert pieces == run(lib, plain, prompt(25), **params)
    stats = lib.stats(context)
    assert stats.drafted_tokens > stats.accepted_tokens


@drafts
@pytest.mark.parametrize("count", [1, 2, 7])
def test_greedy_tokens_are_those_without_a_draft(lib, tiny, oracle, open_context, draft, count):
    context = open_context(tiny("llama"))
    for start in (prompt(1), START, prompt(300), echo()):
        pieces = run(lib, context, start, max_tokens=COUNT, **drafted(tiny, draft, count))
        assert delivered(pieces) == oracle("llama").after(start, COUNT)
        assert lib.tokens(context) == held_after(start, pieces[:-1])


@drafts
def test_text_and_ends_are_those_without_a_draft(lib, tiny, open_context, draft):
    context = open_context(tiny("llama"))
    plain = run(lib, context, START, max_tokens=COUNT)
    assert run(lib, context, START, max_tokens=COUNT, **drafted(tiny, draft)) == plain


@drafts
@pytest.mark.parametrize("settings", SAMPLED, ids=str)
def test_a_seed_gives_the_tokens_that_it_gives_without_a_draft(
    lib, tiny, open_context, draft, settings
):
    context = open_context(tiny("llama"))
    for seed in range(2):
        params = {**settings, "seed": seed, "max_tokens": 30}
        plain = run(lib, context, echo(), **params)
        assert run(lib, context, echo(), **params, **drafted(tiny, draft)) == plain


def test_drafted_tokens_have_the_model_s_distribution(lib, tiny, open_context):
    """The second token, all of whose draws are drafts checked: chi-square at 5 sigma."""
    context = open_context(tiny("soft"))
    start, total = prompt(3), 500
    first = greedy(lib, context, start, 1)[0]
    lib.begin(context, [*start, first], max_tokens=1, logprobs=8)
    lib.next(context)
    top = lib.logprobs(context)
    probabilities = np.exp([value for _, value in top])
    known = [token for token, _ in top]
    counts = dict.fromkeys([*known, None], 0)
    settings = {"temperature": 1.0, "max_tokens": 4, **drafted(tiny, "soft", 1)}
    for seed in range(total):
        lib.begin(context, [*start, first], seed=seed, **settings)
        token = lib.next(context).token
        counts[token if token in counts else None] += 1
    expected = total * np.array([*probabilities, 1 - probabilities.sum()])
    observed = np.array(list(counts.values()))
    keep = expected >= 5
    statistic = ((observed - expected)[keep] ** 2 / expected[keep]).sum()
    freedom = keep.sum() - 1
    assert statistic < freedom + 5 * np.sqrt(2 * freedom)


def test_stats_tell_how_many_guesses_were_right(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    run(lib, context, START, max_tokens=COUNT)
    stats = lib.stats(context)
    assert (stats.drafted_tokens, stats.accepted_tokens) == (0, 0)
    accepted = {}
    for draft in ("llama", "llama-other"):
        run(lib, context, START, max_tokens=COUNT, **drafted(tiny, draft))
        stats = lib.stats(context)
        assert stats.generated_tokens == COUNT
        assert stats.drafted_tokens > 0
        accepted[draft] = stats.accepted_tokens / stats.drafted_tokens
    assert accepted["llama"] > 0.9
    assert accepted["llama-other"] < 0.2


@pytest.mark.parametrize("count", [1, 3, 10, 64])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_followed_before_is_guessed_without_a_model(
    lib, calf, open_context, count, temperature
):
    context = open_context(calf)
    tokens = lib.tokenize(calf, "Tell me a story about a fox.")
    params = {"max_tokens": 60, "temperature": temperature, "seed": 5}
    plain = run(lib, context, tokens, **params)
    assert run(lib, context, tokens, **params, draft_tokens=count) == plain
    stats = lib.stats(context)
    assert stats.drafted_tokens > stats.accepted_tokens > 0


@drafts
def test_max_tokens_end_a_generation_exactly(lib, tiny, oracle, open_context, draft):
    context = open_context(tiny("llama"))
    for count in range(12):
        pieces = run(lib, context, echo(), max_tokens=count, **drafted(tiny, draft))
        assert len(delivered(pieces)) == count
        assert pieces[-1].finish == FINISH_LENGTH
        assert lib.tokens(context) == held_after(echo(), pieces[:-1])
    after = lib.tokens(context) + prompt(2)
    assert greedy(lib, context, after) == oracle("llama").after(after)


@drafts
def test_the_window_s_end_is_the_same(lib, tiny, open_context, draft):
    for size in range(40, 52):
        with opened(lib, tiny("llama"), max_tokens=size) as context:
            plain = run(lib, context, echo(), max_tokens=100)
            held = lib.tokens(context)
            pieces = run(lib, context, echo(), max_tokens=100, **drafted(tiny, draft))
            assert pieces == plain
            assert pieces[-1].finish == FINISH_CONTEXT
            assert lib.tokens(context) == held
            assert len(held) == size


@drafts
def test_a_stop_text_ends_in_the_middle_of_a_guess(lib, tiny, oracle, open_context, draft):
    context = open_context(tiny("llama"))
    plain = run(lib, context, START, max_tokens=COUNT)
    text = text_of(plain)
    for cut in (3, 8, 15):
        stop = [text[cut : cut + 4]]
        expected = run(lib, context, START, max_tokens=COUNT, stop=stop)
        held = lib.tokens(context)
        pieces = run(lib, context, START, max_tokens=COUNT, stop=stop, **drafted(tiny, draft))
        assert pieces[-1].finish == FINISH_STOP_TEXT
        stats = lib.stats(context)
        assert stats.accepted_tokens < stats.generated_tokens
        assert text_of(pieces) == text_of(expected)
        assert lib.tokens(context) == held
        after = held + prompt(2)
        assert greedy(lib, context, after) == oracle("llama").after(after)


@drafts
def test_an_end_token_ends_in_the_middle_of_a_guess(lib, tiny, oracle, open_context, draft):
    """A high temperature makes end tokens come, and be guessed."""
    context = open_context(tiny("llama"))
    end = lib.info(tiny("llama"))["end_tokens"][0]["id"]
    ended = 0
    for seed in itertools.count():
        params = {"temperature": 50.0, "seed": seed, "max_tokens": 30}
        plain = run(lib, context, START, **params)
        if plain[-1].finish != FINISH_STOP:
            continue
        held = lib.tokens(context)
        assert held[-1] == end
        assert run(lib, context, START, **params, **drafted(tiny, draft)) == plain
        assert lib.tokens(context) == held
        after = held + prompt(2)
        assert greedy(lib, context, after, 4) == oracle("llama").after(after, 4)
        ended += 1
        if ended == 3:
            break


@drafts
def test_a_cancel_at_every_length_leaves_what_was_delivered(lib, tiny, oracle, open_context, draft):
    model = tiny("llama")
    for length in range(1, 14):
        with opened(lib, model) as context:
            lib.begin(context, echo(), max_tokens=50, **drafted(tiny, draft))
            held = echo() + delivered(next_ok(lib, context, length))
            settle(lib, model)
            assert lib.tokens(context) == held
            lib.cancel(context)
            assert lib.next(context).finish == FINISH_CANCELED
            assert lib.tokens(context) == held
            after = held + prompt(2)
            assert greedy(lib, context, after, 8) == oracle("llama").after(after, 8)


@drafts
def test_logits_and_logprobs_are_those_of_every_single_step(lib, tiny, open_context, draft):
    context, plain = open_context(tiny("llama")), open_context(tiny("llama"))
    lib.begin(plain, echo(), max_tokens=20, logprobs=3)
    lib.begin(context, echo(), max_tokens=20, logprobs=3, **drafted(tiny, draft))
    for _ in range(20):
        expected, piece = lib.next(plain), lib.next(context)
        assert piece.token == expected.token
        assert piece.logprob == pytest.approx(expected.logprob, abs=1e-3)
        assert [token for token, _ in lib.logprobs(context)] == [
            token for token, _ in lib.logprobs(plain)
        ]
        assert lib.tokens(context) == lib.tokens(plain)
        np.testing.assert_allclose(lib.logits(context), lib.logits(plain), atol=1e-2)


def test_a_draft_model_freed_meanwhile_goes_on_guessing(lib, tiny, folder, oracle, open_context):
    draft = lib.load(folder("llama"))
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=COUNT, draft=draft)
    pieces = next_ok(lib, context, 3)
    lib.free_model(draft)
    pieces += lib.drain(context)
    assert delivered(pieces) == oracle("llama").after(START, COUNT)
    assert lib.stats(context).accepted_tokens > COUNT // 2
    with pytest.raises(StatusError) as unknown:
        lib.begin(context, START, draft=draft)
    assert unknown.value.status == EHANDLE


def test_a_draft_model_with_another_vocabulary_is_refused(lib, calf, tiny, open_context):
    context = open_context(tiny("llama"))
    greedy(lib, context, START)
    held = lib.tokens(context)
    with pytest.raises(StatusError) as refused:
        lib.begin(context, START, draft=calf)
    assert refused.value.status == EINVAL
    assert "vocabulary" in refused.value.message
    assert lib.tokens(context) == held


# Caches that cannot drop tokens, at all or once their windows are full.
STATES = ["mamba2", "rwkv7", "falcon_h1", "xlstm", "mad-hybrid", "gemma3_text"]
states = pytest.mark.parametrize("kind", STATES)


@states
@pytest.mark.parametrize("own", [True, False], ids=["its own draft", "another's"])
def test_a_cache_that_cannot_drop_drafts_puts_its_states_back(
    lib, tiny, oracle, open_context, kind, own
):
    """All drafts are right, or hardly any."""
    how = "in_place" if kind == "gemma3_text" else "recomputed"
    assert lib.info(tiny(kind))["cache"]["draft"] == how
    context = open_context(tiny(kind))
    for count, start in ((1, prompt(1)), (4, START), (7, echo())):
        params = drafted(tiny, kind if own else "llama", count)
        pieces = run(lib, context, start, max_tokens=COUNT, **params)
        assert delivered(pieces) == oracle(kind).after(start, COUNT)
        assert lib.tokens(context) == held_after(start, pieces[:-1])
        stats = lib.stats(context)
        assert stats.drafted_tokens > COUNT // 4
        assert not own or stats.accepted_tokens > COUNT // 4


WINDOWS = {
    "recurrent_gemma": {"attention_window_size": 64},
    "baichuan_m1": {"sliding_window": 64},
    "gemma3_text": {"sliding_window": 64},
    "falcon_h1": {},
}


@pytest.mark.parametrize("family", WINDOWS)
@pytest.mark.parametrize("trimmed", [True, False], ids=["trimmed", "begun again"])
def test_a_draft_s_state_is_of_no_use_behind_a_later_prompt(
    lib, tiny, open_context, tmp_path, family, trimmed
):
    """The prompt fills windows that could be cut when the draft was made."""
    tiny_models.make(tmp_path, family, config=WINDOWS[family])
    model = lib.load(tmp_path)
    others = {token: -math.inf for token in range(lib.info(model)["vocabulary_size"]) if token != 5}
    for count in (14, 15, 16):  # one ends with a draft
        context = open_context(model, share_prefix=False)
        run(lib, context, prompt(18), max_tokens=count, bias=others, **drafted(tiny, None))
        longer = [*lib.tokens(context), *prompt(200, seed=1)]
        lib.begin(context, longer, max_tokens=0)
        again = [*longer[: len(longer) - 50], 7, 8]
        if trimmed:
            lib.trim_end(context, len(lib.tokens(context)) - len(again) + 2)
        found = delivered(run(lib, context, again, max_tokens=6))
        plain = open_context(model, share_prefix=False)
        assert found == delivered(run(lib, plain, again, max_tokens=6))


@states
@pytest.mark.parametrize("settings", SAMPLED[:2], ids=str)
def test_states_that_are_put_back_give_the_seed_s_tokens(lib, tiny, open_context, kind, settings):
    context = open_context(tiny(kind))
    for seed in range(2):
        params = {**settings, "seed": seed, "max_tokens": 30}
        plain = run(lib, context, echo(), **params)
        assert run(lib, context, echo(), **params, **drafted(tiny, None)) == plain


@states
@pytest.mark.parametrize("own", [True, False], ids=["its own draft", "looked up"])
def test_forks_files_and_cancels_between_the_pieces_of_a_draft(
    lib, tiny, oracle, open_context, tmp_path, kind, own
):
    """The host has not taken all that one step gave: the rest is dropped."""
    model = tiny(kind)
    known = oracle(kind).after(echo(), 30)
    for length in range(1, 12):
        context = open_context(model)
        lib.begin(context, echo(), max_tokens=30, **drafted(tiny, kind if own else None, 3))
        held = echo() + delivered(next_ok(lib, context, length))
        assert held == echo() + known[:length]
        settle(lib, model)
        assert lib.tokens(context) == held
        fork = lib.fork(context)
        lib.save(context, tmp_path / "state")
        lib.cancel(context)
        assert lib.next(context).finish == FINISH_CANCELED
        for own_context in (context, fork):
            assert lib.tokens(own_context) == held
            assert (
                greedy(lib, own_context, held + known[length : length + 1], 8)
                == known[length + 1 : length + 9]
            )
        lib.restore(context, tmp_path / "state")
        assert lib.tokens(context) == held
        lib.free(fork)
        lib.free(context)


@pytest.mark.parametrize("draft", ["gemma3_text", "llama", None])
def test_a_window_that_fills_midway_goes_on(lib, tiny, oracle, open_context, draft):
    """Its sliding windows have room for 8 tokens, and cannot drop any when full."""
    context = open_context(tiny("gemma3_text"))
    assert lib.info(tiny("gemma3_text"))["cache"]["draft"] == "in_place"
    for start in (prompt(1), prompt(5), prompt(20)):
        pieces = run(lib, context, start, max_tokens=20, **drafted(tiny, draft, 2))
        assert delivered(pieces) == oracle("gemma3_text").after(start, 20)
        assert lib.tokens(context) == held_after(start, pieces[:-1])


def test_a_draft_model_whose_window_fills_goes_on(lib, tiny, oracle, open_context):
    context = open_context(tiny("llama"))
    for start in (prompt(2), prompt(40)):
        pieces = run(lib, context, start, max_tokens=30, **drafted(tiny, "gemma3_text"))
        assert delivered(pieces) == oracle("llama").after(start, 30)
        assert lib.stats(context).drafted_tokens > 0


def test_drafts_work_with_a_quantized_cache(lib, tiny, open_context):
    model = tiny("llama-wide")
    plain = run(lib, open_context(model, kv_bits=8), START, max_tokens=COUNT)
    for draft in ("llama-wide", "llama-other", None):
        context = open_context(model, kv_bits=8)
        assert run(lib, context, START, max_tokens=COUNT, **drafted(tiny, draft)) == plain


def test_one_context_changes_its_draft_model(lib, tiny, oracle, open_context):
    context = open_context(tiny("llama"))
    tokens = list(START)
    for draft in ("llama", "llama-other", None, "llama", "llama-rough", "llama"):
        pieces = run(lib, context, tokens, max_tokens=9, **drafted(tiny, draft))
        assert delivered(pieces) == oracle("llama").after(tokens, 9)
        tokens += delivered(pieces) + prompt(2)


def test_drafts_follow_a_context_that_is_cut_and_begun_again(lib, tiny, oracle, open_context):
    context = open_context(tiny("llama"))
    checkpoint = lib.checkpoint(context)
    for start in (START, START[:10], prompt(20, seed=1), START, START[:9] + prompt(5)):
        pieces = run(lib, context, start, max_tokens=12, **drafted(tiny, "llama"))
        assert delivered(pieces) == oracle("llama").after(start, 12)
        assert lib.stats(context).accepted_tokens > 3
        lib.trim_end(context, 5)
    lib.rewind(context, checkpoint)
    pieces = run(lib, context, START, max_tokens=12, **drafted(tiny, "llama"))
    assert delivered(pieces) == oracle("llama").after(START, 12)
