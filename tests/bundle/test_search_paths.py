"""Where shared objects of a bundle look for others."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.compiler import compile_c

from cowmlx.commands.bundle import BundleError, binaries
from cowmlx.commands.bundle.elf import Elf

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ELF is Linux's")


@pytest.fixture
def made(tmp_path):
    """Compiles a shared object with a search path, below the folder of a bundle's libraries."""
    source = tmp_path / "empty.c"
    source.write_text("int empty(void) { return 0; }\n")
    (tmp_path / "lib/package").mkdir(parents=True)

    def make(path: str) -> Path:
        options = ["-shared", "-fPIC", f"-Wl,-rpath,{path}"]
        return compile_c([source], tmp_path / "lib/package/empty.so", *options)

    return make


def test_a_folder_of_the_building_machine_behind_another_goes(made, tmp_path):
    library = made("$ORIGIN/../other:/opt/building/machine/lib")
    binaries.detach([library], tmp_path / "lib")
    assert Elf.read(library).runpaths == ["$ORIGIN/../other", "$ORIGIN/.."]


def test_folders_beside_the_library_stay(made, tmp_path):
    library = made("$ORIGIN/../one:$ORIGIN/../two")
    binaries.detach([library], tmp_path / "lib")
    assert Elf.read(library).runpaths == ["$ORIGIN/../one", "$ORIGIN/../two"]


def test_a_search_path_without_room_is_named(made, tmp_path):
    with pytest.raises(BundleError, match=r"libraries in /opt, .* build it without -rpath"):
        binaries.detach([made("/opt")], tmp_path / "lib")
