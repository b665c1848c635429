"""What becomes of a Mac's shared objects in a bundle, and where an application may hold one."""

from __future__ import annotations

import os
import plistlib
import struct
import sys
from pathlib import Path

import pytest
from cross import MACOS_MINIMUM, Cross
from support import registries
from support.compiler import compile_c, run
from support.macho import MachO
from support.paths import LIBRARY, ROOT

from cowmlx.commands import bundle
from cowmlx.commands.bundle import binaries, macho

pytestmark = [pytest.mark.xdist_group("macos"), pytest.mark.long]

PLATFORMS = {"14.0": "macosx_14_0_arm64", "15.0": "macosx_15_0_arm64", "26.2": "macosx_26_0_arm64"}
LATER = "26.2"
LIBRARY_NAME = "libcowmlx.1.dylib" if sys.platform == "darwin" else "libcowmlx.so.1"


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Compiles an empty shared object for a Mac."""
    folder = tmp_path_factory.mktemp("made")
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\nint empty(void) { return 0; }\n")

    def make(path, *options: str, minimum: str = MACOS_MINIMUM):
        path.parent.mkdir(parents=True, exist_ok=True)
        cross = Cross(f"aarch64-macos.{minimum}", folder, folder)
        return cross.compile(path, [str(source), *options, "-o", str(path)])

    return make


@pytest.fixture
def tools(monkeypatch):
    """What Xcode's tools are asked for, on a machine that passes as a Mac."""
    asked: list[tuple[str, ...]] = []
    monkeypatch.setattr(binaries, "MAC", True)
    monkeypatch.setattr(binaries, "_run", lambda *command: asked.append(tuple(map(str, command))))
    return asked


def test_paths_of_the_building_machine_go(made, tools, tmp_path):
    """Absolute LC_RPATHs are deleted, relative ones stay, foreign libraries come in."""
    foreign = made(tmp_path / "opt/libforeign.dylib", "-dynamiclib")
    library = tmp_path / "bundle/python/lib/mlx/core.so"
    here, there = "-Wl,-rpath,@loader_path/../lib", "-Wl,-rpath,/opt/python/lib"
    made(library, "-dynamiclib", here, there, str(foreign))
    paths = [library]
    binaries.detach(paths, tmp_path / "bundle/python/lib")
    copied = tmp_path / "bundle/python/lib/libforeign.dylib"
    assert paths == [library, copied]
    assert copied.exists()
    changes = [command[1:] for command in tools if command[0] == "install_name_tool"]
    assert ("-delete_rpath", "/opt/python/lib", str(library)) in changes
    assert not [change for change in changes if "@loader_path/../lib" in change]
    signed = [command[-1] for command in tools if command[0] == "codesign"]
    assert signed == [str(library), str(copied)]  # after the last change of each
    assert tools[-1][0] == "codesign"


def test_the_oldest_macos_is_that_of_the_newest_file(made, tools, tmp_path):
    old = made(tmp_path / "old.so", "-dynamiclib")
    assert binaries.requirements([old]) == {
        "system": "macOS",
        "minimum": MACOS_MINIMUM,
        "because_of": ["old.so"],
    }
    new = made(tmp_path / "libmlx.dylib", "-dynamiclib", minimum=LATER)
    other = tmp_path / "notes.so"
    other.write_text("no Mach-O")
    needs = binaries.requirements([old, other, new])
    assert (needs["minimum"], needs["because_of"]) == (LATER, ["libmlx.dylib"])


def for_two_processors(thin: Path, both: Path) -> Path:
    """Write a file with an empty part for another processor."""
    data = thin.read_bytes()
    header = struct.pack(">II", macho.FAT_MAGIC, 2)
    header += struct.pack(">IIIII", 0x01000007, 3, 4096, 4, 12)
    header += struct.pack(">IIIII", macho.ARM64, 0, 16384, len(data), 14)
    both.write_bytes(header.ljust(4096, b"\0") + b"intel".ljust(16384 - 4096, b"\0") + data)
    return both


def test_of_a_file_for_two_processors_apple_silicon_s_part_is_read(made, tmp_path):
    thin = made(tmp_path / "thin.dylib", "-dynamiclib", minimum=LATER)
    both = for_two_processors(thin, tmp_path / "both.dylib")
    assert MachO(both).minimum == LATER
    assert MachO(both).name == MachO(thin).name


def test_of_a_file_for_two_processors_apple_silicon_s_part_is_kept(made, tools, tmp_path):
    thin = made(tmp_path / "python/lib/thin.so", "-dynamiclib")
    both = for_two_processors(thin, tmp_path / "python/lib/both.so")
    binaries.detach([both, thin], tmp_path / "python/lib")
    path = str(both)
    assert ("lipo", path, "-thin", "arm64", "-output", path) in tools
    assert [command[-1] for command in tools if command[0] == "lipo"] == [path]


def report(tmp_path, minimum: str) -> str:
    needs = {"system": "macOS", "minimum": minimum, "because_of": ["libmlx.dylib"]}
    return bundle._report(
        tmp_path,
        {"bytes": 1, "files": {}, "parts": {}, "requires": needs, "options": {"stripped": True}},
    )


def test_a_bundle_that_older_macs_do_not_start_is_warned_of(tmp_path):
    assert bundle.MAC_MINIMUM == MACOS_MINIMUM
    assert "warning" not in report(tmp_path, MACOS_MINIMUM)
    told = report(tmp_path, LATER)
    assert f"It needs macOS {LATER} or newer\nwarning: " in told
    assert "libmlx.dylib" in told
    assert "--platform macosx_14_0_arm64" in told


@pytest.mark.long
@pytest.mark.parametrize("minimum", PLATFORMS)
def test_mlx_s_wheels_say_which_macos_they_are_for(tools, minimum):
    version = next(
        line.partition("==")[2].strip()
        for line in (ROOT / "tools/requirements/constraints.txt").read_text().splitlines()
        if line.startswith("mlx==")
    )
    paths = registries.wheel("mlx-metal", version, "*.dylib", PLATFORMS[minimum])
    assert binaries.requirements(paths)["minimum"] == minimum
    assert [path for path in paths for rpath in MachO(path).rpaths if rpath.startswith("/")] == []


# ------------------------------------------------------------------- Signing


@pytest.fixture
def signing(monkeypatch):
    """The library of rcodesign, which signs as codesign does."""
    monkeypatch.syspath_prepend(registries.installed("apple-platform-py", "0.1.0"))
    return pytest.importorskip("apple_platform.signing")


@pytest.fixture
def application(made, tmp_path):
    """Makes a small application that holds a bundle in a folder of its Contents."""

    def make(place: str):
        app = tmp_path / "App.app"
        contents = app / "Contents"
        made(contents / "MacOS/App")
        about = {"CFBundleIdentifier": "org.cowmlx.app", "CFBundleExecutable": "App"}
        about |= {"CFBundlePackageType": "APPL", "CFBundleName": "App"}
        (contents / "Info.plist").write_bytes(plistlib.dumps(about))
        held = contents / place / "cowmlx"
        made(held / "lib/libcowmlx.1.dylib", "-dynamiclib")
        modules = held / "python/lib/python3.11"
        made(modules / "lib-dynload/_json.so", "-dynamiclib")
        (modules / "os.pyc").write_bytes(b"bytecode")
        (held / "MANIFEST.json").write_text("{}")
        return app

    return make


def test_an_application_with_a_bundle_in_its_resources_can_be_signed(signing, application):
    app = application("Resources")
    signing.sign(str(app))
    sealed = plistlib.loads((app / "Contents/_CodeSignature/CodeResources").read_bytes())["files2"]
    held = app / "Contents/Resources/cowmlx"
    files = [str(p.relative_to(app / "Contents")) for p in held.rglob("*") if p.is_file()]
    assert len(files) == 4
    assert set(files) <= set(sealed)


def test_among_its_frameworks_it_cannot(signing, application):
    """There python3.11, a folder with a dot in its name, is taken for a bundle of Apple's."""
    app = application("Frameworks")
    with pytest.raises(Exception, match=r"Info\.plist not found"):
        signing.sign(str(app))


def test_the_swift_package_finds_a_bundle_there(tmp_path):
    """Its loader runs here, in the folders that an application has."""
    contents = tmp_path / "App.app/Contents"
    library = contents / "Resources/cowmlx/lib" / LIBRARY_NAME
    for folder in (library.parent, contents / "MacOS"):
        folder.mkdir(parents=True)
    library.symlink_to(LIBRARY.resolve())
    source = tmp_path / "finds.c"
    source.write_text(
        '#include <stdio.h>\n#include "CCowMLX.h"\n'
        'int main(void) { printf("%s", cow_mlx_library_path()); return 0; }\n'
    )
    package = ROOT / "bindings/swift/Sources/CCowMLX"
    sources = [source, package / "loader.c", package / "unloaded.c"]
    # gcc has no attributes for pointers that may be NULL.
    options = [f"-I{package / 'include'}", "-D_Nonnull=", "-D_Nullable=", "-pthread", "-ldl"]
    program = compile_c(sources, contents / "MacOS/App", *options)
    own = {name: value for name, value in os.environ.items() if not name.startswith("COWMLX_")}
    found = run([program], env=own).stdout
    assert found and Path(found).resolve() == library.resolve()
    assert Path(os.path.normpath(found)) == library


def test_the_page_names_the_place_that_can_be_signed():
    page = (ROOT / "docs/bundling.md").read_text()
    assert "App.app/Contents/Resources/cowmlx" in page
    assert "Contents/Frameworks/cowmlx" not in page
