"""Functions of arrays that are traced once: recorded on a CPU, compiled by mlx on a GPU.

On a CPU mlx's compile would run a compiler and load its output from a folder that others can
predict. A recording keeps the trace and generates no code. The module of kernels makes it; without
it, functions are traced in each run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.errors import Unsupported
from cowmlx.programs.running.flags import Flags, Note

Function = Callable[[Sequence[mx.array]], tuple[list[mx.array], Flags]]
Launch = Callable[[list[mx.array | int]], list[mx.array] | None]
Split = tuple[list[mx.array], list[mx.array]]
"""Results and flags."""


class Running:
    """A run of kernels alone, which this thread computes in parts.

    Args:
        running: the run of the recording.
        split: separates results from flags.
    """

    def __init__(self, running: Any, split: Callable[[list[mx.array]], Split]) -> None:
        self._running = running
        self._split = split

    def advance(self, seconds: float) -> bool:
        """Compute operations until the time has passed; return whether all are computed.

        The last operation may end later.
        """
        is_computed: bool = self._running.advance(seconds)
        return is_computed

    @property
    def results(self) -> Split:
        """The results and flags, once all operations are computed."""
        return self._split(self._running.results())


class Unit:
    """A function of arrays that is traced once for all calls.

    Args:
        function: returns results and flags of arrays, which may be tracers.
        compiles: whether to generate a GPU's code; mlx is recursive there, and fails on deep
            graphs, and on CUDA on values without elements.
        steady: whether most calls have the same matrices; a training changes them.
    """

    def __init__(self, function: Function, compiles: bool = True, steady: bool = True) -> None:
        self._function = function
        self._steady = steady
        self._notes: tuple[Note, ...] = ()
        self._compiled: Callable[..., list[mx.array]] = self._trace
        self._recording: Any = None
        self._records = False
        if mx.default_device().type == mx.cpu:
            self._records = kernels.available()
        elif compiles:
            self._compiled = mx.compile(self._trace)

    def __call__(self, arrays: Sequence[mx.array]) -> Split:
        """Return results and flags, which are not evaluated."""
        if self._records:
            if self._recording is None or not self._recording.fits(arrays):
                self._recording = kernels.module().Recording(self._trace, arrays, self._steady)
            results = self._recording.replay(arrays)
        else:
            results = self._compiled(*arrays)
        return self._split(results)

    def at_once(self, arrays: list[mx.array]) -> Split | None:
        """Return computed results and flags, if that needs no graph of mlx's.

        Args:
            arrays: as for a call. Emptied unless the result is None, so that operations can compute
                in the memory of arrays that nobody else holds.

        Returns:
            None if a call has to make the graph.
        """
        results = None if self._recording is None else self._recording.compute(arrays)
        return None if results is None else self._split(results)

    def begun(self, arrays: list[mx.array]) -> Running | None:
        """Return a run that this thread computes in parts.

        Args:
            arrays: as for :meth:`at_once`.

        Returns:
            None if a call has to make the graph.
        """
        found = None if self._recording is None else self._recording.begin(arrays)
        return None if found is None else Running(found, self._split)

    @property
    def is_short(self) -> bool:
        """Whether the last call has recorded what :meth:`at_once` computes on this thread."""
        return self._recording is not None and self._recording.is_short()

    @property
    def launch(self) -> Launch | None:
        """What computes the last call's results on this thread; None if something is to be checked.

        It takes arrays, and addresses of row-major elements, and returns row-major results; None
        if it cannot compute them.
        """
        return self._recording.launch if self.is_short and not self._notes else None

    @property
    def notes(self) -> tuple[Note, ...]:
        """The checks of the last call's flags."""
        return self._notes

    def _split(self, results: list[mx.array]) -> Split:
        count = len(results) - len(self._notes)
        return results[:count], results[count:]

    def _trace(self, *arrays: mx.array) -> list[mx.array]:
        results, flags = self._function(arrays)
        self._notes = tuple(flags)
        return [*results, *flags.values()]


_NOT_IMPLEMENTED = re.compile(
    r"\[Primitive::(vjp|jvp|vmap)\] Not implemented for ([\w:]+)|"
    r"\[([\w:]+)::(vjp|jvp|vmap)\][^\n]*(?:not|NYI)[^\n]*",
    re.IGNORECASE,
)
_WORDS = {"vjp": "differentiate", "jvp": "differentiate", "vmap": "vectorize"}


@contextmanager
def explained(steps: tuple[str, ...]) -> Generator[None]:
    """Turn mlx's failure to derive into an error that names the primitive.

    Args:
        steps: the derivations.

    Raises:
        Unsupported: mlx lacks a derivative or a vectorization.
    """
    try:
        yield
    except (ValueError, RuntimeError) as error:
        match = _NOT_IMPLEMENTED.search(str(error))
        if match is None or not steps:
            raise
        kind = (match[1] or match[4]).lower()
        name = match[2] or match[3]
        raise Unsupported(
            f"mlx cannot {_WORDS[kind]} {name} in this composition: {', then '.join(steps)}",
            op=name,
            steps=", then ".join(steps)[:512],
        ) from error
