"""Hosts: programs that are compiled here and run as separate processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.compiler import compile_c, require, run
from support.hosts import HOSTS, LENGTH, PROMPT, linked
from support.library import Library
from support.paths import CALF, LIBRARY


@pytest.fixture(scope="session")
def host(tmp_path_factory) -> Callable[[str], Path]:
    """Compiles a host by the name of its source, once; gives the program."""
    folder = tmp_path_factory.mktemp("hosts")
    built: dict[str, Path] = {}

    def build(name: str) -> Path:
        if name not in built:
            source, program = HOSTS / name, folder / name.replace(".", "_")
            if source.suffix == ".rs":
                command = [require("rustc"), "-O", source, "-o", program, "-L", LIBRARY.parent]
                done = run([*command, "-C", f"link-arg=-Wl,-rpath,{LIBRARY.parent}"])
                assert done.returncode == 0, done.stderr
            else:
                cpp = source.suffix == ".cpp"
                kind = {"compiler": "c++", "std": "c++17"} if cpp else {}
                compile_c([source], program, *linked(LIBRARY), "-ldl", **kind)
            built[name] = program
        return built[name]

    return build


@pytest.fixture(scope="session")
def model() -> Path:
    """The model that hosts load."""
    if not (CALF / "config.json").exists():
        pytest.skip(f"{CALF} is missing")
    return CALF


@pytest.fixture(scope="session")
def expected(lib: Library, calf: int) -> str:
    """The text that every host generates."""
    context = lib.context(calf)
    tokens = lib.tokenize(calf, PROMPT, flags=1)
    text = lib.generate(context, tokens, max_tokens=LENGTH).text
    lib.free(context)
    assert text
    return text


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """A plain environment: nothing that speaks to Python."""
    kept = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
    return {name: os.environ[name] for name in kept if name in os.environ}


@pytest.fixture
def run_host(host, model, environment):
    """Runs a host on the model; fails unless it ends well and without a word on stderr."""

    def run_it(name: str, *arguments: object, env=None, cwd=None, path: Path = model):
        command = [host(name), path, *arguments]
        done = run(command, env={**environment, **(env or {})}, cwd=cwd)
        assert (done.returncode, done.stderr) == (0, ""), f"{done.returncode}: {done.stderr}"
        return done.stdout

    return run_it


@pytest.fixture
def python() -> str:
    """The interpreter of these tests, for Python hosts."""
    return sys.executable
