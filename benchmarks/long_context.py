"""Decode tokens/s and bytes of state behind 1k, 8k and 32k tokens: xLSTM beside a Llama.

A C host each, with random models of the same size; they take turns. What xLSTM keeps, and so what a
token costs it, does not grow with the tokens before; attention reads the keys and values of all.
"to shortest" is a model's own speed in relation to that behind the fewest tokens: 1 is constant.
Contexts are loaded from files: the tokens of the longer ones are those of the shortest, repeated.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import parameters, random_model, vocabulary_size
from benchmarks.support.paths import BUILD
from benchmarks.support.peers import Peer, median_ratio, take_turns
from benchmarks.support.report import Row

LENGTHS = (1024, 8192, 32768)
MODELS = ("xlstm", "llama")
TOKENS, BLOCKS = 32, 6


def measure(large: bool) -> list[Row]:
    """Measure both models at every length."""
    with ExitStack() as stack:
        hosts: dict[str, Peer] = {}
        sizes, states = {}, {}
        for name in MODELS:
            folder = random_model(f"long-{name}")
            vocabulary = str(vocabulary_size(folder))
            command = [compile_host("long_context"), folder, vocabulary, str(LENGTHS[0])]
            hosts[name] = stack.enter_context(Peer(command))
            sizes[name] = parameters(folder)
            states[name] = fill(hosts[name], name)

        def rate(name: str, length: int) -> float:
            return (TOKENS - 1) / float(hosts[name].ask("decode", length, TOKENS)[0])

        # All lengths in one round: what disturbs the machine for a while hits every one of them.
        cases = [(name, length) for length in LENGTHS for name in MODELS]
        runs = take_turns(BLOCKS, *(lambda case=case: rate(*case) for case in cases))
    rates = dict(zip(cases, runs, strict=True))
    rows = []
    for length in LENGTHS:
        row: Row = {"context": length}
        for name in MODELS:
            row |= {
                name: median(rates[name, length]),
                f"{name} to shortest": median_ratio(rates[name, length], rates[name, LENGTHS[0]]),
                f"{name} state MB": states[name][length] / 1e6,
                f"{name} parameters": sizes[name],
            }
        row |= {"ratio": median_ratio(*(rates[name, length] for name in MODELS))}
        row |= {"state ratio": row["xlstm state MB"] / row["llama state MB"]}
        rows.append({**row, "blocks": {name: rates[name, length] for name in MODELS}})
    return rows


def fill(host: Peer, name: str) -> dict[int, int]:
    """Let a host hold every length; returns the bytes of state by length."""
    shortest = BUILD / f"long-{name}.safetensors"
    longer = BUILD / f"long-{name}-repeated.safetensors"
    host.ask("save", shortest)
    sizes = {}
    for length in LENGTHS:
        _lengthen(shortest, length // LENGTHS[0], longer)
        sizes[length] = int(host.ask("load", length, longer)[0])
        longer.unlink()
    shortest.unlink()
    return sizes


def _lengthen(saved: Path, times: int, path: Path) -> None:
    # In a process of its own: mlx stays out of this one.
    command = [sys.executable, "-m", "benchmarks.support.lengthen", saved, str(times), path]
    subprocess.run(command, check=True)
