"""Decoding with guesses, tokens/s, against decoding without.

One C host each; the ways take turns and must give the same tokens. "draft" guesses four
tokens with a model of one of S's six layers that is always right, so its ratio is the most
there is to gain there; "lookup" continues calf's repetition of a prompt that it has seen.
"""

from __future__ import annotations

from pathlib import Path
from statistics import median

from benchmarks.support.models import endless_calf, guessable, random_prompt
from benchmarks.support.peers import c_host, median_ratio, take_turns
from benchmarks.support.report import Row


def measure(large: bool) -> list[Row]:
    """Measure S with a draft model, and calf with lookup."""
    name, folder = endless_calf()
    rows = [
        compare("S", *guessable("S", 1), way="draft", max_tokens=64),
        compare(name, folder, way="lookup", max_tokens=256),
    ]
    if large:
        rows.append(compare("M", *guessable("M", 1), way="draft", max_tokens=24))
    return rows


def compare(name: str, folder: Path, *draft: Path, way: str, max_tokens: int) -> Row:
    """Measure one model and way of guessing."""
    prompt = random_prompt(folder, 32)
    with c_host(folder, *draft) as host:
        expected = host.generate("next", max_tokens, prompt).tokens

        def rate(kind: str) -> float:
            done = host.generate(kind, max_tokens, prompt)
            if done.tokens != expected:
                raise AssertionError(f"{name}: the tokens differ:\n{done.tokens}\n{expected}")
            return (len(expected) - 1) / done.rest

        rates, plain = take_turns(8, lambda: rate(way), lambda: rate("next"))
    return {
        "model": name,
        "way": way,
        "guessing": median(rates),
        "plain": median(plain),
        "ratio": median_ratio(rates, plain),
        "blocks": {"guessing": rates, "plain": plain},
    }
