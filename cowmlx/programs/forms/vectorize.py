"""A program for rows of inputs: what it gives for each, in a first axis of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from cowmlx.errors import Unsupported
from cowmlx.programs.dimensions import Dim, evaluate
from cowmlx.programs.failure import shown
from cowmlx.programs.forms.form import Form, Output, Tracing
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.flags import Flags


class Vectorized:
    """A form some of whose inputs have an axis more.

    Args:
        inner: the form.
        axes: by the index of an input, where it has that axis.
        dimension: how long the axis is.
    """

    selects = True

    def __init__(self, inner: Form, axes: Mapping[int, int], dimension: Dim) -> None:
        self.library = inner.library
        self.fixed: Mapping[str, int] = inner.fixed
        self.levels = inner.levels
        names = ", ".join(inner.inputs[index].name for index in axes)
        self.steps = (*inner.steps, f"vectorize {names}")
        self.inputs = tuple(
            replace(each, spec=_wider(each.spec, axes[index], dimension)) if index in axes else each
            for index, each in enumerate(inner.inputs)
        )
        self.outputs = tuple(
            Output(each.name, _wider(each.spec, 0, dimension)) for each in inner.outputs
        )
        self._inner = inner
        self._dimension = dimension
        self._axes = dict(axes)

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return evaluate(self._dimension, values) * self._inner.copies(values)

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""
        return self._inner.source(output)

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Never asked: rows may differ in what control flow does (``selects``).

        Raises:
            AssertionError: always.
        """
        raise AssertionError("a vectorised program computes both branches")

    def trace(
        self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results lazily."""
        notes: list[Any] = []

        def row(*mapped: mx.array) -> list[mx.array]:
            given = list(arrays)
            for index, array in zip(self._axes, mapped, strict=True):
                given[index] = array
            results, flags = self._inner.trace(given, replace(tracing, decisions=None), wanted)
            notes[:] = flags
            return [*results, *flags.values()]

        vectorized: Any = mx.vmap(row, in_axes=tuple(self._axes.values()))
        found = vectorized(*[arrays[index] for index in self._axes])
        count = len(wanted)
        rows = arrays[next(iter(self._axes))].shape[next(iter(self._axes.values()))]
        for index, array in zip(wanted, found[:count], strict=True):
            if array.shape[0] != rows:  # a fault of mlx: of some operations it loses rows
                raise Unsupported(
                    f"mlx computes {array.shape[0]} of {rows} rows of "
                    f"{shown(self.outputs[index].name)}, so it cannot be vectorised",
                    argument=self.outputs[index].name,
                )
        return list(found[:count]), dict(zip(notes, found[count:], strict=True))


def _wider(spec: Spec, axis: int, dimension: Dim) -> Spec:
    return Spec((*spec.shape[:axis], dimension, *spec.shape[axis:]), spec.dtype)
