"""Many threads on the same contexts, against all advice: refused or done, never wrong."""

from __future__ import annotations

import random
import threading

import pytest
from driver import KINDS, greedy, prompt
from support.library import StatusError
from support.signatures import DONE, ECANCELED, EHANDLE, ESTATE

THREADS = 5
CALLS = 60
ALLOWED = {ECANCELED, EHANDLE, ESTATE}


class Hand:
    """One thread's random calls on contexts that others use, too."""

    def __init__(self, lib, contexts, model, seed):
        self.lib = lib
        self.contexts = contexts
        self.model = model
        self.draw = random.Random(seed)
        self.refusals = 0
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        try:
            for _ in range(CALLS):
                self.call()
        except BaseException as error:
            self.error = error

    def call(self):
        lib, draw = self.lib, self.draw
        place = draw.randrange(len(self.contexts))
        context = self.contexts[place]
        tokens = prompt(draw.randrange(1, 40), seed=draw.randrange(3))
        calls = [
            lambda: lib.begin(context, tokens, max_tokens=draw.randrange(20)),
            lambda: lib.next(context),
            lambda: lib.next(context, capacity=1),
            lambda: lib.drain(context)[-1].status == DONE,
            lambda: lib.generate(context, tokens, max_tokens=draw.randrange(8)),
            lambda: lib.generate(context, tokens, lambda text: draw.random() < 0.8, max_tokens=9),
            lambda: lib.cancel(context),
            lambda: lib.cancel(context),
            lambda: lib.trim_end(context, draw.randrange(9)),
            lambda: lib.trim_front(context, draw.randrange(9)),
            lambda: lib.reset(context),
            lambda: lib.info(context),
            lambda: lib.stats(context),
            lambda: self.replace(place, context),
        ]
        try:
            draw.choice(calls)()
        except StatusError as error:
            assert error.status in ALLOWED, error
            self.refusals += 1

    def replace(self, place, context):
        self.lib.free(context)
        self.contexts[place] = self.lib.context(self.model, max_tokens=100)


@pytest.mark.parametrize("kind", KINDS)
def test_what_survives_is_right(lib, tiny, oracle, kind):
    model = tiny(kind)
    before = lib.info()["handles"]["context"]
    contexts = [lib.context(model, max_tokens=100) for _ in range(3)]
    hands = [Hand(lib, contexts, model, f"{kind} {number}") for number in range(THREADS)]
    for hand in hands:
        hand.thread.start()
    for hand in hands:
        hand.thread.join()
    for hand in hands:
        if hand.error:
            raise hand.error
    assert sum(hand.refusals for hand in hands) < THREADS * CALLS
    for context in contexts:
        assert lib.info(context)["tokens"] == len(lib.tokens(context)) <= 100
        tokens = [*lib.tokens(context)[:80], *prompt(3)]
        assert greedy(lib, context, tokens) == oracle(kind).after(tokens)
        lib.free(context)
    assert lib.info()["handles"]["context"] == before
