"""Eight contexts that draw at temperature 0.8, a thread each: together against one after the other.

Aggregate decode tokens/s of a C host. "together" is what a host gets; "locked" whole generations
one after the other, behind one lock; the aim is a ratio of 4. "greedy" is the ratio of the same
without draws: what sampling costs is the difference. They take turns.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

CONTEXTS, TOKENS, BLOCKS = 8, 96, 4
WAYS = ("together@0.8", "locked@0.8", "together", "locked")


def measure(large: bool) -> list[Row]:
    """Measure calf, a model of 15M, and a vocabulary of 128,000 tokens."""
    models = [endless_calf()]
    models += [(name, random_model(name)) for name in ("S of 4 bits", "wide")]
    return [_compared(*model) for model in models]


def _compared(name: str, folder: Path) -> Row:
    prompt = random_prompt(folder, 32)

    def rate(host: Peer, way: str) -> float:
        return float(host.ask(way, TOKENS, CONTEXTS, *prompt)[0])

    with Peer([compile_host("crowd"), folder]) as host:
        runs = take_turns(BLOCKS, *(partial(rate, host, way) for way in WAYS))
    together, locked, greedy, greedy_locked = runs
    return {
        "model": name,
        "contexts": CONTEXTS,
        "together": median(together),
        "locked": median(locked),
        "ratio": median_ratio(together, locked),
        "greedy": median_ratio(greedy, greedy_locked),
        "blocks": dict(zip(WAYS, runs, strict=True)),
    }
