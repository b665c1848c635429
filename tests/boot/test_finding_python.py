"""Where a Python is looked for, and what is said when there is none."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.hosts import HOSTS, linked
from support.paths import CSRC, LIBRARY

MINOR = sys.version_info.minor


def start(program: Path, environment: dict[str, str], home: object = "") -> tuple[str, str]:
    """Status and message of a start."""
    done = run([program, home], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    status, message, *_ = done.stdout.split("\n")
    return status, message


@pytest.fixture(scope="module")
def homeless(tmp_path_factory) -> Path:
    """The starting host, on a library whose building Python is gone."""
    folder = tmp_path_factory.mktemp("homeless")
    library = folder / "lib" / LIBRARY.name
    library.parent.mkdir()
    include = f"-I{sysconfig.get_path('include')}"
    macros = ['-DCOWMLX_BUILD_PREFIX="/gone"', f"-DCOWMLX_PYTHON_MINOR={MINOR}"]
    options = ["-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-ldl"]
    compile_c(sorted(CSRC.glob("*.c")), library, include, *macros, *options)
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


def test_no_python_anywhere(homeless, environment):
    status, message = start(homeless, environment)
    assert status == "ENOENT"
    library_folder = homeless.parent / "lib"
    for place in (f"{library_folder}/python", f"{homeless.parent}/python", "/gone"):
        assert place in message
    assert "COWMLX_PYTHON_HOME" in message


def test_empty_home_in_the_environment_is_none(homeless, environment):
    status, message = start(homeless, {**environment, "COWMLX_PYTHON_HOME": ""})
    assert status == "ENOENT"
    assert "/gone" in message or "COWMLX_PYTHON_HOME" in message


def test_environment_without_the_package(homeless, environment, tmp_path):
    """A Python that boots, but has no cowmlx; the place is named."""
    run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare"])
    status, message = start(homeless, environment, tmp_path / "bare")
    assert status == "ENOENT"
    assert "cowmlx" in message


def test_library_copied_elsewhere(environment, tmp_path):
    """Works where the building Python has the package, else names what is missing."""
    library = Path(shutil.copy(LIBRARY, tmp_path / LIBRARY.name))
    program = compile_c([HOSTS / "start.c"], tmp_path / "start", *linked(library))
    status, message = start(program, environment)
    assert status == "OK" or (status == "ENOENT" and "cowmlx" in message)


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
