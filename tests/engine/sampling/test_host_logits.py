"""The host's own processor of logits: it changes them on its thread, and nothing else changes."""

from __future__ import annotations

import json
import math
import threading

import pytest
from driver import FIRST_PLAIN, HYBRID, KINDS, KV, RECURRENT, delivered, prompt
from support import async_calls
from support.callbacks import Callbacks, StatusError
from support.library import Library
from support.signatures import (
    DONE,
    ECANCELED,
    EINVAL,
    ETIMEDOUT,
    EUNSUPPORTED,
    FINISH_CANCELED,
    FINISH_LENGTH,
    GRAMMAR_REGEX,
    OK,
)
from support.threads import at_once

START = prompt(20)
SEEDED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "repetition_penalty": 1.2}
kinds = pytest.mark.parametrize("kind", KINDS)


def nothing(tokens, count, logits, vocabulary):
    """Change nothing."""


def forbid(tokens, count, logits, vocabulary):
    """Forbid all tokens."""
    for token in range(vocabulary):
        logits[token] = -math.inf


def only(token):
    """Leave one token."""

    def function(tokens, count, logits, vocabulary):
        forbid(tokens, count, logits, vocabulary)
        logits[token] = 0.0

    return function


class Noting:
    """Notes what it is given."""

    def __init__(self) -> None:
        self.tokens: list[list[int]] = []
        self.logits: list[list[float]] = []
        self.threads: set[int] = set()

    def __call__(self, tokens, count, logits, vocabulary):
        self.tokens.append(tokens[:count])
        self.logits.append(logits[:vocabulary])
        self.threads.add(threading.get_ident())


def tokens_of(lib: Library, context: int, start=START, count=12, **params) -> list[int]:
    lib.begin(context, start, max_tokens=count, **params)
    return delivered(lib.drain(context))


# ------------------------------------------------------------------ What it gets


@kinds
def test_a_function_that_changes_nothing_changes_no_token(lib, tiny, open_context, kind):
    plain, asked = open_context(tiny(kind)), open_context(tiny(kind))
    for params in ({}, SEEDED):
        expected = tokens_of(lib, plain, **params)
        assert tokens_of(lib, asked, logits_fn=nothing, **params) == expected
    text = lib.generate(plain, START, max_tokens=12).text
    assert lib.generate(asked, START, max_tokens=12, logits_fn=nothing).text == text


@pytest.mark.parametrize("kind", [KV, RECURRENT])
def test_it_gets_all_tokens_and_the_model_s_logits(lib, tiny, open_context, kind):
    context, note = open_context(tiny(kind)), Noting()
    made = tokens_of(lib, context, logits_fn=note, count=5, repetition_penalty=1.7)
    assert note.tokens == [START + made[:place] for place in range(5)]
    for tokens, logits in zip(note.tokens, note.logits, strict=True):
        fresh = open_context(tiny(kind))
        lib.begin(fresh, tokens, max_tokens=0)
        assert logits == pytest.approx(lib.logits(fresh), rel=1e-3, abs=1e-3)


def test_it_runs_on_the_thread_that_wants_the_token(lib, tiny, open_context):
    context, note, seen = open_context(tiny(KV)), Noting(), {}

    def begin():
        lib.begin(context, START, max_tokens=2, logits_fn=note)
        assert not note.tokens, "no call wants a token yet"

    def take():
        seen["thread"] = threading.get_ident()
        seen["tokens"] = delivered(lib.drain(context))

    for work in (begin, take):
        at_once(1, lambda _, work=work: work())
    assert note.threads == {seen["thread"]}
    assert len(note.tokens) == len(seen["tokens"]) == 2


def test_no_token_is_asked_for_before_its_host_wants_it(lib, tiny, open_context):
    context, note = open_context(tiny(KV)), Noting()
    lib.begin(context, START, max_tokens=9, logits_fn=note)
    for taken in range(1, 4):
        assert lib.next(context).status == OK
        assert len(note.tokens) == taken
    lib.begin(context, START, max_tokens=0, logits_fn=note)
    assert len(note.tokens) == 3


# ------------------------------------------------------------------ What it may do


@kinds
def test_it_decides_about_tokens(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    forced = FIRST_PLAIN + 7
    assert tokens_of(lib, context, logits_fn=only(forced), count=4) == [forced] * 4
    assert tokens_of(lib, context, logits_fn=only(forced), count=4, **SEEDED) == [forced] * 4


def test_log_probabilities_stay_the_model_s(lib, tiny, open_context):
    context, plain = open_context(tiny(KV)), open_context(tiny(KV))
    for each, params in ((context, {"logits_fn": only(40)}), (plain, {"bias": {40: 1000.0}})):
        lib.begin(each, START, max_tokens=2, logprobs=3, **params)
    one, other = lib.next(context), lib.next(plain)
    assert (one.token, other.token) == (40, 40)
    assert one.logprob == pytest.approx(other.logprob, rel=1e-4)
    assert lib.logprobs(context) == lib.logprobs(plain)
    assert lib.logits(context) == lib.logits(plain)


def test_a_grammar_counts_for_more(lib, tiny, open_context):
    context = open_context(tiny(KV))
    params = {"grammar": "[a-f]{3}", "grammar_kind": GRAMMAR_REGEX, "max_tokens": 9}
    free = lib.generate(context, START, **params).text
    assert lib.generate(context, START, logits_fn=nothing, **params).text == free
    forbidden = only(FIRST_PLAIN)
    assert lib.generate(context, START, logits_fn=forbidden, **params).text == free


@pytest.mark.parametrize(
    ("value", "shown"), [(math.nan, "nan"), (math.inf, "inf")], ids=["nan", "infinite"]
)
def test_values_that_are_not_allowed_end_the_generation(
    lib, tiny, open_context, oracle, value, shown
):
    def write(tokens, count, logits, vocabulary):
        logits[17] = value

    context = open_context(tiny(KV))
    with pytest.raises(StatusError, match=f"logits_fn wrote {shown} for token 17") as error:
        lib.generate(context, START, max_tokens=3, logits_fn=write)
    assert error.value.status == EINVAL
    lib.begin(context, START, max_tokens=3, logits_fn=write)
    with pytest.raises(StatusError, match=f"context_next.*logits_fn wrote {shown}"):
        lib.next(context)
    assert tokens_of(lib, context, count=16) == oracle(KV).after(START)


def test_one_token_must_be_left(lib, tiny, open_context):
    with pytest.raises(StatusError, match=r"EINVAL.*logits_fn forbids all tokens"):
        lib.generate(open_context(tiny(KV)), START, max_tokens=3, logits_fn=forbid)


@pytest.mark.parametrize("kind", [KV, RECURRENT])
def test_it_cancels(lib, tiny, open_context, oracle, kind):
    calls = []

    def second(tokens, count, logits, vocabulary):
        calls.append(count)
        return len(calls) % 2 == 1

    context = open_context(tiny(kind))
    with pytest.raises(StatusError) as error:
        lib.generate(context, START, max_tokens=8, logits_fn=second)
    assert (error.value.status, error.value.reason) == (ECANCELED, "callback_refused")
    assert lib.tokens(context) == START + oracle(kind).after(START)[:1]
    lib.begin(context, START, max_tokens=8, logits_fn=second)
    assert lib.next(context).token == oracle(kind).after(START)[0]
    last = lib.next(context)
    assert (last.status, last.finish) == (DONE, FINISH_CANCELED)
    assert tokens_of(lib, context, count=16) == oracle(kind).after(START)


def test_the_library_is_there_for_it(lib, tiny, open_context, oracle):
    model = tiny(KV)
    context, other = open_context(model), open_context(model)

    def work(tokens, count, logits, vocabulary):
        assert tokens_of(lib, other, count=16) == oracle(KV).after(START)
        assert lib.tokens(context)

    assert tokens_of(lib, context, count=3, logits_fn=work) == oracle(KV).after(START)[:3]


@pytest.mark.parametrize("end", ["cancel", "free"])
def test_a_context_that_ends_while_it_runs(lib, tiny, end):
    context = lib.context(tiny(KV))

    def function(tokens, count, logits, vocabulary):
        getattr(lib, end)(context)

    with pytest.raises(StatusError) as error:
        lib.generate(context, START, max_tokens=50, logits_fn=function)
    assert error.value.status == ECANCELED
    if end == "cancel":
        lib.free(context)


# ------------------------------------------------------------------ Beside others


@pytest.mark.parametrize("kind", [KV, HYBRID])
def test_contexts_with_and_without_are_a_batch(lib, tiny, open_context, oracle, kind):
    contexts = [open_context(tiny(kind)) for _ in range(4)]
    prompts = [prompt(9 + place, seed=place) for place in range(4)]
    given: dict[int, list[int]] = {}

    def work(place):
        params = {"logits_fn": nothing} if place % 2 else {}
        given[place] = tokens_of(lib, contexts[place], prompts[place], 24, **params)

    at_once(4, work)
    for place, tokens in enumerate(prompts):
        assert given[place] == oracle(kind).after(tokens, 24)


def test_one_that_blocks_stalls_no_other(lib, tiny, open_context, oracle):
    model = tiny(KV)
    blocked, done = threading.Event(), threading.Event()

    def block(tokens, count, logits, vocabulary):
        blocked.set()
        assert done.wait(60), "the other contexts were stalled"

    thread = threading.Thread(
        target=lambda: lib.generate(open_context(model), START, max_tokens=2, logits_fn=block)
    )
    thread.start()
    assert blocked.wait(60)
    assert tokens_of(lib, open_context(model), count=16) == oracle(KV).after(START)
    done.set()
    thread.join()


# ------------------------------------------------------------------ Without waiting


@pytest.mark.parametrize("kind", [KV, RECURRENT])
def test_after_a_call_that_does_not_wait(lib, tiny, open_context, oracle, kind):
    context, note, callbacks = open_context(tiny(kind)), Noting(), Callbacks()
    async_calls.begin(lib, context, START, callbacks, max_tokens=6, logits_fn=note)
    given = []
    while True:
        assert async_calls.poll(lib, context) == OK
        piece = lib.next(context)
        if piece.status == DONE:
            break
        given.append(piece.token)
    assert given == oracle(kind).after(START)[:6]
    assert note.threads == {threading.get_ident()}
    assert [len(tokens) for tokens in note.tokens] == [len(START) + place for place in range(6)]
    assert piece.finish == FINISH_LENGTH


def test_polls_that_do_not_wait_answer_too(lib, tiny, open_context, oracle):
    context, callbacks = open_context(tiny(KV)), Callbacks()
    given = []
    for begin in (async_calls.begin, None):
        if begin is None:
            lib.begin(context, START, max_tokens=3, logits_fn=nothing)
        else:
            begin(lib, context, START, callbacks, max_tokens=3, logits_fn=nothing)
        while len(given) % 3 or not given:
            if async_calls.poll(lib, context, 0) != ETIMEDOUT:
                given.append(lib.next(context).token)
        given = given[:3]
        assert given == oracle(KV).after(START)[:3]
        given = []


def test_it_cancels_after_a_call_that_does_not_wait(lib, tiny, open_context):
    def refuse(tokens, count, logits, vocabulary):
        return False

    context, callbacks = open_context(tiny(KV)), Callbacks()
    async_calls.begin(lib, context, START, callbacks, max_tokens=6, logits_fn=refuse)
    last = lib.next(context)
    assert (last.status, last.finish) == (DONE, FINISH_CANCELED)


def test_chats(lib, calf, open_context):
    messages = [{"role": "user", "content": "What colour is a fox?"}]
    context, note = open_context(calf), Noting()
    expected = lib.chat(context, messages, max_tokens=12).events
    assert lib.chat(context, messages, max_tokens=12, logits_fn=note).events == expected
    assert note.threads == {threading.get_ident()}
    callbacks = Callbacks()
    params = lib.params("generation", callbacks, max_tokens=12, logits_fn=note)
    data = json.dumps(messages).encode()
    lib.check(lib.c.cow_mlx_context_chat_async(context, data, len(data), params, None))
    assert async_calls.events(lib, context) == expected


# ------------------------------------------------------------------ What it excludes


def test_drafts_are_refused(lib, tiny, open_context):
    with pytest.raises(StatusError, match="logits_fn and draft_tokens exclude") as error:
        lib.begin(open_context(tiny(KV)), START, draft_tokens=4, logits_fn=nothing)
    assert (error.value.status, error.value.reason) == (EUNSUPPORTED, "conflict")


def test_a_window_that_rolls(lib, tiny, open_context):
    params = {"max_tokens": 30, "overflow": 1}
    plain, asked = open_context(tiny(KV), **params), open_context(tiny(KV), **params)
    expected = tokens_of(lib, plain, count=25)
    assert tokens_of(lib, asked, count=25, logits_fn=nothing) == expected
