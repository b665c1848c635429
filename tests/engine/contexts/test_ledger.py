"""Random sequences of calls on a context, against a ledger in plain Python."""

from __future__ import annotations

import random

import pytest
from driver import KINDS, delivered, greedy, held_after, opened, prompt, settle
from support.library import StatusError
from support.signatures import (
    DONE,
    EBUFFER,
    ECANCELED,
    FINISH_CANCELED,
    FINISH_CONTEXT,
    FINISH_LENGTH,
    OK,
)

STEPS = 40
WINDOW = 90
FINISHES = {FINISH_LENGTH, FINISH_CONTEXT}


class Ledger:
    """A context and what it must hold.

    Attributes:
        held: the tokens that the context must hold.
        left: how many more tokens the generation under way gives; None if there is none.
    """

    def __init__(self, lib, oracle, context, seed):
        self.lib = lib
        self.oracle = oracle
        self.context = context
        self.draw = random.Random(seed)
        self.held: list[int] = []
        self.left: int | None = None
        self.last: list[int] = []  # a token that was delivered and need not be held

    def new_prompt(self) -> list[int]:
        """What a host might ask: continues, goes back, edits, or starts anew."""
        kept = self.draw.choice(
            [len(self.held), len(self.held), self.draw.randrange(len(self.held) + 1)]
        )
        tokens = self.held[:kept] + self.draw.choice([[], self.last])
        tokens += prompt(self.draw.randrange(12), seed=self.draw.randrange(9))
        return tokens[:WINDOW] or prompt(3)

    def begin(self):
        tokens, count = self.new_prompt(), self.draw.randrange(12)
        self.lib.begin(self.context, tokens, max_tokens=count)
        self.held, self.last = tokens, []
        self.expected = iter(self.oracle.after(tokens, 24) if len(tokens) < WINDOW - 24 else [])
        self.checked = len(tokens) < WINDOW - 24
        # The window may end it earlier: the token after a full window is the last.
        self.left = min(count, WINDOW - len(tokens) + 1)
        self.full = WINDOW - len(tokens) + 1 < count
        self.finish = FINISH_CONTEXT if self.full else FINISH_LENGTH

    def next(self, capacity=256):
        if self.left is None:
            return
        piece = self.lib.next(self.context, capacity)
        if piece.status == EBUFFER:
            assert capacity == 0
            return
        if self.left == 0:
            assert (piece.status, piece.finish) == (DONE, self.finish)
            return
        assert piece.status == OK
        if self.checked:
            assert piece.token == next(self.expected)
        self.left -= 1
        if self.left == 0:
            assert piece.finish in FINISHES
            self.last = [piece.token]
        else:
            self.held.append(piece.token)

    def small_next(self):
        self.next(capacity=0)

    def cancel(self):
        self.lib.cancel(self.context)
        if self.left:
            piece = self.lib.next(self.context)
            assert (piece.status, piece.finish) == (DONE, FINISH_CANCELED)
            self.finish = FINISH_CANCELED
            self.left = 0

    def trim(self):
        count = self.draw.randrange(6)
        if self.draw.random() < 0.5:
            assert self.lib.trim_end(self.context, count) == min(count, len(self.held))
            self.held = self.held[: max(0, len(self.held) - count)]
        else:
            assert self.lib.trim_front(self.context, count) == min(count, len(self.held))
            self.held = self.held[count:]
        self.left, self.last = None, []

    def reset(self):
        self.lib.reset(self.context)
        self.held, self.left, self.last = [], None, []

    def generate(self):
        tokens, count = self.new_prompt()[: WINDOW - 12], self.draw.randrange(1, 12)
        result = self.lib.generate(self.context, tokens, max_tokens=count)
        assert result.stats.generated_tokens == count
        self.held = self.lib.tokens(self.context)
        assert self.held == tokens + self.oracle.after(tokens, count)[:-1]
        self.left, self.last, self.finish = 0, [], FINISH_LENGTH

    def refused(self):
        tokens = self.new_prompt()
        with pytest.raises(StatusError) as error:
            self.lib.generate(self.context, tokens, lambda text: False, max_tokens=8)
        assert error.value.status == ECANCELED
        held = self.lib.tokens(self.context)
        assert held[: len(tokens)] == tokens
        self.held, self.left, self.last = held, None, []

    def check(self):
        assert self.lib.tokens(self.context) == self.held
        assert self.lib.info(self.context)["tokens"] == len(self.held)


CALLS = ["begin", "next", "next", "next", "next", "small_next", "cancel", "trim", "generate"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_random_calls_leave_what_the_ledger_says(lib, tiny, oracle, open_context, kind, seed):
    context = open_context(tiny(kind), max_tokens=WINDOW)
    ledger = Ledger(lib, oracle(kind), context, f"{kind} {seed}")
    for _ in range(STEPS):
        name = ledger.draw.choice([*CALLS, "reset"] if ledger.draw.random() < 0.2 else CALLS)
        getattr(ledger, name)()
        ledger.check()
    tokens = (ledger.held or prompt(3))[: WINDOW - 20] + prompt(2)
    assert greedy(lib, context, tokens) == oracle(kind).after(tokens)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_are_prompt_and_delivered_ones_after_every_piece(lib, tiny, open_context, kind):
    """Also where the cache has run ahead of the host."""
    context = open_context(tiny(kind))
    held = prompt(6)
    lib.begin(context, held, max_tokens=9)
    for left in range(8, -1, -1):
        settle(lib, tiny(kind))
        assert lib.tokens(context) == held
        piece = lib.next(context)
        assert piece.status == OK
        held += [piece.token] if left else []
    settle(lib, tiny(kind))
    assert lib.tokens(context) == held


@pytest.mark.parametrize("kind", KINDS)
def test_every_token_of_a_generation_is_held_but_perhaps_the_last(lib, tiny, open_context, kind):
    context = open_context(tiny(kind))
    lib.begin(context, prompt(7), max_tokens=11)
    pieces = lib.drain(context)
    assert len(delivered(pieces)) == 11
    assert lib.tokens(context) == held_after(prompt(7), pieces[:-1])


@pytest.mark.parametrize("kind", KINDS)
def test_a_cancel_at_every_length_leaves_exactly_what_was_delivered(lib, tiny, oracle, kind):
    """Around a sliding window's size, too, where its cache stops taking tokens back."""
    model = tiny(kind)
    for length in range(1, 14):
        with opened(lib, model) as context:
            start = prompt(3)
            lib.begin(context, start, max_tokens=40)
            held = start + delivered([lib.next(context) for _ in range(length)])
            settle(lib, model)
            lib.cancel(context)
            assert lib.next(context).finish == FINISH_CANCELED
            assert lib.tokens(context) == held
            longer = held + prompt(2)
            assert greedy(lib, context, longer, 8) == oracle(kind).after(longer, 8)
