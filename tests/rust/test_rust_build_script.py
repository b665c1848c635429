"""The build script of cowmlx-sys finds the library."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from support.compiler import require, run
from support.paths import LIBRARY, ROOT

pytestmark = pytest.mark.xdist_group("cargo")

TARGET = str(ROOT / "build/rust/found")  # the crates that other tests build stay as they are
NOWHERE = {"PKG_CONFIG": "/no/pkg-config", "PYTHON": "/no/python"}


@pytest.fixture
def build(cargo):
    """Checks cowmlx-sys in an environment, without COWMLX_LIB_DIR unless it is given."""

    def build(*arguments, **env):
        options = ["--locked", "--quiet", "-p", "cowmlx-sys", "--message-format=json"]
        env = {"COWMLX_LIB_DIR": None, "CARGO_TARGET_DIR": TARGET, **NOWHERE, **env}
        return cargo("check", *options, *arguments, env=env)

    return build


def found(done) -> Path:
    """The library that a build links."""
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    script = next(m for m in messages if m["reason"] == "build-script-executed")
    assert script["linked_libs"] == ["dylib=cowmlx"]
    folder = script["linked_paths"][0].removeprefix("native=")
    return (Path(folder) / LIBRARY.name).resolve()


def test_a_folder_is_named(build):
    assert found(build(COWMLX_LIB_DIR=str(LIBRARY.parent))) == LIBRARY.resolve()


def test_a_folder_without_the_library_is_refused(build, tmp_path):
    done = build(COWMLX_LIB_DIR=str(tmp_path), PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    assert done.returncode != 0
    assert str(tmp_path / LIBRARY.name) in done.stderr


@pytest.mark.parametrize("folder", ["plain", "with a space"])
@pytest.mark.parametrize("form", ["Libs: {0}/{1} -Wl,-rpath,{0}", "libdir={0}\nLibs: -lcowmlx"])
def test_pkg_config_knows_it(build, tmp_path, folder, form):
    tool = require("pkg-config")
    place = tmp_path / folder
    place.mkdir()
    (place / LIBRARY.name).symlink_to(LIBRARY)
    libs = form.format(str(place).replace(" ", "\\ "), LIBRARY.name)
    text = f"{libs}\nName: cowmlx\nDescription: there\nVersion: 1\n"
    (tmp_path / "cowmlx.pc").write_text(text)
    assert found(build(PKG_CONFIG=tool, PKG_CONFIG_PATH=str(tmp_path))) == LIBRARY.resolve()


def test_the_package_s_own_pkg_config_file_will_do(build, tmp_path):
    tool = require("pkg-config")
    text = run([sys.executable, "-m", "cowmlx", "pkgconfig"], cwd=ROOT).stdout
    (tmp_path / "cowmlx.pc").write_text(text)
    assert found(build(PKG_CONFIG=tool, PKG_CONFIG_PATH=str(tmp_path))) == LIBRARY.resolve()


def test_an_empty_folder_is_none(build):
    done = build(COWMLX_LIB_DIR="", PYTHON=sys.executable, PYTHONPATH=str(ROOT))
    assert found(done) == LIBRARY.resolve()


def test_python_knows_it(build):
    assert found(build(PYTHON=sys.executable, PYTHONPATH=str(ROOT))) == LIBRARY.resolve()


def test_what_was_tried_is_listed(build):
    done = build()
    assert done.returncode != 0
    for tried in ("COWMLX_LIB_DIR: not set", "/no/pkg-config --libs cowmlx", "/no/python -m"):
        assert tried in done.stderr


def test_nothing_is_linked_where_it_is_loaded_at_run_time(build):
    done = build("--features", "dlopen")
    assert done.returncode == 0, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines()]
    script = next(m for m in messages if "cowmlx-sys" in m["package_id"] and "linked_libs" in m)
    assert script["linked_libs"] == []
