"""Lanes, products and attention of ARM's instruction sets, run in an emulator of a processor."""

from __future__ import annotations

import importlib.util
import os

import pytest
from cross import ARM_OPTIONS, emulator
from support.compiler import run
from support.paths import CSRC, ROOT

from tools.packaging.kernels import EXACT
from tools.packaging.targets import zig_command, zig_environment

pytestmark = [pytest.mark.xdist_group("kernels-on-arm"), pytest.mark.long]

KERNELS, CHECKS = CSRC / "kernels", ROOT / "tests/kernels"
# A C library inside the program, since the emulator has no folders of that system.
TRIPLE = "aarch64-linux-musl"
STEP = 7919


def zig(*arguments: str | os.PathLike) -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed: requirements/tools.txt brings it")
    command = [*zig_command(TRIPLE, arguments[0]), *map(str, arguments[1:])]
    done = run(command, cwd=ROOT, env=zig_environment(), timeout=900)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.fixture
def program(tmp_path):
    """Compile sources, each with its options, and link them without C++'s own library."""

    def link(sources: dict) -> list[str]:
        objects = []
        for source, options in sources.items():
            objects.append(tmp_path / f"{source.stem}.o")
            common = ["-std=c++20", "-O2", "-Wall", "-Wextra", f"-I{KERNELS}", *EXACT]
            made = ["-c", source, "-o", objects[-1]]
            zig("c++", *common, *options, *made)
        zig("cc", "-static", *objects, "-lm", "-o", tmp_path / "checks")
        return [emulator(), str(tmp_path / "checks")]

    return link


@pytest.mark.parametrize("name", ARM_OPTIONS)
def test_lanes(program, name):
    options = ['-DSET="simd/neon.h"', f"-DSTEP={STEP}", *ARM_OPTIONS[name]]
    done = run(program({CHECKS / "lanes_checks.cpp": options}), timeout=600)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("checks", ["product", "attention"])
@pytest.mark.parametrize("name", ARM_OPTIONS)
def test_tables(program, name, checks):
    tables = {KERNELS / f"isa_{part}.cpp": ARM_OPTIONS[part] for part in {name, "neon"}}
    options = [f"-DTABLE={name}_table"]
    done = run(program({CHECKS / f"{checks}_checks.cpp": options, **tables}))
    assert (done.returncode, done.stderr) == (0, "")
