"""Compiles the C programs of the benchmarks."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

from benchmarks.support.paths import BUILD, HOSTS, INCLUDE, LIBRARY


def compile_host(name: str, library: Path = LIBRARY) -> Path:
    """Compile ``hosts/<name>.c`` against a library and return the program."""
    folder = BUILD if library == LIBRARY else library.parent
    arguments = [f"-I{INCLUDE}", str(library), f"-Wl,-rpath,{library.parent}"]
    return compile_program(name, folder, arguments)


def compile_program(name: str, folder: Path, arguments: list[str]) -> Path:
    """Compile ``hosts/<name>.c`` into a folder and return the program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / Path(name).name
    command = [
        *shlex.split(os.environ.get("CC") or "cc"),
        *["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"],
        *["-D_POSIX_C_SOURCE=200809L", str(HOSTS / f"{name}.c"), *arguments],
        *["-o", str(program)],
    ]
    subprocess.run(command, check=True)
    return program
