"""What activations of eight bits cost a model with packed weights, beside what packing costs.

Python processes on the engine's networks, with kernels: calf on tokens that it has drawn itself,
and random models on random tokens. "KL" is the mean divergence of the next token's distribution in
1e-3 nats, "changed" the share of positions in percent where another token is the best: "packed" of
packed weights from those of 32 bits, both exact; "int8" of activations of eight bits from exact
ones, with the same packed weights.
"""

from __future__ import annotations

import sys

from benchmarks.support.models import calf, random_model
from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer
from benchmarks.support.report import Row

MODELS = ("S", "M")
PACKINGS = (4, 8)  # bits
SEQUENCES, LENGTH = 8, 256  # of tokens


def measure(large: bool) -> list[Row]:
    """Measure on calf and on random models."""
    folders = [calf(), *((name, random_model(name)) for name in MODELS[: 2 if large else 1])]
    rows: list[Row] = []
    for name, folder in folders:
        drawn = "drawn" if name == "calf" else "random"
        with Peer([sys.executable, HOSTS / "activations.py", folder]) as host:
            for bits in PACKINGS:
                answer = host.ask(drawn, bits, SEQUENCES, LENGTH)
                packed, packed_changed, int8, int8_changed = map(float, answer)
                rows.append(
                    {
                        "model": name,
                        "bits": bits,
                        "packed, KL": 1e3 * packed,
                        "int8, KL": 1e3 * int8,
                        "packed, changed %": 100 * packed_changed,
                        "int8, changed %": 100 * int8_changed,
                    }
                )
    return rows
