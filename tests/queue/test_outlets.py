"""An outlet without an engine, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

PARTS = [
    "base/error",
    "base/handles",
    "queue/logits",
    "queue/outlet",
    "queue/outlets",
    "queue/queue",
    "queue/semaphores",
    "queue/taking",
    "queue/wake_fd",
]
SOURCES = [Path(__file__).parent / "outlet_scenarios.c", *(CSRC / f"{part}.c" for part in PARTS)]


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request, tmp_path_factory) -> list[str]:
    """The scenarios under one sanitizer."""
    return build(SOURCES, tmp_path_factory.mktemp("outlets") / "scenarios", request.param)


@pytest.mark.parametrize("scenario", ["progress", "clear", "clear_late", "memory"])
def test_scenario_is_clean(program, scenario):
    done = run([*program, scenario])
    assert done.returncode == 0, done.stderr
    assert "ERROR" not in done.stderr
