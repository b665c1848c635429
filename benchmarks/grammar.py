"""Decoding with a grammar, tokens/s, against decoding without.

One C host each; the ways take turns and give equally many tokens, greedy. "regex" matches any
text, "schema" a list of objects that never ends. "ms" is what a token costs more: its mask is
found while the network computes, so it is no more than what did not fit in there. "compile" is
what begin takes longer, in ms. "wide" is a small network with a large vocabulary.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, random_model, random_prompt, vocabulary_size
from benchmarks.support.peers import Peer, c_host, median_ratio, take_turns
from benchmarks.support.report import Row

BLOCKS = 8
KINDS = ("regex", "schema")


def measure(large: bool) -> list[Row]:
    """Measure calf, S and a large vocabulary."""
    rows = compare(*endless_calf(), max_tokens=256)
    rows += compare("S", random_model("S"), max_tokens=64)
    rows += compare("wide", random_model("wide"), max_tokens=64)
    return rows


def compare(name: str, folder: Path, *, max_tokens: int) -> list[Row]:
    """Measure one model."""
    prompt = random_prompt(folder, 32)
    with c_host(folder) as host:
        plain, *constrained = take_turns(
            BLOCKS,
            *(lambda kind=kind: rate(host, kind, max_tokens, prompt) for kind in ("next", *KINDS)),
        )
    rows: list[Row] = []
    rates, firsts = zip(*plain, strict=True)
    for kind, results in zip(KINDS, constrained, strict=True):
        our_rates, our_firsts = zip(*results, strict=True)
        row: Row = {"model": name, "vocabulary": vocabulary_size(folder), "grammar": kind}
        row |= {"with": median(our_rates), "without": median(rates)}
        row |= {"ratio": median_ratio(our_rates, rates)}
        row |= {"ms": 1e3 * median(1 / a - 1 / b for a, b in zip(our_rates, rates, strict=True))}
        row |= {"compile": 1e3 * median(a - b for a, b in zip(our_firsts, firsts, strict=True))}
        rows.append({**row, "blocks": {"with": results, "without": plain}})
    return rows


def rate(host: Peer, kind: str, max_tokens: int, prompt: list[int]) -> tuple[float, float]:
    """Return tokens/s behind the first one, and seconds to that."""
    done = host.generate(kind, max_tokens, prompt)
    if len(done.tokens) != max_tokens:
        raise AssertionError(f"{kind} gave {len(done.tokens)} tokens and not {max_tokens}")
    return (max_tokens - 1) / done.rest, done.first
