"""How long a prompt goes on after it was cancelled, at moments spread over it.

One C host. "returned": ms from the cancel, by another thread, until the begin has returned; "idle":
until the context answers another call. The first prompt, of a model of unknown speed, has a row of
its own; the others are of the same model afterwards.
"""

from __future__ import annotations

from math import isnan
from statistics import median

from benchmarks.support.compiler import compile_host
from benchmarks.support.models import random_model, random_prompt
from benchmarks.support.peers import Peer
from benchmarks.support.report import Row

LENGTH = 3000  # tokens of a prompt
MODELS = ("S", "S of 4 bits", "M")
# Milliseconds after a begin: steps that fit no chunk.
MOMENTS = [37 + 83 * step for step in range(10)]


def measure(large: bool) -> list[Row]:
    """Measure on random models of several sizes."""
    rows: list[Row] = []
    for name in (*MODELS, "L") if large else MODELS:
        folder = random_model(name)
        with Peer([compile_host("cancel"), folder]) as host:
            for which, moments in (("first", MOMENTS[2:3]), ("others", MOMENTS)):
                rows.append(_row(name, which, host, random_prompt(folder, LENGTH), moments))
    return rows


def _row(name: str, which: str, host: Peer, prompt: list[int], moments: list[int]) -> Row:
    returned, idle, held = [], [], []
    for moment in moments:
        seconds, until_idle, tokens = map(float, host.ask("cancel", moment, *prompt))
        if not isnan(seconds):
            returned.append(1e3 * seconds)
            idle.append(1e3 * until_idle)
            held.append(int(tokens))
    if not returned:
        raise RuntimeError(f"{name}: every prompt had ended before it was cancelled")
    return {
        "model": name,
        "prompts": which,
        "returned, median ms": median(returned),
        "returned, longest ms": max(returned),
        "idle, longest ms": max(idle),
        "cancels": {"returned": returned, "idle": idle, "held": held},
    }
