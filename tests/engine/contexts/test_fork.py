"""A fork is an independent copy of what a context holds."""

from __future__ import annotations

import random

import pytest
from driver import KINDS, KV, RECURRENT, delivered, greedy, next_ok, prompt, settle
from support.library import StatusError
from support.signatures import DONE, EBUFFER, EHANDLE, ESTATE, OVERFLOW_ROLL

START = prompt(20)
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def fork(lib):
    """Forks contexts; the forks are freed afterwards unless the test has freed them."""
    handles = []

    def fork(context):
        handles.append(lib.fork(context))
        return handles[-1]

    yield fork
    for handle in handles:
        lib.c.cow_mlx_context_free(handle)


def goes_on(lib, oracle, context, held):
    """What a context does after what it holds is what a fresh one does."""
    assert lib.tokens(context) == held
    after = held + prompt(2)
    assert greedy(lib, context, after, 8) == oracle.after(after, 8)


@kinds
def test_a_fork_holds_the_same_and_goes_on_as_a_fresh_context(
    lib, tiny, oracle, open_context, fork, kind
):
    context = open_context(tiny(kind))
    greedy(lib, context, START, 5)
    held = lib.tokens(context)
    copy = fork(context)
    assert lib.info(copy)["bytes"] == lib.info(context)["bytes"]
    goes_on(lib, oracle(kind), copy, held)
    goes_on(lib, oracle(kind), context, held)
    assert lib.info(copy)["reused"] == len(held)


@kinds
def test_neither_disturbs_the_other_in_any_order_of_steps(
    lib, tiny, oracle, open_context, fork, kind
):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=0)
    family = [context, *(fork(context) for _ in range(3))]
    starts = [START + prompt(number + 1, seed=number) for number in range(4)]
    for member, start in zip(family, starts, strict=True):
        lib.begin(member, start, max_tokens=12)
    given = {member: [] for member in family}
    order = random.Random(kind)
    while any(len(tokens) < 12 for tokens in given.values()):
        member = order.choice([member for member in family if len(given[member]) < 12])
        given[member] += delivered(next_ok(lib, member, 1))
    for member, start in zip(family, starts, strict=True):
        assert given[member] == oracle(kind).after(start, 12)
        assert lib.tokens(member) == start + given[member][:-1]


@kinds
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_a_generation_under_way_is_not_forked_but_its_tokens_are(
    lib, tiny, oracle, open_context, fork, kind, steps
):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=20)
    pieces = next_ok(lib, context, steps)
    settle(lib, tiny(kind))
    copy = fork(context)
    assert not lib.info(copy)["generating"]
    with pytest.raises(StatusError) as nothing:
        lib.next(copy)
    assert nothing.value.status == ESTATE
    goes_on(lib, oracle(kind), copy, START + delivered(pieces))
    pieces += lib.drain(context)
    assert delivered(pieces) == oracle(kind).after(START, 20)


@kinds
def test_a_fork_of_an_empty_context(lib, tiny, oracle, open_context, fork, kind):
    context = open_context(tiny(kind))
    copy = fork(context)
    assert lib.tokens(copy) == []
    assert lib.info(copy)["bytes"] == 0
    assert greedy(lib, copy, START) == oracle(kind).after(START)
    assert lib.tokens(context) == []


@kinds
def test_forks_of_forks_outlive_what_they_were_forked_from(
    lib, tiny, oracle, open_context, fork, kind
):
    context = open_context(tiny(kind))
    held = []
    for generation in range(4):
        held = held + prompt(7, seed=generation)
        lib.begin(context, held, max_tokens=0)
        copy = fork(context)
        lib.free(context)
        context = copy
    goes_on(lib, oracle(kind), context, held)


@kinds
def test_a_fork_after_a_cancel(lib, tiny, oracle, open_context, fork, kind):
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=20)
    held = START + delivered(next_ok(lib, context, 3))
    lib.cancel(context)
    copy = fork(context)
    goes_on(lib, oracle(kind), copy, held)
    goes_on(lib, oracle(kind), context, held)


@kinds
def test_a_fork_of_a_cancelled_prompt_holds_what_was_processed(lib, tiny, open_context, fork, kind):
    name = {"llama": "llama-long", "gemma3_text": "gemma3-long", "falcon_h1": "falcon_h1-long"}
    context = open_context(tiny(name.get(kind, kind)))
    long = prompt(1500)
    with pytest.raises(StatusError):
        lib.begin(context, long, prompt_progress=lambda done, total: done < 512)
    held = lib.tokens(context)
    assert 0 < len(held) < len(long)
    copy = fork(context)
    assert lib.tokens(copy) == held
    assert greedy(lib, copy, long, 4) == greedy(lib, context, long, 4)
    assert lib.info(copy)["reused"] == lib.info(context)["reused"] == len(held)


@kinds
def test_a_piece_that_waits_for_a_larger_buffer(lib, tiny, oracle, open_context, fork, kind):
    """A cache that can take it back is forked without it; any other has to give it first."""
    context = open_context(tiny(kind))
    lib.begin(context, START, max_tokens=100)
    held = list(START)
    while (piece := lib.next(context, capacity=0)).status != EBUFFER:
        held.append(piece.token)
    assert lib.tokens(context) == held
    if lib.info(tiny(kind))["cache"]["trim_end"] == "in_place" and kind == KV:
        goes_on(lib, oracle(kind), fork(context), held)
        return
    for keep in (lib.fork, lib.checkpoint):
        with pytest.raises(StatusError) as waits:
            keep(context)
        assert waits.value.status == ESTATE
        assert "context_next" in waits.value.message
    held.append(lib.next(context).token)
    goes_on(lib, oracle(kind), fork(context), held)


def test_no_fork_while_another_call_runs(lib, tiny, open_context):
    context = open_context(tiny(KV))
    before = lib.info()["handles"]
    statuses = []

    def try_to_fork(*_):
        with pytest.raises(StatusError) as busy:
            lib.fork(context)
        statuses.append(busy.value.status)
        return True

    lib.begin(context, START, prompt_progress=try_to_fork)
    lib.generate(context, START, try_to_fork, max_tokens=6)
    assert set(statuses) == {ESTATE}
    assert lib.info()["handles"] == before


def test_a_fork_of_no_context(lib, tiny):
    context = lib.context(tiny(KV))
    lib.free(context)
    for handle in (context, 0, -1, tiny(KV)):
        with pytest.raises(StatusError) as unknown:
            lib.fork(handle)
        assert unknown.value.status == EHANDLE


def test_a_fork_costs_no_second_copy_of_the_arrays(lib, tiny, open_context, fork):
    context = open_context(tiny("llama-long"))
    lib.begin(context, prompt(2000), max_tokens=0)
    size = lib.info(context)["bytes"]
    lib.trim_memory()
    before = lib.info()["memory"]["active"]
    copies = [fork(context) for _ in range(5)]
    assert lib.info()["memory"]["active"] - before < size // 10
    assert all(lib.info(copy)["bytes"] == size for copy in copies)


def test_a_fork_has_its_context_s_parameters(lib, tiny, open_context, fork):
    settings = {
        "max_tokens": 50,
        "kv_bits": 8,
        "kv_group_size": 32,
        "solo": True,
        "priority": -2,
        "overflow": OVERFLOW_ROLL,
        "keep_tokens": 3,
        "share_prefix": True,
        "checkpoint_interval": 64,
    }
    context = open_context(tiny("llama-wide"), **settings)
    info = lib.info(fork(context))
    assert info["overflow"] == "roll"
    assert {name: info[name] for name in settings if name != "overflow"} == {
        name: value for name, value in settings.items() if name != "overflow"
    }
    greedy(lib, context, START, 60)
    copy = fork(context)
    assert lib.tokens(copy) == lib.tokens(context)
    after = lib.tokens(context) + prompt(1)
    assert greedy(lib, copy, after, 60) == greedy(lib, context, after, 60)


def test_a_fork_of_a_model_that_was_freed(lib, folder, fork):
    model = lib.load(folder(RECURRENT))
    context = lib.context(model)
    expected = greedy(lib, context, START)
    lib.free_model(model)
    copy = fork(context)
    lib.free(context)
    assert greedy(lib, copy, START) == expected


def test_a_fork_s_statistics_begin_anew(lib, tiny, open_context, fork):
    context = open_context(tiny(KV))
    greedy(lib, context, START)
    copy = fork(context)
    for call in (lib.stats, lib.logits, lib.logprobs):
        with pytest.raises(StatusError) as nothing:
            call(copy)
        assert nothing.value.status == ESTATE
    assert lib.next(context).status == DONE
