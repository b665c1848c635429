"""Where a Python is looked for, and what is said when there is none."""

from __future__ import annotations

import json
import os
import sys
import sysconfig
from pathlib import Path

import pytest
from support.compiler import compile_c, compile_library, run
from support.hosts import HOSTS, linked
from support.paths import LIBRARY

NAME = f"python3.{sys.version_info.minor}"
PACKAGES = Path(sysconfig.get_path("purelib"))


def start(program: Path, environment: dict[str, str], home: object = "") -> tuple[str, str]:
    """Status and message of a start."""
    done = run([program, home], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    status, message, *_ = done.stdout.split("\n")
    return status, message


@pytest.fixture(scope="module")
def homeless(tmp_path_factory) -> Path:
    """The starting host, on a library that lies nowhere near a Python."""
    folder = tmp_path_factory.mktemp("homeless")
    (folder / "lib").mkdir()
    library = compile_library(folder / "lib" / LIBRARY.name, prefix=sys.prefix)
    return compile_c([HOSTS / "start.c"], folder / "start", *linked(library))


def test_home_in_the_environment_that_is_none(host, environment):
    status, message = start(host("start.c"), {**environment, "COWMLX_PYTHON_HOME": "/no/python"})
    assert status == "ENOENT"
    assert "COWMLX_PYTHON_HOME" in message
    assert "/no/python" in message


def test_home_in_the_params_that_is_none(host, environment):
    status, message = start(host("start.c"), environment, "/no/python")
    assert status == "ENOENT"
    assert "python_home" in message
    assert "/no/python" in message


def test_home_in_the_params_precedes_the_environment(host, environment):
    env = {**environment, "COWMLX_PYTHON_HOME": "/no/python"}
    assert start(host("start.c"), env, sys.prefix) == ("OK", "")


@pytest.mark.parametrize("variables", [{}, {"COWMLX_PYTHON_HOME": ""}])
def test_no_python_anywhere(homeless, environment, variables):
    """Not even the one that the library was built with, since it lies outside of its tree."""
    status, message = start(homeless, {**environment, **variables})
    assert status == "ENOENT"
    assert str(homeless.parent / "lib") in message
    assert "set COWMLX_PYTHON_HOME" in message


def test_empty_home_in_the_environment_is_none(host, environment):
    done = run([host("start.c"), ""], env={**environment, "COWMLX_PYTHON_HOME": ""})
    status, message, info, *_ = done.stdout.split("\n")
    assert (status, message) == ("OK", "")
    assert Path(json.loads(info)["python_home"]).samefile(sys.prefix)


def test_a_home_can_be_relative_and_end_with_slashes(host, environment, tmp_path):
    """It is one place for later starts too, wherever the host goes."""
    relative = os.path.relpath(sys.prefix, tmp_path)
    homes = [f"{relative}//", sys.prefix, f"{sys.prefix}/", relative]
    done = run([host("start.c"), *homes], env=environment, cwd=tmp_path)
    lines = done.stdout.split("\n")
    assert lines[0::3][:4] == ["OK"] * 4, done.stdout
    home = json.loads(lines[2])["python_home"]
    assert os.path.isabs(home)
    assert not home.endswith("/")


def test_environment_without_the_package(homeless, environment, tmp_path):
    """A Python that boots, but has no cowmlx; the place is named."""
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"])
    status, message = start(homeless, environment, tmp_path / "bare")
    assert status == "ENOENT"
    assert "cowmlx" in message


def test_python_of_another_version(environment, tmp_path):
    """A process that holds another libpython is refused, not mixed with ours."""
    other = tmp_path / "libpython3.5.so.1.0"
    source = tmp_path / "other.c"
    source.write_text("int other_python;\nint other(void) { return other_python; }\n")
    compile_c([source], other, "-shared", "-fPIC")
    options = [*linked(LIBRARY), "-Wl,--no-as-needed", str(other), f"-Wl,-rpath,{tmp_path}"]
    program = compile_c([HOSTS / "start.c"], tmp_path / "start", *options)
    status, message = start(program, environment)
    assert status == "EUNSUPPORTED"
    assert str(other) in message


@pytest.mark.parametrize("mapped", [False, True])
def test_a_wrong_home_costs_one_start(host, model, environment, mapped):
    folder = Path(sysconfig.get_config_var("LIBDIR"))
    library = folder / sysconfig.get_config_var("INSTSONAME") if mapped else ""
    done = run([host("homes.c"), model, sys.prefix, library], env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_home_that_cannot_be_loaded_leaves_no_trace(host, environment, tmp_path):
    """The Python that the host runs afterwards is the host's: its output, its garbage."""
    shared = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    for folder in ("bin", f"lib/{NAME}"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "bin" / NAME).touch(0o755)
    (tmp_path / "lib" / NAME / "os.py").touch()
    (tmp_path / "lib" / shared.name).write_text("no library")
    done = run([host("late_python.c"), tmp_path, shared, PACKAGES], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["ENOENT", "OK", "False 0", ""]


@pytest.mark.skipif(sys.platform == "darwin", reason="a host cannot replace pthread_create there")
def test_a_start_without_threads_leaves_no_trace(host, environment):
    shared = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    done = run([host("late_python.c"), "", shared, PACKAGES], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split("\n") == ["ENOMEM", "OK", "False 0", ""]


def test_calls_end_with_the_python_that_the_host_embeds(host, model, environment):
    """And no callback keeps the interpreter from the threads that it waits for."""
    shared = Path(sysconfig.get_config_var("LIBDIR")) / sysconfig.get_config_var("INSTSONAME")
    done = run([host("embedding.c"), model, shared, PACKAGES], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.split() == ["ECANCELED", "ESTATE", "ESTATE", "EUNSUPPORTED"]
