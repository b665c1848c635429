"""Statuses, their names, and the message of each thread's last failed call."""

from __future__ import annotations

import re
import threading

from support import signatures
from support.headers import HEADERS
from support.signatures import EHANDLE, ENOENT, OK

THREADS, ROUNDS = 200, 5


def test_status_names(lib):
    text = "".join(header.read_text() for header in HEADERS)
    named = {lib.name(value) for value in range(-200, 200)} - {"UNKNOWN"}
    for name in named:
        assert f"X({name}, {getattr(signatures, name)}," in text
        assert lib.name(getattr(signatures, name)) == name
    assert len(named) == len(re.findall(r"\n  X\(\w+, -?\d+, \"", text))
    assert lib.name(2**31 - 1) == lib.name(-(2**31)) == "UNKNOWN"


def test_versions(lib):
    assert lib.c.cow_mlx_version().decode() == lib.info()["library"]
    assert lib.c.cow_mlx_abi_version() == lib.info()["abi"]


def test_success_clears_the_message(lib, calf):
    assert lib.c.cow_mlx_context_free(0) < 0
    assert lib.message().startswith("context_free: ")
    lib.tokenize(calf, "Hello")
    assert lib.message() == ""


def test_cancel_leaves_the_message_alone(lib, calf):
    context = lib.context(calf)
    assert lib.c.cow_mlx_context_free(0) < 0
    message = lib.message()
    assert lib.c.cow_mlx_context_cancel(context) == OK
    assert lib.c.cow_mlx_context_cancel(0) == EHANDLE
    assert lib.c.cow_mlx_program_cancel(context) == EHANDLE
    assert lib.c.cow_mlx_training_cancel(context) == EHANDLE
    assert lib.message() == message
    lib.free(context)


def test_each_thread_has_its_own_message(lib, tmp_path):
    barrier = threading.Barrier(THREADS)
    failures: list[str] = []

    def work(number: int) -> None:
        if lib.message():
            failures.append("a new thread has a message")
        barrier.wait()
        for turn in range(ROUNDS):
            path = tmp_path / f"missing-{number}-{turn}"
            status = lib.c.cow_mlx_model_load(bytes(path), None, signatures.cow_mlx_model())
            message = lib.message()
            if status != ENOENT or str(path) not in message:
                failures.append(f"{path.name}: {status} {message}")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_message_is_cut_at_a_character(lib, tmp_path):
    path = tmp_path / ("ö" * 2000)
    assert lib.c.cow_mlx_model_load(str(path).encode(), None, signatures.cow_mlx_model()) < 0
    message = lib.c.cow_mlx_error_message()
    assert 0 < len(message) < 2048
    message.decode()
