"""Milliseconds until eight contexts that begin at once all have their first token.

One C host with a thread for each; "together" is what a host gets, "alone" contexts that are never
batched. The ways take turns. Behind 32 tokens prompts are not processed together.
"""

from __future__ import annotations

from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

CONTEXTS = 8
LENGTHS = (8, 16, 32, 64, 128)
BLOCKS = 15


def measure(large: bool) -> list[Row]:
    """Measure calf and S, and M if asked for."""
    rows = []
    for name in ("calf", "S", "M") if large else ("calf", "S"):
        label, folder = endless_calf() if name == "calf" else (name, random_model(name))
        with Peer([compile_host("crowd"), folder]) as host:
            for length in LENGTHS:
                prompt = random_prompt(folder, length)

                def wait(kind: str, host: Peer = host, prompt: list[int] = prompt) -> float:
                    return 1e3 * float(host.ask(kind, 2, CONTEXTS, *prompt)[-1])

                together, alone = take_turns(
                    BLOCKS, lambda wait=wait: wait("together"), lambda wait=wait: wait("alone")
                )
                rows.append(
                    {
                        "model": label,
                        "prompt": length,
                        "together ms": median(together),
                        "alone ms": median(alone),
                        "together/alone": median_ratio(together, alone),
                        "blocks": {"together": together, "alone": alone},
                    }
                )
    return rows
