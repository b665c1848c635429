"""Compiles the C, C++ and Rust sources of tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from support.paths import CPP, CSRC, INCLUDE
from tools.packaging.targets import c_sources

WARNINGS = ["-Wall", "-Wextra", "-Werror"]


def require(tool: str, version: str = "--version") -> str:
    """The tool's path; skips the test and names the tool if there is none that works.

    Args:
        tool: its name.
        version: the argument that makes it tell its version.
    """
    path = shutil.which(tool)
    if not path:
        pytest.skip(f"{tool} is not installed")
    if subprocess.run([path, version], capture_output=True).returncode != 0:
        pytest.skip(f"{tool} does not run: {path} {version} fails")
    return path


def compile_c(
    sources: list[Path], output: Path, *options: str, compiler: str = "cc", std: str = "c11"
) -> Path:
    """Compile C or C++ sources, warnings being errors."""
    command = [require(compiler), f"-std={std}", *WARNINGS, f"-I{INCLUDE}", f"-I{CPP}"]
    command += [*map(str, sources), "-o", str(output), *options, f"-I{CSRC}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return output


def library_sources(folder: Path = CSRC) -> list[Path]:
    """The C sources of the library, below its ``csrc``."""
    return c_sources(folder)


def compile_library(output: Path, *options: str, prefix: str = "", sources: Path = CSRC) -> Path:
    """Compile the library for this Python, with the macros that setup.py gives.

    Args:
        output: the library.
        options: further ones of the compiler.
        prefix: of the environment that a library in its source tree finds.
        sources: the folder of its sources.
    """
    macros = [f'-DCOWMLX_BUILD_PREFIX="{prefix}"']
    macros += [f"-DCOWMLX_PYTHON_MINOR={sys.version_info.minor}", f"-I{sources}"]
    if multiarch := sysconfig.get_config_var("MULTIARCH"):
        macros.append(f'-DCOWMLX_MULTIARCH="{multiarch}"')
    include = f"-I{sysconfig.get_path('include')}"
    kind = ["-shared", "-fPIC", "-fvisibility=hidden", "-pthread", "-ldl"]
    return compile_c(library_sources(sources), output, *macros, include, *kind, *options)


def run(command: list[str | Path], **options) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, however it ends. A hang fails the test."""
    settings = {"capture_output": True, "text": True, "timeout": 300, **options}
    return subprocess.run([str(part) for part in command], **settings)
