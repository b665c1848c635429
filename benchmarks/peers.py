"""The library beside llama.cpp: the same random weights, as many threads, tokens/s, ms and MB.

Both sides generate greedily and take turns. llama.cpp is built for this machine, once, outside of
the tree: see support/llama_cpp.py. "prefill" is a prompt of 512 tokens; "decode" a row behind 8
tokens; "rows8" and "rows16" are rows together, while none is missing; "start" is from the process's
start to the first token, "memory" what is resident behind 64 more. "limit" is what the machine can
do at most, see support/limits.py, and "of limit" how much of it the library reaches. A ratio above
1 of a speed, and below 1 of a time or a size, is in the library's favour. "same tokens" tells how
many both chose alike: all, or the two did not compute the same, where weights are not packed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TypeVar

from benchmarks.memory import resident
from benchmarks.support.choice import BLOCKS, SMALL, Choice
from benchmarks.support.compiler import compile_host
from benchmarks.support.limits import Work
from benchmarks.support.llama_cpp import LlamaCpp, llama_cpp
from benchmarks.support.models import random_prompt
from benchmarks.support.peers import Generation, Peer, median_ratio, take_turns
from benchmarks.support.report import Row
from benchmarks.support.twins import Twins, twins

S = TypeVar("S")
T = TypeVar("T")
LLAMA = "llama.cpp"
PROMPT, SHORT, TOKENS, ROW_TOKENS = 512, 8, 128, 64
LENGTH, ROW_LENGTH = 1024, 256  # what llama.cpp makes room for, of each sequence


def measure(large: bool, choice: Choice | None = None) -> list[Row]:
    """Measure all cells that are chosen."""
    choice = choice or Choice()
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
            return (len(done.tokens) - 1) / done.rest, done

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

    def _together(self, counts: list[int]) -> list[Row]:
        """Measure rows that decode together."""
        prompt = random_prompt(self.twins.mlx, SHORT)

        def steady(count: int, peer: Peer) -> float:
            rate = float(peer.ask("together", ROW_TOKENS, count, *prompt)[4])
            if not rate:
                raise RuntimeError(f"{count} rows were never all there at once")
            return rate

        rows = []
        with self._running("crowd", max(counts), ROW_LENGTH) as peers:
            for count in counts:
                rates = self._turns(peers, partial(steady, count))
                limit = self._work().decoding(count, SHORT + ROW_TOKENS // 2)
                rows += self._compared(f"rows{count}", "tokens/s", rates, limit)
        return rows

    def _fresh(self) -> list[Row]:
        """Measure processes from their start: the first token, and what they hold in the end."""
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
        """How each side is started; llama.cpp is the last."""
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
        each = [partial(measure, side) for side in sides.values()]
        return dict(zip(sides, take_turns(self.blocks, *each), strict=True))

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
            # A full run takes long: what is known of it is said at once.
            print(f"  {workload} {side}: {row['ratio']:.2f} of llama.cpp", flush=True)
            rows.append({**row, "blocks": {"library": ours, LLAMA: theirs}})
        return rows
