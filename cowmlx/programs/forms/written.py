"""The program as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from cowmlx.errors import Unsupported
from cowmlx.programs.failure import shown
from cowmlx.programs.forms.form import Output, Rows, Tracing
from cowmlx.programs.graph import Declared, Library
from cowmlx.programs.running.flags import Flags, Note
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
        tracer = Tracer(
            tracing.library, tracing.decisions, tracing.finite, tracing.depth, tracing.marker
        )
        names = [self.outputs[index].name for index in wanted]
        return tracer.results(tracing.library.main, arrays, names), tracer.flags

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results for each row lazily."""
        notes: list[Note] = []
        varying = sorted(rows.inputs)

        def row(*mapped: mx.array) -> list[mx.array]:
            given = list(arrays)
            for index, array in zip(varying, mapped, strict=True):
                given[index] = array
            inner = replace(tracing, decisions=None, marker=mapped[0])
            results, flags = self.trace(given, inner, wanted)
            notes[:] = flags
            # mlx moves the axis of rows of each array once, also if two results are the same one.
            return [mx.expand_dims(each, 0) for each in (*results, *flags.values())]

        vectorized: Any = mx.vmap(row)
        found = vectorized(*[arrays[index] for index in varying])
        for index, array in zip(wanted, found, strict=False):
            if array.shape[0] != rows.count:  # a fault of mlx: of some operations it loses rows
                raise Unsupported(
                    f"mlx computes {array.shape[0]} of {rows.count} rows of "
                    f"{shown(self.outputs[index].name)}, so it cannot be vectorized",
                    argument=self.outputs[index].name,
                )
        found = [mx.squeeze(each, 1) for each in found]
        return found[: len(wanted)], dict(zip(notes, found[len(wanted) :], strict=True))
