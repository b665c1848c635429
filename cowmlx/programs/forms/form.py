"""What all forms have: inputs, outputs, and a function of arrays between them; the written one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import mlx.core as mx

from cowmlx.programs.graph import Declared, Library
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.flags import Flags
from cowmlx.programs.running.rows import rows_of
from cowmlx.programs.running.tracing import Decisions, Tracer

Traced = tuple[list[mx.array], Flags]
"""Results, and flags that have to be looked at once there are values."""


@dataclass(frozen=True)
class Output:
    """A result.

    Args:
        name: its name.
        spec: its dtype and shape.
    """

    name: str
    spec: Spec


@dataclass(frozen=True)
class Tracing:
    """How a form is traced.

    Args:
        library: the program that is written, for given dimensions.
        decisions: what its control flow did; None: both branches of a ``cond`` are computed.
        finite: whether numbers that are not finite are flagged.
        depth: how many nodes may wait for each other.
        marker: an array that has rows while mlx's vmap traces; else None.
        rounds: how often each ``while`` runs where rows end in different rounds.
    """

    library: Library
    decisions: Decisions | None
    finite: bool
    depth: int
    marker: mx.array | None = None
    rounds: Decisions | None = None


@dataclass(frozen=True)
class Rows:
    """The rows of a vectorized program.

    Args:
        count: how many, 1 or more.
        inputs: the indices of inputs that differ between rows.
    """

    count: int
    inputs: frozenset[int]


class Form(ABC):
    """A program, or what is derived of one.

    Attributes:
        library: the program that is written.
        inputs: what a run takes.
        outputs: what a run gives.
        fixed: dimensions whose values are known before a run.
        levels: how often it is differentiated.
        selects: whether both branches of a ``cond`` are computed, as under vectorization.
        steps: what was derived, one after the other, for messages and for ``program_info``.
    """

    library: Library
    inputs: tuple[Declared, ...]
    outputs: tuple[Output, ...]
    fixed: Mapping[str, int]
    levels: int = 0
    selects: bool = False
    steps: tuple[str, ...] = ()

    @abstractmethod
    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once, for values of the dimensions."""

    @abstractmethod
    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""

    def sources(self) -> set[str]:
        """Return the values of the written program that the results are computed of."""
        return {self.source(output) for output in range(len(self.outputs))}

    @abstractmethod
    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program for those of this form."""

    @abstractmethod
    def spread(
        self, arrays: Sequence[mx.array], rows: Rows | None
    ) -> tuple[list[mx.array], Rows | None]:
        """Return the inputs of the written program, and which of them have rows.

        Args:
            arrays: the inputs of this form.
            rows: which of these have rows, along their first axis; None: none has.
        """

    @abstractmethod
    def trace(self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]) -> Traced:
        """Compute some results lazily; mlx may be tracing.

        Args:
            arrays: the inputs.
            tracing: how.
            wanted: the indices of the results.
        """

    @abstractmethod
    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> Traced:
        """Compute some results for each row lazily; mlx may be tracing.

        Args:
            arrays: the inputs.
            rows: which inputs have rows, along their first axis, and how many.
            tracing: how; both branches of a ``cond`` are computed.
            wanted: the indices of the results.

        Returns:
            The results, with a first axis for the rows, and flags with the rows in any axis.
        """


class Written(Form):
    """A checked program as a form.

    Args:
        library: the program.
    """

    def __init__(self, library: Library) -> None:
        main = library.main
        self.library = library
        self.inputs = main.declared
        self.outputs = tuple(Output(name, main.specs[name]) for name in main.outputs)
        self.fixed = {}

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return 1

    def source(self, output: int) -> str:
        """Return the value that a result is."""
        return self.outputs[output].name

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs."""
        return list(arrays)

    def spread(
        self, arrays: Sequence[mx.array], rows: Rows | None
    ) -> tuple[list[mx.array], Rows | None]:
        """Return the inputs as they are."""
        return list(arrays), rows

    def trace(self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]) -> Traced:
        """Compute some results lazily."""
        tracer = Tracer(
            tracing.library,
            tracing.decisions,
            tracing.finite,
            tracing.depth,
            tracing.marker,
            tracing.rounds,
        )
        names = [self.outputs[index].name for index in wanted]
        return tracer.results(tracing.library.main, arrays, names), tracer.flags

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> Traced:
        """Compute some results for each row lazily."""
        varying = sorted(rows.inputs)

        def row(mapped: Sequence[mx.array]) -> Traced:
            given = list(arrays)
            for index, array in zip(varying, mapped, strict=True):
                given[index] = array
            return self.trace(given, replace(tracing, decisions=None, marker=mapped[0]), wanted)

        names = [self.outputs[index].name for index in wanted]
        return rows_of(row, [arrays[index] for index in varying], names)
