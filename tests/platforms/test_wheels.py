"""What the engine is made of exists for Macs and for Linux on ARM, and has the files we count on.

The wheels are those that pip would install there, at our pins.
"""

from __future__ import annotations

import re
import sys
import zipfile
from fnmatch import fnmatch
from pathlib import Path

import pytest
from cross import GLIBC, MACOS_MINIMUM
from support.compiler import run
from support.macho import MachO
from support.paths import ROOT

from cowmlx.commands.bundle.binaries import is_binary
from cowmlx.commands.bundle.parts import PARTS

MAC, ARM = "macosx_arm64", "manylinux_aarch64"
GLIBCS = range(17, int(GLIBC.split(".")[1]) + 1)
PLATFORMS = {
    MAC: [f"macosx_{MACOS_MINIMUM.replace('.', '_')}_arm64"],
    ARM: ["manylinux2014_aarch64", *(f"manylinux_2_{minor}_aarch64" for minor in GLIBCS)],
}
BACKENDS = {MAC: "mlx-metal", ARM: "mlx-cpu"}
SYSTEM = ("/usr/lib/", "/System/")


def requirements(platform: str) -> list[str]:
    """The distributions of a bundle there, pinned."""
    text = (ROOT / "tools/requirements/constraints.txt").read_text()
    pins = {name.lower(): version for name, version in re.findall(r"^(\S+)==(\S+)$", text, re.M)}
    names = {name for part in PARTS for name in part.distributions}
    if platform == MAC:
        names.remove("scipy-openblas32")
    backends = next(name for name in names if "|" in name)
    assert BACKENDS[platform] in backends.split("|")
    pins[BACKENDS[platform]] = pins["mlx"]
    names = names - {backends} | {BACKENDS[platform]}
    return sorted(f"{name}=={pins[name]}" for name in names)


def fetched(platform: str) -> dict[str, zipfile.ZipFile]:
    """The wheels by their distribution's name, kept in build/ for the next time."""
    folder = ROOT / "build/wheels" / f"{platform}-3.{sys.version_info.minor}"
    wanted = requirements(platform)
    done = folder / "requirements.txt"
    if not done.is_file() or done.read_text().split() != wanted:
        platforms = [f"--platform={name}" for name in PLATFORMS[platform]]
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        pip += ["--retries", "1", "--timeout", "30"]
        options = ["--no-deps", "--only-binary=:all:", "--dest", folder, *platforms]
        result = run([*pip, *options, *wanted])
        if re.search("Failed to establish|Max retries|timed out|resolution", result.stderr):
            pytest.skip("PyPI cannot be reached")
        assert result.returncode == 0, result.stderr
        done.write_text("\n".join(wanted) + "\n")
    wheels = {}
    for requirement in wanted:
        name, version = requirement.split("==")
        [path] = folder.glob(f"{name.replace('-', '_')}-{version}-*.whl")
        wheels[name] = zipfile.ZipFile(path)
    return wheels


@pytest.fixture(scope="session", params=PLATFORMS)
def wheels(request) -> tuple[str, dict[str, zipfile.ZipFile]]:
    """A platform, and its wheels."""
    return request.param, fetched(request.param)


@pytest.fixture(scope="session")
def mac_files(tmp_path_factory) -> Path:
    """What mlx's wheels for the Mac put into site-packages."""
    folder = tmp_path_factory.mktemp("site-packages")
    for name in ("mlx", "mlx-metal"):
        with fetched(MAC)[name] as wheel:
            small = [info for info in wheel.infolist() if not info.filename.endswith(".metallib")]
            wheel.extractall(folder, small)
    return folder


@pytest.mark.xdist_group("wheels")
def test_every_pattern_of_a_part_finds_files(wheels):
    platform, found = wheels
    for part in PARTS:
        names = [
            name
            for distribution in part.distributions
            for alternative in distribution.split("|")
            if alternative in found
            for name in found[alternative].namelist()
        ]
        if not names:
            assert (part.name, platform) == ("openblas", MAC)
            continue
        for pattern in (*part.keep, *part.drop, *part.outlines, *part.texts):
            assert any(fnmatch(name, pattern) for name in names), (part.name, pattern)


@pytest.mark.xdist_group("wheels")
def test_libmlx_is_where_the_engine_looks(wheels):
    platform, found = wheels
    files = {
        MAC: ["mlx/lib/libmlx.dylib", "mlx/lib/mlx.metallib"],
        ARM: ["mlx/lib/libmlx.so"],
    }
    names = found[BACKENDS[platform]].namelist()
    assert set(files[platform]) <= set(names)
    assert [name for name in files[platform] if is_binary(Path(name))] == files[platform][:1]
    if platform == ARM:
        assert any(name.startswith("mlx_cpu.libs/liblapack") for name in names)
        openblas = found["scipy-openblas32"].namelist()
        assert "scipy_openblas32/lib/libscipy_openblas.so" in openblas


@pytest.mark.xdist_group("wheels")
def test_mlx_needs_the_system_that_we_compile_for(wheels):
    platform, found = wheels
    for name in ("mlx", BACKENDS[platform]):
        assert Path(str(found[name].filename)).stem.endswith(f"-{PLATFORMS[platform][-1]}")


@pytest.mark.xdist_group("wheels")
def test_libraries_of_mlx_find_each_other(mac_files):
    """Every one that is not the system's lies where an rpath says, in a bundle too."""
    binaries = [path for path in mac_files.rglob("*") if is_binary(path)]
    assert {path.name for path in binaries} >= {"libmlx.dylib"}
    for path in binaries:
        macho = MachO(path)
        assert macho.architecture == "aarch64"
        assert macho.minimum == MACOS_MINIMUM
        for name in macho.needed:
            if name.startswith(SYSTEM):
                continue
            assert name.startswith("@rpath/"), (path, name)
            here = [rpath.replace("@loader_path", str(path.parent)) for rpath in macho.rpaths]
            places = [Path(rpath) / name.removeprefix("@rpath/") for rpath in here]
            assert any(place.exists() for place in places), (path, name, macho.rpaths)
