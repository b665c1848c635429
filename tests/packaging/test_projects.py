"""Small projects outside of the tree, built against an installation and run."""

from __future__ import annotations

import shutil

import pytest
from support.compiler import require, run
from support.paths import ROOT
from support.streamed import TEXT, check_streamed

from cowmlx.generated.constants import VERSION

pytestmark = pytest.mark.xdist_group("packaging")
CPP = ROOT / "examples/cpp"
C = ROOT / "tests/packaging/projects/c"


def configure(prefix, source, build, *options):
    """Run CMake on a project."""
    command = [require("cmake"), "-S", source, "-B", build, f"-DCMAKE_PREFIX_PATH={prefix.path}"]
    return run([*command, *options], env=prefix.environment)


@pytest.fixture(scope="module")
def built_with_make(installed, tmp_path_factory):
    """The C++ examples, built by make and pkg-config."""
    folder = shutil.copytree(CPP, tmp_path_factory.mktemp("make") / "project")
    require("c++")
    require("pkg-config")
    path = f"PKG_CONFIG_PATH={installed.lib / 'pkgconfig'}"
    installed.run([require("make"), "-C", folder, path, "CXXFLAGS=-Wall -Wextra -Werror"])
    return folder


def test_cpp_with_make_and_pkg_config(installed, built_with_make, model, story):
    done = installed.run([built_with_make / "stream", model, TEXT])
    check_streamed(done.stdout, story)


def test_a_chat_in_cpp_remembers_what_was_said(installed, built_with_make, model):
    lines = "What is 3 + 4?\n\nWhat is 2 + 2?\n"
    done = installed.run([built_with_make / "chat", model], input=lines)
    assert done.stdout.splitlines() == ["3 + 4 = 7.", "2 + 2 = 4."]


@pytest.mark.long
def test_cpp_with_cmake(installed, model, story, tmp_path):
    project = shutil.copytree(CPP, tmp_path / "project")
    done = configure(installed, project, tmp_path / "build", "-DCMAKE_CXX_FLAGS=-Werror")
    assert done.returncode == 0, done.stderr
    installed.run([require("cmake"), "--build", tmp_path / "build"])
    check_streamed(installed.run([tmp_path / "build/stream", model, TEXT]).stdout, story)


def test_c_with_cmake(installed, model, tmp_path):
    assert configure(installed, C, tmp_path / "build").returncode == 0
    installed.run([require("cmake"), "--build", tmp_path / "build"])
    assert str(installed.lib / "cowmlx") in installed.run([tmp_path / "build/host", model]).stdout


@pytest.mark.parametrize("wanted", ["1.0", f"{VERSION};EXACT", "1.0...<2"])
def test_find_package_accepts(installed, tmp_path, wanted):
    done = configure(installed, C, tmp_path / "build", f"-DWANTED={wanted}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("wanted", ["2.0", "1.99", "0.9", "2...3", "0.1...<1"])
def test_find_package_refuses(installed, tmp_path, wanted):
    done = configure(installed, C, tmp_path / "build", f"-DWANTED={wanted}")
    assert done.returncode != 0
    assert f"version: {VERSION}" in done.stderr


def test_the_commands_pkg_config_file_builds_a_host(model, environment, tmp_path):
    """That of the package itself, for hosts that use a virtual environment."""
    python = ROOT / ".venv/bin/python"
    if not python.exists():
        pytest.skip("there is no .venv: the library was not built by make")
    printed = run([python, "-m", "cowmlx", "pkgconfig"], cwd=ROOT)
    (tmp_path / "cowmlx.pc").write_text(printed.stdout)
    env = {**environment, "PKG_CONFIG_PATH": str(tmp_path)}
    options = run([require("pkg-config"), "--cflags", "--libs", "cowmlx"], env=env).stdout.split()
    done = run([require("cc"), C / "host.c", "-o", tmp_path / "host", *options])
    assert done.returncode == 0, done.stderr
    assert run([tmp_path / "host", model], env=environment).returncode == 0
