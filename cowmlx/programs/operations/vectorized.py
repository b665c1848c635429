"""Rows of operations that mlx cannot vectorize, or computes differently than each row alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.indices import Check, found_in_rows
from cowmlx.programs.operations.row import Attributes, Operation, OperationError, Spec
from cowmlx.programs.operations.rules import mlx_dtype

MAX_ROWS = 4096
"""Rows that are computed one by one: each adds a few nodes to mlx's graph."""

Arrays = list[Any]
Axes = Sequence[int | None]
"""Where the rows of arrays are; None for an array that all rows share."""


def results_of_rows(
    row: Operation, arrays: Arrays, attributes: Attributes, specs: Sequence[Spec], marker: mx.array
) -> list[mx.array]:
    """Return the results of an operation with ``stacks`` while mlx's vmap traces.

    Args:
        row: the operation.
        arrays: its inputs, in the shapes of one row; None for a missing one.
        attributes: its attributes.
        specs: of the results of one row.
        marker: an array that has rows.
    """
    assert row.stacks is not None
    stacks = set(row.stacks)

    def compute(given: Arrays, axes: Axes, count: int) -> list[mx.array]:
        own = {at for at, axis in enumerate(axes) if axis is not None}
        if not own:
            shared = row.compute(given, attributes)
            return [mx.broadcast_to(each, (count, *each.shape)) for each in shared]
        if own <= stacks:
            return row.compute(_stacked(given, axes, stacks, count), attributes)
        return _one_by_one(row, given, axes, count, attributes)

    shapes: list[Any] = [(spec.shape, mlx_dtype(spec.dtype)) for spec in specs]
    return _traced(compute, arrays, shapes, marker)


def checks_of_rows(
    row: Operation, arrays: Arrays, attributes: Attributes, marker: mx.array
) -> list[Check]:
    """Return the checks of an operation on stacks of matrices while mlx's vmap traces."""
    checks = row.checks
    assert checks is not None

    def compute(given: Arrays, axes: Axes, count: int) -> list[mx.array]:
        stacked = _stacked(given, axes, range(len(given)), count)
        flags = []
        for check in checks(stacked, attributes):
            assert check.good is not None
            # The flag of a row whose values are discarded does not count.
            flags.append(found_in_rows(check.good, count))
        return flags

    known = checks([mx.zeros(array.shape, array.dtype) for array in arrays], attributes)
    flags = _traced(compute, arrays, [((3,), mx.int64)] * len(known), marker)
    return [replace(check, found=flag, good=None) for check, flag in zip(known, flags, strict=True)]


def _traced(
    compute: Callable[[Arrays, Axes, int], list[mx.array]],
    arrays: Arrays,
    shapes: Sequence[tuple[Any, mx.Dtype]],
    marker: mx.array,
) -> list[mx.array]:
    """Return what vmap replaces by the results of all rows.

    mlx's vmap goes through what a custom function computed of its inputs, too, where it would fail.
    So the function gives zeros, and the marker makes sure that vmap replaces them.

    Args:
        compute: takes arrays, the axes of their rows and how many there are; gives results whose
            first axis is that of rows.
        arrays: the inputs, as one row has them.
        shapes: shapes and dtypes of the results of one row.
        marker: an array that has rows.
    """
    if not shapes:  # mlx ends the process
        return []
    there = [at for at, array in enumerate(arrays) if array is not None]

    def zeros(*given: mx.array) -> list[mx.array]:
        return [mx.zeros(*shape) for shape in shapes]

    custom: Any = mx.custom_function(zeros)

    @custom.vmap  # type: ignore[untyped-decorator]
    def rows(inputs: Sequence[mx.array], axes: Axes) -> tuple[list[mx.array], list[int]]:
        given: Arrays = [None] * len(arrays)
        places: list[int | None] = [None] * len(arrays)
        for at, operand, axis in zip(there, inputs[:-1], axes[:-1], strict=True):
            given[at], places[at] = operand, axis
        assert axes[-1] is not None
        results = compute(given, places, inputs[-1].shape[axes[-1]])
        return results, [0] * len(results)

    results: list[mx.array] = custom(*[arrays[at] for at in there], marker)
    return results


def _stacked(given: Arrays, axes: Axes, places: Any, count: int) -> Arrays:
    """Return arrays, those at some places with rows as their first axis."""
    stacked = list(given)
    for at in places:
        array = None if at >= len(given) else given[at]
        if array is not None:
            axis = axes[at]
            shared = axis is None
            stacked[at] = (
                mx.broadcast_to(array, (count, *array.shape))
                if shared
                else mx.moveaxis(array, axis, 0)
            )
    return stacked


def _one_by_one(
    row: Operation, given: Arrays, axes: Axes, count: int, attributes: Attributes
) -> list[mx.array]:
    if count > MAX_ROWS:
        if row.of_many_rows is not None:
            return _mapped(row.of_many_rows, given, axes, attributes)
        raise OperationError(
            "limit_exceeded",
            f"{row.name} computes rows one by one, {count} of them, must be {MAX_ROWS} at most",
            op=row.name,
            value=count,
            limit=MAX_ROWS,
        )
    moved = [
        operand if axis is None else mx.moveaxis(operand, axis, 0)
        for operand, axis in zip(given, axes, strict=True)
    ]
    stacks = [
        row.compute(
            [
                array if axis is None else array[number]
                for array, axis in zip(moved, axes, strict=True)
            ],
            attributes,
        )
        for number in range(count)
    ]
    return [mx.stack(list(results)) for results in zip(*stacks, strict=True)]


def _mapped(compute: Any, given: Arrays, axes: Axes, attributes: Attributes) -> list[mx.array]:
    """Vectorize a function by mlx."""
    own = [at for at, axis in enumerate(axes) if axis is not None]

    def one(*rows: mx.array) -> list[mx.array]:
        arrays = list(given)
        for at, array in zip(own, rows, strict=True):
            arrays[at] = array
        results: list[mx.array] = compute(arrays, attributes)
        return results

    mapped: Any = mx.vmap(one, in_axes=tuple(axes[at] for at in own))
    results: list[mx.array] = mapped(*[given[at] for at in own])
    return results
