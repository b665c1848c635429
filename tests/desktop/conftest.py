"""The desktop app, built, and what it runs on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from app import App
from support.compiler import compile_c, require, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT
from xsession import XSession, require_tools


@pytest.fixture(scope="session")
def program(tmp_path_factory) -> Path:
    """The app."""
    options = [require("pkg-config"), "--cflags", "--libs", "gtk4"]
    flags = subprocess.run(options, capture_output=True, text=True)
    if flags.returncode != 0:
        pytest.skip("gtk4 is not installed (Debian: libgtk-4-dev)")
    sources = sorted((ROOT / "examples/desktop").glob("*.c"))
    output = tmp_path_factory.mktemp("program") / "desktop"
    return compile_c(sources, output, *flags.stdout.split(), *linked(LIBRARY))


@pytest.fixture(scope="session")
def session(tmp_path_factory) -> Iterator[XSession]:
    """A desktop."""
    require_tools()
    session = XSession(tmp_path_factory.mktemp("x"))
    yield session
    session.stop()


@pytest.fixture
def start(program, session) -> Iterator[Callable[..., App]]:
    """Starts the app with arguments."""
    started: list[App] = []

    def start_it(*arguments: str | Path) -> App:
        started.append(App(session, program, *arguments))
        return started[-1]

    yield start_it
    for app in started:
        app.kill()


@pytest.fixture(scope="session")
def model() -> Path:
    """The model that most tests talk with."""
    if not (CALF / "config.json").exists():
        pytest.skip(f"{CALF} is missing")
    return CALF


@pytest.fixture
def endless(model, tmp_path) -> Callable[..., Path]:
    """Makes a model whose answers never end: its end token is one that it never gives."""

    def make(context_length: int = 100_000) -> Path:
        folder = tmp_path / "endless"
        folder.mkdir()
        for name in ("model.safetensors", "tokenizer.json"):
            shutil.copy(model / name, folder)
        config = json.loads((model / "config.json").read_text())
        settings = json.loads((model / "tokenizer_config.json").read_text())
        never = settings["additional_special_tokens"][0]
        tokens = json.loads((model / "tokenizer.json").read_text())["added_tokens"]
        config["eos_token_id"] = next(t["id"] for t in tokens if t["content"] == never)
        config["max_position_embeddings"] = context_length
        settings["eos_token"] = never
        settings["model_max_length"] = context_length
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
        return folder

    return make


@pytest.fixture(scope="session")
def terminal_chat(tmp_path_factory, model) -> Callable[..., list[str]]:
    """Asks questions with examples/c/chat.c; gives its answers."""
    output = tmp_path_factory.mktemp("chat") / "chat"
    chat = compile_c([ROOT / "examples/c/chat.c"], output, *linked(LIBRARY))

    def ask(*questions: str) -> list[str]:
        done = run([chat, model], input="".join(f"{question}\n" for question in questions))
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return ask
