"""From nothing to the first token, and prompts that are processed, saved or long already."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from benchmarks.support.cases import Row, benchmark, compared, median_ratio
from benchmarks.support.environment import PACKAGES, copy_environment
from benchmarks.support.hosts import (
    Peer,
    c_host,
    compile_host,
    plain_host,
    python_host,
    take_turns,
)
from benchmarks.support.models import (
    models,
    parameters,
    random_model,
    random_prompt,
    vocabulary_size,
)
from benchmarks.support.paths import BUILD, CALF

BYTECODE = {"all": (*PACKAGES, "cowmlx"), "not cowmlx": PACKAGES, "none": ()}
LENGTHS = (1024, 8192, 32768)
RECURRENT, ATTENDING = "xlstm", "llama"


@benchmark
def startup(large: bool) -> list[Row]:
    """From process start to the first token, ms: C host against mlx-lm in plain Python.

    Fresh processes in turns, files in the disk cache, a prompt of 32 tokens. "start" is
    runtime_start (import mlx_lm on the other side), "load" the model, "first token" the call that
    gives it, "total" the time of the process. The aims are a start of at most 60 and a total
    ratio of at most 0.4.

    Bytecode: a booted interpreter writes no .pyc files, so it compiles packages without them in
    every process. Installers compile what they install; a source tree does not: ``python -m
    compileall cowmlx`` does. The C host runs in copies of the environment where all packages have
    theirs, all but this one, and none.
    """
    prompt = random_prompt(CALF, 32)

    def times(start: Callable[[], Peer]) -> list[float]:
        begun = time.perf_counter()
        with start() as peer:
            first = peer.generate("next", 1, prompt).first
            total = time.perf_counter() - begun
            return [*peer.times, 1e3 * first, 1e3 * total]

    def host(compiled: Collection[str]) -> Callable[[], list[float]]:
        home, library = copy_environment("-".join(("env", *compiled)), compiled)
        program = compile_host("generate", library)
        settings = {**os.environ, "COWMLX_PYTHON_HOME": str(home)}
        return lambda: times(lambda: Peer([program, CALF], env=settings))

    sides = {f"C, .pyc: {key}": host(compiled) for key, compiled in BYTECODE.items()}
    runs = take_turns(12, {**sides, "mlx-lm": lambda: times(lambda: plain_host(CALF))})
    rows = []
    for side, own in runs.items():
        medians = map(median, zip(*own, strict=True))
        row = dict(zip(("start", "load", "first token", "total"), medians, strict=True))
        ratio = median_ratio(*([run[-1] for run in each] for each in (own, runs["mlx-lm"])))
        rows.append({"model": "calf", "host": side, **row, "ratio": ratio, "runs": own})
    return rows


@benchmark
def first_token(large: bool) -> list[Row]:
    """Latency of the first token in ms behind 1,000 tokens, with and without a warm prefix.

    One C host; the kinds take turns. "cold" processes the whole prompt; "warm" a prompt of which
    its context holds all but the last 16 tokens; "shared" a new context for which another one has
    processed as much. The ratio is that of "cold".
    """
    ((name, folder),) = models("calf")
    seeds = count()
    with c_host(folder) as host:

        def first(kind: str) -> float:
            prompt = random_prompt(folder, 1016, next(seeds))  # a new one
            if kind != "cold":
                host.generate(kind, 0, prompt[:1000])
            return host.generate("next" if kind == "cold" else kind, 1, prompt).first

        runs = take_turns(8, {kind: partial(first, kind) for kind in ("cold", "warm", "shared")})
    cold = runs.pop("cold")
    return [
        compared({"model": name, "prefix": kind}, {"first token": own, "cold": cold}, 1e3)
        for kind, own in runs.items()
    ]


@benchmark
def saved(large: bool) -> list[Row]:
    """Saved contexts, MB/s: through the C ABI against mlx-lm's prompt caches, the same tokens.

    Both are processes that hold the same prompt and write and read their file in turns. The
    library waits until its file is on the disk, which mlx-lm does not; in the rows "both synced"
    mlx-lm's host does too. The library also computes and verifies a checksum. MB are those of the
    cache. Lengths are multiples of the steps in which caches grow.
    """
    lengths = {"calf": 1792, "S": 2048 if large else 768}
    return [row for name, folder in models(*lengths) for row in _saved(name, folder, lengths[name])]


def _saved(name: str, folder: Path, length: int) -> list[Row]:
    ours_file, theirs_file = (BUILD / f"saved-{name}-{side}.safetensors" for side in "ab")
    prompt = random_prompt(folder, length)
    with (
        Peer([compile_host("saved"), folder, ours_file]) as ours,
        python_host("saved", folder, theirs_file) as theirs,
    ):
        for peer in (ours, theirs):
            peer.ask("begin", 0, *prompt)
            peer.ask("save", 0)
        megabytes = ours_file.stat().st_size / 1e6

        def rate(peer: Peer, kind: str) -> float:
            return megabytes / peer.numbers(kind, 0)[0]

        sides = {
            "save": partial(rate, ours, "save"),
            "plain save": partial(rate, theirs, "save"),
            "synced": partial(rate, theirs, "synced"),
            "load": partial(rate, ours, "load"),
            "plain load": partial(rate, theirs, "load"),
        }
        runs = take_turns(12, sides)
    ours_file.unlink()
    theirs_file.unlink()
    row: Row = {"model": name, "tokens": length, "MB": megabytes}
    return [
        compared({**row, "way": way}, {"C ABI": runs[own], "mlx-lm": runs[other]})
        for way, own, other in (
            ("save", "save", "plain save"),
            ("save, both synced", "save", "synced"),
            ("load", "load", "plain load"),
        )
    ]


@benchmark
def long_context(large: bool) -> list[Row]:
    """Decode tokens/s and bytes of state behind 1k, 8k and 32k tokens: xLSTM beside a Llama.

    A C host each, with random models of the same size; they take turns. The state of an xLSTM,
    and so the cost of a token, does not grow with the tokens before; attention reads the keys and
    values of all. "to shortest" is a model's own speed in relation to that behind the fewest
    tokens: 1 is constant. Contexts are loaded from files: the tokens of the longer ones are those
    of the shortest, repeated.
    """
    sizes, states = {}, {}
    with ExitStack() as stack:
        hosts: dict[str, Peer] = {}
        for name in (RECURRENT, ATTENDING):
            folder = random_model(f"long-{name}")
            command = [compile_host("long_context"), folder, vocabulary_size(folder), LENGTHS[0]]
            hosts[name] = stack.enter_context(Peer(command))
            sizes[name] = parameters(folder)
            states[name] = _load_lengths(hosts[name], name)

        def rate(name: str, length: int) -> float:
            return 31 / hosts[name].numbers("decode", length, 32)[0]

        # All lengths in one round: a disturbance of the machine hits every one of them.
        cases = [(name, length) for length in LENGTHS for name in hosts]
        runs = take_turns(6, {str(case): partial(rate, *case) for case in cases})
    rates = dict(zip(cases, runs.values(), strict=True))
    rows = []
    for length in LENGTHS:
        row = compared({"context": length}, {name: rates[name, length] for name in hosts})
        for name in hosts:
            row |= {
                f"{name} to shortest": median_ratio(rates[name, length], rates[name, LENGTHS[0]]),
                f"{name} state MB": states[name][length] / 1e6,
                f"{name} parameters": sizes[name],
            }
        state_ratio = states[RECURRENT][length] / states[ATTENDING][length]
        rows.append({**row, "state ratio": state_ratio})
    return rows


def _load_lengths(host: Peer, name: str) -> dict[int, int]:
    """Let a host hold a context of every length; returns the bytes of state by length."""
    shortest = BUILD / f"long-{name}.safetensors"
    longer = BUILD / f"long-{name}-repeated.safetensors"
    host.ask("save", shortest)
    sizes = {}
    for length in LENGTHS:
        # In a separate process: mlx stays out of this one.
        times = str(length // LENGTHS[0])
        command = [sys.executable, "-m", "benchmarks.support.lengthen", shortest, times, longer]
        subprocess.run(command, check=True)
        sizes[length] = int(host.ask("load", length, longer)[0])
        longer.unlink()
    shortest.unlink()
    return sizes
