"""make deb: dpkg takes the packages for what this machine has, and lintian finds no error."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from prefixes import Prefix
from published import made
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

from tools.packaging.headers import headers

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("packages")]
HOST = ROOT / "tests/packaging/projects/c/host.c"
WHO = {"DEBFULLNAME": "A Publisher", "DEBEMAIL": "publisher@libcowmlx.invalid"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory, bundle) -> Path:
    """The packages, which have passed lintian."""
    require("dpkg-deb")
    require("lintian")
    folder = tmp_path_factory.mktemp("dist")
    values = {"COWMLX_BUNDLE": str(bundle), "DEB_OPTIONS": "-Zgzip -z1", **WHO}
    return made("deb", folder, *(f"{name}={value}" for name, value in values.items()))


@pytest.fixture(scope="module")
def root(dist, tmp_path_factory) -> Iterator[Path]:
    """A root with the packages, whose dpkg believes to have what this machine has."""
    if os.geteuid() != 0:
        pytest.skip("dpkg installs as root alone")
    folder = tmp_path_factory.mktemp("root")
    for name in ("info", "triggers", "updates"):
        (folder / "var/lib/dpkg" / name).mkdir(parents=True)
    shutil.copy("/var/lib/dpkg/status", folder / "var/lib/dpkg")
    dpkg(folder, "--install", *sorted(dist.iterdir()))
    yield folder
    shutil.rmtree(folder)  # it is large


def dpkg(root: Path, *words: object) -> None:
    """Change what is installed in a root."""
    options = [f"--root={root}", "--force-script-chrootless", "--no-triggers", "--log=/dev/null"]
    done = run(["dpkg", *options, *words])
    assert done.returncode == 0, done.stdout + done.stderr


def libdir(root: Path) -> Path:
    """Where libraries are."""
    [path] = (root / "usr/lib").glob("*-linux-gnu")
    return path


def told(package: Path, field: str) -> str:
    """What a package says of itself."""
    return run(["dpkg-deb", "--field", package, field]).stdout.strip()


def test_they_say_what_they_need_and_who_made_them(dist):
    library, development = (next(dist.glob(f"libcowmlx{kind}_*")) for kind in ("1", "-dev"))
    depends = told(library, "Depends").split(", ")
    assert {re.split(r" ", word)[0] for word in depends} >= {"libc6", "libstdc++6", "zlib1g"}
    version = told(library, "Version")
    assert told(development, "Depends") == f"libcowmlx1 (= {version})"
    for package in (library, development):
        assert told(package, "Maintainer") == f"{WHO['DEBFULLNAME']} <{WHO['DEBEMAIL']}>"
        assert package.name.endswith(f"_{version}_{told(package, 'Architecture')}.deb")


def test_the_headers_are_those_of_the_tree(root):
    folder = root / "usr/include"
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == set(headers())


def test_a_host_runs_the_engine_of_the_package(root, model, tmp_path, environment):
    prefix = Prefix(root / "usr", environment, str(libdir(root).relative_to(root / "usr")))
    host = prefix.compiled(HOST, tmp_path / "host")
    info, _, mapped = prefix.run([host, model]).stdout.partition("\n")
    assert json.loads(info)["python_home"] == str(libdir(root) / "cowmlx/python")
    assert str(LIBRARY.parent) not in mapped and str(ROOT / ".venv") not in mapped


def test_all_of_it_goes_again(root):
    """The last of these tests."""
    dpkg(root, "--remove", "libcowmlx-dev", "libcowmlx1")
    assert [path for path in (root / "usr").rglob("*") if not path.is_dir()] == []
