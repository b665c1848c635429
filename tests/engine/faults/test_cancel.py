"""Cancelling: from other threads, from callbacks, at every moment."""

from __future__ import annotations

import threading

import pytest
from driver import ENDLESS, KINDS, delivered, greedy, next_ok, prompt, settle
from support.library import StatusError
from support.signatures import (
    DONE,
    ECANCELED,
    EHANDLE,
    FINISH_CANCELED,
    FINISH_LENGTH,
    OK,
)

START = prompt(20)
LONG = prompt(1200)
kinds = pytest.mark.parametrize("kind", KINDS)


def in_thread(work):
    thread = threading.Thread(target=work)
    thread.start()
    return thread


def goes_on(lib, context, oracle):
    """What the context holds is the truth, and continues as on a fresh one."""
    tokens = [*lib.tokens(context), *prompt(3)]
    assert greedy(lib, context, tokens) == oracle.after(tokens)


# ---------------------------------------------------- From another thread


def test_during_the_prompt(lib, tiny, oracle, open_context):
    """Cancelled at the report of the first chunk, by a thread that the host waits for."""
    context = open_context(tiny("llama-long"))

    def progress(done, total):
        if 0 < done < total:
            in_thread(lambda: lib.cancel(context)).join()

    with pytest.raises(StatusError) as canceled:
        lib.begin(context, LONG, prompt_progress=progress)
    assert canceled.value.status == ECANCELED
    held = lib.tokens(context)
    assert 0 < len(held) < len(LONG)
    assert held == LONG[: len(held)]
    assert lib.next(context).finish == FINISH_CANCELED
    assert greedy(lib, context, LONG) == oracle("llama-long").after(LONG)
    assert lib.info(context)["reused"] == len(held)


@kinds
def test_during_generate(lib, tiny, oracle, open_context, kind):
    """The callback waits until another thread has cancelled, then continues."""
    context = open_context(tiny(kind))
    texts = []

    def on_text(text):
        texts.append(text)
        if len(texts) == 4:
            in_thread(lambda: lib.cancel(context)).join()

    with pytest.raises(StatusError) as canceled:
        lib.generate(context, START, on_text, max_tokens=200)
    assert canceled.value.status == ECANCELED
    assert "cancel" in canceled.value.message
    assert len(texts) == 4, "nothing comes after a cancel"
    goes_on(lib, context, oracle(kind))


@kinds
def test_while_next_is_called_in_a_loop(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind), max_tokens=400)
    lib.begin(context, START, max_tokens=ENDLESS)
    begun = threading.Event()
    pieces = []

    def loop():
        while not pieces or pieces[-1].status != DONE:
            pieces.append(lib.next(context))
            begun.set()

    thread = in_thread(loop)
    begun.wait()
    lib.cancel(context)
    thread.join()
    assert pieces[-1].finish == FINISH_CANCELED
    assert lib.tokens(context) == START + delivered(pieces)
    goes_on(lib, context, oracle(kind))


@kinds
def test_before_anything_was_taken(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=50)
    settle(lib, tiny(kind))
    lib.cancel(context)
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
    assert piece.token == -1, "no token was given"
    assert lib.tokens(context) == START
    assert lib.stats(context).generated_tokens == 0
    goes_on(lib, context, oracle(kind))


@kinds
@pytest.mark.parametrize("taken", [1, 2, 3, 9])
def test_after_a_cancel_nothing_more_comes(lib, tiny, open_context, kind, taken):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=50)
    pieces = next_ok(lib, context, taken)
    settle(lib, tiny(kind))
    lib.cancel(context)
    for _ in range(3):
        piece = lib.next(context)
        assert (piece.status, piece.finish, piece.text) == (DONE, FINISH_CANCELED, "")
        assert piece.token == pieces[-1].token, "the last one that was given"
    assert lib.stats(context).generated_tokens == taken


@kinds
def test_a_generation_that_ran_ahead_to_its_end_is_still_cancelled(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=2)
    next_ok(lib, context, 1)
    settle(lib, tiny(kind))
    lib.cancel(context)
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)


def test_held_back_text_does_not_come_after_a_cancel(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    text = lib.generate(context, START, max_tokens=9).text
    lib.begin(context, START, max_tokens=50, stop=[text + "⌘"])
    assert lib.next(context).text == ""
    lib.cancel(context)
    assert lib.next(context).text == ""
    assert lib.next(context).status == DONE


# --------------------------------------------------------- From callbacks


@kinds
@pytest.mark.parametrize("at", [0, 1])
def test_a_refused_prompt(lib, tiny, oracle, open_context, kind, at):
    """Whichever call of the callback refuses."""
    context = open_context(tiny(kind))
    seen = []

    def progress(done, total):
        seen.append(done)
        return len(seen) <= at

    with pytest.raises(StatusError) as canceled:
        lib.begin(context, START, prompt_progress=progress)
    assert canceled.value.status == ECANCELED
    assert len(seen) == at + 1
    held = lib.tokens(context)
    assert held == START[: len(held)]
    assert greedy(lib, context, START) == oracle(kind).after(START)


@kinds
@pytest.mark.parametrize("count", [0, 1, 5])
def test_a_refusal_when_the_prompt_is_complete(lib, tiny, open_context, kind, count):
    context = open_context(tiny(kind))
    for call in (lib.begin, lib.generate):
        with pytest.raises(StatusError) as canceled:
            call(
                context,
                START,
                prompt_progress=lambda done, total: done < total,
                max_tokens=count,
            )
        assert canceled.value.status == ECANCELED
        lib.reset(context)


@kinds
@pytest.mark.parametrize("at", [1, 2, 5])
def test_a_refused_text(lib, tiny, oracle, open_context, kind, at):
    context = open_context(tiny(kind))
    texts = []

    def on_text(text):
        texts.append(text)
        return len(texts) < at

    with pytest.raises(StatusError) as canceled:
        lib.generate(context, START, on_text, max_tokens=60)
    assert canceled.value.status == ECANCELED
    assert len(texts) == at
    goes_on(lib, context, oracle(kind))


@kinds
@pytest.mark.parametrize("count", [1, 2, 6])
def test_a_refusal_of_the_last_text(lib, tiny, open_context, kind, count):
    """Even though the generation has ended by itself by then."""
    context = open_context(tiny(kind))
    pieces = lib.generate(context, START, max_tokens=count).pieces
    texts = []

    def on_text(text):
        texts.append(text)
        return len(texts) < len(pieces)

    lib.reset(context)
    with pytest.raises(StatusError) as canceled:
        lib.generate(context, START, on_text, max_tokens=count)
    assert canceled.value.status == ECANCELED


@kinds
def test_next_after_a_generate_that_was_broken_off(lib, tiny, open_context, kind):
    """Whether by a refusal or by a cancel, nothing more comes, and all tokens were delivered."""
    context = open_context(tiny(kind))
    for stop in (lambda text: False, lambda text: lib.cancel(context)):
        with pytest.raises(StatusError):
            lib.generate(context, START, stop, max_tokens=60)
        held = lib.tokens(context)
        assert held[: len(START)] == START
        for _ in range(2):
            piece = lib.next(context)
            assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
        assert lib.tokens(context) == held
        assert lib.info(context)["tokens"] == len(held)


@kinds
def test_cancel_from_inside_the_callbacks(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    with pytest.raises(StatusError) as canceled:
        lib.generate(context, START, lambda text: lib.cancel(context), max_tokens=60)
    assert canceled.value.status == ECANCELED
    goes_on(lib, context, oracle(kind))
    with pytest.raises(StatusError) as canceled:
        lib.begin(
            context, prompt(25, seed=4), prompt_progress=lambda done, total: lib.cancel(context)
        )
    assert canceled.value.status == ECANCELED
    goes_on(lib, context, oracle(kind))


def test_after_a_cancelled_generate_the_output_struct_is_untouched(lib, tiny, open_context):
    """The harness checks it: stats are written on OK alone."""
    context = open_context(tiny("llama"))
    with pytest.raises(StatusError):
        lib.generate(context, START, lambda text: False, max_tokens=60)
    assert lib.stats(context).prompt_tokens == len(START)


# --------------------------------------------------- When nothing runs


def test_an_idle_context_is_left_as_it_is(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    lib.cancel(context)
    with pytest.raises(StatusError):
        lib.next(context)
    lib.generate(context, START, max_tokens=4)
    held, info = lib.tokens(context), lib.info(context)
    lib.cancel(context)
    assert lib.next(context).finish == FINISH_LENGTH
    assert lib.tokens(context) == held
    assert lib.info(context) == info


@kinds
def test_a_cancel_just_before_a_begin_does_not_cancel_it(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    for _ in range(5):
        lib.cancel(context)
        assert greedy(lib, context, START) == oracle(kind).after(START)
        lib.cancel(context)
        assert lib.generate(context, START, max_tokens=5).stats.generated_tokens == 5
        lib.cancel(context)
        lib.trim_end(context, 3)


def test_cancelling_one_context_leaves_others_alone(lib, tiny, oracle, open_context):
    model = tiny("llama")
    contexts = [open_context(model) for _ in range(3)]
    for context in contexts:
        lib.begin(context, START, max_tokens=16)
    lib.cancel(contexts[1])
    for context in (contexts[0], contexts[2]):
        pieces = [piece for piece in lib.drain(context) if piece.status == OK]
        assert delivered(pieces) == oracle("llama").after(START)
    assert lib.next(contexts[1]).finish == FINISH_CANCELED


def test_a_context_that_was_freed(lib, tiny):
    context = lib.context(tiny("llama"))
    lib.free(context)
    with pytest.raises(StatusError) as unknown:
        lib.cancel(context)
    assert unknown.value.status == EHANDLE
    assert unknown.value.message == "", "a signal handler may call it: it sets none"


def test_a_cancel_that_meets_a_trim_leaves_the_truth(lib, tiny, oracle, open_context):
    """Whichever comes first: the context continues from its tokens."""
    model = tiny("mamba2")
    context = open_context(model)
    for round_ in range(10):
        lib.begin(context, prompt(600, seed=round_), max_tokens=0)
        ready = threading.Barrier(2)

        def cancel(ready=ready):
            ready.wait()
            lib.cancel(context)

        thread = in_thread(cancel)
        ready.wait()
        try:
            assert lib.trim_front(context, 1) == 1
            assert len(lib.tokens(context)) == 599
        except StatusError as error:
            assert error.status == ECANCELED
        thread.join()
        held = lib.tokens(context)
        everything = prompt(600, seed=round_)
        assert held in (everything[1:][: len(held)], everything[: len(held)])
    goes_on(lib, context, oracle("mamba2"))
