"""What is compiled for Linux on ARM, for the glibc that mlx needs there."""

from __future__ import annotations

import pytest
from cross import GLIBC
from support.paths import CSRC, ROOT
from support.signatures import FUNCTIONS

from cowmlx.commands.bundle.elf import Elf

pytestmark = pytest.mark.xdist_group("linux-arm")

AARCH64 = 183
EXAMPLES = sorted(ROOT.glob("examples/c/*.c"))


def read(path) -> Elf:
    elf = Elf.read(path)
    assert elf is not None
    assert int.from_bytes(elf.data[18:20], "little") == AARCH64
    return elf


def check_glibc(elf: Elf) -> None:
    newest = tuple(map(int, GLIBC.split(".")))
    versions = [v.removeprefix("GLIBC_") for v in elf.versions() if v.startswith("GLIBC_")]
    assert versions
    assert all(tuple(map(int, version.split("."))) <= newest for version in versions)


def test_library(linux_arm):
    library = read(linux_arm.library)
    assert library.symbols(defined=True) == set(FUNCTIONS)
    assert {name.partition(".")[0] for name in library.needed} <= {"libc", "ld-linux-aarch64"}
    assert library.runpaths == []
    check_glibc(library)


@pytest.mark.parametrize("name", ["cblas", "lapack"])
def test_blas(linux_arm, name):
    output = linux_arm.folder / f"{name}.so"
    source = CSRC / f"blas/{name}.c"
    # The second finds OpenBLAS when it is loaded.
    linux_arm.compile(output, linux_arm.target.shared_command(source, output))
    assert read(output).symbols(defined=True)


def test_probe_of_the_doctor(linux_arm):
    output = linux_arm.folder / "cowmlx-probe"
    check_glibc(read(linux_arm.compile(output, linux_arm.target.probe_command(ROOT, output))))


@pytest.mark.parametrize("source", EXAMPLES, ids=lambda path: path.stem)
def test_example_links(linux_arm, source):
    program = read(linux_arm.host(source))
    assert "libcowmlx.so.1" in program.needed
    assert program.runpaths == ["$ORIGIN"]
    check_glibc(program)
