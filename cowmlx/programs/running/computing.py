"""One operation on arrays, some of which may have no elements."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.promotion import mlx_dtype
from cowmlx.programs.operations.row import Attributes, Operation, Spec
from cowmlx.programs.operations.vectorized import checks_of_rows, results_of_rows

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def compute(
    row: Operation,
    arrays: Sequence[mx.array | None],
    attributes: Attributes,
    specs: Sequence[Spec],
    marker: mx.array | None = None,
) -> list[mx.array]:
    """Return an operation's results, lazily.

    Args:
        row: the operation.
        arrays: its inputs, as :func:`laid_out` returns them.
        attributes: its attributes.
        specs: of the results, whose shapes are numbers.
        marker: an array that has rows while mlx's vmap traces; else None.
    """
    if all(0 in spec.shape for spec in specs):
        return [zeros(spec) for spec in specs]
    if marker is not None and row.stacks is not None:
        return results_of_rows(row, list(arrays), attributes, specs, marker)
    return row.compute(list(arrays), attributes)


def checks_of(
    row: Operation,
    arrays: Sequence[mx.array | None],
    attributes: Attributes,
    marker: mx.array | None,
) -> list[Check]:
    """Return what has to be looked at after a run; arguments are those of :func:`compute`."""
    if row.checks is None:
        return []
    if marker is not None and row.stacks is not None and row.cpu_only:
        return checks_of_rows(row, list(arrays), attributes, marker)
    return row.checks(list(arrays), attributes)


def laid_out(array: mx.array | None) -> mx.array | None:
    """Return an array without elements in row-major order, and every other array itself.

    mlx 0.32.4 reduces a transposed array without elements to what lies in memory beside it, or
    never ends.
    """
    if array is None or array.size:
        return array
    return mx.zeros(array.shape, array.dtype)


def zeros(spec: Spec) -> mx.array:
    """Return zeros of a shape of numbers."""
    shape: Any = spec.shape
    return mx.zeros(shape, mlx_dtype(spec.dtype))
