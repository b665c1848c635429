"""Trimmed contexts continue as fresh ones on the same tokens."""

from __future__ import annotations

import pytest
from driver import IN_PLACE, KINDS, delivered, greedy, next_ok, prompt
from support.library import StatusError
from support.signatures import DONE, EBUFFER, ESTATE

HELD = prompt(40)
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def filled(lib, tiny, open_context, kind):
    """A context that holds a prompt and a part of an answer, 45 tokens."""
    context = open_context(tiny(kind))
    greedy(lib, context, HELD, 6)
    assert len(lib.tokens(context)) == 45
    return context


def goes_on(lib, context, oracle, tokens):
    """Whether the next 32 tokens are a fresh context's, with ``tokens`` as they are, and longer."""
    assert lib.tokens(context) == tokens
    assert lib.info(context)["tokens"] == len(tokens)
    longer = tokens + prompt(3, seed=9)
    assert greedy(lib, context, longer, 32) == oracle.after(longer, 32)
    assert lib.info(context)["reused"] == len(tokens)


@kinds
@pytest.mark.parametrize("count", [1, 2, 5, 6, 20, 44])
def test_trimmed_at_the_end(lib, filled, oracle, kind, count):
    tokens = lib.tokens(filled)
    assert lib.trim_end(filled, count) == count
    goes_on(lib, filled, oracle(kind), tokens[:-count])


@kinds
@pytest.mark.parametrize("count", [1, 2, 8, 20, 44])
def test_trimmed_at_the_front(lib, filled, oracle, kind, count):
    tokens = lib.tokens(filled)
    assert lib.trim_front(filled, count) == count
    goes_on(lib, filled, oracle(kind), tokens[count:])


@kinds
def test_what_is_left_is_generated_from_as_it_is(lib, filled, oracle, kind):
    tokens = lib.tokens(filled)
    lib.trim_front(filled, 3)
    lib.trim_end(filled, 4)
    assert greedy(lib, filled, tokens[3:-4], 32) == oracle(kind).after(tokens[3:-4], 32)


@kinds
@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
@pytest.mark.parametrize("count", [45, 46, 2**63, 2**64 - 1])
def test_more_than_there_are_stands_for_all(lib, filled, oracle, kind, end, count):
    assert getattr(lib, end)(filled, count) == 45
    assert lib.tokens(filled) == []
    assert greedy(lib, filled, HELD) == oracle(kind).after(HELD)


@kinds
@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
def test_trimming_nothing(lib, filled, oracle, kind, end):
    tokens = lib.tokens(filled)
    assert getattr(lib, end)(filled, 0) == 0
    goes_on(lib, filled, oracle(kind), tokens)


@kinds
@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
def test_trimming_an_empty_context(lib, tiny, open_context, kind, end):
    context = open_context(tiny(kind))
    assert getattr(lib, end)(context, 3) == 0
    assert lib.tokens(context) == []


@kinds
@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
def test_trimming_ends_the_generation_and_drops_delivered_tokens(
    lib, tiny, open_context, oracle, kind, end
):
    context = open_context(tiny(kind))
    lib.begin(context, HELD, max_tokens=100)
    tokens = HELD + delivered(next_ok(lib, context, 5))
    assert getattr(lib, end)(context, 2) == 2
    assert not lib.info(context)["generating"]
    goes_on(lib, context, oracle(kind), tokens[:-2] if end == "trim_end" else tokens[2:])


@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
@pytest.mark.parametrize("count", [0, 2, 45, 99])
def test_next_after_a_trim_answers_the_same_for_every_cache(lib, tiny, open_context, end, count):
    """However a cache trims, the host sees the same."""
    answers = {}
    for kind in KINDS:
        context = open_context(tiny(kind))
        lib.begin(context, HELD, max_tokens=100)
        next_ok(lib, context, 5)
        getattr(lib, end)(context, count)
        try:
            piece = lib.next(context)
            answers[kind] = (piece.status, piece.finish)
        except StatusError as error:
            answers[kind] = (error.status, None)
    assert len(set(answers.values())) == 1, answers
    assert answers[KINDS[0]][0] in (DONE, ESTATE)


@pytest.mark.parametrize("end", ["trim_end", "trim_front"])
def test_info_and_stats_after_a_trim_are_of_the_last_begin(lib, tiny, open_context, end):
    """A trim is no begin, whether tokens had to be processed again or not."""
    seen = {}
    for kind in KINDS:
        context = open_context(tiny(kind))
        greedy(lib, context, HELD, 6)
        getattr(lib, end)(context, 2)
        info = lib.info(context)
        try:
            stats = lib.stats(context).prompt_tokens
        except StatusError as error:
            stats = error.name
        seen[kind] = (info["prompt"], info["recomputed"], stats)
    assert set(seen.values()) == {(40, 40, 40)}, seen


@kinds
def test_trims_in_a_row(lib, filled, oracle, kind):
    tokens = lib.tokens(filled)
    for count in (1, 3, 2):
        lib.trim_end(filled, count)
        tokens = tokens[:-count]
        lib.trim_front(filled, count)
        tokens = tokens[count:]
    goes_on(lib, filled, oracle(kind), tokens)


@kinds
def test_trimming_while_a_piece_waits_for_a_larger_buffer(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    lib.begin(context, HELD, max_tokens=100)
    tokens = list(HELD)
    while (piece := lib.next(context, capacity=0)).status != EBUFFER:
        tokens.append(piece.token)
    assert lib.trim_end(context, 1) == 1
    goes_on(lib, context, oracle(kind), tokens[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_says_how_it_trims(lib, tiny, filled, kind):
    cache = lib.info(tiny(kind))["cache"]
    assert cache["trim_front"] == "recomputed"
    if kind in IN_PLACE:
        assert cache["trim_end"] == "in_place"
    elif kind == "mamba2":
        assert cache["trim_end"] == "recomputed"
