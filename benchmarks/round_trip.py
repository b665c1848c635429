"""Round trip of a call, microseconds: the library's queue against a bare exchange in C.

The call is model_is_end, which does next to nothing; the bare exchange has the same
threads, mutex and condition variables, and no library. Both sides sleep while they
wait. Blocks of both take turns in one process. The aim is a ratio of at most 1.3,
and calls per second that do not fall as clients are added.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.paths import CALF
from benchmarks.support.peers import median_ratio
from benchmarks.support.report import Row

BLOCKS = 30
SECONDS = 0.1


def measure(large: bool) -> list[Row]:
    """Measure with 1, 4 and 16 clients."""
    command = [str(compile_host("round_trip")), str(BLOCKS + 1), str(SECONDS), str(CALF)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    blocks: dict[int, dict[str, list[list[float]]]] = defaultdict(lambda: defaultdict(list))
    for line in output.splitlines():
        clients, side, *numbers = line.split()
        blocks[int(clients)][side].append([float(number) for number in numbers])
    return [_row(clients, **sides) for clients, sides in blocks.items()]


def _row(clients: int, library: list[list[float]], bare: list[list[float]]) -> Row:
    medians, p99s, rates = zip(*library[1:], strict=True)  # the first block warms up
    bare_medians, bare_p99s, bare_rates = zip(*bare[1:], strict=True)
    return {
        "clients": clients,
        "median": median(medians),
        "bare median": median(bare_medians),
        "ratio": median_ratio(medians, bare_medians),
        "p99": median(p99s),
        "bare p99": median(bare_p99s),
        "calls/s": median(rates),
        "bare calls/s": median(bare_rates),
        "blocks": {"library": library[1:], "bare": bare[1:]},
    }
