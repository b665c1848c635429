"""Training steps in tokens/s and peak memory, against mlx-lm's own trainer with the same BLAS.

Batches of 4 rows of 128 targets, Adam, LoRA of rank 8 on all layers or all weights. The sides take
turns, each in processes of its own. "cpu" is by processor time of all threads, which a busy machine
changes less. "MB" is the peak of mlx's arrays; with "checkpoint" activations are computed again.
mlx-lm compiles its steps, for which it runs a C++ compiler on a CPU.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import median
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

from benchmarks.support.models import random_model
from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

STEPS = 8  # the first three warm up
BLOCKS = 3
ROWS = 32
WORDS = 400  # of a row: cut at the window


def measure(large: bool) -> list[Row]:
    """Measure S, and M if asked for."""
    # Not of 4 bits: there a step of mlx-lm takes minutes.
    cases = [("S", "lora", ""), ("S", "full", ""), ("S", "lora", "c"), ("S", "full", "c")]
    if large:
        cases += [("M", "lora", ""), ("M", "full", "")]
    with TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.jsonl"
        text = " ".join(str(n) for n in range(WORDS))
        lines.write_text("".join(f"{json.dumps({'text': f'{n} {text}'})}\n" for n in range(ROWS)))
        return [compare(name, kind, bool(checkpoint), lines) for name, kind, checkpoint in cases]


def compare(name: str, kind: str, checkpoint: bool, lines: Path) -> Row:
    """Measure one way to train a model."""
    folder = random_model(name)
    told = "checkpoint" if checkpoint else "whole"

    def run(side: str) -> tuple[float, ...]:
        command = [sys.executable, HOSTS / "training.py", side, folder, lines, kind, told]
        with Peer(command, stderr=DEVNULL) as host:
            return tuple(map(float, host.ask(STEPS)))

    ours, theirs = take_turns(BLOCKS, lambda: run("library"), lambda: run("mlx-lm"))
    rates, cpus = ([[each[at] for each in side] for side in (ours, theirs)] for at in (0, 1))
    return {
        "model": name,
        "trained": kind + (", checkpoint" if checkpoint else ""),
        "library": median(rates[0]),
        "mlx-lm": median(rates[1]),
        "ratio": median_ratio(*rates),
        "cpu, ratio": median_ratio(*cpus),
        "MB": max(each[2] for each in ours) / 1e6,
        "mlx-lm, MB": max(each[2] for each in theirs) / 1e6,
        "loss": ours[-1][3],
        "mlx-lm, loss": theirs[-1][3],
        "blocks": {"library": rates[0], "mlx-lm": rates[1]},
        "cpu blocks": {"library": cpus[0], "mlx-lm": cpus[1]},
    }
