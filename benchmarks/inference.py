"""Runs of small networks as programs, beside mlx, PyTorch and onnxruntime."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from functools import partial
from statistics import median

from benchmarks.support.cases import Row, benchmark, median_ratio
from benchmarks.support.hosts import PEERS, Peer, has, take_turns
from benchmarks.support.paths import HOSTS

NETWORKS = {  # rows, and runs of a block
    "mlp": {1: 400, 32: 200},
    "convolutions": {1: 400, 32: 40},
    "residual": {1: 40},
    "attention": {1: 200, 32: 20},
    "addition": {1: 1000},
    "chain": {4: 100},
}


@benchmark
def inference(large: bool) -> list[Row]:
    """Runs of small networks, µs: programs, also read from ONNX files, against other libraries.

    Each side is a process with two threads, and they take turns; PyTorch (eager) and onnxruntime
    take part if the Python of COWMLX_TORCH has them, with onnx and numpy. Input and result are the
    host's memory. hosts/inference.py has the networks. A number is the best of all runs, since
    other programs on the machine only make them longer; "cpu" is the median over blocks of the
    processor time of all threads, and a ratio compares the best runs: above 1, the library is
    faster.
    """
    sides = dict.fromkeys(("library", "onnx", "mlx"), sys.executable)
    sides |= {side: PEERS for side in ("torch", "onnxruntime") if has(f"{side}, onnx, numpy")}
    with ExitStack() as stack:
        hosts = {
            side: stack.enter_context(Peer([python, HOSTS / "inference.py", side]))
            for side, python in sides.items()
        }
        return [
            _row(hosts, network, rows, runs)
            for network, counts in NETWORKS.items()
            for rows, runs in counts.items()
        ]


def _row(hosts: dict[str, Peer], network: str, rows: int, runs: int) -> Row:
    sides = {side: partial(host.numbers, network, rows, runs) for side, host in hosts.items()}
    found = take_turns(5, sides)
    row: Row = {"network": network, "rows": rows}
    best = {side: min(least for _, least, *_ in own) for side, own in found.items()}
    row |= {side: 1e6 * least for side, least in best.items()}
    row |= {f"cpu, {side}": 1e6 * median(cpu for *_, cpu, _ in own) for side, own in found.items()}
    ours = best["library"]
    row |= {f"{side} / library": least / ours for side, least in best.items() if side != "library"}
    row["mlx / library, median"] = median_ratio(
        [wall for wall, *_ in found["mlx"]], [wall for wall, *_ in found["library"]]
    )
    return {**row, "blocks": found}
