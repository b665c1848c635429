"""The queue with a stub in Python's place, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

HERE = Path(__file__).parent
SOURCES = [HERE / "stub.c", HERE / "scenarios.c"]
PARTS = ("base/error", "base/handles", "queue/logits", "queue/semaphores")
SOURCES += [CSRC / f"{part}.c" for part in PARTS]
SCENARIOS = ["many", "refuse", "nest", "end", "order", "close", "cancel", "release"]


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request, tmp_path_factory) -> list[str]:
    """The scenarios under one sanitizer."""
    return build(SOURCES, tmp_path_factory.mktemp("queue") / "scenarios", request.param)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_is_clean(program, scenario):
    done = run([*program, scenario])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("bug", ["BUG_TOUCH_AFTER_FINISH", "BUG_READ_OUTSIDE_LOCK"])
def test_thread_sanitizer_reports_a_bug_put_there(tmp_path, bug):
    program = build(SOURCES, tmp_path / "scenarios", "thread", f"-D{bug}")
    done = run([*program, "many"])
    assert done.returncode != 0
    assert "ThreadSanitizer: data race" in done.stderr


def test_memcheck_is_clean(tmp_path):
    valgrind = require("valgrind")
    program = compile_c(SOURCES, tmp_path / "scenarios", "-g", "-pthread")
    command = [valgrind, "--error-exitcode=9", "--leak-check=full", "--quiet", program, "refuse"]
    done = run(command)
    assert (done.returncode, done.stderr) == (0, "")
