"""A program for rows of inputs: what it gives for each, in a first axis of its results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, evaluate
from cowmlx.programs.forms.form import Form, Output, Rows, Tracing
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
        given = list(arrays)
        for index, axis in self._axes.items():
            given[index] = mx.moveaxis(given[index], axis, 0)
        rows = Rows(given[next(iter(self._axes))].shape[0], frozenset(self._axes))
        return self._inner.trace_rows(given, rows, tracing, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results for each row lazily: the rows of all rows are rows."""
        given = list(arrays)
        for index, axis in self._axes.items():
            outer = index in rows.inputs
            given[index] = mx.moveaxis(given[index], axis + outer, int(outer))
            count = given[index].shape[int(outer)]
        inner = Rows(rows.count * count, rows.inputs | frozenset(self._axes))
        for index in inner.inputs:
            array = given[index]
            if index not in rows.inputs:
                array = array[None]
            elif index not in self._axes:
                array = array[:, None]
            shape = array.shape[2:]
            array = mx.broadcast_to(array, (rows.count, count, *shape))
            given[index] = array.reshape(inner.count, *shape)
        results, flags = self._inner.trace_rows(given, inner, tracing, wanted)
        return [each.reshape(rows.count, count, *each.shape[1:]) for each in results], flags


def _wider(spec: Spec, axis: int, dimension: Dim) -> Spec:
    return Spec((*spec.shape[:axis], dimension, *spec.shape[axis:]), spec.dtype)
