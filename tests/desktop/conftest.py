"""The desktop app, built, and what it runs on."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from app import App
from support import scripted
from support.compiler import compile_c, require, run
from support.hosts import linked
from support.paths import CALF, LIBRARY, ROOT
from support.signatures import PARSE_SPECIAL
from xsession import XSession, require_tools

APP = ROOT / "examples/desktop"
HOSTS = ROOT / "tests/desktop/hosts"

PACKAGES = {
    "gtk4": "libgtk-4-dev",
    "libcmark": "libcmark-dev",
    "json-glib-1.0": "libjson-glib-dev",
}


@pytest.fixture(scope="session")
def build(tmp_path_factory) -> Callable[..., Path]:
    """Compiles programs of what the app is made of."""
    for name, package in PACKAGES.items():
        if subprocess.run([require("pkg-config"), "--exists", name]).returncode != 0:
            pytest.skip(f"{name} is not installed (Debian: {package})")
    command = ["pkg-config", "--cflags", "--libs", *PACKAGES]
    flags = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()

    def compile_them(name: str, sources: list[Path], *options: str) -> Path:
        output = tmp_path_factory.mktemp("program") / name
        # GTK 4.10 and newer call some of the widgets that GTK 4.8 has alone deprecated.
        options = (f"-I{APP}", "-Wno-deprecated-declarations", *options)
        return compile_c(sources, output, *flags, *options)

    return compile_them


@pytest.fixture(scope="session")
def program(build) -> Path:
    """The app."""
    return build("desktop", sorted(APP.glob("*.c")), *linked(LIBRARY))


@pytest.fixture(scope="session")
def gated_program(session, build) -> Path:
    """The app, whose call that loads a model waits for a test."""
    sources = [*sorted(APP.glob("*.c")), HOSTS / "gated_load.c"]
    return build("gated", sources, "-Wl,--wrap=cow_mlx_model_load", *linked(LIBRARY))


@pytest.fixture(scope="session")
def session(tmp_path_factory) -> Iterator[XSession]:
    """A desktop."""
    require_tools()
    session = XSession(tmp_path_factory.mktemp("x"))
    yield session
    session.stop()


@pytest.fixture
def start(program, session, tmp_path) -> Iterator[Callable[..., App]]:
    """Starts the app, or another build of it, with arguments."""
    started: list[App] = []

    def start_it(
        *arguments: str | Path, data: Path = tmp_path / "data", program: Path = program
    ) -> App:
        started.append(App(session, program, *arguments, data=data))
        return started[-1]

    yield start_it
    for app in started:
        app.kill()


@pytest.fixture
def says(lib, tmp_path) -> Callable[..., Path]:
    """Makes a model that answers one question with a text."""

    def make(question: str, text: str, *markers: str, **settings: str) -> Path:
        folder = tmp_path / "scripted"
        markers = ("<|im_start|>", "<|im_end|>", *markers)
        scripted.make(folder, scripted.CHATML, markers, settings=settings, positions=4096)
        model = lib.load(folder)
        end = lib.info(model)["end_tokens"][0]["text"]
        prompt = lib.chat_prompt(model, [{"role": "user", "content": question}])
        scripted.tell(folder, len(prompt), lib.tokenize(model, text + end, PARSE_SPECIAL))
        lib.free_model(model)
        return folder

    return make


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
