"""The gradient of a scalar result, with mlx's reverse mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from cowmlx.programs.forms.form import Form, Output, Rows, Tracing
from cowmlx.programs.running.flags import Flags, Note

Trace = Callable[[Sequence[mx.array]], tuple[list[mx.array], Flags]]
"""Computes the result that is differentiated and those beside it, for all inputs."""


class Gradient:
    """The derivatives of a result with respect to inputs, and the result itself if wanted.

    Args:
        inner: the form.
        of: the index of a result, a float of shape ().
        inputs: the indices of inputs, floats.
        value: whether the result comes first.
        beside: the indices of other results, which come last and are not differentiated.
    """

    def __init__(
        self,
        inner: Form,
        of: int,
        inputs: Sequence[int],
        value: bool,
        beside: Sequence[int] = (),
    ) -> None:
        result = inner.outputs[of]
        chosen = [inner.inputs[index] for index in inputs]
        self.library = inner.library
        self.inputs = inner.inputs
        self.fixed: Mapping[str, int] = inner.fixed
        self.levels = inner.levels + 1
        self.selects = inner.selects
        names = ", ".join(each.name for each in chosen)
        self.steps = (*inner.steps, f"gradient of {result.name} with respect to {names}")
        gradients = [Output(f"{result.name}/{each.name}", each.spec) for each in chosen]
        others = [inner.outputs[index] for index in beside]
        self.outputs = (*([result] if value else []), *gradients, *others)
        self._inner = inner
        self._of = of
        self._chosen = list(inputs)
        self._value = value
        self._beside = list(beside)

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return self._inner.copies(values)

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""
        first = len(self.outputs) - len(self._beside)
        return self._inner.source(self._of if output < first else self._beside[output - first])

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program."""
        return self._inner.written(arrays)

    def trace(
        self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results lazily."""

        def trace(given: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
            return self._inner.trace(given, tracing, [self._of, *self._beside])

        return self._differentiated(arrays, trace, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results for each row lazily.

        A row depends on its own inputs alone, so the gradient of the sum over rows has that of each
        row. mlx's vmap of gradients fails for some, and gives wrong numbers for others.
        """
        given = list(arrays)
        for index in self._chosen:
            if index not in rows.inputs:
                given[index] = mx.broadcast_to(given[index], (rows.count, *given[index].shape))
        inner = replace(rows, inputs=rows.inputs | frozenset(self._chosen))

        def trace(given: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
            return self._inner.trace_rows(given, inner, tracing, [self._of, *self._beside])

        return self._differentiated(given, trace, wanted)

    def _differentiated(
        self, arrays: Sequence[mx.array], trace: Trace, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        notes: list[Note] = []

        def objective(*chosen: mx.array) -> tuple[mx.array, list[mx.array], list[mx.array]]:
            given = list(arrays)
            for index, array in zip(self._chosen, chosen, strict=True):
                given[index] = array
            results, flags = trace(given)
            notes[:] = flags
            return mx.sum(results[0]), results, list(flags.values())

        differentiated: Any = mx.value_and_grad(objective, argnums=list(range(len(self._chosen))))
        (_, (value, *others), flags), gradients = differentiated(
            *[arrays[index] for index in self._chosen]
        )
        if isinstance(gradients, mx.array):
            gradients = (gradients,)
        results = [*([value] if self._value else []), *gradients, *others]
        return [results[index] for index in wanted], dict(zip(notes, flags, strict=True))
