"""How far each kernel is from what the machine can do: bytes read, and numbers multiplied.

The limits are measured, all processors together, before the kernels and behind them, and the
better count: GB/s read of 256 MB, and 10⁹ multiply-adds/s in registers, of float32 and of int8. A
kernel on numbers that lie in no cache takes at least as long as its bytes or its multiplications
do; "of limit" is that least time by the time it took, and "bound" tells which of both it is. Its
own time is the best of some calls. The `peers` benchmark divides by such limits.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

from benchmarks.support.limits import rate
from benchmarks.support.paths import HOSTS
from benchmarks.support.report import Row

SIZES = {"S": 8_300_000, "M": 62_000_000, "memory": 256_000_000}  # S, M: their weights of 4 bits
SECONDS = 0.5  # of each kernel


def measure(large: bool) -> list[Row]:
    """Measure the limits of one thread and of all processors, and what kernels reach of them."""
    counts = sorted({1, os.cpu_count() or 1})
    before, told, after = _limits(counts), _kernels(), _limits(counts)
    limits = {what: max(before[what], after[what]) for what in before}
    rows = {}
    for (what, count), limit in limits.items():
        row = rows.setdefault(what, {"what": what})
        row[f"{count} threads" if count > 1 else "1 thread"] = limit / 1e9
    reached = [_compared(each, {what: limits[what, counts[-1]] for what in rows}) for each in told]
    return [*rows.values(), *reached]


def _limits(counts: list[int]) -> dict[tuple[str, int], float]:
    """What so many threads do in a second, measured anew."""
    rate.cache_clear()
    asked = {f"read {name}": ("read", size) for name, size in SIZES.items()}
    asked |= {f"multiply-add {kind}": (kind, 0) for kind in ("float32", "int8")}
    return {
        (what, count): rate(kind, count, size)
        for what, (kind, size) in asked.items()
        for count in counts
    }


def _kernels() -> list[Row]:
    command = [sys.executable, HOSTS / "kernels.py", str(SECONDS)]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _compared(told: Row, limits: dict[str, float]) -> Row:
    # What a kernel rounds to eight bits may still be multiplied quicker in float32.
    quickest = max(limits[f"multiply-add {kind}"] for kind in {"float32", told["kind"]})
    moving, computing = told["bytes"] / limits["read memory"], told["multiplied"] / quickest
    return {
        "what": told["kernel"],
        "rows": told["rows"],
        "ms": 1e3 * told["seconds"],
        "GB/s": told["bytes"] / told["seconds"] / 1e9,
        "10⁹ multiply-adds/s": told["multiplied"] / told["seconds"] / 1e9,
        "bound": "reading" if moving > computing else "multiplying",
        "of limit": max(moving, computing) / told["seconds"],
    }
