"""Long-lived hosts that take turns: each measures when asked, and sleeps meanwhile.

A host prints ``ready`` and its times in milliseconds, then answers every line of its input with
one line. See hosts/generate.c for the lines.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, TypeVar

from benchmarks.support.paths import BUILD, HOSTS, INCLUDE, LIBRARY

T = TypeVar("T")

PEERS = os.environ.get("COWMLX_TORCH", "/usr/bin/python3")
"""The Python that has PyTorch and onnxruntime."""


def has(packages: str) -> bool:
    """Whether the peers' Python has packages, named as in an import."""
    try:
        command = [PEERS, "-c", f"import {packages}"]
        return not subprocess.run(command, check=False, capture_output=True).returncode
    except OSError:
        return False


def compile_host(name: str, library: Path = LIBRARY) -> Path:
    """Compile ``hosts/<name>.c`` against a library and return the program."""
    folder = BUILD if library == LIBRARY else library.parent
    arguments = [f"-I{INCLUDE}", str(library), f"-Wl,-rpath,{library.parent}"]
    return compile_program(name, folder, arguments)


def compile_program(name: str, folder: Path, arguments: list[str]) -> Path:
    """Compile ``hosts/<name>.c`` into a folder and return the program."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / Path(name).name
    command = [
        *shlex.split(os.environ.get("CC") or "cc"),
        *["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"],
        *["-D_POSIX_C_SOURCE=200809L", str(HOSTS / f"{name}.c"), *arguments],
        *["-o", str(program)],
    ]
    subprocess.run(command, check=True)
    return program


class Generation(NamedTuple):
    """A host's answer about a generation."""

    first: float  # seconds to the first token
    rest: float  # seconds from the first token to the last
    cpu: float  # seconds of processor time, of all threads
    tokens: list[int]

    @property
    def rate(self) -> float:
        """Tokens/s behind the first."""
        return (len(self.tokens) - 1) / self.rest


class Peer:
    """A host process.

    Attributes:
        started: seconds from its start until it was ready.
        times: the times that it printed then, in milliseconds.
    """

    def __init__(self, command: Sequence[object], **options: Any) -> None:
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

    def numbers(self, *words: object) -> list[float]:
        """Send a line and return the numbers of the answer."""
        return [float(word) for word in self.ask(*words)]

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
    return python_host("plain", model, **options)


def python_host(name: str, *arguments: object, **options: Any) -> Peer:
    """Start ``hosts/<name>.py``."""
    return Peer([sys.executable, HOSTS / f"{name}.py", *arguments], **options)


def take_turns(
    blocks: int, sides: Mapping[str, Callable[[], T]], warm_up: bool = True
) -> dict[str, list[T]]:
    """Measure all sides in turns and return each side's results.

    Every second round runs backwards, so that no side always comes after another.
    The first round does not count if it is to warm up.
    """
    results: dict[str, list[T]] = {side: [] for side in sides}
    for block in range(0 if warm_up else 1, blocks + 1):
        for side in sides if block % 2 else reversed(sides):
            result = sides[side]()
            if block:
                results[side].append(result)
    return results


def resident(pid: int) -> dict[str, float]:
    """A process's resident memory in MB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup")
    if not rollup.exists():
        command = ["ps", "-o", "rss=", "-p", str(pid)]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        return {"RSS": int(output) / 1024}
    sizes = dict(line.split()[:2] for line in rollup.read_text().splitlines()[1:])
    return {kind.upper(): int(sizes[f"{kind}:"]) / 1024 for kind in ("Rss", "Pss")}


def peak(pid: int) -> float:
    """The most resident memory that a process has had, in MB; on Linux."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in status if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024
