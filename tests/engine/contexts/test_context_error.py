"""The error of a call on a context, for the threads that did not make the call."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_char, c_size_t
from typing import Any

import pytest
from driver import KV, prompt
from support.library import StatusError
from support.outputs import poisoned_struct
from support.signatures import EBUFFER, ESTATE, ETIMEDOUT, OK, cow_mlx_stats


def on_another_thread(lib, call: Callable[[], Any]) -> StatusError:
    """Make a call that fails, where this thread never sees its message."""
    caught: list[StatusError] = []

    def make() -> None:
        try:
            call()
        except StatusError as error:
            caught.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    assert len(caught) == 1, "the call did not fail"
    assert lib.message() == "", "this thread made no call that failed"
    return caught[0]


def told(lib, context: int) -> dict[str, Any] | None:
    return lib.info(context)["error"]


def of(error: StatusError) -> dict[str, Any]:
    told = {"status": error.name, "message": error.message}
    return {**told, "reason": error.reason, "details": error.details}


def bad_begin(lib, context: int) -> None:
    lib.begin(context, [10, 10**6])


def test_a_context_that_did_nothing_wrong_has_no_error(lib, tiny, open_context):
    context = open_context(tiny(KV))
    assert told(lib, context) is None
    lib.generate(context, prompt(5), max_tokens=2)
    assert told(lib, context) is None


FAILURES = {
    "begin": bad_begin,
    "next": lambda lib, context: lib.next(context),
    "generate": lambda lib, context: lib.generate(context, prompt(5), timeout=1e-9),
    "chat": lambda lib, context: lib.chat(context, [{"role": "user", "content": 1}]),
    "load": lambda lib, context: lib.restore(context, "/no/such/file"),
    "logits": lambda lib, context: lib.logits(context),
    "set_adapter": lambda lib, context: lib.set_adapter(context, 12345),
}


@pytest.mark.parametrize("name", FAILURES)
def test_another_thread_reads_the_message(lib, tiny, open_context, name):
    context, other = open_context(tiny(KV)), open_context(tiny(KV))
    error = on_another_thread(lib, lambda: FAILURES[name](lib, context))
    assert told(lib, context) == of(error)
    assert error.message.startswith(f"context_{name}: ")
    assert told(lib, other) is None


def test_it_is_there_while_another_call_runs_and_when_that_is_cancelled(lib, tiny, open_context):
    context = open_context(tiny(KV))
    seen: list[dict[str, str] | None] = []

    def on_text(text: str) -> bool:
        error = on_another_thread(lib, lambda: bad_begin(lib, context))
        assert error.status == ESTATE
        seen.append(told(lib, context))
        return False

    error = on_another_thread(lib, lambda: lib.generate(context, prompt(5), on_text=on_text))
    assert [each["status"] for each in seen] == ["ESTATE"]
    assert error.name == "ECANCELED"
    assert told(lib, context) == of(error)


def test_a_generation_that_starts_clears_it(lib, tiny, open_context):
    context = open_context(tiny(KV))
    starts = [
        lambda: lib.begin(context, prompt(5), max_tokens=0),
        lambda: lib.generate(context, prompt(5), max_tokens=1),
    ]
    for start in starts:
        on_another_thread(lib, lambda: bad_begin(lib, context))
        lib.reset(context)
        assert told(lib, context) is not None, "tidying up does not hide what went wrong"
        start()
        assert told(lib, context) is None


def test_a_begin_that_is_refused_does_not_clear_it(lib, tiny, open_context):
    context = open_context(tiny(KV))
    on_another_thread(lib, lambda: lib.next(context))
    error = on_another_thread(lib, lambda: bad_begin(lib, context))
    assert told(lib, context) == of(error)


def test_calls_to_be_made_again_and_lookers_on_leave_it(lib, tiny, open_context):
    context = open_context(tiny(KV))
    length, byte, stats = c_size_t(), (c_char * 1)(), poisoned_struct(cow_mlx_stats)
    error = on_another_thread(lib, lambda: bad_begin(lib, context))
    assert lib.c.cow_mlx_context_stats(context, byref(stats)) == ESTATE
    assert lib.c.cow_mlx_context_info(context, byte, 1, byref(length)) == EBUFFER
    assert lib.c.cow_mlx_context_save(context, None) < OK, "refused before it is a call"
    assert told(lib, context) == of(error)

    lib.begin(context, prompt(300), max_tokens=4)
    assert lib.c.cow_mlx_context_next(context, None, 0, byref(length), None) in (OK, EBUFFER)
    assert lib.c.cow_mlx_context_poll(context, 0) in (OK, ETIMEDOUT)
    assert told(lib, context) is None


def test_a_fork_begins_without_it(lib, tiny, open_context):
    context = open_context(tiny(KV))
    on_another_thread(lib, lambda: bad_begin(lib, context))
    fork = lib.fork(context)
    assert told(lib, fork) is None
    lib.free(fork)


def test_an_error_of_a_model_is_no_context_s(lib, tiny, open_context):
    model = tiny(KV)
    context = open_context(model)
    on_another_thread(lib, lambda: lib.detokenize(model, [10**6]))
    on_another_thread(lib, lambda: lib.begin(context + 1, [10]))
    assert told(lib, context) is None


def test_a_long_message_is_told_as_the_call_tells_it(lib, tiny, open_context):
    context = open_context(tiny(KV))
    path = "/no/" + "ü" * 3000
    error = on_another_thread(lib, lambda: lib.restore(context, path))
    assert len(error.message.encode()) in (2046, 2047)
    assert told(lib, context) == of(error)
