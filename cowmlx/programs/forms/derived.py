"""Forms that are derived of others: bound inputs, gradients with mlx's reverse mode, rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.programs.dimensions import Dim, DimensionError, evaluate
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.forms.form import Form, Output, Rows, Traced, Tracing
from cowmlx.programs.graph import Declared
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import described, name_of
from cowmlx.programs.running.flags import Note
from cowmlx.programs.sizes import solve, substituted

T = TypeVar("T")
Trace = Callable[[Sequence[mx.array]], Traced]
"""Computes the result that is differentiated and those beside it, for all inputs."""


class Derived(Form):
    """What most derived forms share with the form that they are derived of.

    Args:
        inner: that form.
        step: what is derived, for messages.
    """

    def __init__(self, inner: Form, step: str) -> None:
        self.library = inner.library
        self.fixed = inner.fixed
        self.levels = inner.levels
        self.selects = inner.selects
        self.steps = (*inner.steps, step)
        self._inner = inner

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return self._inner.copies(values)

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""
        return self._inner.source(output)

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program."""
        return self._inner.written(arrays)


class Bound(Derived):
    """A form without the inputs that arrays are bound to.

    Args:
        inner: the form.
        arrays: by the names of inputs; evaluated.

    Raises:
        ProgramError: there is no such input, or the array does not fit it.
    """

    def __init__(self, inner: Form, arrays: Mapping[str, mx.array]) -> None:
        known = {input_.name: input_.spec for input_ in inner.inputs}
        for name, array in arrays.items():
            _require_fits(name, array, known)
        super().__init__(inner, f"bind {', '.join(arrays)}")
        self._arrays = dict(arrays)
        self.fixed = self._solved(known)
        self.inputs = tuple(
            replace(input_, spec=self._fixed_spec(input_.spec))
            for input_ in inner.inputs
            if input_.name not in arrays
        )
        self.outputs = tuple(
            Output(output.name, self._fixed_spec(output.spec)) for output in inner.outputs
        )

    def _solved(self, known: Mapping[str, Spec]) -> dict[str, int]:
        """Return the dimensions whose values follow from the arrays."""
        shapes = [(name, known[name].shape) for name in self._arrays]
        given = [tuple(array.shape) for array in self._arrays.values()]
        try:
            return solve(shapes, given, self._inner.fixed)
        except DimensionError as error:
            raise ProgramError(
                error.reason, f"bind: {error}; bind the inputs that tell it too", **error.details
            ) from None

    def _fixed_spec(self, spec: Spec) -> Spec:
        return Spec(substituted(spec.shape, self.fixed), spec.dtype)

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program."""
        return self._inner.written(self._all(arrays))

    def trace(self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]) -> Traced:
        """Compute some results lazily."""
        return self._inner.trace(self._all(arrays), tracing, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> Traced:
        """Compute some results for each row lazily."""
        return self._inner.trace_rows(self._all(arrays), self._of_all(rows), tracing, wanted)

    def spread(
        self, arrays: Sequence[mx.array], rows: Rows | None
    ) -> tuple[list[mx.array], Rows | None]:
        """Return the inputs of the written program, and which of them have rows."""
        return self._inner.spread(self._all(arrays), rows and self._of_all(rows))

    def _of_all(self, rows: Rows) -> Rows:
        """Return rows by the inputs of the inner form."""
        inputs = enumerate(self._inner.inputs)
        free = [index for index, input_ in inputs if input_.name not in self._arrays]
        return replace(rows, inputs=frozenset(free[index] for index in rows.inputs))

    def _all(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        given = iter(arrays)
        return [
            self._arrays[input_.name] if input_.name in self._arrays else next(given)
            for input_ in self._inner.inputs
        ]


def _require_fits(name: str, array: mx.array, known: Mapping[str, Spec]) -> None:
    if name not in known:
        accepted = ", ".join(list(known)[:16])
        raise ProgramError(
            "missing",
            f"bind: there is no input {shown(name)}, must be one of {accepted}",
            argument=name,
            accepted=accepted,
        )
    spec, dtype = known[name], name_of(array.dtype)
    if dtype != spec.dtype or array.ndim != len(spec.shape):
        raise ProgramError(
            "wrong_type" if dtype != spec.dtype else "conflict",
            f"bind: input {shown(name)} is {spec}, but the array is {described(array)}",
            argument=name,
            shapes=str(described(array)),
            accepted=str(spec),
        )


class Gradient(Derived):
    """Gradients of a result with respect to inputs, and the result itself if wanted.

    Args:
        inner: the form.
        of: the index of a result, a float; of shape () without ``along``.
        inputs: the indices of inputs, floats.
        value: whether the result comes first.
        beside: the indices of other results, which come last and are not differentiated.
        along: the name of a new input of the result's shape: the gradients are those of the sum of
            the result times it (a vector-Jacobian product). It comes before parameters.
    """

    def __init__(
        self,
        inner: Form,
        of: int,
        inputs: Sequence[int],
        value: bool,
        beside: Sequence[int] = (),
        along: str | None = None,
    ) -> None:
        result = inner.outputs[of]
        chosen = [inner.inputs[index] for index in inputs]
        names = ", ".join(output.name for output in chosen)
        super().__init__(inner, f"gradient of {result.name} with respect to {names}")
        self.inputs = inner.inputs
        self._along: int | None = None
        if along is not None:
            free = [index for index, each in enumerate(inner.inputs) if not each.parameter]
            self._along = at = free[-1] + 1 if free else 0
            direction = Declared(along, result.spec)
            self.inputs = (*inner.inputs[:at], direction, *inner.inputs[at:])
        self.levels = inner.levels + 1
        gradients = [Output(f"{result.name}/{output.name}", output.spec) for output in chosen]
        others = [inner.outputs[index] for index in beside]
        self.outputs = (*([result] if value else []), *gradients, *others)
        self._of = of
        self._chosen = list(inputs)
        self._value = value
        self._beside = list(beside)

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""
        first = len(self.outputs) - len(self._beside)
        return self._inner.source(self._of if output < first else self._beside[output - first])

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program."""
        return self._inner.written(self._given(arrays))

    def trace(self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]) -> Traced:
        """Compute some results lazily."""

        def trace(given: Sequence[mx.array]) -> Traced:
            return self._inner.trace(given, tracing, [self._of, *self._beside])

        return self._differentiated(self._given(arrays), self._direction(arrays), trace, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> Traced:
        """Compute some results for each row lazily.

        A row depends on its own inputs alone, so the gradient of the sum over rows has that of each
        row. mlx's vmap of gradients fails for some, and gives wrong numbers for others.
        """
        given = self._given(arrays)
        varying = self._varying(rows)
        for index in self._chosen:
            if index not in varying:
                given[index] = mx.broadcast_to(given[index], (rows.count, *given[index].shape))
        inner = replace(rows, inputs=frozenset(varying.union(self._chosen)))

        def trace(given: Sequence[mx.array]) -> Traced:
            return self._inner.trace_rows(given, inner, tracing, [self._of, *self._beside])

        return self._differentiated(given, self._direction(arrays), trace, wanted)

    def spread(
        self, arrays: Sequence[mx.array], rows: Rows | None
    ) -> tuple[list[mx.array], Rows | None]:
        """Return the inputs of the written program, and which of them have rows."""
        inner = rows and replace(rows, inputs=self._varying(rows))
        return self._inner.spread(self._given(arrays), inner)

    def _varying(self, rows: Rows) -> frozenset[int]:
        """Return the inputs of the inner form that have rows."""
        places = self._given(range(len(self.inputs)))
        return frozenset(index for index, place in enumerate(places) if place in rows.inputs)

    def _given(self, arrays: Sequence[T]) -> list[T]:
        """Return what is for the inner form."""
        return [array for index, array in enumerate(arrays) if index != self._along]

    def _direction(self, arrays: Sequence[mx.array]) -> mx.array | None:
        return None if self._along is None else arrays[self._along]

    def _differentiated(
        self,
        arrays: Sequence[mx.array],
        direction: mx.array | None,
        trace: Trace,
        wanted: Sequence[int],
    ) -> Traced:
        notes: list[Note] = []

        def objective(*chosen: mx.array) -> tuple[mx.array, list[mx.array], list[mx.array]]:
            given = list(arrays)
            for index, array in zip(self._chosen, chosen, strict=True):
                given[index] = array
            with operations.plainly():
                results, flags = trace(given)
            notes[:] = flags
            scaled = results[0] if direction is None else results[0] * direction
            return mx.sum(scaled), results, list(flags.values())

        differentiated: Any = mx.value_and_grad(objective, argnums=list(range(len(self._chosen))))
        (_, (value, *others), flags), gradients = differentiated(
            *[arrays[index] for index in self._chosen]
        )
        if isinstance(gradients, mx.array):
            gradients = (gradients,)
        results = [*([value] if self._value else []), *gradients, *others]
        return [results[index] for index in wanted], dict(zip(notes, flags, strict=True))


class Vectorized(Derived):
    """A form some of whose inputs have an axis more.

    Args:
        inner: the form.
        axes: by the index of an input, where it has that axis.
        dimension: how long the axis is.
    """

    def __init__(self, inner: Form, axes: Mapping[int, int], dimension: Dim) -> None:
        names = ", ".join(inner.inputs[index].name for index in axes)
        super().__init__(inner, f"vectorize {names}")
        self.selects = True
        self.inputs = tuple(
            replace(input_, spec=_wider(input_.spec, axes[index], dimension), value=None)
            if index in axes
            else input_
            for index, input_ in enumerate(inner.inputs)
        )
        self.outputs = tuple(
            Output(output.name, _wider(output.spec, 0, dimension)) for output in inner.outputs
        )
        self._dimension = dimension
        self._axes = dict(axes)

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return evaluate(self._dimension, values) * self._inner.copies(values)

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Never asked: rows may differ in what control flow does (``selects``).

        Raises:
            AssertionError: always.
        """
        raise AssertionError("a vectorized program computes both branches")

    def trace(self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]) -> Traced:
        """Compute some results lazily."""
        return self._inner.trace_rows(*self._own(arrays), tracing, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> Traced:
        """Compute some results for each row lazily: the rows of all rows are rows."""
        given, inner = self._rows_of_rows(arrays, rows)
        results, flags = self._inner.trace_rows(given, inner, tracing, wanted)
        count = inner.count // rows.count
        return [result.reshape(rows.count, count, *result.shape[1:]) for result in results], flags

    def spread(
        self, arrays: Sequence[mx.array], rows: Rows | None
    ) -> tuple[list[mx.array], Rows | None]:
        """Return the inputs of the written program, and which of them have rows."""
        own = self._own(arrays) if rows is None else self._rows_of_rows(arrays, rows)
        return self._inner.spread(*own)

    def _own(self, arrays: Sequence[mx.array]) -> tuple[list[mx.array], Rows]:
        given = list(arrays)
        for index, axis in self._axes.items():
            given[index] = mx.moveaxis(given[index], axis, 0)
        return given, Rows(given[next(iter(self._axes))].shape[0], frozenset(self._axes))

    def _rows_of_rows(self, arrays: Sequence[mx.array], rows: Rows) -> tuple[list[mx.array], Rows]:
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
        return given, inner


def _wider(spec: Spec, axis: int, dimension: Dim) -> Spec:
    return Spec((*spec.shape[:axis], dimension, *spec.shape[axis:]), spec.dtype)
