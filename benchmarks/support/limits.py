"""What this machine can do at most, and how fast a model could be on it: its roofline.

A pass over a model reads all its weights and the keys and values of its rows once, and multiplies
every weight of a matrix once for every row. It takes at least as long as the slower of both.
"""

from __future__ import annotations

import platform
import subprocess
from dataclasses import dataclass
from functools import cache

from benchmarks.support.hosts import compile_program
from benchmarks.support.models import Shape
from benchmarks.support.paths import BUILD


@cache
def rate(kind: str, threads: int, size: int = 0) -> float:
    """Measure what threads do in a second: hosts/peers/roofline.c says what there is."""
    program = _program()
    command = [program, kind, str(threads), str(size)]
    return float(subprocess.run(command, capture_output=True, check=True).stdout)


@cache
def _program() -> str:
    arm = platform.machine() in ("arm64", "aarch64")
    native = "-mcpu=native" if arm else "-march=native"
    flags = ["-O3", native, "-ffp-contract=fast"]
    return str(compile_program("peers/roofline", BUILD, flags))


@dataclass(frozen=True)
class Work:
    """What a pass over a model takes.

    Attributes:
        shape: the model's.
        weights: bytes of all its weights.
        threads: how many compute.
    """

    shape: Shape
    weights: int
    threads: int

    def decoding(self, rows: int, position: int) -> float:
        """Tokens/s of all rows together, each at a position, at most."""
        return rows / self._seconds(rows, rows, rows * position)

    def prompt(self, length: int) -> float:
        """Tokens/s of a prompt, at most: every token attends to half of it, one has logits."""
        return length / self._seconds(length, 1, length * length // 2, read=length)

    def _seconds(self, rows: int, logits: int, attended: int, read: int | None = None) -> float:
        """Seconds of a pass, at least.

        Args:
            rows: tokens that pass.
            logits: those of them whose logits are wanted.
            attended: pairs of a token and one it attends to.
            read: tokens whose keys and values are read, if not once for every pair.
        """
        shape = self.shape
        heads = shape.heads * shape.head
        keys = shape.key_heads * shape.head
        layer = shape.hidden * (2 * heads + 2 * keys + 3 * shape.intermediate)
        attention = attended * 2 * heads * shape.layers
        multiplied = rows * shape.layers * layer + logits * shape.hidden * shape.vocabulary
        # Keys and values in 16 bits, the least that either side keeps if not asked for less.
        moved = self.weights + (attended if read is None else read) * 2 * keys * shape.layers * 2
        float32 = rate("float32", self.threads)
        packed = rate("int8", self.threads) if shape.bits < 16 else 0
        computing = multiplied / max(packed, float32) + attention / float32
        return max(moved / rate("read", self.threads, self.weights), computing)
