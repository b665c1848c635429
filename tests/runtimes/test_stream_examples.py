"""A text stream and a cancel from Node.js, Go and Java."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
from support.compiler import require, run
from support.paths import ROOT
from support.streamed import check_streamed

HOSTS = ROOT / "tests/runtimes/hosts"
NPM_CI = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=0"]
GO = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}

pytestmark = pytest.mark.xdist_group("runtimes")


def needs(tool: str, version: tuple[int, ...], option: str = "--version") -> None:
    """Skip the test unless the tool is there, and new enough."""
    said = run([require(tool, option), option]).stdout
    found = tuple(int(part) for part in re.search(r"\d+(\.\d+)*", said)[0].split("."))
    if found < version:
        pytest.skip(f"{tool} is {said.strip()}; {'.'.join(map(str, version))} is needed")


def test_node_with_koffi(example, command, arguments, story):
    needs("node", (18,))
    require("npm")
    folder = example("node")
    command(*NPM_CI, cwd=folder)
    done = command("node", "stream.mjs", *arguments, cwd=folder)
    assert done.stderr == ""
    check_streamed(done.stdout, story)


def test_go_with_purego(example, command, arguments, story):
    """Without a C compiler."""
    needs("go", (1, 25), "version")
    folder = example("go")
    command("go", "mod", "download", cwd=folder, **GO)
    command("go", "build", "-o", "stream", ".", cwd=folder, **GO)
    done = run([folder / "stream", *arguments])
    assert (done.returncode, done.stderr) == (0, "")
    check_streamed(done.stdout, story)


def test_java_with_jna(example, command, arguments, story):
    needs("javac", (17,))
    require("mvn")
    folder = example("java")
    words = f"-Dexec.args={shlex.join(arguments)}"
    done = command("mvn", "-q", "-B", "compile", "exec:java", words, cwd=folder)
    colourless = done.stdout.replace("\x1b[0m", "")  # Maven's, even where no terminal is
    check_streamed(colourless, story)


def test_go_carries_a_panic_past_its_call(example, command, arguments):
    needs("go", (1, 25), "version")
    folder = example("go")
    shutil.copy(HOSTS / "panic_test.go", folder)
    places = {"LIBRARY": arguments[0], "MODEL": arguments[1]}
    command("go", "mod", "download", cwd=folder, **GO)
    command("go", "test", ".", cwd=folder, **GO, **places)


def test_java_carries_an_exception_past_its_call(example, command, arguments):
    needs("javac", (17,))
    require("mvn")
    folder = example("java")
    shutil.copy(HOSTS / "Thrown.java", folder / "src/main/java")
    options = ["-Dexec.mainClass=Thrown", f"-Dexec.args={shlex.join(arguments[:2])}"]
    done = command("mvn", "-q", "-B", "compile", "exec:java", *options, cwd=folder)
    assert done.stdout.replace("\x1b[0m", "") == "20 20 false\n"
    assert "JNA" not in done.stderr


def test_node_reads_the_error_of_a_call_on_another_thread(example, command, arguments, narrow):
    """Its event loop's thread never makes the call that fails."""
    needs("node", (18,))
    require("npm")
    folder = example("node")
    command(*NPM_CI, cwd=folder)
    done = run(["node", "stream.mjs", arguments[0], narrow, "long " * 40], cwd=folder)
    assert done.returncode == 1
    assert re.search(r"Error: context_begin: the prompt has \d+ tokens.* holds 16\b", done.stderr)


def test_packages_are_pinned_and_name_no_registry():
    lock = json.loads((ROOT / "examples/node/package-lock.json").read_text())
    packages = [package for name, package in lock["packages"].items() if name]
    assert packages
    assert all("integrity" in package and "resolved" not in package for package in packages)
    pom = (ROOT / "examples/java/pom.xml").read_text()
    assert "<repositor" not in pom
    assert re.findall(r"<version>(.*)</version>", pom)
