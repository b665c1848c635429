"""The library beside llama.cpp: the same random weights, as many threads, tokens/s, ms and MB.

Both sides generate greedily and take turns. llama.cpp is built for this machine, once, outside of
the tree: see support/llama_cpp.py. "prefill" is a prompt of 512 tokens; "decode" a row behind 8
tokens; "4k", "16k" and "32k" measure a prompt that is 256 tokens shorter, and the decoding behind
it; "rows8" and "rows16" are rows together, while none is missing; "start" is from the process's
start to the first token, "memory" the resident memory behind 64 more. "limit" is the machine's, see
support/limits.py, and "of limit" the library's share of it. For speeds, a ratio above 1 is better;
for times and sizes, below 1. "same tokens" is the share of equal tokens: 1 where weights are not
quantized, unless the two computed different things.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

from benchmarks.support.cases import Row, median_ratio
from benchmarks.support.encoders import ENCODERS
from benchmarks.support.hosts import Generation, Peer, compile_host, resident, take_turns
from benchmarks.support.limits import Work
from benchmarks.support.llama_cpp import FORMATS, LlamaCpp, Twins, cache_folder, llama_cpp, twins
from benchmarks.support.models import random_prompt

S = TypeVar("S")
T = TypeVar("T")
LLAMA = "llama.cpp"
PROMPT, SHORT, TOKENS, ROW_TOKENS = 512, 8, 128, 64
# Tokens of a sequence that llama.cpp reserves memory for.
LENGTH, ROW_LENGTH = 1024, 256
LONG = {"4k": 4096, "16k": 16384, "32k": 32768}  # with long prompts
AFTER = 256  # tokens of these that are not the prompt's

BLOCKS = {"S": 12, "M": 6, "L": 3}  # turns, by the model's size
SMALL = ("S", "M")
ACTIVATIONS = ("default", "exact", "int8")
QUANTIZED = ("4bit", "8bit")
WORKLOADS = ("prefill", "decode", *LONG, "rows8", "rows16", "start", "memory")
# Measured unless others are chosen: a prompt of 32k takes minutes even with S.
USUAL = tuple(name for name in WORKLOADS if name not in ("16k", "32k"))


@dataclass(frozen=True)
class Choice:
    """The models, formats and workloads to measure.

    Attributes:
        models: names of `SHAPES`; empty: all, or the quick ones.
        formats: of the weights.
        workloads: measured of each model in each format.
        sides: environments of the library's hosts, by name.
        activations: the library's with quantized weights, a side for each.
        blocks: turns of each side; None: by the model's size.
        threads: of llama.cpp; the library chooses its own.
        folder: of llama.cpp and the models.
        amx: whether llama.cpp may use AMX.
        encoders: names of `ENCODERS`, of the benchmark of that name; empty: all.
    """

    models: tuple[str, ...] = ()
    formats: tuple[str, ...] = tuple(FORMATS)
    workloads: tuple[str, ...] = USUAL
    sides: Mapping[str, Mapping[str, str]] = field(default_factory=lambda: {"library": {}})
    activations: tuple[str, ...] = ("default",)
    blocks: int | None = None
    threads: int = os.cpu_count() or 1
    folder: Path = field(default_factory=cache_folder)
    amx: bool = True
    encoders: tuple[str, ...] = ()

    def sides_of(self, stored: str) -> dict[str, dict[str, str]]:
        """The library's sides for a format of weights: activations matter where it is quantized."""
        ways = self.activations if stored in QUANTIZED else ("default",)
        made = {}
        for name, settings in self.sides.items():
            for way in ways:
                own = {} if way == "default" else {"ACTIVATIONS": way}
                label = name if way == "default" else way if name == "library" else f"{name}, {way}"
                made[label] = {**settings, **own}
        return made


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of this benchmark to a command line."""
    group = parser.add_argument_group("peers")
    every = (
        ("models", tuple(BLOCKS)),
        ("formats", tuple(FORMATS)),
        ("workloads", WORKLOADS),
        ("activations", ACTIVATIONS),
        ("encoders", tuple(ENCODERS)),
    )
    for name, known in every:
        group.add_argument(
            f"--{name}", type=partial(_listed, known), metavar=",".join(known), default=None
        )
    group.add_argument(
        "--side",
        type=_side,
        action="append",
        metavar="NAME[:VARIABLE=VALUE,...]",
        help="measure the library with this environment, under this name; may be repeated",
    )
    group.add_argument("--blocks", type=_positive, help="how often each side has its turn")
    group.add_argument("--threads", type=_positive, help="of llama.cpp; as many as processors")
    group.add_argument("--folder", type=Path, help=f"of llama.cpp and models; {cache_folder()}")
    group.add_argument(
        "--no-amx",
        action="store_true",
        help="build llama.cpp without AMX, for where it crashes with it",
    )


def choice(arguments: argparse.Namespace) -> Choice:
    """Return the choice of a command line."""
    names = (
        "models",
        "formats",
        "workloads",
        "activations",
        "blocks",
        "threads",
        "folder",
        "encoders",
    )
    given = {name: getattr(arguments, name) for name in names}
    if arguments.side:
        given["sides"] = dict(arguments.side)
    given = {name: value for name, value in given.items() if value is not None}
    return Choice(**given, amx=not arguments.no_amx)


def _listed(known: tuple[str, ...], text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
    return names


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of at least 1")
    return int(text)


def _side(text: str) -> tuple[str, dict[str, str]]:
    name, _, settings = text.partition(":")
    pairs = [setting.partition("=") for setting in settings.split(",") if setting]
    if not name or not all(variable and equals for variable, equals, _ in pairs):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME[:VARIABLE=VALUE,...]")
    return name, {variable: value for variable, _, value in pairs}


def peers(large: bool, choice: Choice) -> list[Row]:
    """Measure all chosen cells."""
    models = choice.models or tuple(BLOCKS if large else SMALL)
    theirs = llama_cpp(choice.folder, choice.threads, choice.amx)
    rows = []
    for model in models:
        for stored in choice.formats:
            made = twins(model, stored, choice.folder / "models", theirs.gguf_package)
            cell = Cell(made, stored, theirs, choice, choice.blocks or BLOCKS[model])
            print(f"peers: {model} {stored}", flush=True)
            rows += [{"model": model, "format": stored, **row} for row in cell.rows()]
    return rows


@dataclass(frozen=True)
class Cell:
    """A model in a format, on both sides."""

    twins: Twins
    stored: str
    theirs: LlamaCpp
    choice: Choice
    blocks: int

    def rows(self) -> list[Row]:
        """Measure its workloads."""
        asked = self.choice.workloads
        rows = []
        if {"prefill", "decode"} & set(asked):
            rows += self._alone([name for name in ("prefill", "decode") if name in asked])
        for name, length in LONG.items():
            if name in asked:
                rows += self._long(name, length)
        counts = [count for count in (8, 16) if f"rows{count}" in asked]
        if counts:
            rows += self._together(counts)
        if {"start", "memory"} & set(asked):
            rows += [row for row in self._fresh() if row["workload"] in asked]
        return rows

    def _alone(self, workloads: list[str]) -> list[Row]:
        """Measure one row: its prompt, and its decoding."""
        prompt = random_prompt(self.twins.mlx, PROMPT)
        work = self._work()
        limits = {
            "prefill": work.prompt(PROMPT),
            "decode": work.decoding(1, SHORT + TOKENS // 2),
        }

        def prefill(peer: Peer) -> tuple[float, Generation]:
            done = peer.generate("next", 1, prompt)
            return PROMPT / done.first, done

        def decode(peer: Peer) -> tuple[float, Generation]:
            done = peer.generate("next", TOKENS, prompt[:SHORT])
            return done.rate, done

        rows = []
        with self._running("generate", 1, LENGTH) as peers:
            for name in workloads:
                runs = self._turns(peers, {"prefill": prefill, "decode": decode}[name])
                rates = {side: [rate for rate, _ in own] for side, own in runs.items()}
                for row in self._compared(name, "tokens/s", rates, limits[name]):
                    ours, other = (runs[side][0][1].tokens for side in (row["side"], LLAMA))
                    pairs = list(zip(ours, other, strict=True))
                    alike = sum(a == b for a, b in pairs) / len(pairs)
                    rows.append({**row, "same tokens": alike})
        return rows

    def _long(self, name: str, length: int) -> list[Row]:
        """Measure one row with a long prompt, and its decoding behind that."""
        count = length - AFTER
        prompt = random_prompt(self.twins.mlx, count)

        def run(peer: Peer) -> tuple[float, float]:
            done = peer.generate("next", ROW_TOKENS, prompt)
            return count / done.first, done.rate

        with self._running("generate", 1, length) as peers:
            runs = self._turns(peers, run)
        prompts = {side: [first for first, _ in own] for side, own in runs.items()}
        decoded = {side: [rate for _, rate in own] for side, own in runs.items()}
        work = self._work()
        limits = work.prompt(count), work.decoding(1, count + ROW_TOKENS // 2)
        return [
            *self._compared(f"{name} prefill", "tokens/s", prompts, limits[0]),
            *self._compared(f"{name} decode", "tokens/s", decoded, limits[1]),
        ]

    def _together(self, counts: list[int]) -> list[Row]:
        """Measure rows that decode together."""
        prompt = random_prompt(self.twins.mlx, SHORT)

        def steady(count: int, peer: Peer) -> float:
            rate = peer.numbers("together", ROW_TOKENS, count, *prompt)[4]
            if not rate:
                raise RuntimeError(f"{count} rows never decoded at the same time")
            return rate

        rows = []
        with self._running("crowd", max(counts), ROW_LENGTH) as peers:
            for count in counts:
                rates = self._turns(peers, partial(steady, count))
                limit = self._work().decoding(count, SHORT + ROW_TOKENS // 2)
                rows += self._compared(f"rows{count}", "tokens/s", rates, limit)
        return rows

    def _fresh(self) -> list[Row]:
        """Measure processes from their start: the first token, and their memory in the end."""
        prompt = random_prompt(self.twins.mlx, 32)

        def run(start: Callable[[], Peer]) -> tuple[float, float]:
            begun = time.perf_counter()
            with start() as peer:
                peer.generate("next", 1, prompt)
                first = time.perf_counter() - begun
                peer.generate("next", 64, prompt)
                return 1e3 * first, resident(peer.pid)["RSS"]

        starts = self._starts("generate", 1, LENGTH)
        runs = self._turns(starts, run)
        times = {side: [first for first, _ in own] for side, own in runs.items()}
        sizes = {side: [size for _, size in own] for side, own in runs.items()}
        memory = self._compared("memory", "MB", sizes)
        weights = self._work().weights / 2**20
        return [
            *self._compared("start", "ms", times),
            *({**row, "weights MB": weights} for row in memory),
        ]

    def _starts(self, host: str, sequences: int, length: int) -> dict[str, Callable[[], Peer]]:
        """Functions that start each side; llama.cpp is the last."""
        program = compile_host(host)
        starts: dict[str, Callable[[], Peer]] = {
            name: partial(Peer, [program, self.twins.mlx], env={**os.environ, **settings})
            for name, settings in self.choice.sides_of(self.stored).items()
        }
        starts[LLAMA] = partial(self.theirs.start, self.twins.gguf, sequences, length)
        return starts

    @contextmanager
    def _running(self, host: str, sequences: int, length: int) -> Iterator[dict[str, Peer]]:
        """Hosts of all sides at once."""
        with ExitStack() as stack:
            starts = self._starts(host, sequences, length)
            yield {name: stack.enter_context(start()) for name, start in starts.items()}

    def _turns(self, sides: Mapping[str, S], measure: Callable[[S], T]) -> dict[str, list[T]]:
        """Measure all sides in turns."""
        return take_turns(
            self.blocks, {name: partial(measure, side) for name, side in sides.items()}
        )

    def _work(self) -> Work:
        weights = (self.twins.mlx / "model.safetensors").stat().st_size
        return Work(self.twins.shape, weights, self.choice.threads)

    def _compared(
        self, workload: str, unit: str, runs: Mapping[str, list[float]], limit: float | None = None
    ) -> list[Row]:
        """A row for each side of the library."""
        theirs = runs[LLAMA]
        rows = []
        for side, ours in runs.items():
            if side == LLAMA:
                continue
            row: Row = {"workload": workload, "side": side, "unit": unit}
            row |= {"library": median(ours), LLAMA: median(theirs)}
            row["ratio"] = median_ratio(ours, theirs)
            if limit:
                row |= {"limit": limit, "of limit": median(ours) / limit}
            # A full run takes long: print results at once.
            print(f"  {workload} {side}: {row['ratio']:.2f} of llama.cpp", flush=True)
            rows.append({**row, "blocks": {"library": ours, LLAMA: theirs}})
        return rows
