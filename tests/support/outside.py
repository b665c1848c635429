"""Tools of other languages, run on copies of what the tree has for them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from support.compiler import require, run
from support.paths import ROOT

UNREACHABLE = r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
UNREACHABLE += r"|dial tcp|i/o timeout|no such host|Unknown host|Could not transfer"
UNREACHABLE += r"|previous attempt|No plugin found for prefix"
NPM_CI = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"]


def needs(tool: str, version: tuple[int, ...], option: str = "--version") -> None:
    """Skip the test unless the tool is there, and new enough."""
    said = run([require(tool, option), option]).stdout
    found = tuple(int(part) for part in re.search(r"\d+(\.\d+)*", said)[0].split("."))
    if found < version:
        pytest.skip(f"{tool} is {said.strip()}; {'.'.join(map(str, version))} is needed")


def example(folder: Path, name: str) -> Path:
    """A copy of an example and of the binding that it uses, as they lie in the tree."""
    built = shutil.ignore_patterns("node_modules", "target")
    for parent in ("examples", "bindings"):
        if (ROOT / parent / name).exists():
            shutil.copytree(ROOT / parent / name, folder / parent / name, ignore=built)
    return folder / "examples" / name


def command(*words: object, cwd: Path, **environment: str) -> CompletedProcess[str]:
    """Run a tool that must end well; skip the test where packages cannot be fetched."""
    done = run(list(words), cwd=cwd, env={**os.environ, **environment})
    said = done.stdout + done.stderr
    if done.returncode != 0 and (reason := re.search(UNREACHABLE, said)):
        pytest.skip(f"{words[0]} cannot fetch packages here: {reason[0]}")
    assert done.returncode == 0, said
    return done


def node_packages(folder: Path) -> Path:
    """The example for Node.js with its packages, of which one is the binding."""
    needs("node", (18,))
    require("npm")
    folder = example(folder, "node")
    command(*NPM_CI, cwd=folder)
    return folder


def java_classes(folder: Path) -> str:
    """The class path of the binding for Java, compiled there."""
    needs("javac", (17,))
    source = ROOT / "bindings/java"
    if not (jars := jna()):
        require("mvn")
        copy = shutil.copytree(source, folder / "binding")
        command("mvn", "-q", "-B", "compile", cwd=copy)
        jars = jna()
    if not jars:
        pytest.skip("Maven keeps JNA elsewhere")
    files = sorted(source.glob("src/*/java/cowmlx/*.java"))
    command("javac", "-d", folder, "-cp", jars[-1], *files, cwd=folder)
    return os.pathsep.join([str(folder), str(jars[-1])])


def jna() -> list[Path]:
    """JNA as Maven keeps it."""
    return sorted(Path.home().glob(".m2/repository/net/java/dev/jna/jna/*/jna-*.jar"))
