"""Indices that come from outside: made safe before mlx sees them, and reported after the run.

mlx reads and writes foreign memory for an index out of range. So ``compute`` always gives it
indices of :func:`safe`, and the row's ``checks`` says which were out of range. A check is an array
like every other: it comes out of a traced function beside its results, through mlx's compile,
gradient (as an auxiliary value) and vmap, and :meth:`Check.look` reads it after the run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import kernels
from cowmlx.programs.operations.row import Attribute, Attributes, OperationError, Spec
from cowmlx.programs.operations.rules import INTEGERS, dtypes_refused

INDICES = Attribute(
    "indices",
    "choice",
    "check",
    "What happens to an index out of range: the run fails and names it, or it is clamped.",
    ("check", "clamp"),
)


@dataclass
class Check:
    """Something to look at once a run is through.

    Args:
        found: int64 of shape (3,), or (…, 3) once vectorized: how many are bad, where the first
            is in row-major order, and its value.
        argument: the input that it is about.
        low: the least value that is accepted.
        high: the greatest.
        problem: what is wrong, where it is no index: then the place is that of a matrix.
        operation: whose it is; the row sets it.
        good: a bool for each matrix, where matrices are checked.
    """

    found: mx.array
    argument: str
    low: int = 0
    high: int = 0
    problem: str = ""
    operation: str = ""
    good: mx.array | None = None

    def look(self, found: mx.array | None = None) -> OperationError | None:
        """Return the error that a run has to report, or None.

        Args:
            found: the evaluated array, if it is not :attr:`found`, as after a trace.
        """
        flag = self.found if found is None else found
        # A reshape would be computed on a stream: one row needs none.
        rows: Any = [flag.tolist()] if flag.ndim == 1 else flag.reshape(-1, 3).tolist()
        for count, place, value in rows:
            if not count:
                continue
            others = f" ({count} such values)" if count > 1 else ""
            accepted = f"{self.low} to {self.high}"
            what = f"has {value} at position {place}{others}, must be {accepted}"
            details = {"value": value}
            if self.problem:
                what, details = f"{self.problem} (matrix {place})", {}
                accepted = self.problem.replace("is not", "is", 1)
            details |= {"argument": self.argument, "position": place, "accepted": accepted}
            error = OperationError("out_of_range", f"{self.argument} {what}", **details)
            return error.of(self.operation)
        return None


def require_indices(argument: str, spec: Spec) -> None:
    """Check that an input's dtype can index."""
    if spec.dtype not in INTEGERS:
        raise dtypes_refused(argument, spec, "an integer dtype", ", ".join(INTEGERS))


def safe(indices: mx.array, size: int, *, negative: bool = True) -> mx.array:
    """Return indices as int32 within 0 to size - 1: negative ones count from the end.

    Args:
        indices: of any integer dtype.
        size: of the axis, above 0.
        negative: whether those from -size are accepted; if not, they are clamped to 0.
    """
    wide = _wide(indices)
    if wide.dtype not in (mx.uint32, mx.uint64):
        if negative:
            wide = mx.where(wide < 0, wide + _scalar(size, wide), wide)
        wide = mx.maximum(wide, _scalar(0, wide))
    return mx.minimum(wide, _scalar(size - 1, wide)).astype(mx.int32)


def taken(array: mx.array, indices: mx.array, axis: int) -> mx.array:
    """Take safe indices along an axis, which a gradient goes through.

    mlx's gradient of taking from or to nothing ends the process, so that is not taken at all.
    """
    axis %= array.ndim
    if array.size == 0 or indices.size == 0:
        shape = (*array.shape[:axis], *indices.shape, *array.shape[axis + 1 :])
        return mx.zeros(shape, dtype=array.dtype)
    return mx.take(array, indices, axis=axis)


def check_range(argument: str, indices: mx.array, low: int, high: int) -> list[Check]:
    """Return the check that all indices are within low and high; none for no indices."""
    if indices.size == 0:
        return []
    indices = mx.stop_gradient(indices)
    if kernels.usable():
        return [Check(kernels.module().outside(indices, low, high), argument, low, high)]
    wide = _wide(indices)
    bad = wide > _scalar(high, wide)
    if wide.dtype not in (mx.uint32, mx.uint64):
        bad = bad | (wide < _scalar(low, wide))
    return [Check(_found(bad, wide), argument, low, high)]


def check_that(argument: str, good: mx.array, problem: str) -> list[Check]:
    """Return the check that all of some bools are true; none for none.

    Args:
        argument: the input that it is about.
        good: a bool for each matrix.
        problem: what it is if not: ``"is not finite"``.
    """
    if good.size == 0:
        return []
    good = mx.stop_gradient(good)
    found = _found(~good, good.astype(mx.int32))
    return [Check(found, argument, problem=problem, good=good)]


def found_in_rows(good: mx.array, count: int) -> mx.array:
    """Return what :attr:`Check.found` is for each of some rows of matrices, int64 (count, 3).

    Args:
        good: a bool for each matrix of all rows.
        count: the rows.
    """
    bad = mx.logical_not(good.reshape(count, -1))
    places = mx.argmax(bad.astype(mx.int32), axis=1).astype(mx.int64)
    return mx.stack([bad.sum(axis=1).astype(mx.int64), places, mx.zeros_like(places)], axis=1)


def _found(bad: mx.array, values: mx.array) -> mx.array:
    bad = bad.reshape(-1)
    place = mx.argmax(bad.astype(mx.int32))
    value = mx.take(values.reshape(-1), place)
    return mx.stack([bad.sum().astype(mx.int64), place.astype(mx.int64), value.astype(mx.int64)])


def checks_of(
    argument: str, indices: mx.array, size: int, attributes: Attributes, *, negative: bool = True
) -> list[Check]:
    """Return the checks of indices into an axis; none if they are clamped."""
    if attributes["indices"] == "clamp":
        return []
    return check_range(argument, indices, -size if negative else 0, size - 1)


def _wide(indices: mx.array) -> mx.array:
    """Small dtypes could not hold an axis' size."""
    small = indices.dtype in (mx.int8, mx.int16, mx.uint8, mx.uint16)
    return indices.astype(mx.int32) if small else indices


def _scalar(value: int, like: mx.array) -> mx.array:
    """A number of an array's dtype."""
    return mx.array(value, dtype=like.dtype)
