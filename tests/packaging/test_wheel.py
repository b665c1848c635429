"""make wheel: what pip installs here works there, and what it would install on a Mac is whole."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import sys
import zipfile
from pathlib import Path

import pytest
from published import made
from support.compiler import require, run
from support.macho import MachO
from support.paths import LIBRARY, ROOT

from tools.packaging.headers import headers
from tools.packaging.targets import MACOS_MINIMUM
from tools.packaging.wheel import MINORS, headers_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.xdist_group("packages"),
    pytest.mark.skipif(sys.platform != "linux", reason="wheels for two systems are made on Linux"),
]
HOST = ROOT / "tests/packaging/projects/c/host.c"

CODE_SIGNATURE = 0x1D  # which every binary has that Apple Silicon runs


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    """The wheels."""
    for tool in ("auditwheel", "wheel", "ziglang"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed: tools/requirements/tools.txt brings it")
    return made("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def wheel(dist) -> Path:
    """That for this system."""
    [path] = dist.glob("*-manylinux_*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory) -> Path:
    """The Python of a new environment with the wheel and the packages that it asks for."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", folder])
    python = folder / "bin/python"
    [packages] = folder.glob("lib/python*/site-packages")
    [here] = (ROOT / ".venv").glob("lib/python*/site-packages")
    for path in here.iterdir():
        if not path.name.startswith(("cowmlx", "__")):
            (packages / path.name).symlink_to(path)
    pip = [sys.executable, "-m", "pip", "--python", python]
    done = run([*pip, "install", "--quiet", "--no-deps", "--no-index", wheel])
    assert done.returncode == 0, done.stderr
    done = run([*pip, "check"])
    assert (done.returncode, done.stdout) == (0, "No broken requirements found.\n")
    return python


def names(wheel: Path) -> list[str]:
    """The files of a wheel."""
    return [name for name in zipfile.ZipFile(wheel).namelist() if not name.endswith("/")]


def test_it_brings_the_package_and_no_library_of_others(wheel):
    found = names(wheel)
    binaries = {name for name in found if ".so" in name}
    assert {"cowmlx/lib/libcowmlx.so.1", "cowmlx/lib/libcowmlx_blas.so"} < binaries
    assert sorted(name for name in binaries if not name.startswith("cowmlx/")) == []
    assert "cowmlx/lib/libcowmlx.so" not in found  # a second copy; wheels hold no links
    assert {f"cowmlx/include/{name}" for name in headers()} < set(found)
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "cowmlx").rglob("*.py")}
    assert {name for name in found if name.endswith(".py")} == sources


def test_it_names_no_path_of_this_machine(wheel):
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            assert str(ROOT).encode() not in archive.read(name), name


def test_a_host_runs_the_installed_engine(python, model, tmp_path, environment):
    def tell(command: str) -> str:
        done = run([python, "-m", "cowmlx", command], env=environment, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    library = Path(tell("library"))
    assert library.is_relative_to(python.parents[1])
    options = [*tell("cflags").split(), *tell("libs").split()]
    program = tmp_path / "host"
    done = run([require("cc"), HOST, "-o", program, *options])
    assert done.returncode == 0, done.stderr
    done = run([program, model], env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    info, _, mapped = done.stdout.partition("\n")
    assert json.loads(info)["python_home"] == str(python.parents[1])
    assert str(library) in mapped
    assert str(LIBRARY.parent) not in mapped


def test_the_doctor_is_content(python, model, tmp_path, environment):
    command = [python, "-m", "cowmlx", "doctor", "--json", model]
    done = run(command, env=environment, cwd=tmp_path)
    states = {found["check"]: found["state"] for found in json.loads(done.stdout)["findings"]}
    assert done.returncode == 0, done.stdout
    assert "problem" not in states.values()


def test_pip_would_install_the_other_one_on_a_mac(dist, wheel, tmp_path):
    minor = sys.version_info.minor
    [mac] = dist.glob(f"*-cp3{minor}-cp3{minor}-macosx_*_arm64.whl")
    platform = f"macosx_{MACOS_MINIMUM.replace('.', '_')}_arm64"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    options = ["--only-binary=:all:", f"--platform={platform}", "--target", tmp_path]
    done = run([*pip, *options, mac])
    assert done.returncode == 0, done.stderr

    lib = tmp_path / "cowmlx/lib"
    library = MachO(lib / "libcowmlx.1.dylib")
    assert (library.kind, library.name) == ("library", "@rpath/libcowmlx.1.dylib")
    bridge = MachO(tmp_path / f"cowmlx/_bridge.cpython-3{sys.version_info.minor}-darwin.so")
    assert "PyInit__bridge" in bridge.exported
    probe = MachO(lib / "cowmlx-probe")
    assert probe.kind == "program" and os.access(lib / "cowmlx-probe", os.X_OK)
    for binary in (library, bridge, probe):
        assert (binary.architecture, binary.minimum) == ("aarch64", MACOS_MINIMUM)
        assert CODE_SIGNATURE in [command for command, _ in binary.commands]
    assert "make builds them" in (lib / "kernels-absent.txt").read_text()

    def text(wheel: Path) -> set[str]:
        found = set(names(wheel))
        return {
            name for name in found if not re.search(r"\.so|\.dylib|/lib/|/(WHEEL|RECORD)$", name)
        }

    assert text(mac) == text(wheel)


def test_a_mac_s_wheel_is_there_for_every_python_with_headers(dist):
    wanted = {minor for minor in MINORS if headers_of(minor)}
    assert sys.version_info.minor in wanted
    found = {int(re.search(r"-cp3(\d+)-", path.name)[1]) for path in dist.glob("*-macosx_*.whl")}
    assert found == wanted
    for minor in wanted:
        [path] = dist.glob(f"*-cp3{minor}-cp3{minor}-macosx_*_arm64.whl")
        bridges = [name for name in names(path) if "_bridge" in name and name.endswith(".so")]
        assert bridges == [f"cowmlx/_bridge.cpython-3{minor}-darwin.so"]
