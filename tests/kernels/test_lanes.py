"""The 16 lanes and the products of every instruction set that is here, without Python."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.kernel_module import SETS as USABLE
from support.kernel_module import build_object
from support.paths import CSRC
from support.sanitizers import build

from tools.packaging.kernels import EXACT, sets

HERE = Path(__file__).parent
KERNELS = CSRC / "kernels"
CPP = {"compiler": "c++", "std": "c++20"}
# Others have the name of their set.
HEADERS = {"avx512bf16": "avx512", "avx512vnni": "avx512", "avxvnni": "avx2", "i8mm": "neon"}
SETS = sets(platform.machine())
# What a set's table calls of another's.
BELOW = {
    "avx512bf16": ["avx512vnni", "avx512"],
    "avx512vnni": ["avx512"],
    "avxvnni": ["avx2"],
    "i8mm": ["neon"],
}
STEP = 997  # every so many float32 are tried

pytestmark = pytest.mark.xdist_group("lanes")


# Sets that are compiled for another one, too, are tested with the long tests.
TWICE = {below for name in USABLE for below in BELOW.get(name, ())}
NAMES = [pytest.param(name, marks=pytest.mark.long) if name in TWICE else name for name in USABLE]
LANES = {HEADERS.get(name, name): name for name in USABLE}
OPTIONS = {name: SETS[name] for name in USABLE}
if "avx2" in USABLE and "avxvnni" not in USABLE:
    by_hand = ["-include", str(HERE / "vnni_by_hand.h")]
    OPTIONS["avxvnni"] = [*SETS["avx2"], *by_hand]
    NAMES.append(pytest.param("avxvnni", marks=pytest.mark.long, id="avxvnni-by-hand"))


@pytest.fixture(scope="module", params=NAMES)
def name(request) -> str:
    """An instruction set that this processor knows, or one whose instruction is written out."""
    return request.param


@pytest.mark.parametrize("header", LANES)
def test_lanes(header, tmp_path):
    """With the options of the last set that includes them."""
    of_set = OPTIONS[LANES[header]]
    options = [f'-DSET="simd/{header}.h"', f"-DSTEP={STEP}", f"-I{KERNELS}", *EXACT, *of_set]
    program = build([HERE / "lanes_checks.cpp"], tmp_path / "lanes", "address", *options, **CPP)
    done = run(program)
    assert (done.returncode, done.stderr) == (0, "")


def table_of(part, folder):
    """The object file of a set: the build's own, or one whose instruction is written out."""
    if OPTIONS[part] == SETS[part]:
        return build_object(part)
    options = ["-c", "-O1", *EXACT, *OPTIONS[part]]
    return compile_c([KERNELS / f"isa_{part}.cpp"], folder / f"{part}.o", *options, **CPP)


def test_products(name, tmp_path):
    objects = [table_of(part, tmp_path) for part in [name, *BELOW.get(name, [])]]
    checks = [HERE / "product_checks.cpp", *objects]
    options = [f"-DTABLE={name}_table", f"-I{KERNELS}"]
    done = run(build(checks, tmp_path / "products", "address", *options, **CPP))
    assert (done.returncode, done.stderr) == (0, "")
