"""Calf's network, trained over the C ABI from random weights, is where its own trainer is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.signatures import TRAINING_STEP

from tools.calf.train import BETAS, CLIP_NORM, LAST_RATE, PEAK_RATE, WEIGHT_DECAY

TRAINER = Path(__file__).parent / "calf_trainer.py"
STEPS = {"stories": 6, "chats": 18}
OPTIONS = {"seed": 7, "batch_size": 3, "warm_up": 5, "steps": STEPS}
# Its trainer's exponentials are short polynomials; what they round otherwise grows with the steps.
TOLERANCE = 1e-4


def optimizer() -> dict[str, object]:
    """What its trainer makes steps with."""
    fall = sum(STEPS.values()) - OPTIONS["warm_up"]
    return {
        "name": "adamw",
        "betas": BETAS,
        "weight_decay": WEIGHT_DECAY,
        "bias_correction": True,
        "learning_rate": {
            "name": "join_schedules",
            "boundaries": [OPTIONS["warm_up"]],
            "schedules": [
                {
                    "name": "linear_schedule",
                    "init": 0.0,
                    "end": PEAK_RATE,
                    "steps": OPTIONS["warm_up"],
                },
                {
                    "name": "cosine_decay",
                    "init": PEAK_RATE,
                    "decay_steps": fall,
                    "end": LAST_RATE,
                },
            ],
        },
    }


@pytest.mark.long
def test_each_loss_is_that_of_its_own_trainer(trainings, lib, tmp_path):
    done = subprocess.run(
        [sys.executable, TRAINER, tmp_path, json.dumps(OPTIONS)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    expected = json.loads(done.stdout)
    model = lib.load(tmp_path / "model")
    training = trainings.create_for_model(
        model, optimizer=optimizer(), clip_norm=CLIP_NORM, fine_tune={"type": "full"}
    )
    losses, until = [], 0
    for name, steps in STEPS.items():
        until += steps
        events = trainings.fit(
            training,
            lines_file=tmp_path / f"{name}.jsonl",
            lines_options={"mask_prompt": name == "chats"},
            batch_size=OPTIONS["batch_size"],
            shuffle=False,
            steps=until,
        )
        losses += [event.loss for event in events if event.kind == TRAINING_STEP]
    assert len(losses) == len(expected) == sum(STEPS.values())
    far = [abs(one - other) / other for one, other in zip(losses, expected, strict=True)]
    assert max(far) < TOLERANCE
    stories = STEPS["stories"]
    assert losses[stories - 1] < losses[0] - 1.5 and losses[-1] < losses[stories] - 1
    trainings.free(training)
    lib.free_model(model)
