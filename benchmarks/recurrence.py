"""Prefill tokens/s of the chunkwise mLSTM against one position after the other, by chunk size.

One Python process on the engine's network (27M, 8 blocks); the sizes take turns. "cell" is the
recurrence of one block alone, "model" the whole network without the logits of the prompt. The
ratio is to "sequential"; the aim is 5 for the best size.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.support.models import random_model
from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

LENGTH = 2048
CHUNKS = (16, 32, 64, 128, 256)
SEQUENTIAL = 0


def measure(large: bool) -> list[Row]:
    """Measure the recurrence alone, and in a model."""
    with Peer([sys.executable, HOSTS / "recurrence.py", random_model("long-xlstm")]) as host:
        return compare(host, "cell", blocks=6) + compare(host, "model", blocks=4)


def compare(host: Peer, what: str, *, blocks: int) -> list[Row]:
    """Measure all sizes of chunks."""

    def rate(chunk: int) -> float:
        return LENGTH / float(host.ask(what, chunk, LENGTH)[0])

    sequential, *chunkwise = take_turns(
        blocks, *(lambda chunk=chunk: rate(chunk) for chunk in (SEQUENTIAL, *CHUNKS))
    )
    return [
        {
            "what": what,
            "tokens": LENGTH,
            "chunk": chunk,
            "chunkwise": median(rates),
            "sequential": median(sequential),
            "ratio": median_ratio(rates, sequential),
            "blocks": {"chunkwise": rates, "sequential": sequential},
        }
        for chunk, rates in zip(CHUNKS, chunkwise, strict=True)
    ]
