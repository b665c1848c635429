"""Memory over 5,000 short generations, each on a context of its own, in bytes.

One C host; after every 500 it gives unused memory back, and tells the bytes of mlx's live
arrays; the process's resident memory is what the system says. Both are to stay flat.
"""

from __future__ import annotations

from benchmarks.memory import resident
from benchmarks.support.compiler import compile_host
from benchmarks.support.models import calf, random_prompt
from benchmarks.support.peers import Peer
from benchmarks.support.report import Row

GENERATIONS, REPORTS = 5000, 10


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = calf()
    prompt = random_prompt(folder, 48)
    rows = []
    with Peer([compile_host("soak"), folder]) as host:
        for report in range(1, REPORTS + 1):
            (active,) = host.ask("soak", GENERATIONS // REPORTS, *prompt)
            rss = int(1e6 * resident(host.pid)["RSS"] * 1.048576)
            done = report * GENERATIONS // REPORTS
            rows.append({"model": name, "generations": done, "arrays": int(active), "RSS": rss})
    return rows
