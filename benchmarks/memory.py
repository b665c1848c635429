"""Memory of processes: with a model, with many contexts, over many generations."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from benchmarks.support.cases import Row, benchmark, compared
from benchmarks.support.hosts import (
    Peer,
    c_host,
    compile_host,
    plain_host,
    resident,
    take_turns,
)
from benchmarks.support.models import random_prompt
from benchmarks.support.paths import CALF


@benchmark
def memory(large: bool) -> list[Row]:
    """Resident memory in MB with a model loaded: C host against mlx-lm in plain Python.

    Fresh processes in turns. "loaded" is after loading, "used" after 64 tokens. PSS counts pages
    that other processes map too by their share; it needs Linux. The aim is a ratio of at most 0.7.
    """
    prompt = random_prompt(CALF, 32)

    def sizes(start: Callable[[Path], Peer]) -> dict[str, float]:
        with start(CALF) as peer:
            loaded = resident(peer.pid)
            peer.generate("next", 64, prompt)
            used = resident(peer.pid)
        return {
            **{f"{kind} loaded": size for kind, size in loaded.items()},
            **{f"{kind} used": size for kind, size in used.items()},
        }

    runs = take_turns(5, {"C host": partial(sizes, c_host), "mlx-lm": partial(sizes, plain_host)})
    return [
        compared(
            {"model": "calf", "memory": kind},
            {side: [run[kind] for run in own] for side, own in runs.items()},
        )
        for kind in runs["C host"][0]
    ]


@benchmark
def idle(large: bool) -> list[Row]:
    """Threads, resident memory in MB and milliseconds a token with many idle contexts of calf.

    One C host. Each idle context has generated 20 tokens from a prompt of 8; then another one
    generates, and the median time of its tokens is taken.
    """
    prompt = random_prompt(CALF, 8)
    rows: list[Row] = []
    with Peer([compile_host("idle"), CALF]) as peer:
        for count in (1, 100, 300, 1000, 10_000):
            (seconds,) = peer.numbers("idle", 20, count, *prompt)
            row: Row = {"model": "calf", "idle contexts": count, "threads": threads(peer.pid)}
            rows.append({**row, "RSS": resident(peer.pid)["RSS"], "ms a token": 1e3 * seconds})
    return rows


def threads(pid: int) -> int:
    """The number of threads of a process."""
    tasks = Path(f"/proc/{pid}/task")
    if tasks.exists():
        return len(list(tasks.iterdir()))
    command = ["ps", "-M", "-p", str(pid)]  # macOS: a heading, then a line for each
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return len(output.splitlines()) - 1


@benchmark
def soak(large: bool) -> list[Row]:
    """Memory over 5,000 short generations, each on a new context, in bytes.

    One C host; after every 500 it frees unused memory and reports the bytes of mlx's live arrays;
    the process's resident memory comes from the system. Both are to stay flat.
    """
    prompt = random_prompt(CALF, 48)
    rows = []
    with Peer([compile_host("soak"), CALF]) as host:
        for done in range(500, 5001, 500):
            (active,) = host.ask("soak", 500, *prompt)
            rss = int(2**20 * resident(host.pid)["RSS"])
            rows.append({"model": "calf", "generations": done, "arrays": int(active), "RSS": rss})
    return rows
