"""Training steps/s of a perceptron and a convolution network, against plain mlx and PyTorch.

Batches of 64 pictures of 28 x 28, Adam, the loss of each step read by the host. One process for
each side, which take turns; mlx has the library's BLAS. PyTorch is there if the Python of
COWMLX_TORCH, or else /usr/bin/python3, has it. "cpu" is by processor time of all threads, which a
busy machine changes less.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from statistics import median

from benchmarks.support.paths import HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

STEPS = {"perceptron": 200, "convolutions": 20}
BLOCKS = 3
TORCH = os.environ.get("COWMLX_TORCH", "/usr/bin/python3")


def measure(large: bool) -> list[Row]:
    """Measure both networks."""
    pythons = {"library": sys.executable, "mlx": sys.executable}
    if has_torch():
        pythons["torch"] = TORCH
    with ExitStack() as stack:
        hosts = {
            side: stack.enter_context(Peer([python, HOSTS / "networks.py", side]))
            for side, python in pythons.items()
        }
        return [compare(hosts, network) for network in STEPS]


def has_torch() -> bool:
    """Whether there is PyTorch to compare with."""
    try:
        command = [TORCH, "-c", "import torch, numpy"]
        return not subprocess.run(command, check=False, capture_output=True).returncode
    except OSError:
        return False


def compare(hosts: dict[str, Peer], network: str) -> Row:
    """Measure one network."""

    def ask(host: Peer) -> tuple[float, ...]:
        return tuple(map(float, host.ask(network, STEPS[network])))

    found = dict(
        zip(
            hosts,
            take_turns(BLOCKS, *(lambda host=host: ask(host) for host in hosts.values())),
            strict=True,
        )
    )
    row: Row = {"network": network}
    for side, answers in found.items():
        row[side] = median(rate for rate, _, _ in answers)
        row[f"{side}, loss"] = answers[-1][2]
    for side in list(found)[1:]:
        for at, name in enumerate(("", "cpu, ")):
            rates = [[each[at] for each in found[one]] for one in ("library", side)]
            row[f"{name}library / {side}"] = median_ratio(*rates)
    row["blocks"] = {side: [rate for rate, _, _ in answers] for side, answers in found.items()}
    return row
