"""A context comes back to a checkpoint exactly, whatever its cache can take back."""

from __future__ import annotations

import pytest
from driver import KINDS, KV, delivered, greedy, next_ok, opened, prompt, settle
from support.library import StatusError
from support.signatures import (
    DONE,
    EBUFFER,
    EHANDLE,
    EINVAL,
    ESTATE,
    FINISH_CANCELED,
    OVERFLOW_ROLL,
)

START = prompt(20)
kinds = pytest.mark.parametrize("kind", KINDS)


def goes_on(lib, oracle, context, held):
    assert lib.tokens(context) == held
    after = held + prompt(2)
    assert greedy(lib, context, after, 6) == oracle.after(after, 6)


@kinds
def test_a_rewind_is_exact_whatever_came_between(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    between = [
        lambda: greedy(lib, context, START, 12),
        lambda: lib.trim_end(context, 3),
        lambda: lib.trim_front(context, 3),
        lambda: lib.reset(context),
        lambda: greedy(lib, context, prompt(40, seed=1), 5),
        lambda: lib.begin(context, START[:4], max_tokens=0),
        lambda: lib.begin(context, START + prompt(9), max_tokens=9),
        lambda: None,
    ]
    for change in between:
        change()
        lib.rewind(context, checkpoint)
        assert lib.tokens(context) == START
        after = START + prompt(2)
        lib.begin(context, after, max_tokens=4)
        assert lib.info(context)["reused"] == len(START)
        assert delivered(lib.drain(context)) == oracle(kind).after(after, 4)


@kinds
def test_checkpoints_of_one_context_in_any_order(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    kept = []
    tokens = []
    for number in range(4):
        kept.append((lib.checkpoint(context), list(tokens)))
        tokens = tokens + prompt(6, seed=number)
        tokens += greedy(lib, context, tokens, 3)[:-1]
    for checkpoint, held in [kept[2], kept[0], kept[3], kept[3], kept[1], kept[2]]:
        lib.rewind(context, checkpoint)
        goes_on(lib, oracle(kind), context, held)


@kinds
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_checkpoint_in_the_middle_of_a_generation(lib, tiny, oracle, open_context, kind, steps):
    """It continues undisturbed; what is kept is what the host was given."""
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=12)
    pieces = next_ok(lib, context, steps)
    settle(lib, tiny(kind))
    checkpoint = lib.checkpoint(context)
    held = START + delivered(pieces)
    pieces += lib.drain(context)
    assert delivered(pieces) == oracle(kind).after(START, 12)
    lib.rewind(context, checkpoint)
    goes_on(lib, oracle(kind), context, held)


@kinds
def test_a_rewind_ends_a_generation_under_way(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    lib.begin(context, START, max_tokens=50)
    next_ok(lib, context, 3)
    settle(lib, tiny(kind))
    lib.rewind(context, checkpoint)
    assert not lib.info(context)["generating"]
    assert lib.tokens(context) == START
    piece = lib.next(context)
    assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
    with pytest.raises(StatusError) as nothing:
        lib.logits(context)
    assert nothing.value.status == ESTATE
    goes_on(lib, oracle(kind), context, START)


@kinds
def test_a_rewind_past_a_piece_that_waits_for_a_larger_buffer(
    lib, tiny, oracle, open_context, kind
):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    lib.begin(context, START, max_tokens=100)
    while lib.next(context, capacity=0).status != EBUFFER:
        pass
    lib.rewind(context, checkpoint)
    assert lib.next(context).status == DONE
    goes_on(lib, oracle(kind), context, START)


@kinds
def test_a_checkpoint_of_an_empty_context(lib, tiny, oracle, open_context, kind):
    context = open_context(tiny(kind))
    checkpoint = lib.checkpoint(context)
    greedy(lib, context, START)
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == []
    assert lib.info(context)["bytes"] == 0
    assert greedy(lib, context, START) == oracle(kind).after(START)


@kinds
def test_a_fork_shares_no_checkpoints_but_what_they_kept(lib, tiny, oracle, open_context, kind):
    """A way to two continuations of one state: rewind, fork, continue with both."""
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    greedy(lib, context, START)
    lib.rewind(context, checkpoint)
    fork = lib.fork(context)
    with pytest.raises(StatusError) as other:
        lib.rewind(fork, checkpoint)
    assert other.value.status == EINVAL
    lib.free(context)
    goes_on(lib, oracle(kind), fork, START)
    lib.free(fork)


def test_a_checkpoint_of_another_context_is_refused(lib, tiny, open_context):
    one, two = open_context(tiny(KV)), open_context(tiny(KV))
    for context in (one, two):
        lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(one)
    with pytest.raises(StatusError) as refused:
        lib.rewind(two, checkpoint)
    assert refused.value.status == EINVAL
    assert str(one) in refused.value.message and str(two) in refused.value.message
    assert lib.tokens(two) == START


def test_checkpoints_go_with_their_context(lib, tiny):
    before = lib.info()["handles"]
    with opened(lib, tiny(KV)) as context:
        kept = [lib.checkpoint(context) for _ in range(3)]
        lib.free_checkpoint(kept[1])
        assert lib.info()["handles"]["checkpoint"] == before["checkpoint"] + 2
    assert lib.info()["handles"] == before
    for checkpoint in kept:
        with pytest.raises(StatusError) as gone:
            lib.free_checkpoint(checkpoint)
        assert gone.value.status == EHANDLE


def test_handles_that_are_no_checkpoints(lib, tiny, open_context):
    context = open_context(tiny(KV))
    stale = lib.checkpoint(context)
    lib.free_checkpoint(stale)
    lib.begin(context, START, max_tokens=0)
    for handle in (stale, 0, -1, context, tiny(KV)):
        with pytest.raises(StatusError) as unknown:
            lib.rewind(context, handle)
        assert unknown.value.status == EHANDLE
        with pytest.raises(StatusError) as unknown:
            lib.free_checkpoint(handle)
        assert unknown.value.status == EHANDLE
    assert lib.tokens(context) == START
    assert lib.checkpoint(context) != stale


def test_a_checkpoint_freed_after_a_rewind(lib, tiny, oracle, open_context):
    context = open_context(tiny(KV))
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    lib.reset(context)
    lib.rewind(context, checkpoint)
    lib.free_checkpoint(checkpoint)
    goes_on(lib, oracle(KV), context, START)


def test_no_checkpoint_and_no_rewind_while_another_call_runs(lib, tiny, open_context):
    context = open_context(tiny(KV))
    checkpoint = lib.checkpoint(context)
    statuses = []

    def interfere(*_):
        for call in (lambda: lib.checkpoint(context), lambda: lib.rewind(context, checkpoint)):
            with pytest.raises(StatusError) as busy:
                call()
            statuses.append(busy.value.status)
        return True

    lib.begin(context, START, prompt_progress=interfere)
    lib.generate(context, START, interfere, max_tokens=6)
    assert set(statuses) == {ESTATE}


def test_checkpoints_cost_and_give_back_memory(lib, tiny, open_context):
    context = open_context(tiny("llama-long"))
    long = prompt(2000)
    lib.begin(context, long, max_tokens=0)
    size = lib.info(context)["bytes"]
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    kept = [lib.checkpoint(context) for _ in range(5)]
    assert lib.info()["memory"]["active"] - before < size // 10
    lib.reset(context)
    lib.trim_memory()
    held = lib.info()["memory"]["active"]
    assert held > before - size // 10, "the checkpoints hold the arrays"
    for checkpoint in kept:
        lib.free_checkpoint(checkpoint)
    lib.trim_memory()
    assert lib.info()["memory"]["active"] <= held - size


def test_a_window_that_rolls_on_rewinds(lib, tiny, oracle, open_context):
    context = open_context(tiny(KV), max_tokens=24, overflow=OVERFLOW_ROLL, keep_tokens=4)
    greedy(lib, context, START, 30)
    held, checkpoint = lib.tokens(context), lib.checkpoint(context)
    greedy(lib, context, prompt(50), 30)
    lib.rewind(context, checkpoint)
    assert lib.tokens(context) == held
    assert greedy(lib, context, held, 1) == oracle(KV).after(held, 1)
