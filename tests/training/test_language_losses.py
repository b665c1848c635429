"""Losses of training language models: those of mlx-lm's own trainer, but where it is wrong.

With small steps; ``test_language_trajectories.py`` takes large ones, where roundings grow.
"""

from __future__ import annotations

import json
import math
import pathlib
import subprocess
import sys
from typing import Any

import mlx.core as mx
import mlx.optimizers
import pytest
from support import tiny_models
from support.loaded import drain, load

from cowmlx.training.language import data
from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch

HERE = pathlib.Path(__file__).parent
STEPS = 50
TOLERANCE = 1e-5
FOUR_BITS = {"group_size": 32, "bits": 4}
PARAMETERS = {"rank": 4, "scale": 2.0, "dropout": 0.0}
SENTENCES = [
    "The quick brown fox jumps over the lazy dog.",
    "A model reads tokens and writes tokens.",
    "Numbers: 0 1 2 3 42 1999 2024.",
    "She said: it is fine, isn't it?",
    "def add(a, b): return a + b",
]
TEXTS: list[dict[str, Any]] = [
    {"text": f"{SENTENCES[i % 5]} {SENTENCES[(i * i) % 5]} {i}"} for i in range(12)
]
CHATS: list[dict[str, Any]] = [
    {"prompt": SENTENCES[i % 5], "completion": f"{SENTENCES[(i + 1) % 5]} {i}"} for i in range(6)
] + [
    {
        "messages": [
            {"role": "user", "content": SENTENCES[i % 5]},
            {"role": "assistant", "content": SENTENCES[(i + 2) % 5]},
            {"role": "user", "content": "Go on."},
            {"role": "assistant", "content": f"Number {i}."},
        ]
    }
    for i in range(6)
]

# Family, its quantization, the trained layers, the data, and options that differ from those below.
CASES: dict[str, tuple[str, dict[str, Any] | None, str, list[Any], dict[str, Any]]] = {
    "lora": ("llama", None, "lora", TEXTS, {}),
    "dora": ("llama", None, "dora", TEXTS, {}),
    "full": ("llama", None, "full", TEXTS, {}),
    "four bits": ("llama", FOUR_BITS, "lora", TEXTS, {}),
    "masked prompts": (
        "qwen3",
        None,
        "lora",
        CHATS,
        {"mask_prompt": True, "window": 512, "steps": 16},
    ),
    "whole chats": ("qwen3", None, "lora", CHATS, {"window": 512, "steps": 8}),
    "accumulated": ("llama", None, "lora", TEXTS, {"accumulation": 2}),
    "experts": ("qwen3_moe", None, "lora", TEXTS, {}),
    # Steep: with larger steps roundings grow.
    "mamba2": ("mamba2", None, "lora", TEXTS, {"learning_rate": 1e-5}),
}
OPTIONS = {
    "mask_prompt": False,
    "seed": 1,
    "learning_rate": 1e-4,
    "batch_size": 3,
    "steps": STEPS,
    "window": 24,  # shorter than all texts: nothing is filled up
    "accumulation": 1,
    "checkpointing": False,
}


class Case:
    """A model, its data, and what mlx-lm's trainer did with them."""

    def __init__(self, request: dict[str, Any], answer: dict[str, Any]) -> None:
        self.request = request
        self.model = load(request["path"])
        self.losses: list[float] = answer["losses"]
        self.rows: list[tuple[list[int], int]] = answer["rows"]
        self.batches: dict[str, mx.array] = mx.load(answer["batches"])  # type: ignore[assignment]
        self.trained: dict[str, mx.array] = mx.load(answer["trained"])  # type: ignore[assignment]

    def objective(self) -> LanguageObjective:
        """Return the trained layers as they begin."""
        return objective(self.model, self.request)

    def batch(self, index: int, *, padding: bool) -> TokenBatch:
        """Return a batch of mlx-lm's; padding: its masks, which have the token behind a row."""
        tokens, spans = self.batches[f"batch.{index}"], self.batches[f"lengths.{index}"]
        places = mx.arange(tokens.shape[1])
        end = spans[:, 1:] + (1 if padding else 0)
        first = mx.maximum(spans[:, :1], 1)
        return TokenBatch(tokens, mx.logical_and(places >= first, places < end))


def objective(model: Any, request: dict[str, Any]) -> LanguageObjective:
    options = {"type": request["type"], "grad_checkpoint": request["checkpointing"], "seed": 7}
    if request["type"] != "full":
        options |= PARAMETERS
    made: LanguageObjective = drain(LanguageObjective.steps(model, LanguageOptions(options)))[0]
    return made


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folder = tmp_path_factory.mktemp("trained")
    requests = []
    for index, (family, quantize, kind, lines, others) in enumerate(CASES.values()):
        path = tiny_models.make(folder / f"model-{index}", family, quantize=quantize)
        request = {**OPTIONS, **others, "type": kind, "parameters": PARAMETERS, "path": str(path)}
        request["data"] = str(folder / f"data-{index}.jsonl")
        pathlib.Path(request["data"]).write_text("".join(json.dumps(x) + "\n" for x in lines))
        begin = objective(load(path), request).parameters()
        request["begin"] = str(folder / f"begin-{index}.safetensors")
        mx.save_safetensors(request["begin"], begin)
        requests.append(request)
    done = subprocess.run(
        [sys.executable, str(HERE / "plain_trainer.py"), str(folder)],
        input=json.dumps(requests),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    answers = json.loads(done.stdout.splitlines()[-1])
    return {
        name: Case(request, answer)
        for name, request, answer in zip(CASES, requests, answers, strict=True)
    }


def train(case: Case) -> list[float]:
    """Train with mlx's own optimizer; return each micro-batch's loss."""
    trained = case.objective()
    optimizer = mlx.optimizers.Adam(learning_rate=case.request["learning_rate"])
    losses = []
    waiting: list[tuple[mx.array, dict[str, mx.array]]] = []
    for index in range(case.request["steps"]):
        value, count, gradients = trained.gradients(case.batch(index, padding=True), None)
        losses.append((value / count).item())
        waiting.append((count, gradients))
        if len(waiting) == case.request["accumulation"]:
            targets = sum(count for count, _ in waiting)
            mean = {
                name: sum(each[name] for _, each in waiting) / targets
                for name in trained.parameters()
            }
            values = optimizer.apply_gradients(mean, trained.parameters())
            mx.eval(values, optimizer.state)
            trained.set_parameters(values)
            waiting = []
    return losses


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_losses_are_those_of_mlx_lm(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    found = train(case)
    assert len(found) == len(case.losses) == case.request["steps"]
    far = [
        (step, ours, plain)
        for step, (ours, plain) in enumerate(zip(found, case.losses, strict=True))
        if abs(ours - plain) > TOLERANCE * plain
    ]
    assert not far
    assert all(map(math.isfinite, found))
    assert found[-1] != found[0]


@pytest.mark.plain
@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_mlx_lm(name: str, cases: dict[str, Case]) -> None:
    case = cases[name]
    options = {"mask_prompt": case.request["mask_prompt"], "shuffle": False, "batch_size": 1}
    source = drain(data.read_lines(case.model, case.request["data"], data.DataOptions(options)))[0]
    for tokens, offset in case.rows:
        batch = source.batch(0).micro_batches[0]
        assert batch.tokens.tolist() == [tokens]
        targets = [index >= max(offset, 1) for index in range(len(tokens))]
        assert batch.targets.tolist() == [targets]
    assert source.batch(0) is None


@pytest.mark.plain
def test_no_pad_token_is_learnt(cases: dict[str, Case]) -> None:
    """mlx-lm counts the pad token behind a row that is shorter than its batch as a target."""
    case = cases["whole chats"]
    trained = case.objective()
    with_pad, without = (case.batch(0, padding=padding) for padding in (True, False))
    padded, targets, _ = trained.gradients(with_pad, None)
    plain, fewer, _ = trained.gradients(without, None)
    rows = with_pad.tokens.shape[0]
    assert targets.item() - fewer.item() == rows
    assert (padded / targets).item() == pytest.approx(case.losses[0], rel=TOLERANCE)
    difference = abs((padded / targets).item() / (plain / fewer).item() - 1)
    assert difference > 10 * TOLERANCE  # 1e-3 here


@pytest.mark.plain
def test_mean_over_tokens_is_no_mean_of_means(cases: dict[str, Case]) -> None:
    """mlx-lm accumulates means of micro-batches, however few targets one has."""
    case = cases["masked prompts"]
    trained = case.objective()
    parts = [trained.gradients(case.batch(index, padding=False), None) for index in range(2)]
    counts = [count.item() for _, count, _ in parts]
    assert counts[0] != counts[1]
    tokens = sum(value for value, _, _ in parts) / sum(counts)
    means = sum(value / count for value, count, _ in parts) / 2
    assert abs(tokens.item() / means.item() - 1) > 10 * TOLERANCE  # 5e-4 here
