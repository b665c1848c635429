"""Training: small networks, language models, and contexts beside it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from subprocess import DEVNULL
from tempfile import TemporaryDirectory

from benchmarks.support.cases import Row, benchmark, compared, median_ratio
from benchmarks.support.hosts import PEERS, Peer, compile_host, has, python_host, take_turns
from benchmarks.support.models import models, random_model, random_prompt
from benchmarks.support.paths import HOSTS


@benchmark
def networks(large: bool) -> list[Row]:
    """Steps/s of small networks (hosts/small_networks.py), against plain mlx and PyTorch.

    Batches of 64 rows. "train" is a step with Adam whose loss the host reads,
    "gradient" the loss and the gradients alone. One process for each side, which take turns; mlx
    has the library's BLAS. PyTorch takes part if the Python of COWMLX_TORCH, or else
    /usr/bin/python3, has it. "cpu" is by processor time of all threads, which a busy machine
    changes less.
    """
    steps = {
        **{"logistic": 500, "mlp": 200, "convolutions": 20, "vae": 100},
        **{"encoder": 10, "lstm": 30, "resnet": 4},
    }
    pythons = {"library": sys.executable, "mlx": sys.executable}
    if has("torch, numpy"):
        pythons["torch"] = PEERS
    with ExitStack() as stack:
        hosts = {
            side: stack.enter_context(Peer([python, HOSTS / "networks.py", side]))
            for side, python in pythons.items()
        }
        return [
            _network(hosts, what, network, count)
            for network, count in steps.items()
            for what in ("gradient", "train")
        ]


def _network(hosts: dict[str, Peer], what: str, network: str, steps: int) -> Row:
    sides = {side: partial(host.numbers, what, network, steps) for side, host in hosts.items()}
    runs = take_turns(3, sides)
    row: Row = {"network": network, "what": what}
    for side, answers in runs.items():
        row |= {side: median(rate for rate, _, _ in answers), f"{side}, loss": answers[-1][2]}
    for side in list(runs)[1:]:
        for at, name in enumerate(("", "cpu, ")):
            rates = [[answer[at] for answer in runs[one]] for one in ("library", side)]
            row[f"{name}library / {side}"] = median_ratio(*rates)
    return {**row, "blocks": runs}


@benchmark
def training(large: bool) -> list[Row]:
    """Training steps in tokens/s and peak memory, against mlx-lm's own trainer with the same BLAS.

    Batches of 4 rows of 128 targets, Adam, LoRA of rank 8 on all layers or all weights. The sides
    take turns, each in a new process. "cpu" is by processor time of all threads, which a busy
    machine changes less. "MB" is the peak of mlx's arrays; with "checkpoint" activations are
    computed again. mlx-lm compiles its steps, for which it runs a C++ compiler on a CPU.
    """
    # Without 4 bits: there a step of mlx-lm takes minutes.
    cases = [("S", "lora", ""), ("S", "full", ""), ("S", "lora", "c"), ("S", "full", "c")]
    if large:
        cases += [("M", "lora", ""), ("M", "full", "")]
    with _lines() as lines:
        return [_training(name, kind, bool(checkpoint), lines) for name, kind, checkpoint in cases]


def _training(name: str, kind: str, checkpoint: bool, lines: Path) -> Row:
    folder = random_model(name)
    way = "checkpoint" if checkpoint else "whole"

    def run(side: str) -> list[float]:
        with python_host("training", side, folder, lines, kind, way, stderr=DEVNULL) as host:
            return host.numbers(8)  # steps, of which three warm up

    runs = take_turns(3, {side: partial(run, side) for side in ("library", "mlx-lm")})
    rates, cpus, peaks, losses = (
        {side: [answer[at] for answer in own] for side, own in runs.items()} for at in range(4)
    )
    row: Row = {"model": name, "trained": kind + (", checkpoint" if checkpoint else "")}
    row = compared(row, rates) | {"cpu, ratio": compared({}, cpus)["ratio"]}
    row |= {"MB": max(peaks["library"]) / 1e6, "mlx-lm, MB": max(peaks["mlx-lm"]) / 1e6}
    row |= {"loss": losses["library"][-1], "mlx-lm, loss": losses["mlx-lm"][-1]}
    return {**row, "cpu blocks": cpus}


@contextmanager
def _lines() -> Iterator[Path]:
    """A file of 32 texts that are longer than a window."""
    with TemporaryDirectory() as folder:
        lines = Path(folder) / "lines.jsonl"
        text = " ".join(map(str, range(400)))
        lines.write_text("".join(f"{json.dumps({'text': f'{n} {text}'})}\n" for n in range(32)))
        yield lines


@benchmark
def beside_training(large: bool) -> list[Row]:
    """Contexts that generate while their model is trained: tokens/s, gaps, micro-batches/s.

    One C host. LoRA on all layers, batches of 4 rows of 128 targets, each a micro-batch, beside 1
    and 4 contexts that never pause. "gap" is the longest between two tokens of a context, "gap in
    micro-batches" the number that the training computes alone in that time; "share" is the
    training's speed beside the contexts in relation to its speed alone.
    """
    tokens = {"calf": 4000, "S": 500}  # of all contexts together
    with _lines() as lines:
        return [
            _beside_training(name, folder, tokens[name], threads, lines)
            for name, folder in models("calf", large and "S")
            for threads in (1, 4)
        ]


def _beside_training(name: str, folder: Path, tokens: int, threads: int, lines: Path) -> Row:
    prompt = random_prompt(folder, 32)
    with Peer([compile_host("beside_training"), folder, lines]) as host:
        sides = {
            "alone": partial(host.numbers, "alone", tokens // threads, threads, *prompt),
            "beside": partial(host.numbers, "beside", tokens // threads, threads, *prompt),
            "train": partial(host.numbers, "train", 3, 1, *prompt),  # seconds
        }
        runs = take_turns(3, sides)
    rates, gaps, paces = (
        {side: [answer[at] for answer in own] for side, own in runs.items()} for at in range(3)
    )
    return {
        "model": name,
        "contexts": threads,
        "alone, tokens/s": median(rates["alone"]),
        "beside, tokens/s": median(rates["beside"]),
        "ratio": median_ratio(rates["beside"], rates["alone"]),
        "gap alone, ms": 1e3 * median(gaps["alone"]),
        "gap, ms": 1e3 * median(gaps["beside"]),
        "gap in micro-batches": median(
            gap * pace for gap, pace in zip(gaps["beside"], paces["train"], strict=True)
        ),
        "micro-batch alone, ms": 1e3 / median(paces["train"]),
        "share": median_ratio(paces["beside"], paces["train"]),
        "blocks": runs,
    }
