"""Given tokens are scored: by the model's own logits, on a copy of a context's state."""

from __future__ import annotations

import math
from ctypes import byref, c_double, c_float, c_int32, c_size_t

import numpy as np
import pytest
from driver import (
    CACHES,
    ENDLESS,
    HYBRID,
    KV,
    RECURRENT,
    greedy,
    prompt,
)
from support import draws
from support.library import StatusError
from support.outputs import Buffer, poisoned, untouched
from support.scoring import hidden_states, perplexity, prompt_logits, prompt_logprobs
from support.signatures import EBUFFER, ECANCELED, ECONTEXT, EHANDLE, EINVAL, ENOMEM, ESTATE
from support.threads import Working
from tasks import BEYOND_WINDOWS, SCORED

from cowmlx import memory
from cowmlx.services import admission

START = prompt(BEYOND_WINDOWS)
CLOSE = {"rtol": 1e-3, "atol": 1e-3}


def own(rows):
    """The log probabilities of the given tokens themselves."""
    return [row[0][1] for row in rows]


def refused(status, call, *arguments):
    with pytest.raises(StatusError) as error:
        call(*arguments)
    assert error.value.status == status
    return error.value


# ------------------------------------------------------------ The right numbers


@pytest.mark.parametrize("family", SCORED)
def test_scores_are_those_of_mlx_lm(lib, tiny, open_context, mlx_lm, family):
    scores = np.array(mlx_lm(f"score {family}")["scores"])
    context = open_context(tiny(family))
    rows = prompt_logprobs(lib, context, START, top=3)
    assert [row[0][0] for row in rows] == START
    assert math.isnan(rows[0][0][1])
    assert rows[0][1:] == [(-1, pytest.approx(math.nan, nan_ok=True))] * 3
    for behind, token, row in zip(scores, START[1:], rows[1:], strict=False):
        assert row[0][1] == pytest.approx(behind[token], abs=2e-3)
        np.testing.assert_allclose(
            [value for _, value in row[1:]], np.sort(behind)[:-4:-1], atol=2e-3
        )
    positions = [BEYOND_WINDOWS - 1, 0, 7, 7]
    logits = prompt_logits(lib, context, START, positions)
    for row, position in zip(logits, positions, strict=True):
        np.testing.assert_allclose(draws.log_softmax(row), scores[position], atol=2e-3)


@pytest.mark.parametrize(("family", "bits"), [*CACHES, ("calf", 0), ("llama-rough", 0)])
def test_a_prompt_and_what_follows_are_scored_as_one(lib, tiny, open_context, family, bits):
    """The context's state is used, whether logits behind it are known or not."""
    model = tiny(family)
    context, fresh = (open_context(model, kv_bits=bits) for _ in range(2))
    whole = own(prompt_logprobs(lib, context, START))
    lib.begin(context, START[:20], max_tokens=0)
    expected = greedy(lib, fresh, START)
    known = own(prompt_logprobs(lib, context, START[20:]))
    lib.rewind(context, lib.checkpoint(context))
    restored = own(prompt_logprobs(lib, context, START[20:]))
    assert lib.tokens(context) == START[:20]
    loose = {"rtol": 0.05, "atol": 0.05} if bits else CLOSE
    np.testing.assert_allclose(known, whole[20:], **loose)
    np.testing.assert_allclose(restored, whole[20:], **loose)
    assert greedy(lib, context, START) == expected


@pytest.mark.parametrize("family", [KV, RECURRENT, HYBRID])
def test_scoring_between_two_pieces_changes_neither(lib, tiny, open_context, family):
    model = tiny(family)
    context, other = open_context(model), open_context(model)
    expected = greedy(lib, other, START)
    lib.begin(context, START, max_tokens=len(expected))
    pieces = [lib.next(context).token for _ in range(3)]
    held = lib.tokens(context)
    fresh = own(prompt_logprobs(lib, open_context(model), [*held, 5, 9]))[-2:]
    np.testing.assert_allclose(own(prompt_logprobs(lib, context, [5, 9])), fresh, **CLOSE)
    assert lib.tokens(context) == held
    np.testing.assert_allclose(
        prompt_logits(lib, context, [5], [0])[0],
        prompt_logits(lib, open_context(model), [*held, 5], [len(held)])[0],
        **CLOSE,
    )
    while len(pieces) < len(expected):
        pieces.append(lib.next(context).token)
    assert pieces == expected


@pytest.mark.parametrize("family", [KV, HYBRID])
def test_scores_beside_a_batch_are_those_alone(lib, tiny, open_context, family):
    model = tiny(family)
    alone = prompt_logprobs(lib, open_context(model), START, top=2)
    others = [open_context(model) for _ in range(2)]
    for other in others:
        lib.begin(other, START, max_tokens=ENDLESS)
        lib.c.cow_mlx_context_poll(other, 0)
    for other in others:
        lib.next(other)
    held = lib.tokens(others[0])
    inside = prompt_logprobs(lib, others[0], [7, 8])
    fresh = prompt_logprobs(lib, open_context(model), [*held, 7, 8])[-2:]
    np.testing.assert_allclose(own(inside), own(fresh), **CLOSE)
    beside = prompt_logprobs(lib, open_context(model), START, top=2)
    np.testing.assert_allclose(own(beside)[1:], own(alone)[1:], **CLOSE)


def test_many_tokens_are_scored_in_chunks(lib, tiny, open_context):
    """A chunk's logits alone are in memory: a prompt in parts gives the same numbers."""
    tokens = prompt(1500)
    whole = own(prompt_logprobs(lib, open_context(tiny("llama-long")), tokens))
    context = open_context(tiny("llama-long"))
    lib.begin(context, tokens[:700], max_tokens=0)
    np.testing.assert_allclose(
        own(prompt_logprobs(lib, context, tokens[700:])), whole[700:], **CLOSE
    )


def test_all_tokens_of_the_vocabulary_are_alternatives(lib, tiny, open_context):
    size = lib.info(tiny("soft"))["vocabulary_size"]
    row = prompt_logprobs(lib, open_context(tiny("soft")), START[:2], top=size)[1]
    assert sorted(token for token, _ in row[1:]) == list(range(size))
    assert sum(math.exp(value) for _, value in row[1:]) == pytest.approx(1, abs=1e-4)
    assert dict(row[1:])[START[1]] == row[0][1]


@pytest.mark.parametrize("family", ["llama", RECURRENT, HYBRID, "calf"])
def test_hidden_states_are_those_that_embeddings_pool(lib, tiny, open_context, family):
    model, context = tiny(family), open_context(tiny(family))
    text = "Once upon a time"
    tokens = lib.tokenize(model, text, 1)
    rows = hidden_states(lib, context, tokens)
    assert len(rows) == len(tokens)
    for pooling, row in ((0, np.mean(rows, axis=0)), (1, rows[-1]), (2, rows[0])):
        (expected,) = lib.embed(model, [text], pooling=pooling, normalize=False)
        np.testing.assert_allclose(row, expected, **CLOSE)
    lib.begin(context, tokens[:2], max_tokens=0)
    np.testing.assert_allclose(hidden_states(lib, context, tokens[2:]), rows[2:], **CLOSE)
    assert lib.tokens(context) == tokens[:2]


# ---------------------------------------------------------------- Perplexity

TEXT = "Once upon a time there was a fox who liked to count. " * 3


@pytest.mark.parametrize("window", [0, 2, 16, 17])
def test_perplexity_is_that_of_the_scores(lib, calf, open_context, window):
    context = open_context(calf)
    lib.begin(context, lib.tokenize(calf, "Hello"), max_tokens=0)
    held = lib.tokens(context)
    tokens = lib.tokenize(calf, TEXT, 1)
    size = window or len(tokens)
    scores: list[float] = []
    for start in range(0, len(tokens), size):
        scores += own(prompt_logprobs(lib, open_context(calf), tokens[start : start + size]))[1:]
    found, deviation, scored = perplexity(lib, context, TEXT, window)
    assert scored == len(scores)
    assert found == pytest.approx(math.exp(-np.mean(scores)), rel=1e-3)
    expected = found * np.std(scores, ddof=1) / math.sqrt(len(scores))
    assert deviation == pytest.approx(expected, rel=1e-3)
    assert lib.tokens(context) == held


def test_a_single_score_has_no_deviation(lib, calf, open_context):
    tokens = lib.tokenize(calf, "a", 1)
    text = "a" if len(tokens) == 2 else "a b"
    found, deviation, scored = perplexity(lib, open_context(calf), text, 2)
    assert scored == 1
    assert found > 1
    assert math.isnan(deviation)


@pytest.mark.parametrize(("text", "window"), [("", 0), (TEXT, 1), (TEXT, 10**9)])
def test_texts_and_windows_without_a_perplexity(lib, tiny, open_context, text, window):
    error = refused(EINVAL, perplexity, lib, open_context(tiny(KV)), text, window)
    assert ("window" if window else "text") in error.message


# ------------------------------------------------------------------- Refusals


def test_bad_arguments_are_named(lib, tiny, open_context):
    context = open_context(tiny(KV), max_tokens=50)
    size = lib.info(tiny(KV))["vocabulary_size"]
    assert "tokens[1]" in refused(EINVAL, prompt_logprobs, lib, context, [1, size]).message
    assert "count" in refused(EINVAL, prompt_logprobs, lib, context, []).message
    for top in (-1, size + 1):
        assert str(top) in refused(EINVAL, prompt_logprobs, lib, context, [1], top).message
    for position in (-1, 2):
        error = refused(EINVAL, prompt_logits, lib, context, [1, 2], [0, position])
        assert "positions[1]" in error.message
    refused(EHANDLE, prompt_logprobs, lib, 0, [1])
    lib.begin(context, START, max_tokens=0)
    error = refused(ECONTEXT, prompt_logprobs, lib, context, prompt(11))
    assert error.details == {"needed": 51, "available": 50}
    assert len(prompt_logprobs(lib, context, prompt(10))) == 10


def test_no_position_is_refused(lib, tiny, open_context):
    out, length = Buffer(c_float, 4), poisoned(c_size_t)
    call = lib.c.cow_mlx_context_prompt_logits
    tokens = (c_int32 * 1)(1)
    context = open_context(tiny(KV))
    assert call(context, tokens, 1, None, 0, out.arguments()[0], 4, byref(length)) == EINVAL
    assert "position_count" in lib.message()
    assert untouched(out.data)


def test_too_small_a_buffer_is_told_the_size_and_written_nothing(lib, tiny, open_context):
    ids, values, length = Buffer(c_int32, 8), Buffer(c_float, 8), poisoned(c_size_t)
    tokens = (c_int32 * 4)(*START[:4])
    call = lib.c.cow_mlx_context_prompt_logprobs
    pointers = ids.arguments()[0], values.arguments()[0]
    status = call(open_context(tiny(KV)), tokens, 4, 2, *pointers, 8, byref(length))
    assert status == EBUFFER
    assert length.value == 12
    assert untouched(ids.data)
    assert untouched(values.data)


def test_a_cancel_ends_it_and_changes_nothing(lib, tiny, open_context):
    context, other = (open_context(tiny("llama-long")) for _ in range(2))
    lib.begin(context, START, max_tokens=0)
    running = Working(perplexity, lib, context, TEXT * 4000, 2)
    while lib.c.cow_mlx_context_poll(context, 0) != ESTATE:
        pass  # the call has not come yet
    lib.generate(other, START, max_tokens=2)  # others generate meanwhile
    lib.cancel(context)
    assert running.ended() == ECANCELED
    assert lib.tokens(context) == START
    assert math.isfinite(own(prompt_logprobs(lib, context, [1]))[0])


def test_what_does_not_fit_is_refused(lib, tiny, open_context, monkeypatch):
    context = open_context(tiny("llama-long"))
    lib.begin(context, START, max_tokens=0)
    left = memory.limit(1 << 18, "the fake device")
    with monkeypatch.context() as patch:
        patch.setattr(memory, "rooms", lambda device: iter([left]))
        patch.setattr(admission, "RESERVE", 0)
        patch.setattr(admission, "FRESH", 0)
        error = refused(ENOMEM, prompt_logprobs, lib, context, prompt(3000))
    assert error.details["available"] == 1 << 18
    assert error.details["needed"] > 1 << 18
    assert lib.tokens(context) == START
    assert len(prompt_logprobs(lib, context, prompt(10))) == 10


def test_outputs_of_a_refused_perplexity_stay(lib, tiny, open_context):
    outputs = poisoned(c_double), poisoned(c_double), poisoned(c_size_t)
    function = lib.c.cow_mlx_context_perplexity
    assert function(open_context(tiny(KV)), b"x", 1, 1, *map(byref, outputs)) == EINVAL
    assert all(map(untouched, outputs))
