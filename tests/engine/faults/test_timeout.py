"""A generation whose time is over ends; its context continues from what it holds."""

from __future__ import annotations

from time import monotonic

import pytest
from driver import KINDS, KV, delivered, greedy, next_ok, opened, prompt, settle
from support.library import StatusError
from support.signatures import (
    DONE,
    EBUFFER,
    ETIMEDOUT,
    FINISH_LENGTH,
    FINISH_TIMEOUT,
    OK,
)

START = prompt(20)
NONE, SOON, NEVER = 1e-9, 0.4, 1e6  # seconds: over at once, when the test has waited, never
kinds = pytest.mark.parametrize("kind", KINDS)


def let_pass(since, seconds=SOON):
    """Keep this thread busy until a time is certainly over."""
    while monotonic() - since <= seconds:
        pass


def goes_on(lib, oracle, context, held):
    assert lib.tokens(context) == held
    after = held + prompt(2)
    assert greedy(lib, context, after, 8) == oracle.after(after, 8)


def times_out(call, *arguments, **params):
    with pytest.raises(StatusError) as over:
        call(*arguments, **params)
    assert over.value.status == ETIMEDOUT
    assert f"timeout is {params['timeout']:g} s" in over.value.message


@kinds
@pytest.mark.parametrize("length", [1, 20, 400])
def test_a_prompt_that_takes_too_long(lib, tiny, oracle, open_context, kind, length):
    context = open_context(tiny(kind))
    start = prompt(length)
    times_out(lib.begin, context, start, timeout=NONE)
    held = lib.tokens(context)
    assert held == start[: len(held)]
    assert not lib.info(context)["generating"]
    for _ in range(2):
        piece = lib.next(context)
        assert (piece.status, piece.finish, piece.token) == (DONE, FINISH_TIMEOUT, -1)
    assert greedy(lib, context, start, 8) == oracle(kind).after(start, 8)


@kinds
def test_what_was_processed_before_the_time_was_over_is_kept(lib, tiny, oracle, open_context, kind):
    """The host lets the time pass while the first chunk is reported."""
    name = {"llama": "llama-long", "gemma3_text": "gemma3-long", "falcon_h1": "falcon_h1-long"}
    model = name.get(kind, kind)
    context = open_context(tiny(model))
    lib.begin(context, START, max_tokens=0)
    long = START + prompt(700)

    def wait(processed, total):
        let_pass(monotonic())
        return True

    times_out(lib.begin, context, long, timeout=SOON, prompt_progress=wait)
    held = lib.tokens(context)
    assert held[: len(START)] == START and held == long[: len(held)]
    assert len(held) < len(long)
    lib.begin(context, long, max_tokens=4)
    assert lib.info(context)["reused"] == len(held)
    assert delivered(lib.drain(context)) == oracle(model).after(long, 4)


@kinds
@pytest.mark.parametrize("others", [False, True])
def test_a_generation_that_takes_too_long(lib, tiny, oracle, open_context, kind, others):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=100, timeout=SOON)
    since = monotonic()
    held = START + delivered(next_ok(lib, context, 3))
    if others:
        settle(lib, tiny(kind))
    let_pass(since)
    piece = lib.next(context)
    assert (piece.status, piece.finish, piece.token) == (DONE, FINISH_TIMEOUT, held[-1])
    assert not lib.info(context)["generating"]
    assert lib.stats(context).generated_tokens == 3
    goes_on(lib, oracle(kind), context, held)


@kinds
def test_generate_gives_the_text_until_the_time_is_over(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    texts = []

    def wait(text):
        texts.append(text)
        if len(texts) == 2:
            let_pass(monotonic())

    times_out(lib.generate, context, START, wait, max_tokens=400, timeout=SOON)
    assert len(texts) >= 2
    held = lib.tokens(context)
    assert len(START) < len(held) < len(START) + 400
    assert held[len(START) :] == oracle(kind).after(START, len(held) - len(START))
    goes_on(lib, oracle(kind), context, held)


def test_generate_of_a_prompt_that_takes_too_long(lib, tiny, oracle, open_context):
    context = open_context(tiny(KV))
    texts = []
    times_out(lib.generate, context, START, texts.append, timeout=NONE)
    assert texts == []
    assert greedy(lib, context, START) == oracle(KV).after(START)


@kinds
@pytest.mark.parametrize("timeout", [0.0, NEVER])
def test_a_generation_in_time_ends_by_itself(lib, tiny, oracle, open_context, kind, timeout):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=6, timeout=timeout)
    pieces = lib.drain(context)
    assert delivered(pieces) == oracle(kind).after(START, 6)
    assert pieces[-1].finish == FINISH_LENGTH
    done = lib.generate(context, START, max_tokens=6, timeout=timeout)
    assert done.stats.generated_tokens == 6


def test_a_generation_that_has_ended_does_not_time_out(lib, tiny, open_context):
    context = open_context(tiny(KV))
    lib.begin(context, START, max_tokens=2, timeout=SOON)
    since = monotonic()
    pieces = lib.drain(context)
    let_pass(since)
    assert lib.next(context).finish == pieces[-1].finish == FINISH_LENGTH


def test_a_prompt_alone_has_a_time_too(lib, tiny, open_context):
    context = open_context(tiny(KV))
    times_out(lib.begin, context, START, max_tokens=0, timeout=NONE)
    lib.begin(context, START, max_tokens=0, timeout=NEVER)
    assert lib.tokens(context) == START


@kinds
def test_a_piece_that_waits_for_a_larger_buffer_when_the_time_is_over(
    lib, tiny, oracle, open_context, kind
):
    """It comes still where the cache cannot forget it."""
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=100, timeout=SOON)
    since = monotonic()
    held = list(START)
    while (piece := lib.next(context, capacity=0)).status != EBUFFER:
        held.append(piece.token)
    let_pass(since)
    piece = lib.next(context)
    if piece.status == OK:
        assert kind != KV
        held.append(piece.token)
        piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_TIMEOUT)
    goes_on(lib, oracle(kind), context, held)


def test_a_time_is_its_own_generation_s(lib, tiny, oracle, open_context):
    """Neither another context's nor the next generation's."""
    context, other = open_context(tiny(KV)), open_context(tiny(KV))
    times_out(lib.begin, context, START, timeout=NONE)
    lib.begin(other, START, max_tokens=8)
    lib.begin(context, START, max_tokens=8)
    for one in (context, other):
        assert delivered(lib.drain(one)) == oracle(KV).after(START, 8)


def test_a_draft_and_a_rolling_window_time_out(lib, tiny, open_context):
    with opened(lib, tiny(KV), max_tokens=24, overflow=1, keep_tokens=2) as context:
        lib.begin(context, START, max_tokens=400, timeout=SOON, draft_tokens=3)
        since = monotonic()
        next_ok(lib, context, 40)
        let_pass(since)
        assert lib.next(context).finish == FINISH_TIMEOUT
        assert len(greedy(lib, context, START, 3)) == 3
