"""Matrix products on a Linux CPU come from an optimised BLAS, unless the host says otherwise."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys

import pytest
from support.paths import CALF, ROOT

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="elsewhere mlx has its own"
)

HOST = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
{before}
from support.library import Library
lib = Library()
lib.start(device="cpu")
threads = Path("/proc/self/task"){after}
model = lib.load({calf!r})
context = lib.context(model)
prompt = list(range(20, 220))
lib.begin(context, prompt, max_tokens=12)
logits = lib.logits(context)
tokens = [piece.token for piece in lib.drain(context)]
print(json.dumps([lib.info()["blas"], tokens, logits, told]))
"""


# What of its threads, once the runtime has started: how many, and on which processors each may run.
TELL = """
ids = [int(each.name) for each in threads.iterdir()]
told = len(ids), [sorted(os.sched_getaffinity(each)) for each in ids]
"""


# A sandbox that refuses system calls (seccomp).
REFUSE = """
import ctypes, struct
steps = [(0x20, 0, 0, 0)]  # load the call's number
for number in {numbers}:
    steps += [(0x15, 0, 1, number), (0x06, 0, 0, 0x50001)]  # is it this one? EPERM
steps.append((0x06, 0, 0, 0x7FFF0000))  # all others continue
code = b"".join(struct.pack("HBBI", *step) for step in steps)
held = ctypes.create_string_buffer(code, len(code))
filters = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(held))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filters, 0, 0) == 0
"""
SET, GET = {"x86_64": (203, 204), "aarch64": (122, 123)}.get(platform.machine(), (0, 0))


def run(before: str = "", after: str = TELL, **settings: str):
    """Run a separate host: returns its BLAS, tokens and logits, and its threads afterwards."""
    source = HOST.format(tests=str(ROOT / "tests"), calf=str(CALF), before=before, after=after)
    # Kernels would compute the products of this model in the place of the BLAS.
    own = {"PYTHONPATH": str(ROOT), "COWMLX_KERNELS": "off"}
    environment = {**os.environ, **own, **settings}
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def optimised():
    pytest.importorskip("scipy_openblas32")
    return run()


@pytest.fixture(scope="module")
def reference():
    return run(COWMLX_BLAS="reference")


def test_it_is_on_by_default(optimised):
    assert optimised[0] == "openblas"


def test_the_host_can_turn_it_off(reference):
    assert reference[0] == "reference"


def test_both_give_the_same_but_for_rounding(optimised, reference):
    assert optimised[1] == reference[1]
    scale = max(map(abs, reference[2]))
    worst = max(abs(a - b) for a, b in zip(optimised[2], reference[2], strict=True))
    assert 0 < worst < 1e-5 * scale, "the products are not computed differently, or wrongly"


def test_it_starts_no_thread(optimised, reference):
    assert optimised[3][0] == reference[3][0]


def test_every_thread_may_run_where_the_process_may(optimised):
    allowed = sorted(os.sched_getaffinity(0))
    assert optimised[3][1] == [allowed] * optimised[3][0]


@pytest.mark.skipif(not SET, reason="the numbers of this machine's system calls are not known")
@pytest.mark.parametrize("refused", [[SET], [SET, GET]], ids=["set", "set and get"])
def test_where_a_sandbox_refuses_to_choose_processors(optimised, refused):
    got = run(REFUSE.format(numbers=refused), "\ntold = None")
    assert got == [*optimised[:3], None]


def test_where_mlx_is_loaded_already_its_own_stays(reference):
    assert run(before="import mlx.core")[:2] == ["reference", reference[1]]


def test_another_value_is_refused():
    source = "import sys; sys.path.insert(0, {tests!r}); from support.library import *; "
    source += "lib = Library(); print(lib.c.cow_mlx_runtime_start(None), lib.message())"
    done = subprocess.run(
        [sys.executable, "-c", source.format(tests=str(ROOT / "tests"))],
        env={**os.environ, "PYTHONPATH": str(ROOT), "COWMLX_BLAS": "fastest"},
        capture_output=True,
        text=True,
    )
    assert done.stdout.startswith("-1 "), done.stdout + done.stderr
    assert 'COWMLX_BLAS is "fastest"; it can be openblas or reference' in done.stdout
