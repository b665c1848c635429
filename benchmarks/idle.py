"""Threads, resident memory in MB and milliseconds a token with many idle contexts of calf.

One C host. Each idle context has generated 20 tokens from a prompt of 8; then another one
generates, and the median time of its tokens is taken.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from benchmarks.memory import resident
from benchmarks.support.compiler import compile_host
from benchmarks.support.models import calf, random_prompt
from benchmarks.support.peers import Peer
from benchmarks.support.report import Row

COUNTS = (1, 100, 300, 1000, 10_000)
TOKENS = 20


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = calf()
    prompt = random_prompt(folder, 8)
    rows: list[Row] = []
    with Peer([compile_host("idle"), folder]) as peer:
        for count in COUNTS:
            (seconds,) = peer.ask("idle", TOKENS, count, *prompt)
            rows.append(
                {
                    "model": name,
                    "idle contexts": count,
                    "threads": threads(peer.pid),
                    "RSS": resident(peer.pid)["RSS"],
                    "ms a token": 1000 * float(seconds),
                }
            )
    return rows


def threads(pid: int) -> int:
    """How many threads a process has."""
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():
        return len(list(tasks.iterdir()))
    command = ["ps", "-M", "-p", str(pid)]  # macOS: a heading, then a line for each
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return len(output.splitlines()) - 1
