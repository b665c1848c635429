"""From process start to the first token, ms: C host against mlx-lm in plain Python.

Fresh processes in turns, files in the disk cache, a prompt of 32 tokens. "start" is
runtime_start (import mlx_lm on the other side), "load" the model, "first token" the
call that gives it, "total" what the parent sees. The aims are a start of at most 60
and a total ratio of at most 0.4.

Bytecode: a booted interpreter writes no .pyc files, so packages that were never
compiled are compiled anew in every process. Installers compile what they install;
a source tree does not: ``python -m compileall cowmlx`` does. The C
host runs in copies of the environment where all packages have theirs, all but this
one, and none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.environment import PACKAGES, copy_environment
from benchmarks.support.models import calf, random_prompt
from benchmarks.support.peers import Peer, median_ratio, plain_host, take_turns
from benchmarks.support.report import Row

PAIRS = 12
BYTECODE = {"all": (*PACKAGES, "cowmlx"), "not cowmlx": PACKAGES, "none": ()}
COLUMNS = ("start", "load", "first token", "total")


def measure(large: bool) -> list[Row]:
    """Measure on calf."""
    name, folder = calf()
    prompt = random_prompt(folder, 32)

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
        return lambda: times(lambda: Peer([program, folder], env=settings))

    *ours, plain = take_turns(
        PAIRS, *map(host, BYTECODE.values()), lambda: times(lambda: plain_host(folder))
    )
    hosts = [f"C, .pyc: {key}" for key in BYTECODE]
    rows = [_row(name, host, runs, plain) for host, runs in zip(hosts, ours, strict=True)]
    return [*rows, _row(name, "mlx-lm", plain, plain)]


def _row(model: str, host: str, runs: list[list[float]], plain: list[list[float]]) -> Row:
    medians = dict(zip(COLUMNS, map(median, zip(*runs, strict=True)), strict=True))
    ratio = median_ratio([run[-1] for run in runs], [run[-1] for run in plain])
    return {"model": model, "host": host, **medians, "ratio": ratio, "runs": runs}
