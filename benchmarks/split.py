"""What a token costs, in microseconds: in all, and of it building and evaluating its graph.

A C host on the library, and a Python process that does nothing but these two, one after the
other; they take turns. "rest" is sampling, detokenizing, the scheduler, the queue and the host's
thread, less what overlaps with evaluation. "one layer" is calf's shape with a single layer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, c_host, take_turns
from benchmarks.support.report import Row

TOKENS, BLOCKS = 200, 6


def measure(large: bool) -> list[Row]:
    """Measure calf and a model of one layer."""
    return [compare(*endless_calf()), compare("one layer", random_model("one-layer"))]


def compare(name: str, folder: Path) -> Row:
    """Measure one model."""
    prompt = random_prompt(folder, 32)
    with c_host(folder) as ours, Peer([sys.executable, HOSTS / "split.py", folder]) as bare:
        whole, parts = take_turns(
            BLOCKS,
            lambda: 1e6 * ours.generate("next", TOKENS, prompt).rest / (TOKENS - 1),
            lambda: [float(word) for word in bare.ask("split", TOKENS, *prompt)],
        )
    building, evaluating = (median(values) for values in zip(*parts, strict=True))
    total = median(whole)
    return {
        "model": name,
        "token": total,
        "building": building,
        "evaluating": evaluating,
        "rest": total - building - evaluating,
        "blocks": {"token": whole, "parts": parts},
    }
