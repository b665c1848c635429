"""The same text from every kind of host."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from support.compiler import require, run
from support.hosts import HOSTS
from support.paths import LIBRARY, ROOT

from tools.packaging.targets import Python, Target

HOST_PY = HOSTS / "host.py"


@pytest.fixture
def unpinned(tmp_path) -> Path:
    """The library in its package, linked without -z nodelete as on macOS."""
    for path in (ROOT / "cowmlx").iterdir():
        if path.name != "lib":
            link = tmp_path / "cowmlx" / path.name
            link.parent.mkdir(exist_ok=True)
            link.symlink_to(path)
    library = tmp_path / "cowmlx/lib" / LIBRARY.name
    library.parent.mkdir()
    arguments = Target().library_command(ROOT, library, Python.running())
    done = run([require("cc"), *(a for a in arguments if a != "-Wl,-z,nodelete")])
    assert done.returncode == 0, done.stderr
    return library


@pytest.mark.parametrize("name", ["generate.c", "generate.cpp", "generate.rs"])
def test_linked_host(run_host, expected, name):
    assert run_host(name) == expected


def test_host_that_opens_the_library_at_run_time(run_host, expected):
    assert run_host("dlopened.c", LIBRARY) == expected


def test_library_holds_itself_where_the_linker_cannot(host, model, environment, expected, unpinned):
    env = {**environment, "COWMLX_PYTHON_HOME": sys.prefix}
    done = run([host("dlopened.c"), model, unpinned], env=env)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)


@pytest.mark.parametrize("ending", ["stop", "leave"])
@pytest.mark.parametrize("thread", ["main", "second"])
@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
def test_python_host(model, environment, expected, loader, thread, ending):
    """With the interpreter held through the call (PyDLL) and without."""
    command = [sys.executable, HOST_PY, model, loader, thread, ending]
    done = run(command, env={**environment, "PYTHONPATH": str(ROOT / "tests")})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == expected


def test_nothing_of_the_process_is_changed(run_host):
    run_host("effects.c")


def python_host(environment, name, *arguments):
    command = [sys.executable, HOSTS / name, *arguments]
    done = run(command, env={**environment, "PYTHONPATH": str(ROOT / "tests")})
    assert (done.returncode, done.stderr) == (0, "")


def test_first_starts_with_and_without_the_interpreter(environment):
    python_host(environment, "mixed_start.py")


def test_a_second_copy_of_the_library_is_refused(environment, tmp_path):
    copy = shutil.copy(LIBRARY, tmp_path / "other.so")
    python_host(environment, "twins.py", copy)


@pytest.mark.parametrize("what", ["before", "alive", "between", "calls", "start"])
@pytest.mark.parametrize("loader", ["CDLL", "PyDLL"])
def test_host_with_sub_interpreters(model, environment, expected, loader, what):
    """A start in one is refused; anything else works, in the main one and in others."""
    command = [sys.executable, HOSTS / "sub_interpreters.py", model, loader, what]
    done = run(command, env={**environment, "PYTHONPATH": str(ROOT / "tests")})
    assert (done.returncode, done.stderr, done.stdout) == (0, "", expected)


def test_arrays_and_programs(run_host):
    """Cancelled in a signal handler, freed while runs need them, stopped while they run."""
    assert run_host("programs.c") == "all went well\n"
