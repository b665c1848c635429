"""The program as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mlx.core as mx

from cowmlx.programs.forms.form import Output, Tracing
from cowmlx.programs.graph import Declared, Library
from cowmlx.programs.running.flags import Flags
from cowmlx.programs.running.tracing import Tracer


class Written:
    """A checked program as a form.

    Args:
        library: the program.
    """

    levels = 0
    selects = False
    steps: tuple[str, ...] = ()

    def __init__(self, library: Library) -> None:
        main = library.main
        self.library = library
        self.inputs: tuple[Declared, ...] = main.declared
        self.outputs = tuple(Output(name, main.specs[name]) for name in main.outputs)
        self.fixed: Mapping[str, int] = {}

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return 1

    def source(self, output: int) -> str:
        """Return the value that a result is."""
        return self.outputs[output].name

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs."""
        return list(arrays)

    def trace(
        self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results lazily."""
        tracer = Tracer(tracing.library, tracing.decisions, tracing.finite, tracing.depth)
        names = [self.outputs[index].name for index in wanted]
        return tracer.results(tracing.library.main, arrays, names), tracer.flags
