"""Rows of values: what mlx's vmap makes of a function of one row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.errors import Unsupported
from cowmlx.programs.failure import shown
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.flags import Flags, Note

Traced = tuple[list[mx.array], Flags]


def rows_of(
    compute: Callable[[Sequence[mx.array]], Traced],
    arrays: Sequence[mx.array],
    names: Sequence[str],
) -> Traced:
    """Return results and flags of each row, along a first axis.

    Args:
        compute: what a row gives, with flags; mlx's vmap traces it.
        arrays: its inputs, whose first axis is that of rows.
        names: of the results.

    Raises:
        Unsupported: mlx loses rows of an operation.
    """
    notes: list[Note] = []
    count = arrays[0].shape[0]

    def row(*mapped: mx.array) -> list[mx.array]:
        results, flags = compute(mapped)
        notes[:] = flags
        # mlx moves the axis of rows of each array once, also if two results are the same one.
        return [mx.expand_dims(result, 0) for result in (*results, *flags.values())]

    vectorized: Any = mx.vmap(row)
    found = vectorized(*arrays)
    for name, array in zip(names, found, strict=False):
        if array.shape[0] != count:  # a fault of mlx: of some operations it loses rows
            raise Unsupported(
                f"mlx computes {array.shape[0]} of {count} rows of {shown(name)}, so it cannot be "
                "vectorized",
                argument=name,
            )
    found = [mx.squeeze(operand, 1) for operand in found]
    return found[: len(names)], dict(zip(notes, found[len(names) :], strict=True))


def has_rows(spec: Spec, array: mx.array) -> bool:
    """Whether a value has rows: one axis more than its spec, the first."""
    return array.ndim > len(spec.shape)
