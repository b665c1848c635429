"""Latency of the first token in ms behind 1,000 tokens, with and without a warm prefix.

One C host; the kinds take turns. "cold" processes the whole prompt; "warm" a prompt of
which its context holds all but the last 16 tokens; "shared" a new context for which another
one has processed as much. The ratio is that of "cold".
"""

from __future__ import annotations

from itertools import count
from statistics import median

from benchmarks.support.models import endless_calf, random_prompt
from benchmarks.support.peers import c_host, median_ratio, take_turns
from benchmarks.support.report import Row

LENGTH, NEW = 1000, 16
BLOCKS = 8


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = endless_calf()
    seeds = count()
    with c_host(folder) as host:

        def first(kind: str) -> float:
            prompt = random_prompt(folder, LENGTH + NEW, next(seeds))  # that nobody has seen
            if kind != "cold":  # what was there before
                host.generate(kind, 0, prompt[:LENGTH])
            return 1e3 * host.generate("next" if kind == "cold" else kind, 1, prompt).first

        kinds = ("cold", "warm", "shared")
        times = take_turns(BLOCKS, *(lambda kind=kind: first(kind) for kind in kinds))
    cold = median(times[0])
    return [
        {
            "model": name,
            "prefix": kind,
            "first token": median(runs),
            "cold": cold,
            "ratio": median_ratio(runs, times[0]),
            "blocks": runs,
        }
        for kind, runs in zip(kinds[1:], times[1:], strict=True)
    ]
