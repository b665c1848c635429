"""Parts of networks: kernels, recurrences, branches, rounded activations."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial

from benchmarks.support.cases import Row, benchmark, compared
from benchmarks.support.hosts import Peer, python_host, take_turns
from benchmarks.support.limits import rate
from benchmarks.support.models import models, random_model
from benchmarks.support.paths import HOSTS

READS = {"S": 8_300_000, "M": 62_000_000, "memory": 256_000_000}  # bytes; S, M: weights of 4 bits


@benchmark
def recurrence(large: bool) -> list[Row]:
    """Prefill tokens/s of the chunkwise mLSTM against one position after the other, by chunk size.

    One Python process on the engine's network (27M, 8 blocks); the sizes take turns. "cell" is the
    recurrence of one block alone, "model" the whole network without the logits of the prompt. The
    ratio is to "sequential"; the aim is 5 for the best size.
    """
    length = 2048
    rows = []
    with python_host("recurrence", random_model("long-xlstm")) as host:

        def speed(what: str, chunk: int) -> float:
            return length / host.numbers(what, chunk, length)[0]

        for what, blocks in (("cell", 6), ("model", 4)):
            sides = {str(chunk): partial(speed, what, chunk) for chunk in (0, 16, 32, 64, 128, 256)}
            runs = take_turns(blocks, sides)
            sequential = runs.pop("0")
            for chunk, own in runs.items():
                row: Row = {"what": what, "tokens": length, "chunk": int(chunk)}
                rows.append(compared(row, {"chunkwise": own, "sequential": sequential}))
    return rows


@benchmark
def branches(large: bool) -> list[Row]:
    """A wiring's two equal branches on a stream each, against one after the other: ms of a pass.

    One Python process runs the engine's networks; the two forms take turns. "work" is the number
    of multiplications of one block: above a threshold, separate streams are faster. The ratio is
    of "together" to "apart".
    """
    rows = []
    for dims in (128, 512, 1024):
        with python_host("branches", dims) as host:
            for tokens in (1, 16, 128, 512):
                row: Row = {"dims": dims, "tokens": tokens, "work": 9 * dims * dims * tokens}
                forms = {form: partial(_pass, host, form, tokens) for form in ("together", "apart")}
                rows.append(compared(row, take_turns(9, forms), 1e3))
    return sorted(rows, key=lambda row: row["work"])


def _pass(host: Peer, form: str, tokens: int) -> float:
    return host.numbers(form, tokens)[0]


@benchmark
def activations(large: bool) -> list[Row]:
    """Loss of accuracy by activations of eight bits, beside that by quantized weights.

    Python processes on the engine's networks, with kernels: calf on tokens that it has sampled,
    and random models on random tokens. "KL" is the mean divergence of the next token's
    distribution in 1e-3 nats, "changed" the share of positions in percent where another token is
    the best: "quantized" of quantized weights from those of 32 bits, both exact; "int8" of
    activations of eight bits from exact ones, with the same quantized weights.
    """
    rows: list[Row] = []
    for name, folder in models("calf", "S", large and "M"):
        with python_host("activations", folder) as host:
            for bits in (4, 8):
                tokens = "sampled" if name == "calf" else "random"
                weights, weights_changed, int8, int8_changed = host.numbers(tokens, bits, 8, 256)
                row: Row = {"model": name, "bits": bits}
                row |= {"quantized, KL": 1e3 * weights, "int8, KL": 1e3 * int8}
                row |= {"quantized, changed %": 100 * weights_changed}
                rows.append({**row, "int8, changed %": 100 * int8_changed})
    return rows


@benchmark
def roofline(large: bool) -> list[Row]:
    """The share of the machine's limits that each kernel reaches: bytes read, multiplications.

    The limits are measured, all processors together, before the kernels and behind them, and the
    better one counts: GB/s read of 256 MB, and 10⁹ multiply-adds/s in registers, of float32 and
    of int8. A kernel on numbers outside of all caches takes at least as long as its bytes or its
    multiplications do; "of limit" is that least time by the measured time, and "bound" names the
    longer of both. A kernel's time is the best of some calls. The `peers` benchmark divides by
    such limits.
    """
    counts = sorted({1, os.cpu_count() or 1})
    before, kernels, after = _limits(counts), _kernels(), _limits(counts)
    limits = {what: max(before[what], after[what]) for what in before}
    rows: dict[str, Row] = {}
    for (what, count), limit in limits.items():
        row = rows.setdefault(what, {"what": what})
        row[f"{count} threads" if count > 1 else "1 thread"] = limit / 1e9
    best = {what: limits[what, counts[-1]] for what in rows}
    return [*rows.values(), *(_of_limit(kernel, best) for kernel in kernels)]


def _limits(counts: list[int]) -> dict[tuple[str, int], float]:
    """Bytes or multiplications of so many threads in a second, measured again."""
    rate.cache_clear()
    kinds = {f"read {name}": ("read", size) for name, size in READS.items()}
    kinds |= {f"multiply-add {kind}": (kind, 0) for kind in ("float32", "int8")}
    return {
        (what, count): rate(kind, count, size)
        for what, (kind, size) in kinds.items()
        for count in counts
    }


def _kernels() -> list[Row]:
    command = [sys.executable, str(HOSTS / "kernels.py"), "0.5"]  # seconds of each kernel
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def _of_limit(kernel: Row, limits: dict[str, float]) -> Row:
    # A kernel that rounds to eight bits may still multiply quicker in float32.
    quickest = max(limits[f"multiply-add {kind}"] for kind in {"float32", kernel["kind"]})
    moving, computing = kernel["bytes"] / limits["read memory"], kernel["multiplied"] / quickest
    return {
        "what": kernel["kernel"],
        "rows": kernel["rows"],
        "ms": 1e3 * kernel["seconds"],
        "GB/s": kernel["bytes"] / kernel["seconds"] / 1e9,
        "10⁹ multiply-adds/s": kernel["multiplied"] / kernel["seconds"] / 1e9,
        "bound": "reading" if moving > computing else "multiplying",
        "of limit": max(moving, computing) / kernel["seconds"],
    }
