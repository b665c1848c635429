"""A begin keeps the common prefix, and what follows is what a fresh context gives."""

from __future__ import annotations

import pytest
from driver import IN_PLACE, KINDS, delivered, greedy, next_ok, prompt
from support.library import StatusError
from support.signatures import EBUFFER, ECANCELED, OK

FIRST = prompt(30)
pytestmark = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture
def talk(lib, tiny, oracle, open_context, kind):
    """A context, and a check that a prompt on it continues as on a fresh one."""

    class Talk:
        context = open_context(tiny(kind))

        def goes_on(self, tokens):
            assert greedy(lib, self.context, tokens) == oracle(kind).after(tokens)
            info = lib.info(self.context)
            assert info["prompt"] == len(tokens)
            assert info["reused"] + info["recomputed"] == len(tokens)
            return info

    return Talk()


def common(a, b):
    return next(
        (i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b))
    )


def test_second_turn_reuses_the_first_and_its_answer(lib, talk, kind):
    answer = greedy(lib, talk.context, FIRST)
    held = lib.tokens(talk.context)
    assert held == FIRST + answer[:-1]
    info = talk.goes_on(FIRST + answer + prompt(9, seed=1))
    assert info["reused"] == len(held)
    assert info["rebuilt"] is None


def test_third_turn(lib, talk, kind):
    conversation = list(FIRST)
    for turn in range(3):
        before = lib.tokens(talk.context)
        info = talk.goes_on(conversation)
        assert info["reused"] == len(before)
        answer = lib.tokens(talk.context)[len(conversation) :]
        conversation += answer + prompt(5, seed=turn)


def test_edited_history(lib, talk, kind):
    greedy(lib, talk.context, FIRST)
    info = talk.goes_on(FIRST[:12] + prompt(9, seed=2))
    expected = 12 if kind in IN_PLACE else 0
    assert info["reused"] == expected
    assert (info["rebuilt"] is None) == (kind in IN_PLACE)


def test_nothing_in_common(lib, talk, kind):
    greedy(lib, talk.context, FIRST)
    info = talk.goes_on(prompt(20, seed=3))
    assert info["reused"] == common(FIRST, prompt(20, seed=3)) == 0
    assert info["rebuilt"] is None, "nothing could have been reused"


def test_shorter_prompt(lib, talk, kind):
    greedy(lib, talk.context, FIRST)
    info = talk.goes_on(FIRST[:20])
    assert info["reused"] == (19 if kind in IN_PLACE else 0)


def test_same_prompt_again(lib, talk, kind):
    talk.goes_on(FIRST)
    info = talk.goes_on(FIRST)
    assert info["reused"] == (len(FIRST) - 1 if kind in IN_PLACE else 0)


def test_one_token_prompt_after_a_long_one(lib, talk, kind):
    greedy(lib, talk.context, FIRST)
    talk.goes_on(FIRST[:1])


def test_prompt_that_ends_where_the_cache_ends(lib, talk, kind):
    """The last token of a prompt is always processed, for its logits."""
    greedy(lib, talk.context, FIRST)
    talk.goes_on(lib.tokens(talk.context))


def test_after_a_prompt_alone(lib, talk, kind):
    lib.begin(talk.context, FIRST, max_tokens=0)
    assert lib.tokens(talk.context) == FIRST
    info = talk.goes_on(FIRST + prompt(4, seed=4))
    assert info["reused"] == len(FIRST)


def test_after_an_abandoned_generation(lib, talk, kind):
    """The host stopped calling next and starts something else."""
    lib.begin(talk.context, FIRST, max_tokens=100)
    pieces = next_ok(lib, talk.context, 5)
    tokens = FIRST + delivered(pieces)
    assert lib.tokens(talk.context) == tokens
    info = talk.goes_on(tokens + prompt(6, seed=5))
    assert info["reused"] == len(tokens)


def test_after_a_generation_of_which_nothing_was_taken(lib, talk, kind):
    lib.begin(talk.context, FIRST, max_tokens=100)
    assert lib.tokens(talk.context) == FIRST
    info = talk.goes_on(FIRST + prompt(6, seed=6))
    assert info["reused"] == len(FIRST)


def test_after_a_cancel(lib, talk, kind):
    lib.begin(talk.context, FIRST, max_tokens=100)
    pieces = next_ok(lib, talk.context, 7)
    lib.cancel(talk.context)
    tokens = FIRST + delivered(pieces)
    assert lib.tokens(talk.context) == tokens
    info = talk.goes_on(tokens + prompt(6, seed=7))
    assert info["reused"] == len(tokens)


def test_after_a_prompt_that_was_refused(lib, tiny, talk, kind):
    with pytest.raises(StatusError) as refused:
        lib.begin(talk.context, FIRST, prompt_progress=lambda done, total: False)
    assert refused.value.status == ECANCELED
    held = lib.tokens(talk.context)
    assert held == FIRST[: len(held)]
    talk.goes_on(FIRST)


def test_after_a_buffer_that_was_too_small(lib, talk, kind):
    lib.begin(talk.context, FIRST, max_tokens=100)
    pieces = []
    while len(pieces) < 6:
        piece = lib.next(talk.context, capacity=0)
        if piece.status == EBUFFER:
            break
        pieces.append(piece)
    assert piece.status == EBUFFER
    tokens = FIRST + delivered(pieces)
    assert lib.tokens(talk.context) == tokens, "a token that was not taken is not held"
    talk.goes_on(tokens + prompt(6, seed=8))


def test_after_a_reset(lib, talk, kind):
    greedy(lib, talk.context, FIRST)
    lib.reset(talk.context)
    assert lib.tokens(talk.context) == []
    assert lib.info(talk.context)["bytes"] == 0
    info = talk.goes_on(FIRST)
    assert info["reused"] == 0


def test_after_a_refused_begin_the_generation_goes_on(lib, talk, oracle, kind):
    lib.begin(talk.context, FIRST, max_tokens=10)
    pieces = next_ok(lib, talk.context, 3)
    with pytest.raises(StatusError):
        lib.begin(talk.context, FIRST, temperature=-1.0)
    with pytest.raises(StatusError):
        lib.begin(talk.context, [-1])
    pieces += [piece for piece in lib.drain(talk.context) if piece.status == OK]
    assert delivered(pieces) == oracle(kind).after(FIRST, 10)
