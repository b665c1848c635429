"""Steps over decoder layers, without Python, under the sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.kernel_module import build_object
from support.paths import CSRC
from support.sanitizers import SANITIZERS, build

pytestmark = pytest.mark.long

HERE, KERNELS = Path(__file__).parent, CSRC / "kernels"
SOURCES = [HERE / "layers_scenarios.cpp"]
SOURCES += [KERNELS / f"layers/{part}.cpp" for part in ("attend", "products", "run")]
SOURCES += [KERNELS / "pool.cpp"]
CPP = {"compiler": "c++", "std": "c++20"}
OPTIONS = [f"-I{KERNELS}", "-Wno-psabi", "-ffp-contract=off"]


def kernels_for(sanitizer, folder):
    """The kernels, those of the build for addresses: compilers take minutes to check these."""
    if sanitizer == "address":
        return build_object("portable")
    options = ["-c", "-g", "-O1", *SANITIZERS[sanitizer], *OPTIONS]
    return compile_c([KERNELS / "isa_portable.cpp"], folder / "kernels.o", *options, **CPP)


@pytest.mark.parametrize("sanitizer", SANITIZERS)
def test_the_same_step_gives_the_same_however_it_is_cut(sanitizer, tmp_path):
    kernels = kernels_for(sanitizer, tmp_path)
    program = build([*SOURCES, kernels], tmp_path / "steps", sanitizer, *OPTIONS, **CPP)
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")
