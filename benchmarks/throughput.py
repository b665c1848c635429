"""Aggregate decode tokens/s of many contexts, a thread each, against other ways to do it.

One process each; the ways take turns. "together" is what a host gets; "reference" the same
without the optimised BLAS; "alone" contexts that are never batched; "locked" whole generations
one after the other, behind one lock; "mlx-lm" its batch_generate in plain Python. Tokens are the
best ones, but for "sampled" and "sampled locked", at temperature 0.8. Ratios: to mlx-lm and, with
its BLAS, to it; to the locked ones (aims: 4 at 8 contexts, sampled too).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

CONTEXTS = (1, 2, 4, 8, 16, 32)


def measure(large: bool) -> list[Row]:
    """Measure calf, and M if asked for."""
    rows = compare(*endless_calf(), contexts=CONTEXTS, max_tokens=128, blocks=4)
    if large:
        rows += compare("M", random_model("M"), contexts=(1, 8), max_tokens=16, blocks=2)
    return rows


def compare(
    name: str, folder: Path, *, contexts: tuple[int, ...], max_tokens: int, blocks: int
) -> list[Row]:
    """Measure one model."""
    prompt = random_prompt(folder, 32)
    program = compile_host("crowd")
    plain = {**os.environ, "COWMLX_BLAS": "reference"}
    with (
        Peer([program, folder]) as ours,
        Peer([program, folder], env=plain) as reference,
        Peer([sys.executable, HOSTS / "batch.py", folder]) as theirs,
    ):

        def rate(peer: Peer, kind: str, count: int) -> list[float]:
            return [float(word) for word in peer.ask(kind, max_tokens, count, *prompt)]

        rows = []
        for count in contexts:
            ways = {
                "together": (ours, "together"),
                "alone": (ours, "alone"),
                "locked": (ours, "locked"),
                "sampled": (ours, "together@0.8"),
                "sampled locked": (ours, "locked@0.8"),
                "reference": (reference, "together"),
                "mlx-lm": (theirs, "batch"),
            }
            runs = take_turns(
                blocks, *(lambda way=way, n=count: rate(*way, n) for way in ways.values())
            )
            rates = {way: [run[0] for run in own] for way, own in zip(ways, runs, strict=True)}
            row: Row = {"model": name, "contexts": count}
            row |= {way: median(own) for way, own in rates.items()}
            row |= {
                "ratio": median_ratio(rates["together"], rates["mlx-lm"]),
                "same BLAS": median_ratio(rates["reference"], rates["mlx-lm"]),
                "to locked": median_ratio(rates["together"], rates["locked"]),
                "sampled to locked": median_ratio(rates["sampled"], rates["sampled locked"]),
                "slowest/fastest": median(run[2] / run[3] for run in runs[0]),
                "first token ms": 1e3 * median(run[1] for run in runs[0]),
            }
            rows.append({**row, "blocks": rates})
    return rows
