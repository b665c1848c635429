"""Prefill, tokens/s to the first token: C ABI against mlx-lm in plain Python.

Both process the same random prompt from an empty cache, in turns. A second token is
asked for, and not waited for, because mlx-lm starts computing it in any case.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, c_host, median_ratio, plain_host, take_turns
from benchmarks.support.report import Row


def measure(large: bool) -> list[Row]:
    """Measure calf and S; the longer prompt on S takes minutes on a CPU."""
    name, folder = endless_calf()
    rows = [
        compare(name, folder, length=512, blocks=6),
        compare(name, folder, length=2000, blocks=3),
        compare("S", random_model("S"), length=512, blocks=3),
    ]
    if large:
        rows.append(compare("S", random_model("S"), length=2000, blocks=3))
    return rows


def compare(name: str, folder: Path, *, length: int, blocks: int) -> Row:
    """Measure one model and length of prompt."""
    prompt = random_prompt(folder, length)
    with c_host(folder) as ours, plain_host(folder) as theirs:
        expected = theirs.generate("next", 2, prompt).tokens

        def rate(peer: Peer) -> float:
            done = peer.generate("next", 2, prompt)
            if done.tokens != expected:
                raise AssertionError(f"{name}: {done.tokens} and {expected} differ")
            return length / done.first

        rates, plain = take_turns(blocks, lambda: rate(ours), lambda: rate(theirs))
    return {
        "model": name,
        "prompt": length,
        "C ABI": median(rates),
        "mlx-lm": median(plain),
        "ratio": median_ratio(rates, plain),
        "blocks": {"C ABI": rates, "mlx-lm": plain},
    }
