"""A wiring's two equal branches on a stream each, against one after the other: ms of a pass.

One Python process runs the engine's networks; the two forms take turns. "work" is the number of
multiplications of one block: above a threshold, separate streams are faster.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

DIMS = (128, 512, 1024)
TOKENS = (1, 16, 128, 512)
BLOCKS = 9


def measure(large: bool) -> list[Row]:
    """Measure blocks of several sizes on passes of several lengths."""
    rows = []
    for dims in DIMS:
        with Peer([sys.executable, HOSTS / "branches.py", dims]) as host:
            rows += [compare(host, dims, tokens) for tokens in TOKENS]
    return sorted(rows, key=lambda row: row["work"])


def compare(host: Peer, dims: int, tokens: int) -> Row:
    """Measure one size and length."""

    def milliseconds(form: str) -> float:
        return 1e3 * float(host.ask(form, tokens)[0])

    together, apart = take_turns(
        BLOCKS, lambda: milliseconds("together"), lambda: milliseconds("apart")
    )
    return {
        "dims": dims,
        "tokens": tokens,
        "work": 9 * dims * dims * tokens,
        "apart": median(apart),
        "together": median(together),
        "ratio": median_ratio(together, apart),
        "blocks": {"apart": apart, "together": together},
    }
