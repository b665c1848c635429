"""A Python that cannot load mlx: the status, and what to do about it."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.compiler import compile_c, run
from support.paths import ROOT

START = """
from support.library import Library
lib = Library()
print(lib.name(lib.c.cow_mlx_runtime_start(None)), lib.message())
"""


@pytest.fixture(scope="module")
def empty(tmp_path_factory):
    """A virtual environment without packages, of the Python that the library was built for."""
    folder = tmp_path_factory.mktemp("empty") / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def starts(host, environment, *homes, **more):
    done = run([host("homes_in_turn.c"), *homes], env={**environment, **more})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return [line.split(" ", 1) for line in done.stdout.splitlines()]


def test_an_environment_without_packages(host, environment, empty):
    for status, message in starts(host, environment, empty, empty):
        assert status == "ENOENT"
        assert f"the Python in {empty} has no package 'mlx'; install mlx and mlx-lm" in message


def test_joining_a_python_without_packages(environment, empty):
    env = {**environment, "PYTHONPATH": str(ROOT / "tests")}
    done = run([empty / "bin/python", "-c", START], env=env)
    assert done.stdout.startswith(f"ENOENT runtime_start: the Python in {empty} has no package"), (
        done.stderr
    )


def test_an_empty_home_is_refused_and_leaves_no_trace(host, environment):
    (refused, message), (started, _) = starts(host, environment, "", "NULL")
    assert (refused, started) == ("EINVAL", "OK")
    assert "python_home is empty; it must be the folder of a Python" in message


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs ELF symbol versions")
def test_an_old_libstdcpp(host, environment, tmp_path):
    (tmp_path / "old.c").write_text("int cow_old;\n")
    (tmp_path / "old.map").write_text("GLIBCXX_3.4 { global: cow_old; };\nCXXABI_1.3 { };\n")
    old = compile_c(
        [tmp_path / "old.c"],
        tmp_path / "libstdc++.so.6",
        "-shared",
        "-fPIC",
        "-Wl,-soname,libstdc++.so.6",
        f"-Wl,--version-script={tmp_path / 'old.map'}",
    )
    ((status, message),) = starts(host, environment, "NULL", LD_PRELOAD=str(old))
    assert status == "EUNSUPPORTED"
    assert "an older libstdc++ than mlx needs" in message
