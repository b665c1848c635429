"""Long calls that are broken off: the call ends once, and nothing else does."""

from __future__ import annotations

import errno
import gc
import os
import threading

import pytest
from driver import greedy, prompt
from support.library import StatusError
from support.signatures import ECANCELED, OK

from cowmlx.cache import disk, disk_reader
from cowmlx.call import keeps_call
from cowmlx.engine import Engine
from cowmlx.scheduling import stepped
from cowmlx.services.embedding import TextRows

START = prompt(20)


@pytest.fixture
def file(tmp_path, lib, tiny, open_context, monkeypatch):
    """A saved context; saving and loading take many turns from now on."""
    monkeypatch.setattr(disk, "PIECE", 64)
    monkeypatch.setattr(disk_reader, "PIECE", 64)
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=0)
    lib.save(context, tmp_path / "context.safetensors")
    return tmp_path / "context.safetensors"


def cancelled(lib, context, call, *arguments):
    """The status of a call whose context is cancelled again and again until it returns."""
    statuses = []

    def run():
        try:
            call(context, *arguments)
            statuses.append(OK)
        except StatusError as error:
            statuses.append(error.status)

    thread = threading.Thread(target=run)
    thread.start()
    while thread.is_alive():
        lib.cancel(context)
    return statuses[0]


@pytest.mark.parametrize("way", ["save", "restore"])
def test_cancelled_behind_a_context_that_generates(lib, tiny, oracle, open_context, file, way):
    model = tiny("llama-big")
    back, front = open_context(tiny("llama"), priority=-1), open_context(model)
    lib.begin(back, START, max_tokens=0)
    over = threading.Event()

    def generate():
        while not over.is_set():
            lib.generate(front, START, max_tokens=60)

    thread = threading.Thread(target=generate)
    thread.start()
    try:
        while cancelled(lib, back, getattr(lib, way), file) != ECANCELED:
            pass
        for _ in range(3):  # the foreground has had turns since
            lib.generate(open_context(model), START, max_tokens=4)
    finally:
        over.set()
        thread.join()
    assert lib.tokens(back) == START
    assert greedy(lib, back, [*START, 11]) == oracle("llama").after([*START, 11])


def test_a_clean_up_that_fails_ends_the_call_all_the_same(
    lib, tiny, open_context, file, monkeypatch
):
    """As closing a file does on a network's disk that is full."""
    context = open_context(tiny("llama"))
    lib.begin(context, START, max_tokens=0)
    close, write = os.close, os.write

    def cancel_and_write(*arguments):
        lib.cancel(context)
        return write(*arguments)

    def close_and_fail(descriptor):
        close(descriptor)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", cancel_and_write)
    monkeypatch.setattr(os, "close", close_and_fail)
    with pytest.raises(StatusError) as failed:
        lib.save(context, file)
    monkeypatch.undo()
    assert failed.value.status == ECANCELED
    assert os.listdir(file.parent) == [file.name]
    lib.restore(context, file)
    assert lib.tokens(context) == START


def test_a_result_that_cannot_be_handed_over_ends_its_call_alone(lib, tiny, monkeypatch):
    def fail(self, result):
        raise MemoryError("no room")

    monkeypatch.setattr(TextRows, "_succeed", fail)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.embed(tiny("llama"), ["Hello"])
    monkeypatch.undo()
    assert len(lib.embed(tiny("llama"), ["Hello"])) == 1


def test_what_fails_while_it_is_told_ends_its_call_alone(lib, folder, monkeypatch):
    def fail(self, value):
        raise MemoryError("no room")

    monkeypatch.setattr(stepped.SteppedCall, "_receive", fail)
    monkeypatch.setattr("cowmlx.services.loading.Loading._receive", fail)
    with pytest.raises(StatusError, match="ENOMEM"):
        lib.load(folder("llama"))
    monkeypatch.undo()
    lib.free_model(lib.load(folder("llama")))


def test_a_call_that_has_ended_can_be_asked_and_told_anything(lib, tiny, open_context, monkeypatch):
    """The engine should not, but if it does, the host's stack must not be written to."""
    kept = []

    @keeps_call
    def poll(generations, call, handle, timeout_ms):
        kept.append(call)
        call.succeed()

    for engine in [each for each in gc.get_objects() if isinstance(each, Engine)]:
        bound = poll.__get__(engine.generations)
        monkeypatch.setattr(engine, "context_poll", bound, raising=False)
    assert lib.c.cow_mlx_context_poll(open_context(tiny("llama")), 0) == OK
    (call,) = kept
    assert (call.ready, call.refused, call.cancel_epoch) == (False, False, 0)
    call.post_progress(0.5, "weights")
    call.post_prompt(1, 2)
    call.post_text(b"text")
    call.post_chat(1, "text", "", 0)
    call.note("a message")
    assert not call.succeed(1)
    assert call.answer_size(1, 1)
    call.done(None)
    call.fail(RuntimeError("again"))
