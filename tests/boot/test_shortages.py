"""A call that finds too little of something fails with a status, and succeeds with more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support import tiny_models
from support.compiler import run
from support.paths import LIBRARY

from cowmlx import blas

MIB = 1 << 20
LINUX = sys.platform.startswith("linux")
# What stands in for the system's pthread_create, and limits of memory that bind, Linux has.
needs_linux = pytest.mark.skipif(not LINUX, reason="needs Linux")


@pytest.fixture
def meet(host, model, environment, tmp_path):
    """Runs the host; returns the status and the message of the call that found too little.

    The host itself makes the call again, and all that come after it.
    """

    def meet(phase: str, resource: str, left: int, path: Path = model) -> tuple[str, str]:
        command = [host("shortage.c"), path, phase, resource, left, tmp_path]
        done = run(command, env=environment, timeout=120)
        assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
        status, _, message = done.stdout.strip().partition(" ")
        return status, message

    return meet


@needs_linux
@pytest.mark.parametrize(
    ("phase", "left"),
    [("start", 0), ("start", 1), ("start", 6), ("load", 0), ("generate", 0)],
)
def test_no_more_threads(meet, phase, left):
    status, message = meet(phase, "threads", left)
    assert status == "ENOMEM"
    assert "thread" in message


@needs_linux
@pytest.mark.parametrize("left", [2, 3])
def test_threads_for_a_context_and_no_pool(meet, left):
    """The pool of four with which mlx reads files is there since the start."""
    assert meet("load", "threads", left) == ("OK", "")


@needs_linux
def test_no_threads_for_large_arrays(meet, tmp_path):
    """Arrays of 32 MiB that mlx reads take a separate pool, which the first one starts."""
    config = {"moe_intermediate_size": 1 << 15}
    large = tiny_models.make(tmp_path / "large", "qwen3_moe", config=config)
    status, message = meet("load", "threads", 4, large)
    assert status == "ENOMEM"
    assert "reading files with mlx needs 4 more threads" in message


@needs_linux
def test_large_matrices_need_no_more_threads(meet, tmp_path):
    """Kernels read them, on their own threads."""
    large = tiny_models.make(tmp_path / "large", "qwen3", config={"vocab_size": 140_000})
    assert meet("load", "threads", 4, large) == ("OK", "")


@needs_linux
@pytest.mark.parametrize("left", [0, 70, 390])
def test_a_start_with_little_memory(meet, left):
    status, message = meet("start", "memory", left * MIB)
    assert status == "ENOMEM"
    assert "MiB of memory" in message


@needs_linux
@pytest.mark.parametrize("left", [440, 500])
def test_a_start_with_nearly_enough_memory(meet, left):
    """What is needed where depends on the machine: processors, and the sizes of libraries."""
    status, _ = meet("start", "memory", left * MIB)
    assert status in ("OK", "ENOMEM")


@needs_linux
@pytest.mark.parametrize(
    ("resource", "phase"),
    [("memory", "load"), ("memory", "context"), ("memory", "generate")]
    + [
        ("data", phase)
        for phase in ("load", "lazy", "generate", "grammar", "chat", "embed", "save")
    ],
)
def test_a_call_without_memory(meet, phase, resource):
    status, message = meet(phase, resource, 4 * MIB)
    assert status == "ENOMEM"
    assert "memory" in message


@pytest.mark.parametrize(
    "phase", ["start", "info", "load", "grammar", "chat", "embed", "save", "restore", "wake"]
)
def test_no_more_open_files(meet, phase):
    status, message = meet(phase, "files", 0)
    assert status == "EIO"
    assert "too many open files: its limit (RLIMIT_NOFILE) is " in message


@pytest.mark.parametrize("phase", ["load", "lazy"])
def test_one_more_open_file_is_too_few_to_load(meet, phase):
    status, message = meet(phase, "files", 1)
    assert status == "EIO"
    assert "RLIMIT_NOFILE" in message


@pytest.mark.parametrize("phase", ["tokenize", "generate", "fork"])
def test_calls_that_open_nothing(meet, phase):
    assert meet(phase, "files", 0) == ("OK", "")


@needs_linux
@pytest.mark.parametrize("left", [20, 90, 220])
def test_matrix_products_take_turns_where_memory_ends(host, environment, left):
    """OpenBLAS maps a buffer for each that runs, and ends the process where it cannot."""
    openblas = pytest.importorskip("scipy_openblas32").get_lib_dir()
    shim = LIBRARY.parent / blas.SHIM
    command = [host("products.c"), shim, f"{openblas}/libscipy_openblas.so", left]
    done = run(command, env=environment, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
