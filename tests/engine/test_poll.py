"""Waiting without a thread per context: poll, and a descriptor for event loops."""

from __future__ import annotations

import os
import threading
from ctypes import byref, c_size_t

import pytest
from driver import ENDLESS, KINDS, KV, RECURRENT, XLSTM, delivered, next_ok, prompt
from support import signatures
from support.async_calls import begin as begin_async
from support.async_calls import held, load
from support.library import StatusError
from support.outputs import poisoned_struct
from support.signatures import DONE, EHANDLE, EINVAL, ESTATE, ETIMEDOUT, OK
from support.wake import readable, wake_fd

from cowmlx.errors import InvalidArgument
from cowmlx.models import quantizing

FOREVER = 2**32 - 1


@pytest.mark.parametrize("kind", KINDS)
def test_after_poll_next_has_a_piece(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    lib.begin(context, prompt(9), max_tokens=12)
    given = []
    while True:
        assert lib.c.cow_mlx_context_poll(context, FOREVER) == OK
        piece = lib.next(context)
        if piece.status == DONE:
            break
        given.append(piece.token)
    assert given == oracle(kind).after(prompt(9), 12)
    assert lib.c.cow_mlx_context_poll(context, 0) == OK, "DONE does not block either"


@pytest.mark.parametrize("kind", KINDS)
def test_one_thread_drives_many_contexts(lib, tiny, open_context, oracle, kind):
    """With timeouts of 0: what is not there yet is computed meanwhile."""
    model = tiny(kind)
    prompts = [prompt(5 + seed, seed) for seed in range(4)]
    contexts = {open_context(model): tokens for tokens in prompts}
    given: dict[int, list[int]] = {context: [] for context in contexts}
    for context, tokens in contexts.items():
        lib.begin(context, tokens, max_tokens=10)
    under_way = list(contexts)
    while under_way:
        for context in list(under_way):
            status = lib.c.cow_mlx_context_poll(context, 0)
            assert status in (OK, ETIMEDOUT)
            if status == OK:
                piece = lib.next(context)
                if piece.status == DONE:
                    under_way.remove(context)
                else:
                    given[context].append(piece.token)
    for context, tokens in contexts.items():
        assert given[context] == oracle(kind).after(tokens, 10)


def test_a_timeout_says_so_and_loses_nothing(lib, tiny, open_context, oracle):
    context = open_context(tiny("llama-big"))
    lib.begin(context, prompt(9), max_tokens=8)
    statuses = {lib.c.cow_mlx_context_poll(context, 0) for _ in range(3)}
    assert statuses <= {OK, ETIMEDOUT}
    assert delivered(lib.drain(context)) == oracle("llama-big").after(prompt(9), 8)


def test_poll_needs_a_generation(lib, tiny, open_context):
    context = open_context(tiny(KV))
    assert lib.c.cow_mlx_context_poll(context, 0) == ESTATE
    assert "context_begin" in lib.message()


def test_poll_of_a_freed_context(lib, tiny):
    context = lib.context(tiny(KV))
    lib.free(context)
    assert lib.c.cow_mlx_context_poll(context, 0) == EHANDLE


@pytest.mark.parametrize("kind", KINDS)
def test_the_descriptor_tells_of_pieces(lib, tiny, open_context, oracle, kind):
    context = open_context(tiny(kind))
    fd = wake_fd(lib, context)
    assert fd == wake_fd(lib, context)
    assert not readable(fd), "nothing has begun"
    lib.begin(context, prompt(9), max_tokens=10)
    given = []
    while readable(fd, 60):
        piece = lib.next(context)
        if piece.status == DONE:
            break
        given.append(piece.token)
    assert given == oracle(kind).after(prompt(9), 10)
    assert readable(fd), "DONE is there to be taken"
    lib.reset(context)
    assert not readable(fd)


@pytest.mark.parametrize("taken", [0, 2])
@pytest.mark.parametrize("kind", [RECURRENT, XLSTM, KV])
def test_a_descriptor_made_meanwhile_tells_of_pieces(lib, tiny, open_context, oracle, kind, taken):
    """Also where no piece was computed ahead."""
    context = open_context(tiny(kind))
    lib.begin(context, prompt(9), max_tokens=10)
    given = [lib.next(context) for _ in range(taken)]
    assert readable(wake_fd(lib, context), 60)
    assert delivered([*given, *lib.drain(context)]) == oracle(kind).after(prompt(9), 10)


def test_a_descriptor_made_meanwhile_tells_of_logits(lib, tiny, open_context, oracle):
    context, asked = open_context(tiny(KV)), []

    def note(tokens, count, logits, vocabulary):
        asked.append(count)

    lib.begin(context, prompt(9), max_tokens=3, logits_fn=note)
    assert readable(wake_fd(lib, context), 60)
    assert delivered(lib.drain(context)) == oracle(KV).after(prompt(9), 3)
    assert asked == [9, 10, 11]


@pytest.mark.parametrize("kind", KINDS)
def test_a_readable_descriptor_is_one_whose_poll_succeeds(lib, tiny, open_context, kind):
    """Right after next too: the byte of a piece is gone before the host has the piece."""
    context = open_context(tiny(kind))
    fd = wake_fd(lib, context)
    for seed in range(3):
        lib.begin(context, prompt(9, seed), max_tokens=12)
        status = OK
        while status != DONE:
            assert readable(fd, 60)
            assert lib.c.cow_mlx_context_poll(context, 0) == OK, lib.message()
            status = lib.next(context).status


def test_a_cancel_wakes_the_descriptor(lib, tiny, open_context):
    context = open_context(tiny(KV))
    fd = wake_fd(lib, context)
    lib.begin(context, prompt(9), max_tokens=100)
    assert readable(fd, 60)
    lib.cancel(context)
    assert readable(fd, 60)
    while lib.next(context).status != DONE:
        pass


def test_the_descriptor_is_closed_with_its_context(lib, tiny):
    context = lib.context(tiny(KV))
    fd = wake_fd(lib, context)
    os.fstat(fd)
    lib.free(context)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def test_the_time_of_background_work_passes_while_others_generate(lib, tiny, open_context):
    """Neither a deadline nor a cancel waits for the foreground to be done."""
    model = tiny("llama-big")
    front = [open_context(model) for _ in range(4)]
    back = open_context(model, priority=-1)
    over = threading.Event()

    def generate(context):
        while not over.is_set():
            lib.generate(context, prompt(9), max_tokens=60)

    lib.begin(back, prompt(9), max_tokens=400)
    threads = [threading.Thread(target=generate, args=(context,)) for context in front]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert lib.c.cow_mlx_context_poll(back, 1) in (OK, ETIMEDOUT)
        lib.cancel(back)
        assert lib.c.cow_mlx_context_poll(back, FOREVER) == OK
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_calls_without_pause_do_not_stop_a_generation(lib, tiny, folder, open_context, monkeypatch):
    """Each of these sends the next one, so that the dispatch thread finds no time to sleep."""
    context, models, over = open_context(tiny(KV)), [], threading.Event()

    def send_and_fail(_):
        if not over.is_set():
            models.append(load(lib, folder(KV)))
            lib.free_model(models.pop(0)) if len(models) > 2 else None
        raise InvalidArgument("refused on purpose", argument="quantize_bits")

    monkeypatch.setattr(quantizing, "chosen", send_and_fail)
    begin_async(lib, context, prompt(9), max_tokens=ENDLESS)
    with held(lib):
        models.append(load(lib, folder(KV)))
    try:
        for _ in range(10):
            assert lib.c.cow_mlx_context_poll(context, 20_000) == OK
            next_ok(lib, context, 1)
    finally:
        over.set()
        lib.info()  # the last call that sends another one has ended
        for model in models:
            assert lib.c.cow_mlx_model_poll(model, FOREVER) == EINVAL
            lib.free_model(model)


def test_no_more_descriptors(lib, tiny, open_context):
    import resource

    context = open_context(tiny(KV))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/dev/fd"))
    spare = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limit[1]))
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                spare.append(os.open("/dev/null", os.O_RDONLY))
        with pytest.raises(StatusError, match="EIO"):
            wake_fd(lib, context)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limit)
        for fd in spare:
            os.close(fd)
    assert wake_fd(lib, context) >= 0


# A host must not read or close the descriptor. If it does, nothing freezes or breaks.


def test_a_host_that_reads_the_descriptor(lib, tiny, open_context, oracle):
    context = open_context(tiny(KV))
    fd = wake_fd(lib, context)
    assert not os.get_blocking(fd)
    lib.begin(context, prompt(9), max_tokens=12)
    given, status = [], OK
    while status != DONE:
        assert readable(fd, 60), "told of every piece that follows a next"
        assert os.read(fd, 1)
        piece = lib.next(context)
        status = piece.status
        if status == OK:
            given.append(piece.token)
    assert given == oracle(KV).after(prompt(9), 12)
    lib.reset(context)


def test_a_host_that_closes_the_descriptor(lib, tiny, open_context, oracle, tmp_path):
    """A file that the host opens under the same number is neither read nor closed."""
    context = open_context(tiny(KV))
    fd = wake_fd(lib, context)
    lib.begin(context, prompt(9), max_tokens=12)
    assert readable(fd, 60)
    (tmp_path / "own").write_bytes(b"the host's")
    os.close(fd)
    own = os.open(tmp_path / "own", os.O_RDONLY)
    if own != fd:
        os.dup2(own, fd)
        os.close(own)
    assert delivered(lib.drain(context)) == oracle(KV).after(prompt(9), 12)
    other = wake_fd(lib, context)
    assert other != fd
    assert readable(other), "DONE is there to be taken"
    lib.free(context)
    assert os.read(fd, 64) == b"the host's"
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(other)
    os.close(fd)


def test_the_descriptor_is_not_inherited(lib, tiny, open_context):
    assert not os.get_inheritable(wake_fd(lib, open_context(tiny(KV))))


def test_descriptors_are_all_closed(lib, tiny):
    before = len(os.listdir("/dev/fd"))
    contexts = [lib.context(tiny(KV)) for _ in range(4)]
    for context in contexts:
        wake_fd(lib, context)
    for context in contexts:
        lib.free(context)
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("call", ["generate", "begin", "chat"])
@pytest.mark.parametrize("watched", ["before", "meanwhile"])
def test_a_descriptor_lets_no_call_wait_for_the_one_whose_callback_makes_it(
    lib, calf, call, watched
):
    """A call that waited for the outlet would wait for itself."""
    context = lib.context(calf)
    if watched == "before":
        wake_fd(lib, context)
    seen = []

    def callback(*_):
        wake_fd(lib, context)
        event = byref(poisoned_struct(signatures.cow_mlx_event))
        seen.append(lib.c.cow_mlx_context_next(context, None, 0, byref(c_size_t()), None))
        seen.append(lib.c.cow_mlx_context_next_event(context, event))
        seen.append(lib.c.cow_mlx_context_poll(context, FOREVER))

    if call == "chat":
        lib.chat(context, [{"role": "user", "content": "Hi"}], callback, max_tokens=3)
    elif call == "generate":
        lib.generate(context, prompt(9), callback, max_tokens=3)
    else:
        lib.begin(context, prompt(9), max_tokens=3, prompt_progress=callback)
        assert readable(wake_fd(lib, context), 60)
        assert len(delivered(lib.drain(context))) == 3
    assert set(seen) == {ESTATE}
    assert lib.next(context).status == DONE
    assert readable(wake_fd(lib, context)), "after the end nothing blocks"
    lib.free(context)


def test_a_descriptor_of_an_asynchronous_call_tells_of_later_calls(lib, tiny, open_context):
    context = open_context(tiny(KV))
    begin_async(lib, context, prompt(9), max_tokens=3)
    fd = wake_fd(lib, context)
    assert len(delivered(lib.drain(context))) == 3
    lib.begin(context, prompt(9), max_tokens=3)
    assert readable(fd, 60)
    assert len(delivered(lib.drain(context))) == 3
    lib.generate(context, prompt(9), max_tokens=3)
    assert readable(fd, 60), "after the end nothing blocks"
    assert lib.next(context).status == DONE


@pytest.mark.parametrize("watched", [True, False])
def test_an_asynchronous_call_beside_a_running_one_is_told_its_failure(
    lib, tiny, open_context, watched
):
    context = open_context(tiny(KV))
    if watched:
        wake_fd(lib, context)
    begun = []

    def on_text(_):
        if not begun:
            begin_async(lib, context, prompt(5), max_tokens=2)
        begun.append(True)

    assert lib.generate(context, prompt(9), on_text, max_tokens=4).text
    assert lib.c.cow_mlx_context_poll(context, FOREVER) == OK
    with pytest.raises(StatusError, match="context_begin_async: another call") as failed:
        lib.next(context)
    assert failed.value.status == ESTATE
    lib.begin(context, prompt(9), max_tokens=2)
    assert len(delivered(lib.drain(context))) == 2
