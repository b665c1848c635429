"""The crates as cargo packages them: a program that uses them is found outside of cargo, too."""

from __future__ import annotations

import json
import shutil
import sys
import tomllib
from pathlib import Path

import pytest
from support.archives import extract
from support.code_blocks import blocks_of
from support.compiler import require, run
from support.paths import CALF, LIBRARY, ROOT

pytestmark = pytest.mark.xdist_group("cargo")

PAGE = ROOT / "docs/getting-started/rust.md"
EXAMPLE = ROOT / "examples/rust"


@pytest.fixture(scope="module")
def crates(cargo, tmp_path_factory) -> dict[str, Path]:
    """The extracted crates by their names, in the order in which they are published."""
    folder = tmp_path_factory.mktemp("crates")
    done = run([sys.executable, ROOT / "tools/packaging/packages.py", "crates", folder])
    if "or newer" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    found = {}
    for name in done.stdout.split():
        extract(folder / name, folder)
        found[name.rsplit("-", 1)[0]] = folder / name.removesuffix(".crate")
    return found


@pytest.fixture(scope="module")
def project(crates, tmp_path_factory) -> Path:
    """The example, whose crates are those that were packaged."""
    folder = tmp_path_factory.mktemp("outside") / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("target", "Cargo.lock"))
    config = folder / ".cargo/config.toml"
    names = set(tomllib.loads(config.read_text())["patch"]["crates-io"])
    assert names == set(crates)
    places = [f"{name} = {{ path = {json.dumps(str(path))} }}" for name, path in crates.items()]
    config.write_text("\n".join(["[patch.crates-io]", *places]))
    shutil.copy(ROOT / "bindings/rust/Cargo.lock", folder)
    return folder


def test_the_crates_have_what_whoever_finds_them_looks_for(crates):
    assert list(crates) == ["cowmlx-sys", "cowmlx"]
    for name, folder in crates.items():
        package = tomllib.loads((folder / "Cargo.toml").read_text())["package"]
        assert package["name"] == name
        assert set(package) >= {"description", "license", "readme", "keywords", "categories"}
        assert set(package) >= {"documentation", "rust-version", "authors"}
        assert (folder / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
        assert (folder / "README.md").stat().st_size > 300
        assert not (folder / "tests").exists()


def test_the_page_has_the_build_script_of_the_example():
    [block] = [
        block for block in blocks_of(PAGE.read_text(), PAGE.name) if block.title == "build.rs"
    ]
    assert block.code in (EXAMPLE / "build.rs").read_text()


@pytest.mark.long
@pytest.mark.parametrize("features", ["", "cowmlx/dlopen"])
def test_a_program_is_found_outside_of_cargo(cargo, project, features):
    """It is linked with the folder's path, or knows it, and asks the environment for nothing."""
    places = ["--manifest-path", project / "Cargo.toml", "--config", project / ".cargo/config.toml"]
    env = {"CARGO_PROFILE_DEV_DEBUG": "line-tables-only"}  # as that of the crates' own tests
    done = cargo("build", "--quiet", "--offline", *places, "--features", features, env=env)
    assert done.returncode == 0, done.stderr
    program = project / "program"
    shutil.move(ROOT / "build/rust/debug/answer", program)
    done = run([program, CALF], cwd=project, env={})
    assert (done.stdout, done.returncode) == ("3 + 4 = 7.\n", 0), done.stderr
    needed = run([require("readelf"), "-d", program]).stdout
    assert (LIBRARY.name in needed) == (features == "")
