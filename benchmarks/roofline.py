"""What the processors can do at most: GB/s read, and 10⁹ multiply-adds/s, by threads.

"S" and "M" are as many bytes as their weights of 4 bits, read again and again, and may lie in a
cache; "memory" is 256 MB. The `peers` benchmark divides by these numbers.
"""

from __future__ import annotations

import os

from benchmarks.support.limits import rate
from benchmarks.support.report import Row

SIZES = {"S": 8_300_000, "M": 62_000_000, "memory": 256_000_000}


def measure(large: bool) -> list[Row]:
    """Measure one thread, and as many as there are processors."""
    counts = sorted({1, os.cpu_count() or 1})
    rows: list[Row] = []
    for name, size in SIZES.items():
        rows.append({"what": f"read {name}", "MB": size / 1e6, **_rates("read", counts, size)})
    for kind in ("float32", "int8"):
        rows.append({"what": f"multiply-add {kind}", **_rates(kind, counts, 0)})
    return rows


def _rates(kind: str, counts: list[int], size: int) -> Row:
    plural = {1: "1 thread"}
    return {plural.get(n, f"{n} threads"): rate(kind, n, size) / 1e9 for n in counts}
