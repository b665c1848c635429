"""A worker on this machine, and models that are split between it and this process's rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import tiny_models
from support.workers import SECRET, Worker, on

LONG = {"max_position_embeddings": 8192}
# By name: the family, its config, and how it is split. Heads divide by two and four.
MODELS = {
    "tensor": ("llama", {**LONG, "num_hidden_layers": 4, "num_key_value_heads": 4}, 1),
    "pipeline": ("qwen2", {"num_hidden_layers": 4}, 2),
}


@pytest.fixture(scope="session")
def place(once) -> Path:
    """A folder with the models and the secret."""

    def fill(path: Path) -> None:
        (path / "secret").write_text(f"{SECRET}\n")
        for name, (family, config, _) in MODELS.items():
            tiny_models.make(path / "models" / name, family, config=config)

    return once("machines", fill)


@pytest.fixture(scope="session")
def secret(place) -> Path:
    """The file of the secret."""
    return place / "secret"


@pytest.fixture(scope="module")
def start_worker(place, secret) -> Iterator[Callable[..., Worker]]:
    """Starts workers, which end with the module."""
    workers: list[Worker] = []

    def start(*options: str, models: Path = place / "models", **more: str) -> Worker:
        workers.append(Worker(models, secret, *options, **more))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.process.poll() is None:
            worker.end()


@pytest.fixture(scope="module")
def worker(start_worker) -> Worker:
    """A worker for several models at a time."""
    return start_worker("--sessions", "4")


@pytest.fixture(scope="module")
def split(lib, place, worker, secret) -> Iterator[Callable[[str], int]]:
    """A model on two ranks, by its name; freed with the module."""
    loaded: dict[str, int] = {}

    def split(name: str) -> int:
        if name not in loaded:
            kind = MODELS[name][2]
            loaded[name] = lib.load(place / "models" / name, **on([worker], secret, split=kind))
        return loaded[name]

    yield split
    for model in loaded.values():
        lib.free_model(model)


@pytest.fixture(scope="session")
def whole(lib, place) -> Callable[[str], int]:
    """The same model in this process, by its name. Nobody frees it."""
    loaded: dict[str, int] = {}

    def whole(name: str) -> int:
        if name not in loaded:
            loaded[name] = lib.load(place / "models" / name)
        return loaded[name]

    return whole
