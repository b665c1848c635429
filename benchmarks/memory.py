"""Resident memory in MB with a model loaded: C host against mlx-lm in plain Python.

Fresh processes in turns. "loaded" is after loading, "used" after 64 tokens. PSS
counts pages that other processes map too by their share; it needs Linux. The aim
is a ratio of at most 0.7.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median

from benchmarks.support.models import calf, random_prompt
from benchmarks.support.peers import Peer, c_host, median_ratio, plain_host, take_turns
from benchmarks.support.report import Row

PAIRS = 5


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = calf()
    prompt = random_prompt(folder, 32)

    def sizes(start: Callable[[Path], Peer]) -> dict[str, float]:
        with start(folder) as peer:
            loaded = resident(peer.pid)
            peer.generate("next", 64, prompt)
            used = resident(peer.pid)
        return {
            **{f"{kind} loaded": size for kind, size in loaded.items()},
            **{f"{kind} used": size for kind, size in used.items()},
        }

    ours, theirs = take_turns(PAIRS, lambda: sizes(c_host), lambda: sizes(plain_host))
    rows = []
    for kind in ours[0]:
        a = [size[kind] for size in ours]
        b = [size[kind] for size in theirs]
        row: Row = {"model": name, "memory": kind, "C host": median(a), "mlx-lm": median(b)}
        rows.append({**row, "ratio": median_ratio(a, b), "runs": {"C host": a, "mlx-lm": b}})
    return rows


def resident(pid: int) -> dict[str, float]:
    """A process's resident memory in MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    if not rollup.exists():
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {"RSS": int(output) / 1024}
    sizes = dict(line.split()[:2] for line in rollup.read_text().splitlines()[1:])
    return {kind.upper(): int(sizes[f"{kind}:"]) / 1024 for kind in ("Rss", "Pss")}
