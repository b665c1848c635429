"""Which libpython is found in the Pythons that Macs have: csrc/boot/locate.c compiled as for macOS.

Only dyld's list of images is not the real one; files and links lie as the installers leave them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.paths import CSRC

MINOR = sys.version_info.minor
NAME = f"python3.{MINOR}"
FRAMEWORK = f"Python.framework/Versions/3.{MINOR}"
HERE = Path(__file__).parent / "darwin"

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="dyld's own list is used there")


@pytest.fixture(scope="module")
def locating(tmp_path_factory) -> Path:
    """The program that tells what is found."""
    sources = [
        HERE / "locating.c",
        CSRC / "boot/locate.c",
        CSRC / "base/error.c",
    ]
    macros = ["-D__APPLE__", "-D_GNU_SOURCE", f"-DCOWMLX_PYTHON_MINOR={MINOR}"]
    program = tmp_path_factory.mktemp("locating") / "locating"
    return compile_c(
        sources, program, f"-I{HERE}", *macros, '-DCOWMLX_BUILD_PREFIX="/gone"', "-ldl"
    )


def file(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    path.chmod(0o755)
    return path


def link(path: Path, target: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def framework(versions: Path) -> Path:
    """A framework's prefix, as python.org's and Homebrew's are; its library."""
    library = file(versions / "Python")
    file(versions / f"lib/{NAME}/os.py")
    file(versions / f"bin/{NAME}")
    return library


def environment(folder: Path, home: Path) -> Path:
    """A virtual environment made by the Python whose programs lie in ``home``."""
    file(folder / "bin" / NAME)
    (folder / "pyvenv.cfg").write_text(f"home = {home}\nversion = 3.{MINOR}.0\n")
    return folder


def test_python_org(locating, tmp_path):
    library = framework(tmp_path / FRAMEWORK)
    link(tmp_path / FRAMEWORK / f"lib/lib{NAME}.dylib", "../Python")
    venv = environment(tmp_path / "venv", tmp_path / FRAMEWORK / "bin")
    for home in (tmp_path / FRAMEWORK, venv):
        assert run([locating, home]).stdout.strip() == str(library)


def test_homebrew(locating, tmp_path):
    """An environment's home is opt/python@3.x/bin, where no lib beside it has a libpython."""
    cellar = tmp_path / f"Cellar/python@3.{MINOR}/3.{MINOR}.9_1"
    library = framework(cellar / "Frameworks" / FRAMEWORK)
    link(cellar / f"bin/{NAME}", f"../Frameworks/{FRAMEWORK}/bin/{NAME}")
    (cellar / "lib/pkgconfig").mkdir(parents=True)
    opt = tmp_path / f"opt/python@3.{MINOR}"
    link(opt, f"../Cellar/python@3.{MINOR}/3.{MINOR}.9_1")
    for home in (environment(tmp_path / "venv", opt / "bin"), opt / "Frameworks" / FRAMEWORK):
        assert run([locating, home]).stdout.strip() == str(library)


def test_homebrew_s_packages_lie_beside_its_frameworks(locating, tmp_path, monkeypatch):
    monkeypatch.delenv("COWMLX_PYTHON_HOME", raising=False)
    cellar = tmp_path / f"Cellar/python@3.{MINOR}/3.{MINOR}.9_1/Frameworks" / FRAMEWORK
    library = framework(cellar)
    link(tmp_path / "Frameworks" / FRAMEWORK, str(cellar))
    package = tmp_path / f"lib/{NAME}/site-packages/cowmlx/lib"
    package.mkdir(parents=True)
    program = shutil.copy(locating, package)  # the library is part of it
    assert run([program]).stdout.strip() == str(library)


@pytest.mark.parametrize("kind", ["uv", "conda", "pyenv --enable-shared"])
def test_plain_prefix(locating, tmp_path, kind):
    library = file(tmp_path / f"python/lib/lib{NAME}.dylib")
    file(tmp_path / f"python/lib/{NAME}/os.py")
    venv = environment(tmp_path / "venv", tmp_path / "python/bin")
    file(tmp_path / f"python/bin/{NAME}")
    for home in (tmp_path / "python", venv):
        assert run([locating, home]).stdout.strip() == str(library)


def test_python_without_a_shared_library(locating, tmp_path):
    file(tmp_path / f"python/lib/{NAME}/os.py")
    file(tmp_path / f"python/lib/lib{NAME}.a")
    said = run([locating, tmp_path / "python"]).stdout
    assert f"it has no shared lib{NAME}" in said
    assert str(tmp_path / "python") in said


@pytest.mark.parametrize(
    ("images", "found"),
    [
        (["/usr/lib/libSystem.B.dylib", "/a/libpython3.12.dylib"], "12 /a/libpython3.12.dylib"),
        (["/Library/Frameworks/Python.framework/Versions/3.13/Python"] * 2, None),
        (["/usr/lib/libobjc.A.dylib"], "-1 "),
        # The program of a framework's Python is no library.
        (
            [
                "/F/Python.framework/Versions/3.11/Resources/Python.app/Contents/MacOS/Python",
                "/F/Python.framework/Versions/3.11/Python",
            ],
            "11 /F/Python.framework/Versions/3.11/Python",
        ),
        (["/F/Python.framework/Versions/3.9/lib/libssl.dylib"], "-1 "),
    ],
)
def test_mapped_python(locating, images, found):
    if found is None:
        found = f"13 {images[0]}"
    assert run([locating, "-", *images]).stdout.removesuffix("\n") == found
