"""Saved contexts, MB/s: through the C ABI against mlx-lm's prompt caches, the same tokens.

Both are processes that hold the same prompt and write and read a file of their own in turns.
The library waits until its file is on the disk, which mlx-lm does not; where both are "synced"
its host does. The library also makes and checks a checksum. MB are those of the cache.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.paths import BUILD, HOSTS
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

BLOCKS = 12


def measure(large: bool) -> list[Row]:
    """Measure calf and S. Lengths are multiples of the steps in which caches grow."""
    rows = compare(*endless_calf(), 1792)
    return rows + compare("S", random_model("S"), 2048 if large else 768)


def compare(name: str, folder: Path, length: int) -> list[Row]:
    """Measure one model with a prompt of so many tokens."""
    ours_file, theirs_file = (BUILD / f"saved-{name}-{who}.safetensors" for who in "ab")
    prompt = random_prompt(folder, length)
    with (
        Peer([compile_host("saved"), folder, ours_file]) as ours,
        Peer([sys.executable, HOSTS / "saved.py", folder, theirs_file]) as theirs,
    ):
        for peer in (ours, theirs):
            peer.ask("begin", 0, *prompt)
            peer.ask("save", 0)
        megabytes = ours_file.stat().st_size / 1e6

        def rate(peer: Peer, kind: str) -> float:
            return megabytes / float(peer.ask(kind, 0)[0])

        saves, plain, synced, loads, plain_loads = take_turns(
            BLOCKS,
            lambda: rate(ours, "save"),
            lambda: rate(theirs, "save"),
            lambda: rate(theirs, "synced"),
            lambda: rate(ours, "load"),
            lambda: rate(theirs, "load"),
        )
    ours_file.unlink()
    theirs_file.unlink()
    return [
        {
            "model": name,
            "tokens": length,
            "MB": megabytes,
            "way": way,
            "C ABI": median(rates),
            "mlx-lm": median(others),
            "ratio": median_ratio(rates, others),
            "blocks": {"C ABI": rates, "mlx-lm": others},
        }
        for way, rates, others in (
            ("save", saves, plain),
            ("save, both synced", saves, synced),
            ("load", loads, plain_loads),
        )
    ]
