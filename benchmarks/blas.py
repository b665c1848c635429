"""Decode and prefill in tokens/s with the optimised BLAS against mlx's own, Linux CPU.

Two C hosts that take turns, one with COWMLX_BLAS=reference.
"""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, c_host, median_ratio, take_turns
from benchmarks.support.report import Row


def measure(large: bool) -> list[Row]:
    """Measure calf and S, and M if asked for."""
    rows = compare(*endless_calf(), max_tokens=128, length=1000, blocks=5)
    rows += compare("S", random_model("S"), max_tokens=32, length=512, blocks=3)
    if large:
        rows += compare("M", random_model("M"), max_tokens=16, length=128, blocks=2)
    return rows


def compare(name: str, folder: Path, *, max_tokens: int, length: int, blocks: int) -> list[Row]:
    """Measure one model."""
    short, long = random_prompt(folder, 32), random_prompt(folder, length)
    reference = {**os.environ, "COWMLX_BLAS": "reference"}
    with c_host(folder) as ours, c_host(folder, env=reference) as plain:

        def decode(peer: Peer) -> float:
            return (max_tokens - 1) / peer.generate("callback", max_tokens, short).rest

        def prefill(peer: Peer) -> float:
            return length / peer.generate("callback", 1, long).first

        rows = []
        for what, rate in (("decode", decode), (f"prefill {length}", prefill)):
            fast, slow = take_turns(
                blocks, lambda rate=rate: rate(ours), lambda rate=rate: rate(plain)
            )
            row: Row = {"model": name, "what": what}
            row |= {"openblas": median(fast), "reference": median(slow)}
            row |= {"ratio": median_ratio(fast, slow)}
            rows.append({**row, "blocks": {"openblas": fast, "reference": slow}})
    return rows
