"""What the built library exports and needs."""

from __future__ import annotations

import re
import sys

import pytest
from support.compiler import require, run
from support.headers import HEADERS
from support.paths import LIBRARY, ROOT
from support.signatures import FUNCTIONS

MAC = sys.platform == "darwin"
LIBC = r"libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux.*"


def dynamic_section() -> str:
    if MAC:
        pytest.skip("readelf is for ELF; macOS has none")
    return run([require("readelf"), "-dW", LIBRARY]).stdout


def test_exported_symbols_are_those_of_the_headers():
    listed = (ROOT / "tools/abi/recorded/libcowmlx.1.symbols").read_text().split()
    declared = set()
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.S)
        declared |= set(re.findall(r"COW_MLX_API[^;(]*?(cow_mlx_\w+)\(", text))
    output = run([require("nm"), *(["-gU"] if MAC else ["-D", "--defined-only"]), LIBRARY]).stdout
    names = (line.split()[2] for line in output.splitlines())
    exported = sorted(name.removeprefix("_" if MAC else "") for name in names)
    assert exported == listed == sorted(declared) == sorted(FUNCTIONS)


def test_library_needs_nothing_but_libc():
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic_section()))
    assert needed
    assert all(re.fullmatch(LIBC, name) for name in needed)


def test_library_stays_mapped():
    assert "NODELETE" in dynamic_section()


def test_soname_carries_the_abi():
    assert "[libcowmlx.so.1]" in dynamic_section()


def test_library_has_no_path_of_its_own():
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic_section())
