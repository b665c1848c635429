"""Runs of small networks as programs, beside mlx, PyTorch and onnxruntime."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.support.cases import Row, benchmark, median_ratio
from benchmarks.support.hosts import PEERS, Peer, compile_host, has, take_turns
from benchmarks.support.paths import HOSTS

PROGRAM = HOSTS / "inference.py"
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
    take part if the Python of COWMLX_TORCH has them, with onnx and numpy. "library" is a host in C;
    "python" one in Python, whose interpreter it shares with the library, as is "onnx". Input and
    result are the host's memory. hosts/inference.py has the networks. A number is the best of all
    runs, since other programs on the machine only make them longer; "cpu" is the median over blocks
    of the processor time of all threads, and a ratio compares the best runs: above 1, the library
    is faster.
    """
    sides = {"python": "library", "onnx": "onnx", "mlx": "mlx"}
    commands = {side: [sys.executable, PROGRAM, own] for side, own in sides.items()}
    for side in ("torch", "onnxruntime"):
        if has(f"{side}, onnx, numpy"):
            commands[side] = [PEERS, PROGRAM, side]
    with ExitStack() as stack:
        folder = stack.enter_context(TemporaryDirectory())
        counts = {rows for counts in NETWORKS.values() for rows in counts}
        subprocess.run([sys.executable, PROGRAM, "write", folder, *map(str, counts)], check=True)
        commands = {"library": [compile_host("inference"), folder], **commands}
        hosts = {side: stack.enter_context(Peer(command)) for side, command in commands.items()}
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
