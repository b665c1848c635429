"""The bindings and examples of other runtimes, built outside of the tree, once each."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
from support.compiler import require
from support.outside import command, example, java_classes, needs, node_packages
from support.paths import CALF, LIBRARY, ROOT
from support.streamed import TEXT, story

__all__ = ["story"]
HOSTS = ROOT / "tests/runtimes/hosts"


@pytest.fixture(scope="session")
def node_folder(tmp_path_factory) -> Path:
    """The example for Node.js with its packages, of which one is the binding."""
    return node_packages(tmp_path_factory.mktemp("node"))


@pytest.fixture(scope="session")
def java_said(tmp_path_factory) -> tuple[str, str, str]:
    """What the hosts say in Java, of all calls and of some that return at once; and the example."""
    needs("javac", (17,))
    require("mvn")
    scratch = tmp_path_factory.mktemp("java")
    folder = example(scratch, "java")
    for name in ("Everything.java", "Following.java"):
        shutil.copy(HOSTS / name, folder / "src/main/java")
    words = shlex.join(str(word) for word in (LIBRARY, CALF, scratch, TEXT))
    options = ["-Dexec.mainClass=Everything", f"-Dexec.args={words}"]
    done = command("mvn", "-q", "-B", "compile", "exec:java", *options, cwd=folder)
    assert "JNA" not in done.stderr
    said, followed, streamed = done.stdout.replace("\x1b[0m", "").split("\n", 2)
    return said, followed, streamed


@pytest.fixture(scope="session")
def java_mistakes(tmp_path_factory) -> str:
    """What mistakes give in Java, in a process that has no library at first."""
    folder = tmp_path_factory.mktemp("mistakes")
    classes = java_classes(folder)
    command("javac", "-d", folder, "-cp", classes, HOSTS / "Mistakes.java", cwd=folder)
    words = ["java", "-cp", classes, "Mistakes", LIBRARY, CALF]
    done = command(*words, cwd=folder, **{"COWMLX_LIBRARY": ""})
    assert done.stderr == ""
    return done.stdout


@pytest.fixture(scope="session")
def go_programs(tmp_path_factory) -> Path:
    """The folder of the example for Go and of the hosts, built without a C compiler."""
    needs("go", (1, 25), "version")
    folder = example(tmp_path_factory.mktemp("go"), "go")
    for name in ("everything", "following", "mistakes", "programs", "unloaded"):
        (folder / name).mkdir()
        shutil.copy(HOSTS / f"{name}.go", folder / name / "main.go")
    options = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    command("go", "mod", "download", cwd=folder, **options)
    command("go", "build", "-o", "built/", "./...", cwd=folder, **options)
    return folder / "built"


@pytest.fixture
def arguments() -> list[str]:
    """What every example is given: the library, a model, a text."""
    if not (CALF / "config.json").exists():
        pytest.skip(f"{CALF} is missing")
    return [str(LIBRARY), str(CALF), TEXT]


@pytest.fixture
def narrow(tmp_path) -> Path:
    """A model whose contexts hold 16 tokens."""
    folder = tmp_path / "narrow"
    shutil.copytree(CALF, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 16}))
    return folder
