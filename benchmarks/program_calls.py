"""program_run against array_apply and plain Python mlx: µs of 1, 75 and 1,000 nodes.

One process in Python on the CPU, whose sides take turns. Values are small (4 x 16), so that not
mlx's operations are measured, but the way to them. A program takes the host's memory and fills it;
array_apply makes a call for each node, and the last result is read; plain mlx evaluates an array.
"cpu" are the same in processor time of all threads, which a busy machine changes less.
"""

from __future__ import annotations

import sys
from statistics import median

from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio
from benchmarks.support.report import Row

NODES = {1: 1000, 75: 100, 1000: 10}  # and runs in a block
SIDES = ("program", "apply", "plain")
BLOCKS = 7


def measure(large: bool) -> list[Row]:
    """Measure programs of several lengths."""
    with Peer([sys.executable, HOSTS / "program_calls.py"]) as host:
        return [compare(host, nodes) for nodes in NODES]


def compare(host: Peer, nodes: int) -> Row:
    """Measure one length."""
    walls: dict[str, list[float]] = {side: [] for side in SIDES}
    cpus: dict[str, list[float]] = {side: [] for side in SIDES}
    for block in range(BLOCKS):
        for side in SIDES if block % 2 else SIDES[::-1]:
            wall, cpu = map(float, host.ask(side, nodes, NODES[nodes]))
            walls[side].append(1e6 * wall)
            cpus[side].append(1e6 * cpu)
    return {
        "nodes": nodes,
        **{side: median(walls[side]) for side in SIDES},
        "program / plain": median_ratio(walls["program"], walls["plain"]),
        "program / apply": median_ratio(walls["program"], walls["apply"]),
        **{f"cpu, {side}": median(cpus[side]) for side in SIDES},
        "cpu, program / plain": median_ratio(cpus["program"], cpus["plain"]),
        "blocks": walls,
    }
