"""Long-lived hosts that take turns: each measures when asked, and sleeps meanwhile.

A host prints ``ready`` and its times in milliseconds, then answers every line it is
given with one line. See hosts/generate.c for the lines.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from benchmarks.support.compiler import compile_host
from benchmarks.support.paths import HOSTS

T = TypeVar("T")


class Generation(NamedTuple):
    """What a host tells of one."""

    first: float  # seconds to the first token
    rest: float  # seconds from the first token to the last
    cpu: float  # seconds of processor time, of all threads
    tokens: list[int]


class Peer:
    """A host process.

    Attributes:
        started: seconds from its start until it was ready.
        times: what it says of that, in milliseconds.
    """

    def __init__(self, command: Sequence[str | Path], **options: Any) -> None:
        begun = time.perf_counter()
        self._process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
            **options,
        )
        word, *times = self._read()
        self.started = time.perf_counter() - begun
        if word != "ready":
            raise RuntimeError(f"{command[0]} said {word} {' '.join(times)}")
        self.times = [float(text) for text in times]
        self.pid = self._process.pid

    def ask(self, *words: object) -> list[str]:
        """Send a line and return the words of the answer."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        return self._read()

    def generate(self, kind: str, count: int, prompt: Sequence[int]) -> Generation:
        """Generate from an empty cache."""
        first, rest, cpu, *tokens = self.ask(kind, count, *prompt)
        return Generation(float(first), float(rest), float(cpu), [int(token) for token in tokens])

    def _read(self) -> list[str]:
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        if not words:
            raise RuntimeError(f"a host ended with exit status {self._process.wait()}")
        return words

    def __enter__(self) -> Peer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(timeout=60) and error is None:
            raise RuntimeError(f"a host ended with exit status {self._process.returncode}")
        assert self._process.stdout is not None
        self._process.stdout.close()


def c_host(model: Path, *draft: Path, **options: Any) -> Peer:
    """A C program on the library, a model (and a draft model) loaded and a context open."""
    return Peer([compile_host("generate"), model, *draft], **options)


def plain_host(model: Path, **options: Any) -> Peer:
    """A Python program on mlx-lm alone, the same model loaded."""
    return Peer([sys.executable, HOSTS / "plain.py", model], **options)


def take_turns(blocks: int, *measure: Callable[[], T]) -> list[list[T]]:
    """Measure A, B, ..., A, B, ... and return what each one gave.

    Every second round runs backwards, so that no side always comes after the other.
    The first round warms up and does not count.
    """
    results: list[list[T]] = [[] for _ in measure]
    for block in range(blocks + 1):
        order = range(len(measure)) if block % 2 else reversed(range(len(measure)))
        for side in order:
            result = measure[side]()
            if block:
                results[side].append(result)
    return results


def median_ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """The median over the pairs of a run: noise that hits both sides cancels."""
    return median(a / b for a, b in zip(ours, theirs, strict=True))
