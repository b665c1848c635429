"""Upload and read of arrays, GB/s, against memcpy on the same thread, by size.

All three turn about in one process, into memory that has been written before: an upload gets what
an array let go. The aim is 0.8 of memcpy's bandwidth from 1 MB on.
"""

from __future__ import annotations

import subprocess
from collections import defaultdict
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.report import Row

ROUNDS = 9


def measure(large: bool) -> list[Row]:
    """Measure 1 KiB to 1 GiB, or a quarter of that."""
    largest = 1 << (30 if large else 28)
    command = [str(compile_host("arrays")), str(ROUNDS), str(largest)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rounds: dict[int, list[tuple[float, ...]]] = defaultdict(list)
    for line in output.splitlines():
        size, *seconds = line.split()
        rounds[int(size)].append(tuple(float(number) for number in seconds))
    return [_row(size, found[1:]) for size, found in rounds.items()]  # the first warms up


def _row(size: int, rounds: list[tuple[float, ...]]) -> Row:
    copy, upload, read = (median(times) for times in zip(*rounds, strict=True))
    return {
        "bytes": size,
        "memcpy": size / copy / 1e9,
        "upload": size / upload / 1e9,
        "read": size / read / 1e9,
        "upload ratio": median(one[0] / one[1] for one in rounds),
        "read ratio": median(one[0] / one[2] for one in rounds),
    }
