"""What the source tree promises: its links, its pins, its environment and commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

from tools.packaging.headers import headers

REQUIREMENTS = sorted((ROOT / "tools/requirements").glob("*.txt"))
PIN = re.compile(r"([\w.-]+)==([\w.]+)(?:\s*;\s*(.+))?")


def tracked() -> list[Path]:
    """The files that git tracks."""
    done = run([require("git"), "-C", ROOT, "ls-files", "-z"])
    if done.returncode != 0:
        pytest.skip(f"git lists no files here: {done.stderr.strip()}")
    return [ROOT / name for name in done.stdout.split("\0") if name]


def test_no_tracked_link_leaves_the_tree():
    links = [path for path in tracked() if path.is_symlink()]
    outside = [
        f"{path.relative_to(ROOT)} -> {os.readlink(path)}"
        for path in links
        if os.path.isabs(os.readlink(path)) or not path.resolve().is_relative_to(ROOT.resolve())
    ]
    assert outside == []


def test_the_tree_gives_all_headers_in_one_folder():
    include = run([sys.executable, "-m", "cowmlx", "include"], cwd=ROOT).stdout.strip()
    found = {name: (Path(include) / name).resolve() for name in headers()}
    assert found == {name: path.resolve() for name, path in headers().items()}


def promised_minimum() -> str:
    """The oldest Python that README and pyproject.toml promise."""
    readme = re.search(r"Python (3\.\d+(?:\.\d+)?) or newer", (ROOT / "README.md").read_text())
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert about["requires-python"] == f">={readme[1]}"
    return readme[1] if readme[1].count(".") == 2 else f"{readme[1]}.0"


def pins() -> dict[str, str]:
    """The pinned version of every package that is for this platform."""
    found = {}
    for path in REQUIREMENTS:
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                continue
            name, version, marker = PIN.fullmatch(line).groups()
            if marker is None or Marker(marker).evaluate():
                assert found.setdefault(canonicalize_name(name), version) == version, line
    return found


def test_every_promised_python_can_have_the_pinned_packages():
    """As the packages themselves tell, at their pinned versions."""
    oldest = promised_minimum()
    installed = {
        canonicalize_name(found.metadata["Name"]): found for found in metadata.distributions()
    }
    pinned = pins()
    about = {name: installed[name] for name in pinned if name in installed}
    assert {"mlx", "mlx-lm", "pytest", "pymdown-extensions"} <= set(about)
    assert {name: found.version for name, found in about.items()} == {
        name: pinned[name] for name in about
    }
    needs = {name: found.metadata["Requires-Python"] or "" for name, found in about.items()}
    minors = range(int(oldest.split(".")[1]) + 1, 15)
    for version in (oldest, *(f"3.{minor}.0" for minor in minors)):
        refused = {n: need for n, need in needs.items() if not SpecifierSet(need).contains(version)}
        assert refused == {}, f"of Python {version}"


@pytest.mark.parametrize("options", [[], ["-P"], ["-I"], ["-I", "-P"]], ids="".join)
def test_the_environments_python_has_the_commands_everywhere(options, tmp_path):
    if not (ROOT / ".venv/.runtime").exists():
        pytest.skip("there is no .venv: the library was not built by make")
    python = ROOT / ".venv/bin/python"
    done = run([python, *options, "-m", "cowmlx", "library"], cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(LIBRARY), "")


def test_a_joined_interpreter_of_the_environment_has_the_package_of_its_library(tmp_path):
    if not (ROOT / ".venv/.runtime").exists():
        pytest.skip("there is no .venv: the library was not built by make")
    script = (
        f"import ctypes; api = ctypes.CDLL({str(LIBRARY)!r}); assert not "
        "api.cow_mlx_runtime_start(None); import cowmlx; print(cowmlx.__file__)"
    )
    done = run([ROOT / ".venv/bin/python", "-I", "-c", script], cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (str(ROOT / "cowmlx/__init__.py"), "")


def base_of(python: str | Path) -> str:
    """Where a Python is installed; "" for one that make cannot take."""
    script = (
        "import ensurepip, os, sys, venv; assert sys.version_info >= (3, 11); "
        "print(os.path.realpath(sys.base_prefix), *sys.version_info[:3])"
    )
    done = subprocess.run([python, "-c", script], capture_output=True, text=True, cwd="/")
    return done.stdout.strip() if done.returncode == 0 else ""


def other_python() -> str:
    """Another Python of this machine."""
    names = ["/usr/bin/python3", *(f"python3.{minor}" for minor in range(11, 15))]
    found = filter(None, map(shutil.which, names))
    other = next((path for path in found if base_of(path) not in ("", base_of(sys.executable))), "")
    return other or pytest.skip("this machine has one Python of 3.11 or newer with venv only")


@pytest.mark.long
def test_another_python_makes_the_environment_anew(tmp_path):
    """It removes earlier builds, but no packages; the same Python, or none named, keeps all."""
    other = other_python()
    shutil.copy(ROOT / "Makefile", tmp_path)
    outputs = [tmp_path / name for name in ("build/x", "cowmlx/lib/x.so", "cowmlx/_bridge.x.so")]
    outputs += [tmp_path / "cowmlx/cache/__pycache__/x.pyc"]
    plain = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    plain.pop("PYTHON", None)

    def make(*named: str) -> str:
        done = run([require("make"), ".venv/.python", *named], cwd=tmp_path, env=plain)
        assert done.returncode == 0, done.stdout + done.stderr
        return base_of(tmp_path / ".venv/bin/python")

    assert make(f"PYTHON={sys.executable}") == base_of(sys.executable)
    package = tmp_path / "dist/x.whl"
    for path in [*outputs, package]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    for named in ([f"PYTHON={sys.executable}"], []):
        assert make(*named) == base_of(sys.executable)
        assert all(path.exists() for path in outputs)
    assert make(f"PYTHON={other}") == base_of(other)
    assert not any(path.exists() for path in outputs)
    assert package.exists()
