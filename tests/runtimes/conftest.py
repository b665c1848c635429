"""The stream examples of other runtimes, built outside of the tree."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from support.compiler import run
from support.paths import CALF, LIBRARY, ROOT
from support.streamed import TEXT, story

__all__ = ["story"]
UNREACHABLE = r"ENOTFOUND|EAI_AGAIN|ECONNREFUSED|ECONNRESET|ETIMEDOUT|ENETUNREACH"
UNREACHABLE += r"|dial tcp|i/o timeout|no such host|Unknown host|Could not transfer"
UNREACHABLE += r"|previous attempt|No plugin found for prefix"


@pytest.fixture
def example(tmp_path) -> Callable[[str], Path]:
    """Copies an example by the name of its folder."""

    def copy(name: str) -> Path:
        built = shutil.ignore_patterns("node_modules", "target")
        return shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=built)

    return copy


@pytest.fixture
def command(tmp_path) -> Callable[..., CompletedProcess[str]]:
    """Runs a tool that must end well; skips the test where packages cannot be fetched."""

    def run_it(*words: object, cwd: Path, **environment: str) -> CompletedProcess[str]:
        done = run(list(words), cwd=cwd, env={**os.environ, **environment})
        said = done.stdout + done.stderr
        if done.returncode != 0 and (reason := re.search(UNREACHABLE, said)):
            pytest.skip(f"{words[0]} cannot fetch packages here: {reason[0]}")
        assert done.returncode == 0, said
        return done

    return run_it


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
