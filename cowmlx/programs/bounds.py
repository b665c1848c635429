"""Bounds of programs, which are untrusted: sizes (``limit_exceeded``), and turns of long work."""

from __future__ import annotations

from collections.abc import Generator
from time import perf_counter
from typing import TypeVar

MAX_BYTES = 16 << 20
"""Of a program's text."""
MAX_NODES = 50_000
"""Nodes of a program with its functions."""
MAX_DECLARED = 10_000
"""Inputs, parameters and constants of a program, or of a function."""
MAX_FUNCTIONS = 1_000
MAX_CALL_DEPTH = 32
"""Functions that call each other in a row."""
MAX_NAME = 256
"""Characters of a name."""
MAX_PROBLEMS = 8
"""Problems in one error."""
MAX_ITERATIONS = 2**31 - 1
"""Of a ``while``."""
MAX_DERIVATIONS = 16
"""Derivations of derivations."""
MAX_TRACED_NODES = 100_000
"""Nodes of one trace, in which calls and loops are unrolled."""
MAX_TRACED_DEPTH = 4_000
"""Nodes of one trace that wait for each other. mlx goes through its graph recursively, about ten
steps to a node, and 80,000 steps have been seen to fit the dispatch thread's stack of 16 MiB."""
MAX_TRACES = 16
"""Tuples of dimensions whose traces a program keeps."""
MAX_CONSTANT = 1 << 18
"""Elements of a constant; larger arrays are inputs."""
TURN = 0.004
"""Seconds after which long work makes way for others."""


T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work that yields where others may have a turn, and returns its result."""


class Pace:
    """The end of a turn that has been long enough."""

    def __init__(self) -> None:
        self._began = perf_counter()

    def rest(self) -> Generator[None]:
        """Yield if the turn has been long enough."""
        if perf_counter() - self._began >= TURN:
            yield
            self._began = perf_counter()
