"""What fails while a call is served, or a context made, ends that call and nothing else."""

from __future__ import annotations

import threading

import pytest
from driver import KV, greedy, prompt
from support.library import StatusError
from support.signatures import EINTERNAL, OK

from cowmlx.generation.context import Context
from cowmlx.generation.waiters import GenerateWaiter, NextWaiter

START = prompt(9)


def fail(*arguments):
    raise RuntimeError("broken")


def status_of(call, *arguments, **options):
    try:
        call(*arguments, **options)
    except StatusError as error:
        return error.status
    return OK


@pytest.mark.parametrize("begun", [False, True], ids=["at once", "in a turn"])
@pytest.mark.parametrize("waiter", [GenerateWaiter, NextWaiter])
def test_a_call_that_cannot_be_served(lib, tiny, oracle, open_context, monkeypatch, waiter, begun):
    """It ends as our bug, others generate meanwhile, and the context works afterwards."""
    context, other = open_context(tiny(KV)), open_context(tiny(KV))
    advance, served = waiter.advance, iter(range(100))

    def break_one(self, generation):
        if self.call.cancel_epoch == 0 and next(served) < begun:
            return False
        return fail()

    lib.begin(context, START, max_tokens=4)
    monkeypatch.setattr(waiter, "advance", break_one)
    call = lib.generate if waiter is GenerateWaiter else lib.next
    arguments = (START,) if waiter is GenerateWaiter else ()
    assert status_of(call, context, *arguments) == EINTERNAL
    monkeypatch.setattr(waiter, "advance", advance)
    assert greedy(lib, other, START) == oracle(KV).after(START)
    assert greedy(lib, context, START) == oracle(KV).after(START)


def test_a_broken_call_stops_nobody_else(lib, tiny, oracle, open_context, monkeypatch):
    contexts = [open_context(tiny(KV)) for _ in range(3)]
    broken, given = contexts[0], {}
    serve, together = Context.serve, threading.Barrier(3)

    def break_one(self):
        if self.generation is not None and self.generation.params.seed == 99:
            fail()
        return serve(self)

    monkeypatch.setattr(Context, "serve", break_one)

    def run(context):
        together.wait()
        if context == broken:
            given[context] = status_of(lib.generate, context, START, max_tokens=16, seed=99)
        else:
            given[context] = greedy(lib, context, START)

    threads = [threading.Thread(target=run, args=(context,)) for context in contexts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    monkeypatch.undo()
    assert given.pop(broken) == EINTERNAL
    assert list(given.values()) == [oracle(KV).after(START)] * 2
    assert greedy(lib, broken, START) == oracle(KV).after(START)


@pytest.mark.parametrize("name", ["restore", "set_model"])
def test_a_fork_that_fails_leaves_no_context(lib, tiny, open_context, monkeypatch, name):
    context = open_context(tiny(KV))
    lib.begin(context, START, max_tokens=0)
    before = lib.info()["handles"]
    monkeypatch.setattr(Context, name, fail)
    assert status_of(lib.fork, context) == EINTERNAL
    monkeypatch.undo()
    assert lib.info()["handles"] == before
    lib.free(lib.fork(context))
