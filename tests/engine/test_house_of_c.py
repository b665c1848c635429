"""The rules of the house for csrc: includes go down only, between folders and between files."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.paths import CSRC

from tools.packaging.targets import ROOMS

# The folders of the shared library, from top to bottom: a file may include files of its folder
# and of lower floors. "" are the headers of csrc itself, which the bridge shares.
FLOORS = ["calls", "boot", "arrays", "queue", "base", ""]
# Separate programs and libraries.
OUTSIDE = {"blas", "kernels", "probe"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
FILES = [*CSRC.glob("*.h"), *(path for room in ROOMS for path in (CSRC / room).glob("*.[ch]"))]


def name_of(path: Path) -> str:
    return path.relative_to(CSRC).as_posix()


def folder_of(path: Path) -> str:
    """Generated headers belong to the shared ones, generated bodies to the calls."""
    folder = path.parent.relative_to(CSRC).as_posix().removesuffix(".")
    generated = "" if path.suffix == ".h" else "calls"
    return generated if folder == "generated" else folder


def included(path: Path) -> list[Path]:
    """The files of csrc that a file includes."""
    return [CSRC / name for name in INCLUDE.findall(path.read_text()) if (CSRC / name).exists()]


def test_every_folder_has_its_floor():
    folders = {path.name for path in CSRC.iterdir() if path.is_dir()}
    assert folders - OUTSIDE - {"generated"} == set(FLOORS) - {""}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_includes_go_down_only(path):
    height = FLOORS.index(folder_of(path))
    for other in included(path):
        assert FLOORS.index(folder_of(other)) >= height, (
            f"{name_of(path)} includes {name_of(other)}"
        )


def test_files_include_each_other_one_way_only():
    """A .c file and its header count as one."""
    graph: dict[Path, set[Path]] = {}
    for path in FILES:
        needed = {other.with_suffix("") for other in included(path)} - {path.with_suffix("")}
        graph.setdefault(path.with_suffix(""), set()).update(needed)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError([name_of(path) for path in error.args[1]]) from None


def test_python_h_is_included_once():
    including = re.compile(r"^\s*#\s*include\s*[<\"]Python\.h[>\"]", re.MULTILINE)
    assert [name_of(path) for path in FILES if including.search(path.read_text())] == [
        "boot/python_api.h"
    ]


def test_only_the_boot_code_knows_python():
    known = {CSRC / "boot/python_api.h", CSRC / "boot/interpreter.h"}
    users = {name_of(path) for path in FILES if known & set(included(path))}
    code = {f"boot/{name}.c" for name in ("attach", "bootstrap", "interpreter")}
    assert users == {*code, "boot/interpreter.h"}
