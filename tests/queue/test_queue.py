"""The queue with a stub in Python's place, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.paths import CSRC

HERE = Path(__file__).parent
SOURCES = [HERE / "stub.c", HERE / "scenarios.c", CSRC / "cancel.c", CSRC / "error.c"]
SCENARIOS = ["many", "refuse", "nest", "end", "order", "close", "cancel"]
SANITIZERS = {
    "thread": ["-fsanitize=thread"],
    "address": ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
}


def build(folder: Path, name: str, *options: str) -> list[str]:
    """Compile the scenarios; how to run the program, for want of a scenario."""
    program = compile_c(
        SOURCES, folder / name, *SANITIZERS[name.split("-")[0]], "-g", "-O1", "-pthread", *options
    )
    probe = run([program, "refuse"])
    if "unexpected memory mapping" not in probe.stderr:
        return [str(program)]
    # Older ThreadSanitizers do not know the addresses that newer kernels hand out.
    return [require("setarch"), "-R", str(program)]


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request, tmp_path_factory) -> list[str]:
    """The scenarios under one sanitizer."""
    return build(tmp_path_factory.mktemp("queue"), request.param)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_is_clean(program, scenario):
    done = run([*program, scenario])
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


@pytest.mark.parametrize("bug", ["BUG_TOUCH_AFTER_FINISH", "BUG_READ_OUTSIDE_LOCK"])
def test_thread_sanitizer_reports_a_bug_put_there(tmp_path, bug):
    program = build(tmp_path, "thread-bug", f"-D{bug}")
    done = run([*program, "many"])
    assert done.returncode != 0
    assert "ThreadSanitizer: data race" in done.stderr


def test_memcheck_is_clean(tmp_path):
    valgrind = require("valgrind")
    program = compile_c(SOURCES, tmp_path / "plain", "-g", "-pthread")
    command = [valgrind, "--error-exitcode=9", "--quiet", program, "refuse"]
    done = run(command)
    assert done.returncode == 0, done.stderr
