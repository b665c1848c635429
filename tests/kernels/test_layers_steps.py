"""Steps over decoder layers, without Python, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

pytestmark = pytest.mark.long

HERE, KERNELS = Path(__file__).parent, CSRC / "kernels"
SOURCES = [HERE / "layers_scenarios.cpp"]
SOURCES += [KERNELS / f"layers/{part}.cpp" for part in ("attend", "products", "run")]
SOURCES += [KERNELS / "pool.cpp"]
CPP = {"compiler": "c++", "std": "c++20"}
# Compilers take minutes to check addresses in the kernels themselves, whose own tests do.
OF_KERNELS = {"thread": SANITIZERS["thread"], "address": []}


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_same_step_gives_the_same_however_it_is_cut(sanitizer, tmp_path):
    options = [f"-I{KERNELS}", "-Wno-psabi", "-ffp-contract=off"]
    kernels = tmp_path / "kernels.o"
    compile_c(
        [KERNELS / "isa_portable.cpp"],
        kernels,
        *("-c", "-g", "-O1", *OF_KERNELS[sanitizer], *options),
        **CPP,
    )
    program = build([*SOURCES, kernels], tmp_path / "steps", sanitizer, *options, **CPP)
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
