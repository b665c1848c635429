"""Two contexts on two threads, tokens/s of each, against one context alone.

One C host; blocks with one thread and with both take turns. "slower/faster" is 1
when both contexts advance equally; "sum/alone" tells what sharing the model costs.
"""

from __future__ import annotations

from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_prompt
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

MAX_TOKENS = 256
BLOCKS = 12


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = endless_calf()
    prompt = random_prompt(folder, 32)
    with Peer([compile_host("fairness"), folder]) as host:

        def rates(kind: str) -> list[float]:
            return [float(rate) for rate in host.ask(kind, MAX_TOKENS, *prompt)]

        alone, both = take_turns(BLOCKS, lambda: rates("alone"), lambda: rates("both"))
    single = [rate for (rate,) in alone]
    return [
        {
            "model": name,
            "alone": median(single),
            "first": median(a for a, _ in both),
            "second": median(b for _, b in both),
            "slower/faster": median(min(pair) / max(pair) for pair in both),
            "sum/alone": median_ratio([sum(pair) for pair in both], single),
            "blocks": {"alone": single, "both": both},
        }
    ]
