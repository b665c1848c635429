"""What all forms have: inputs, outputs, and a function of arrays between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import mlx.core as mx

from cowmlx.programs.graph import Declared, Library
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.flags import Flags
from cowmlx.programs.running.tracing import Decisions


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
    """

    library: Library
    decisions: Decisions | None
    finite: bool
    depth: int
    marker: mx.array | None = None


@dataclass(frozen=True)
class Rows:
    """The rows of a vectorized program.

    Args:
        count: how many, 1 or more.
        inputs: the indices of inputs that differ between rows.
    """

    count: int
    inputs: frozenset[int]


class Form(Protocol):
    """A program, or what is derived of one."""

    @property
    def library(self) -> Library:
        """The program that is written."""

    @property
    def inputs(self) -> tuple[Declared, ...]:
        """What a run takes."""

    @property
    def outputs(self) -> tuple[Output, ...]:
        """What a run gives."""

    @property
    def fixed(self) -> Mapping[str, int]:
        """Dimensions whose values are known before a run."""

    @property
    def levels(self) -> int:
        """How often it is differentiated."""

    @property
    def selects(self) -> bool:
        """Whether both branches of a ``cond`` are computed, as under vectorisation."""

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once, for values of the dimensions."""

    @property
    def steps(self) -> tuple[str, ...]:
        """What was derived, one after the other, for messages and for ``program_info``."""

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program for those of this form."""

    def trace(
        self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results lazily; mlx may be tracing.

        Args:
            arrays: the inputs.
            tracing: how.
            wanted: the indices of the results.
        """

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results for each row lazily; mlx may be tracing.

        Args:
            arrays: the inputs.
            rows: which inputs have rows, along their first axis, and how many.
            tracing: how; both branches of a ``cond`` are computed.
            wanted: the indices of the results.

        Returns:
            The results, with a first axis for the rows, and flags with the rows in any axis.
        """
