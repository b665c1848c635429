"""A program some of whose inputs are given once and for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import mlx.core as mx

from cowmlx.programs.dimensions import DimensionError
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.forms.form import Form, Output, Rows, Tracing
from cowmlx.programs.graph import Declared
from cowmlx.programs.operations.promotion import name_of
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.flags import Flags
from cowmlx.programs.sizes import solve, substituted


class Bound:
    """A form without the inputs that arrays are bound to.

    Args:
        inner: the form.
        arrays: by the names of inputs; evaluated.

    Raises:
        ProgramError: there is no such input, or the array does not fit it.
    """

    def __init__(self, inner: Form, arrays: Mapping[str, mx.array]) -> None:
        known = {each.name: each.spec for each in inner.inputs}
        for name, array in arrays.items():
            _require_fits(name, array, known)
        self.library = inner.library
        self.levels = inner.levels
        self.selects = inner.selects
        self.steps = (*inner.steps, f"bind {', '.join(arrays)}")
        self._inner = inner
        self._arrays = dict(arrays)
        self.fixed: Mapping[str, int] = self._solved(known)
        self.inputs: tuple[Declared, ...] = tuple(
            replace(each, spec=self._fixed_spec(each.spec))
            for each in inner.inputs
            if each.name not in arrays
        )
        self.outputs = tuple(
            Output(each.name, self._fixed_spec(each.spec)) for each in inner.outputs
        )

    def _solved(self, known: Mapping[str, Spec]) -> dict[str, int]:
        """Return the dimensions whose values the arrays tell."""
        shapes = [(name, known[name].shape) for name in self._arrays]
        given = [tuple(array.shape) for array in self._arrays.values()]
        try:
            return solve(shapes, given, self._inner.fixed)
        except DimensionError as error:
            raise ProgramError(
                error.reason,
                f"bind: {error}; bind the inputs that tell it too",
                **error.details,
            ) from None

    def _fixed_spec(self, spec: Spec) -> Spec:
        return Spec(substituted(spec.shape, self.fixed), spec.dtype)

    def copies(self, values: Mapping[str, int]) -> int:
        """Return how many rows are computed at once."""
        return self._inner.copies(values)

    def source(self, output: int) -> str:
        """Return the value of the written program that a result is computed of."""
        return self._inner.source(output)

    def written(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        """Return the inputs of the written program."""
        return self._inner.written(self._all(arrays))

    def trace(
        self, arrays: Sequence[mx.array], tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results lazily."""
        return self._inner.trace(self._all(arrays), tracing, wanted)

    def trace_rows(
        self, arrays: Sequence[mx.array], rows: Rows, tracing: Tracing, wanted: Sequence[int]
    ) -> tuple[list[mx.array], Flags]:
        """Compute some results for each row lazily."""
        inputs = enumerate(self._inner.inputs)
        free = [index for index, each in inputs if each.name not in self._arrays]
        inner = replace(rows, inputs=frozenset(free[index] for index in rows.inputs))
        return self._inner.trace_rows(self._all(arrays), inner, tracing, wanted)

    def _all(self, arrays: Sequence[mx.array]) -> list[mx.array]:
        given = iter(arrays)
        return [
            self._arrays[each.name] if each.name in self._arrays else next(given)
            for each in self._inner.inputs
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
        found = Spec(tuple(array.shape), dtype)
        raise ProgramError(
            "wrong_type" if dtype != spec.dtype else "conflict",
            f"bind: input {shown(name)} is {spec}, but the array is {found}",
            argument=name,
            shapes=str(found),
            accepted=str(spec),
        )
