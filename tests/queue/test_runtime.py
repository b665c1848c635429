"""The public calls with a stub in Python's place, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

HERE = Path(__file__).parent
PARTS = [
    "base/checks",
    "base/error",
    "base/handles",
    "boot/resources",
    "boot/runtime",
    "calls/async_calls",
    "calls/taking_calls",
    "generated/calls",
    "generated/copies",
    "generated/defaults",
    "queue/logits",
    "queue/outlet",
    "queue/outlets",
    "queue/queue",
    "queue/semaphores",
    "queue/taking",
    "queue/wake_fd",
]
SOURCES = [HERE / "stub_bootstrap.c", HERE / "runtime_scenarios.c"]
SOURCES += [CSRC / f"{part}.c" for part in PARTS]


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request, tmp_path_factory) -> list[str]:
    """The scenarios under one sanitizer."""
    return build(SOURCES, tmp_path_factory.mktemp("runtime") / "scenarios", request.param)


@pytest.mark.parametrize("scenario", ["storm", "interrupted", "cancelled", "at_once"])
def test_scenario_is_clean(program, scenario):
    done = run([*program, scenario])
    assert (done.returncode, done.stderr) == (0, "")
