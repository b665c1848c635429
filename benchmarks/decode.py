"""Decode, tokens/s: through the C ABI against mlx-lm in plain Python, greedy.

Both are processes that have loaded the same model and generate in turns from the
same prompt; a rate counts from the first token to the last. The C host's two ways,
the loop of begin and next and the one call with a callback, are measured apart.
Their tokens are compared in every block. "CPU ms" is processor time of a token, all
threads, its share of the prompt included: neighbours on the machine disturb it less.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, random_model, random_prompt
from benchmarks.support.peers import Peer, c_host, median_ratio, plain_host, take_turns
from benchmarks.support.report import Row

PROMPT_TOKENS = 32


def measure(large: bool) -> list[Row]:
    """Measure calf, S and, if asked for, M."""
    rows = compare(*endless_calf(), max_tokens=256, blocks=12)
    rows += compare("S", random_model("S"), max_tokens=64, blocks=8)
    if large:
        rows += compare("M", random_model("M"), max_tokens=24, blocks=6)
    return rows


def compare(name: str, folder: Path, *, max_tokens: int, blocks: int) -> list[Row]:
    """Measure one model."""
    prompt = random_prompt(folder, PROMPT_TOKENS)
    with c_host(folder) as ours, plain_host(folder) as theirs:
        expected = theirs.generate("next", max_tokens, prompt).tokens

        def rate(peer: Peer, kind: str) -> tuple[float, float]:
            done = peer.generate(kind, max_tokens, prompt)
            if kind == "next" and done.tokens != expected:
                raise AssertionError(f"{name}: the tokens differ:\n{done.tokens}\n{expected}")
            return (len(expected) - 1) / done.rest, 1e3 * done.cpu / len(expected)

        *ways, plain = take_turns(
            blocks,
            lambda: rate(ours, "next"),
            lambda: rate(ours, "callback"),
            lambda: rate(theirs, "next"),
        )
    rates, costs = zip(*plain, strict=True)
    rows = []
    for way, results in zip(("next", "callback"), ways, strict=True):
        our_rates, our_costs = zip(*results, strict=True)
        row: Row = {"model": name, "tokens": len(expected), "way": way}
        row |= {"C ABI": median(our_rates), "mlx-lm": median(rates)}
        row |= {"ratio": median_ratio(our_rates, rates)}
        row |= {"CPU ms": median(our_costs), "mlx-lm CPU ms": median(costs)}
        row |= {"CPU ratio": median_ratio(our_costs, costs)}
        rows.append({**row, "blocks": {"C ABI": results, "mlx-lm": plain}})
    return rows
