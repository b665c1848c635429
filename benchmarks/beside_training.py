"""Contexts that generate while their model is trained: tokens/s, gaps, micro-batches/s.

One C host. LoRA on all layers, batches of 4 rows of 128 targets, each a micro-batch, beside 1 and 4
contexts that never pause. "gap" is the longest between two tokens of a context, and "gap in
micro-batches" how many the training computes alone in that time; "share" is how much of what it
computes alone it has beside the contexts.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

BLOCKS = 3
ROWS, WORDS = 32, 400
SECONDS = 3  # of training alone


def measure(large: bool) -> list[Row]:
    """Measure calf, and S if asked for."""
    models = [(*endless_calf(), 4000)]
    if large:
        models.append(("S", random_model("S"), 500))
    with TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.jsonl"
        text = " ".join(str(n) for n in range(WORDS))
        lines.write_text("".join(f"{json.dumps({'text': f'{n} {text}'})}\n" for n in range(ROWS)))
        return [row for model in models for row in compare(*model, lines)]


def compare(name: str, folder: Path, count: int, lines: Path) -> list[Row]:
    """Measure a model with 1 and 4 contexts, of so many tokens together."""
    prompt = random_prompt(folder, 32)
    rows: list[Row] = []
    with Peer([compile_host("beside_training"), folder, lines]) as host:

        def ask(kind: str, tokens: int, threads: int) -> list[float]:
            return list(map(float, host.ask(kind, tokens, threads, *prompt)))

        for threads in (1, 4):
            each = count // threads
            alone, beside, train = take_turns(
                BLOCKS,
                lambda each=each, threads=threads: ask("alone", each, threads),
                lambda each=each, threads=threads: ask("beside", each, threads),
                lambda: ask("train", SECONDS, 1),
            )
            speeds = [[rate for rate, _, _ in side] for side in (alone, beside)]
            paces = [[pace for _, _, pace in side] for side in (beside, train)]
            rows.append(
                {
                    "model": name,
                    "contexts": threads,
                    "alone, tokens/s": median(speeds[0]),
                    "beside, tokens/s": median(speeds[1]),
                    "ratio": median_ratio(speeds[1], speeds[0]),
                    "gap alone, ms": 1e3 * median(gap for _, gap, _ in alone),
                    "gap, ms": 1e3 * median(gap for _, gap, _ in beside),
                    "gap in micro-batches": median(
                        gap * pace for (_, gap, _), pace in zip(beside, paces[1], strict=True)
                    ),
                    "micro-batch alone, ms": 1e3 / median(paces[1]),
                    "share": median_ratio(*paces),
                    "blocks": {"alone": alone, "beside": beside, "train": train},
                }
            )
    return rows
