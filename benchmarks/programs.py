"""A program's run against the same function in plain Python mlx: µs of 1, 75 and 1,000 nodes.

One Python process on the CPU, whose two sides take turns. Values are small (4 x 16), so that not
mlx's operations are measured, but the way to them. "gradient" is the derivative of the result's
sum. "cpu" are the same in processor time of all threads, which a busy machine changes less.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

NODES = {1: 3000, 75: 200, 1000: 20}  # and runs in a block
BLOCKS = 9


def measure(large: bool) -> list[Row]:
    """Measure programs of several lengths, and their gradients."""
    with Peer([sys.executable, HOSTS / "programs.py"]) as host:
        return [compare(host, nodes, what) for nodes in NODES for what in ("value", "gradient")]


def compare(host: Peer, nodes: int, what: str) -> Row:
    """Measure one length."""

    def microseconds(side: str) -> tuple[float, float]:
        wall, cpu = map(float, host.ask(side, what, nodes, NODES[nodes]))
        return 1e6 * wall, 1e6 * cpu

    program, plain = take_turns(
        BLOCKS, lambda: microseconds("program"), lambda: microseconds("plain")
    )
    walls = [[wall for wall, _ in side] for side in (program, plain)]
    cpus = [[cpu for _, cpu in side] for side in (program, plain)]
    return {
        "nodes": nodes,
        "what": what,
        "program": median(walls[0]),
        "plain": median(walls[1]),
        "ratio": median_ratio(*walls),
        "cpu, program": median(cpus[0]),
        "cpu, plain": median(cpus[1]),
        "cpu, ratio": median_ratio(*cpus),
        "blocks": {"program": walls[0], "plain": walls[1]},
    }
