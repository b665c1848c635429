"""Tiny models, contexts on them, and what plain mlx-lm makes of the same prompts."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from driver import VARIANTS, Oracle
from support import groups, reference, scripted, tiny_models
from support.library import Library
from support.paths import CALF
from support.signatures import PARSE_SPECIAL
from tasks import TASKS

from cowmlx import memory
from cowmlx.services import admission


@pytest.fixture(scope="session")
def shared(tmp_path_factory) -> Path:
    """A folder that all processes of one test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base


@pytest.fixture(scope="session")
def once(shared) -> Callable[[str, Callable[[Path], None]], Path]:
    """Lets one process alone fill a folder, and the others wait for it."""

    def once(name: str, fill: Callable[[Path], None]) -> Path:
        folder = shared / name
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not (folder / "filled").exists():
                folder.mkdir(exist_ok=True)
                fill(folder)
                (folder / "filled").touch()
        return folder

    return once


@pytest.fixture(scope="session")
def folder(once) -> Callable[[str], Path]:
    """The folder of a model: "calf", a family of tiny models, or a variant of one."""

    def folder(name: str) -> Path:
        if name == "calf":
            return CALF
        family, settings = VARIANTS.get(name, (name, {}))
        return once(f"tiny-{name}", lambda path: tiny_models.make(path, family, **settings))

    return folder


@pytest.fixture(scope="session")
def tiny(lib: Library, folder) -> Callable[[str], int]:
    """A loaded model, by the name of its folder. Nobody frees it."""
    loaded: dict[str, int] = {}

    def tiny(family: str) -> int:
        if family not in loaded:
            loaded[family] = lib.load(folder(family))
        return loaded[family]

    return tiny


@pytest.fixture(scope="session")
def oracle(lib: Library, tiny) -> Callable[..., Oracle]:
    """What fresh contexts of a tiny model give, by name and kv_bits."""
    oracles: dict[tuple[str, int], Oracle] = {}

    def oracle(family: str, kv_bits: int = 0) -> Oracle:
        made = Oracle(lib, tiny(family), kv_bits=kv_bits)
        return oracles.setdefault((family, kv_bits), made)

    return oracle


@pytest.fixture
def device(monkeypatch) -> Callable[[int], None]:
    """A device with so many bytes left; all work is looked at."""

    def device(available: int) -> None:
        left = memory.limit(available, "the fake device")
        monkeypatch.setattr(memory, "rooms", lambda device: iter([left]))
        monkeypatch.setattr(admission, "RESERVE", 0)
        monkeypatch.setattr(admission, "FRESH", 0)

    return device


@pytest.fixture
def open_context(lib: Library) -> Iterator[Callable[..., int]]:
    """Opens contexts, which are freed afterwards unless the test has freed them."""
    handles: list[int] = []

    def open_context(model: int, **params) -> int:
        handles.append(lib.context(model, **params))
        return handles[-1]

    yield open_context
    for handle in handles:
        lib.c.cow_mlx_context_free(handle)


@pytest.fixture
def says(lib, tmp_path, open_context):
    """A context on a model that gives one answer to one conversation."""
    loaded = []

    def says(answer, template=scripted.CHATML, markers=(), messages=None, options=None, **settings):
        messages = messages or [{"role": "user", "content": "Is it raining in Oslo?"}]
        folder = tmp_path / str(len(loaded))
        scripted.make(folder, template, markers, **settings)
        asked = lib.load(folder)
        prompt = lib.chat_prompt(asked, messages, **(options or {}))
        end = lib.info(asked)["end_tokens"][0]["text"]
        tokens = lib.tokenize(asked, answer + end, PARSE_SPECIAL)
        lib.free_model(asked)
        scripted.tell(folder, len(prompt), tokens)
        loaded.append(lib.load(folder))
        return open_context(loaded[-1])

    yield says
    for model in loaded:
        lib.free_model(model)


@pytest.fixture
def control_group() -> Iterator[Path]:
    """A control group for the memory of processes that a test starts."""
    with groups.made() as folder:
        if folder is None:
            pytest.skip("no control group can be made for memory (needs a writable cgroup)")
        yield folder


@pytest.fixture(scope="session")
def mlx_lm(once, folder) -> Callable[[str], dict[str, Any]]:
    """What plain mlx-lm gives for a task of ``TASKS``, by its name."""

    def ask(path: Path) -> None:
        tasks = [{**task, "folder": str(folder(task["model"]))} for task in TASKS.values()]
        (path / "answers.json").write_text(json.dumps(reference.run(tasks, path)))

    answers = json.loads((once("reference", ask) / "answers.json").read_text())
    named = dict(zip(TASKS, answers, strict=True))

    def answer(name: str) -> dict[str, Any]:
        assert "error" not in named[name], f"mlx-lm fails itself: {named[name]['error']}"
        return named[name]

    return answer
