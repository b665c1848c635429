"""Logits and log probabilities: the model's own, of the position that they are said to be of."""

from __future__ import annotations

import math
from ctypes import byref, c_float, c_int32, c_size_t

import numpy as np
import pytest
from driver import KINDS, OF_MLX_LM, RECURRENT, delivered, next_ok, prompt, settle
from support import draws
from support.library import StatusError
from support.outputs import Buffer, poisoned, untouched
from support.signatures import (
    DONE,
    EBUFFER,
    EINVAL,
    ESTATE,
    FINISH_CANCELED,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    FINISH_STOP,
    FINISH_STOP_TEXT,
    OK,
)
from tasks import BEYOND_WINDOWS

START = prompt(BEYOND_WINDOWS)
CLOSE = {"rtol": 1e-4, "atol": 2e-4}
# What decides about tokens and must not show in the model's probabilities.
DISTORTED = {
    "temperature": 3.0,
    "top_p": 0.9,
    "top_k": 30,
    "typical_p": 0.9,
    "repetition_penalty": 1.5,
    "presence_penalty": 2.0,
    "bias": {40: 3.0, 41: -math.inf},
    "seed": 1,
}


def start(lib, model, family) -> list[int]:
    """A prompt that the model does not answer with its end."""
    return lib.tokenize(model, "Once upon a time") if family == "calf" else START


def behind(lib, model, tokens) -> list[float]:
    """The logits that a fresh context gives."""
    context = lib.context(model)
    lib.begin(context, tokens, max_tokens=0)
    logits = lib.logits(context)
    lib.free(context)
    return logits


def refused(status, operation, call, *arguments):
    with pytest.raises(StatusError) as error:
        call(*arguments)
    assert error.value.status == status
    assert error.value.message.startswith(f"{operation}: ")
    return error.value.message


# ------------------------------------------------------------ The right numbers


@pytest.mark.parametrize("family", [*OF_MLX_LM, "soft"])
def test_logits_are_those_of_mlx_lm(lib, tiny, mlx_lm, family):
    task = "spread" if family == "soft" else f"{family} {BEYOND_WINDOWS}"
    expected = mlx_lm(task)
    logits = behind(lib, tiny(family), expected["prompt"])
    assert len(logits) == lib.info(tiny(family))["vocabulary_size"]
    np.testing.assert_allclose(draws.log_softmax(logits), expected["logprobs"], **CLOSE)


def test_logits_of_the_bundled_model_are_those_of_mlx_lm(lib, calf, mlx_lm):
    expected = mlx_lm("calf")
    logits = behind(lib, calf, expected["prompt"])
    np.testing.assert_allclose(draws.log_softmax(logits), expected["logprobs"], **CLOSE)


@pytest.mark.parametrize("options", [{}, DISTORTED], ids=["greedy", "distorted"])
@pytest.mark.parametrize("family", [*KINDS, "soft", "calf"])
def test_log_probabilities_are_the_models_whatever_was_chosen(
    lib, tiny, open_context, family, options
):
    """Of the token, and of the most probable ones: numpy's log-softmax of the logits."""
    context = open_context(tiny(family))
    tokens = start(lib, tiny(family), family)
    lib.begin(context, tokens, max_tokens=6, logprobs=5, **options)
    for _ in range(6):
        expected = draws.log_softmax(lib.logits(context))
        piece = lib.next(context)
        top = lib.logprobs(context)
        assert piece.logprob == pytest.approx(expected[piece.token], rel=1e-5, abs=1e-5)
        assert len({token for token, _ in top}) == 5
        values = [value for _, value in top]
        assert values == sorted(values, reverse=True)
        np.testing.assert_allclose(values, np.sort(expected)[:-6:-1], rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(values, [expected[token] for token, _ in top], atol=1e-5)


@pytest.mark.parametrize("family", [*KINDS, "calf"])
def test_logits_are_those_behind_the_last_token_held(lib, tiny, open_context, family):
    """Also ahead of the host, and after the end."""
    model = tiny(family)
    context = open_context(model)
    lib.begin(context, start(lib, model, family), max_tokens=4)
    for _ in range(4):
        settle(lib, model)
        np.testing.assert_allclose(
            lib.logits(context), behind(lib, model, lib.tokens(context)), rtol=1e-3, atol=1e-3
        )
        piece = lib.next(context)
    assert piece.finish == FINISH_LENGTH
    np.testing.assert_allclose(
        lib.logits(context), behind(lib, model, lib.tokens(context)), rtol=1e-3, atol=1e-3
    )


@pytest.mark.parametrize("family", ["llama", RECURRENT])
@pytest.mark.parametrize("finish", [FINISH_STOP, FINISH_STOP_TEXT, FINISH_CONTEXT, FINISH_CANCELED])
def test_logits_stay_after_every_end(lib, tiny, open_context, family, finish):
    model = tiny(family)
    context = open_context(model, max_tokens=len(START) + 4)
    end = lib.info(model)["end_tokens"][0]["id"]
    options = {"bias": {end: 1000.0}} if finish == FINISH_STOP else {}
    if finish == FINISH_STOP_TEXT:
        text = lib.generate(context, START, max_tokens=3).text
        options = {"stop": [text[:-1]]}
    lib.begin(context, START, **options)
    if finish == FINISH_CANCELED:
        next_ok(lib, context, 2)
        lib.cancel(context)
    assert lib.drain(context)[-1].finish == finish
    np.testing.assert_allclose(
        lib.logits(context), behind(lib, model, lib.tokens(context)), rtol=1e-3, atol=1e-3
    )


def test_all_tokens_of_the_vocabulary_have_log_probabilities(lib, tiny, open_context):
    context = open_context(tiny("soft"))
    size = lib.info(tiny("soft"))["vocabulary_size"]
    lib.begin(context, START, max_tokens=1, logprobs=size)
    expected = draws.log_softmax(lib.logits(context))
    lib.next(context)
    top = lib.logprobs(context)
    assert sorted(token for token, _ in top) == list(range(size))
    np.testing.assert_allclose([v for _, v in top], expected[[t for t, _ in top]], atol=1e-4)
    assert sum(math.exp(value) for _, value in top) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("options", [{}, DISTORTED, {"draft_tokens": 3}], ids=str)
def test_log_probabilities_change_no_tokens(lib, tiny, open_context, options):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=10, **options)
    plain = delivered(lib.drain(context))
    lib.begin(context, START, max_tokens=10, logprobs=3, **options)
    assert delivered(lib.drain(context)) == plain


def test_the_end_token_has_a_log_probability_too(lib, tiny, open_context):
    model = tiny("llama")
    context = open_context(model)
    end = lib.info(model)["end_tokens"][0]["id"]
    lib.begin(context, START, logprobs=1, bias={end: 1000.0})
    expected = draws.log_softmax(lib.logits(context))[end]
    for _ in range(2):  # every further call gives the last piece again
        piece = lib.next(context)
        assert (piece.status, piece.token) == (DONE, end)
        assert piece.logprob == pytest.approx(expected, rel=1e-5)


# ---------------------------------------------------------------- When there are none


def test_pieces_have_no_log_probability_unless_asked_for(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=2)
    assert all(math.isnan(piece.logprob) for piece in lib.drain(context))
    message = refused(ESTATE, "context_logprobs", lib.logprobs, context)
    assert "logprobs" in message
    lib.begin(context, START, max_tokens=0, logprobs=1)
    assert math.isnan(lib.next(context).logprob)


def test_log_probabilities_come_with_pieces(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    refused(ESTATE, "context_logprobs", lib.logprobs, context)
    lib.begin(context, START, max_tokens=2, logprobs=1)
    refused(ESTATE, "context_logprobs", lib.logprobs, context)
    lib.next(context)
    first = lib.logprobs(context)
    settle(lib, tiny("llama"))
    assert lib.logprobs(context) == first, "the next token is not the host's yet"
    lib.next(context)
    second = lib.logprobs(context)
    assert second != first
    assert lib.next(context).status == DONE
    assert lib.logprobs(context) == second
    lib.begin(context, START, max_tokens=1, logprobs=1)
    refused(ESTATE, "context_logprobs", lib.logprobs, context)
    lib.next(context)
    lib.reset(context)
    refused(ESTATE, "context_logprobs", lib.logprobs, context)


def reset(lib, context):
    lib.reset(context)
    return context


def trim_end(lib, context):
    lib.trim_end(context, 2)
    return context


def trim_front(lib, context):
    lib.trim_front(context, 2)
    return context


def fork(lib, context):
    return lib.fork(context)


def rewind(lib, context):
    lib.rewind(context, lib.checkpoint(context))
    return context


@pytest.mark.parametrize("change", [reset, trim_end, trim_front, fork, rewind])
@pytest.mark.parametrize("family", ["llama", RECURRENT])
def test_a_change_of_the_context_leaves_no_logits(lib, tiny, open_context, family, change):
    context = open_context(tiny(family))
    refused(ESTATE, "context_logits", lib.logits, context)
    lib.begin(context, START, max_tokens=8)
    next_ok(lib, context, 2)
    lib.logits(context)
    changed = change(lib, context)
    message = refused(ESTATE, "context_logits", lib.logits, changed)
    assert "context_begin" in message
    lib.begin(changed, [*START, 50], max_tokens=0)
    assert len(lib.logits(changed)) == lib.info(tiny(family))["vocabulary_size"]
    lib.c.cow_mlx_context_free(changed)


@pytest.mark.parametrize("value", [-1, -(2**31), 10**6, 2**31 - 1])
def test_more_log_probabilities_than_tokens_are_refused(lib, tiny, open_context, value):
    context = open_context(tiny("llama"))
    with pytest.raises(StatusError) as error:
        lib.begin(context, START, logprobs=value)
    assert error.value.status == EINVAL
    assert "logprobs" in error.value.message
    assert str(value) in error.value.message
    assert lib.tokens(context) == []


def test_generate_and_chat_refuse_log_probabilities(lib, calf, open_context):
    context = open_context(calf)
    message = refused(EINVAL, "context_generate", lambda: lib.generate(context, START, logprobs=2))
    assert "logprobs" in message
    hello = [{"role": "user", "content": "Hello"}]
    message = refused(EINVAL, "context_chat", lambda: lib.chat(context, hello, logprobs=2))
    assert "logprobs" in message
    assert lib.tokens(context) == []


# ---------------------------------------------------------------------- Buffers


@pytest.fixture
def asked(lib, tiny, open_context):
    """A context whose last piece has 3 log probabilities."""
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=4, logprobs=3)
    assert lib.next(context).status == OK
    return context


@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_too_small_a_capacity_is_told_the_size(lib, asked, capacity):
    tokens, values = Buffer(c_int32, 8), Buffer(c_float, 8)
    count = poisoned(c_size_t)
    status = lib.c.cow_mlx_context_logprobs(
        asked, tokens.arguments()[0], values.arguments()[0], capacity, byref(count)
    )
    assert status == EBUFFER
    assert count.value == 3
    assert untouched(tokens.data)
    assert untouched(values.data)
    assert len(lib.logprobs(asked)) == 3


def test_a_size_query_writes_neither_array(lib, asked):
    """Even if only the first of them is NULL."""
    values, count = Buffer(c_float, 8), poisoned(c_size_t)
    call = lib.c.cow_mlx_context_logprobs
    for array in (None, values.arguments()[0]):
        assert call(asked, None, array, 0, byref(count)) == OK
        assert count.value == 3
        assert untouched(values.data)


@pytest.mark.parametrize("missing", ["tokens", "logprobs"])
def test_a_capacity_without_a_buffer_is_refused(lib, asked, missing):
    array = (c_int32 * 4)() if missing == "logprobs" else None
    values = (c_float * 4)() if missing == "tokens" else None
    count = poisoned(c_size_t)
    assert lib.c.cow_mlx_context_logprobs(asked, array, values, 4, byref(count)) == EINVAL
    assert missing in lib.message()
    assert untouched(count)
