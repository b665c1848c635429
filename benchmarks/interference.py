"""How contexts get in each other's way: latency of newcomers, gaps beside a prompt, two models.

One C host. "newcomer": ms to the first token behind 32 tokens, alone and while 8 others decode.
"prefill": the longest gap in ms between two tokens of 8 contexts, while nothing else happens and
while another context processes 2,000 tokens. "two models": s for calf and another small model at
once, beside one after the other. Ratios are of the second to the first, for two models of the
first to the second.
"""

from __future__ import annotations

from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

BLOCKS = 5


def measure(large: bool) -> list[Row]:
    """Measure on calf and a random model of its shape."""
    name, folder = endless_calf()
    prompt, short = random_prompt(folder, 2000), random_prompt(folder, 128)
    with Peer([compile_host("mixed"), folder, random_model("calf-shaped")]) as host:

        def ask(kind: str, threads: int, tokens: list[int], count: int = 1500) -> float:
            return float(host.ask(kind, count, threads, *tokens)[0])

        quiet, crowded = take_turns(
            BLOCKS, lambda: ask("newcomer", 0, short), lambda: ask("newcomer", 8, short)
        )
        usual, beside = take_turns(
            BLOCKS, lambda: ask("prefill", 8, short), lambda: ask("prefill", 8, prompt)
        )
        turns, both = take_turns(
            BLOCKS, lambda: ask("turns", 0, short, 128), lambda: ask("both", 0, short, 128)
        )
    return [
        _row(name, "newcomer, ms", quiet, crowded, 1e3),
        _row(name, "longest gap, ms", usual, beside, 1e3),
        _row(name, "two models, s", turns, both, 1),
    ]


def _row(name: str, what: str, first: list[float], second: list[float], scale: float) -> Row:
    return {
        "model": name,
        "what": what,
        "alone": scale * median(first),
        "beside others": scale * median(second),
        "ratio": median_ratio(second, first),
        "blocks": {"alone": first, "beside others": second},
    }
