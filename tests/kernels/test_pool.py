"""The kernels' pool of threads, without Python, under the sanitizers."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

HERE = Path(__file__).parent
SOURCES = [HERE / "pool_scenarios.cpp"]
SOURCES += [CSRC / "kernels/pool.cpp"]
CPP = {"compiler": "c++", "std": "c++20"}
SCENARIOS = ["many", "callers", "bounds", "nested", "signals", "helpers", "forks", "leave"]


@pytest.fixture(scope="module", params=SANITIZERS)
def program(request, tmp_path_factory) -> list[str]:
    """The scenarios under one sanitizer."""
    return build(SOURCES, tmp_path_factory.mktemp("pool") / "scenarios", request.param, **CPP)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_is_clean(program, scenario):
    done = run([*program, scenario])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def plain(tmp_path_factory) -> Path:
    """The scenarios as they run elsewhere."""
    return compile_c(SOURCES, tmp_path_factory.mktemp("pool") / "plain", "-O2", "-pthread", **CPP)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes are bound on Linux")
@pytest.mark.parametrize("count", [1, 2])
def test_no_more_threads_than_the_process_may_use(plain, count):
    own = sorted(os.sched_getaffinity(0))
    if len(own) < count:
        pytest.skip(f"this process may use one processor, not {count}")
    processors = ",".join(map(str, own[:count]))
    done = run([require("taskset"), "-c", processors, plain, "usable", str(count)])
    assert (done.returncode, done.stderr) == (0, "")
