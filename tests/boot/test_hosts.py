"""The same text from every kind of host."""

from __future__ import annotations

import shutil
import sys

import pytest
from support.compiler import run
from support.hosts import HOSTS
from support.paths import LIBRARY, ROOT

HOST_PY = HOSTS / "host.py"


@pytest.mark.parametrize("name", ["generate.c", "generate.cpp", "generate.rs"])
def test_linked_host(run_host, expected, name):
    assert run_host(name) == expected


def test_host_that_opens_the_library_at_run_time(run_host, expected):
    assert run_host("dlopened.c", LIBRARY) == expected


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
