"""Trainings beside mlx-lm's own where rounding grows: one batch, memorized with large steps.

Losses then part after some steps, as do those of two runs of mlx-lm whose parameters begin a
rounding apart. At the same parameters losses and gradients stay the same to rounding.
"""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

import mlx.core as mx
import mlx.optimizers
import numpy as np
import pytest
from support import tiny_models
from support.loaded import drain, load
from support.rounding import assert_as_exact

from cowmlx.training.language.objective import LanguageObjective
from cowmlx.training.language.options import LanguageOptions
from cowmlx.training.language.token_inputs import TokenBatch

pytestmark = [pytest.mark.plain, pytest.mark.long]

HERE = pathlib.Path(__file__).parent
STEPS = 50
STATES = [0, 3, 10, 49]
KINDS = ["lora", "dora", "full"]
PARAMETERS = {"rank": 8, "scale": 20.0, "dropout": 0.0}
TEXT = "The quick brown fox jumps over the lazy dog and writes some tokens"
WORDS = TEXT.split()
ROWS = [
    {"text": " ".join(WORDS[(at * step) % len(WORDS)] for at in range(1, 12)) + f" {step}"}
    for step in range(1, 11)
]


def objective(path: str, kind: str) -> LanguageObjective:
    options = {"type": kind, "seed": 7} | ({} if kind == "full" else PARAMETERS)
    made: LanguageObjective = drain(LanguageObjective.steps(load(path), LanguageOptions(options)))[
        0
    ]
    return made


def nudged(array: mx.array, rng: Any) -> mx.array:
    """An array whose numbers are moved to a neighbour, or stay."""
    numbers = np.array(array)
    ends = np.where(rng.random(numbers.shape) < 0.5, -np.inf, np.inf).astype(np.float32)
    return mx.array(np.nextafter(numbers, ends))


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], Any]:
    folder = tmp_path_factory.mktemp("steep")
    path = str(tiny_models.make(folder / "model", "llama"))
    data = folder / "rows.jsonl"
    data.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    requests = {}
    for kind in KINDS:
        begin = objective(path, kind).parameters()
        rng = np.random.default_rng(0)
        for number, values in enumerate((begin, {k: nudged(v, rng) for k, v in begin.items()})):
            saved = str(folder / f"begin-{kind}-{number}.safetensors")
            mx.save_safetensors(saved, values)
            requests[kind, number] = {
                "path": path, "data": str(data), "type": kind, "parameters": PARAMETERS,
                "begin": saved, "mask_prompt": False, "seed": 1, "learning_rate": 1e-3,
                "batch_size": len(ROWS), "steps": STEPS, "window": 24, "accumulation": 1,
                "checkpointing": False, "states": [] if number else STATES,
            }  # fmt: skip
    done = subprocess.run(
        [sys.executable, str(HERE / "plain_trainer.py"), str(folder)],
        input=json.dumps(list(requests.values())),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    return {
        key: {**request, **answer}
        for (key, request), answer in zip(requests.items(), found, strict=True)
    }


def batch(answer: dict[str, Any], step: int) -> TokenBatch:
    arrays: Any = mx.load(answer["batches"])
    tokens, spans = arrays[f"batch.{step}"], arrays[f"lengths.{step}"]
    places = mx.arange(tokens.shape[1])
    # mlx-lm learns the token behind a row, too.
    targets = mx.logical_and(places >= mx.maximum(spans[:, :1], 1), places < spans[:, 1:] + 1)
    return TokenBatch(tokens, targets)


@pytest.mark.parametrize("kind", KINDS)
def test_losses_and_gradients_are_those_of_mlx_lm_at_the_same_parameters(kind, answers):
    answer = answers[kind, 0]
    trained = objective(answer["path"], kind)
    for state in answer["states"]:
        trained.set_parameters(mx.load(state["parameters"]))
        value, count, found = trained.gradients(batch(answer, state["step"]), None)
        exact = state["loss"] - state["error"]
        assert (value / count).item() == pytest.approx(exact, rel=1e-6, abs=1e-6)
        plain: Any = mx.load(state["gradients"])
        errors: Any = mx.load(state["errors"])
        assert set(found) == set(plain)
        for name, gradient in found.items():
            assert_as_exact(gradient / count, plain[name], errors[name])


@pytest.mark.parametrize("kind", KINDS)
def test_losses_part_no_sooner_than_those_of_mlx_lm(kind, answers):
    answer, other = (answers[kind, number] for number in (0, 1))
    trained = objective(answer["path"], kind)
    optimizer = mlx.optimizers.Adam(learning_rate=answer["learning_rate"])
    own = []
    for step in range(STEPS):
        value, count, gradients = trained.gradients(batch(answer, step), None)
        own.append((value / count).item())
        mean = {name: gradients[name] / count for name in trained.parameters()}
        values = optimizer.apply_gradients(mean, trained.parameters())
        mx.eval(values, optimizer.state)
        trained.set_parameters(values)
    plain, near = (np.array(each["losses"]) for each in (answer, other))
    drift, usual = (np.abs(each - plain) / plain for each in (np.array(own), near))
    assert usual.max() > 1e-5  # what mlx-lm's own runs agree to
    assert np.all(drift[:10] <= 100 * np.maximum(np.maximum.accumulate(usual[:10]), 1e-6))
    assert plain[-1] < 0.01 * plain[0]
