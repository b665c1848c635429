"""A training step's loss and gradients, µs: a program over the C ABI against plain Python mlx.

One process in Python on the CPU, whose two sides take turns, with a batch of 64. "perceptron" has
layers of 784, 256, 128 and 10; "convolutions" two of 3 x 3 with a stride of 2, and a layer. "cpu"
are the same in processor time of all threads, which a busy machine changes less; "difference" is
the largest between numbers of the two.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

RUNS = {"perceptron": 40, "convolutions": 10}  # in a block
BLOCKS = 9


def measure(large: bool) -> list[Row]:
    """Measure both networks."""
    with Peer([sys.executable, HOSTS / "gradients.py"]) as host:
        return [compare(host, network) for network in RUNS]


def compare(host: Peer, network: str) -> Row:
    """Measure one network."""
    (difference,) = map(float, host.ask("check", network, 0))

    def microseconds(side: str) -> tuple[float, float]:
        wall, cpu = map(float, host.ask(side, network, RUNS[network]))
        return 1e6 * wall, 1e6 * cpu

    program, plain = take_turns(
        BLOCKS, lambda: microseconds("program"), lambda: microseconds("plain")
    )
    walls = [[wall for wall, _ in side] for side in (program, plain)]
    cpus = [[cpu for _, cpu in side] for side in (program, plain)]
    return {
        "network": network,
        "program": median(walls[0]),
        "plain": median(walls[1]),
        "ratio": median_ratio(*walls),
        "cpu, program": median(cpus[0]),
        "cpu, plain": median(cpus[1]),
        "cpu, ratio": median_ratio(*cpus),
        "difference": difference,
        "blocks": {"program": walls[0], "plain": walls[1]},
    }
