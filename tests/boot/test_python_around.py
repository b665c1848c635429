"""Which Python a library boots by itself: that of the place where it lies, and no other."""

from __future__ import annotations

import json
import shutil
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.hosts import HOSTS, linked
from support.paths import CSRC, LIBRARY, ROOT

NAME = f"python3.{sys.version_info.minor}"
MODULES = Path(sysconfig.get_path("stdlib"))
PACKAGES = Path(sysconfig.get_path("purelib"))
SHARED = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
SOURCES = ("*.pyx", "*.pxi", "*.pxd")

Start = Callable[..., tuple[str, str, dict]]


@pytest.fixture
def start(environment, tmp_path) -> Start:
    """Starts a library; gives the status, the message and what the runtime tells."""

    def start_it(library: Path, home: object = "") -> tuple[str, str, dict]:
        program = compile_c([HOSTS / "start.c"], tmp_path / "start", *linked(library))
        done = run([program, home], env=environment)
        assert (done.returncode, done.stderr) == (0, "")
        status, message, info, *_ = done.stdout.split("\n")
        return status, message, json.loads(info or "{}")

    return start_it


def package_in(folder: Path, *left_out: str) -> Path:
    """A copy of the built package; gives its library."""
    ignored = shutil.ignore_patterns("__pycache__", *left_out)
    shutil.copytree(ROOT / "cowmlx", folder / "cowmlx", symlinks=True, ignore=ignored)
    return folder / "cowmlx/lib" / LIBRARY.name


def base_in(folder: Path) -> Path:
    """An installation of this Python, made of links."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / NAME).symlink_to(Path(sys.base_prefix) / "bin" / NAME)
    modules = folder / "lib" / NAME
    modules.mkdir(parents=True)
    (folder / "lib" / SHARED.name).symlink_to(SHARED.resolve())
    for path in MODULES.iterdir():
        if path.name not in ("site-packages", "dist-packages"):
            (modules / path.name).symlink_to(path)
    return folder


def environment_in(folder: Path, base: Path) -> Path:
    """A virtual environment over a base, with this one's packages; gives its site-packages."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / NAME).symlink_to(base / "bin" / NAME)
    (folder / "pyvenv.cfg").write_text(f"home = {base / 'bin'}\n")
    packages = folder / "lib" / NAME / "site-packages"
    packages.mkdir(parents=True)
    (packages / "others.pth").write_text(f"{PACKAGES}\n")
    return packages


def test_an_installation_never_leaves_itself(start, tmp_path):
    """Its base Python being gone, it does not take that of the tree it was built in."""
    base = base_in(tmp_path / "base")
    library = package_in(environment_in(tmp_path / "engine", base), *SOURCES)
    status, message, info = start(library)
    assert (status, message) == ("OK", "")
    assert info["python_home"] == str(tmp_path / "engine")
    base.rename(tmp_path / "elsewhere")
    status, message, _ = start(library)
    assert status == "ENOENT"
    assert str(tmp_path / "engine") in message


def test_a_bundle_never_leaves_itself(start, tmp_path):
    """A Python beside the library that lacks its parts is no reason to take another."""
    environment_in(tmp_path, Path(sys.base_prefix))
    library = tmp_path / "bundle/lib" / LIBRARY.name
    library.parent.mkdir(parents=True)
    shutil.copy(LIBRARY, library)
    (tmp_path / "bundle/python/lib").mkdir(parents=True)
    status, message, _ = start(library)
    assert status == "ENOENT"
    assert str(tmp_path / "bundle/python") in message


@pytest.mark.parametrize("name", ["site-packages", "dist-packages"])
def test_the_installation_that_pip_put_it_into(start, tmp_path, name):
    """Debian keeps in local/ what pip installs for the Python above it."""
    base = base_in(tmp_path / "base")
    packages = base / ("local" if name == "dist-packages" else "") / "lib" / NAME / name
    packages.mkdir(parents=True)
    for path in PACKAGES.iterdir():
        if path.suffix != ".pth":
            (packages / path.name).symlink_to(path)
    status, message, info = start(package_in(packages, *SOURCES))
    assert (status, message) == ("OK", "")
    assert info["python_home"] == str(base)


def test_a_tree_that_was_moved(start, tmp_path):
    """A tree finds its environment where it lies now."""
    if not (ROOT / ".venv").samefile(sys.prefix):
        pytest.skip("the library was not built by make")
    (tmp_path / "csrc").symlink_to(CSRC)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    status, message, info = start(package_in(tmp_path))
    assert (status, message) == ("OK", "")
    assert info["python_home"] == str(tmp_path / ".venv")


def test_a_package_of_another_build_is_not_taken(start, tmp_path):
    """Though it comes first on the path of the Python that is booted."""
    packages = environment_in(tmp_path / "other", Path(sys.base_prefix))
    (packages / "cowmlx").mkdir()
    (packages / "cowmlx/__init__.py").write_text("raise ImportError('another build')\n")
    status, message, info = start(LIBRARY, tmp_path / "other")
    assert (status, message) == ("OK", "")
    assert info["python_home"] == str(tmp_path / "other")
