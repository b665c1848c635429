"""Products of vectors and matrices."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, count
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import Attributes, Spec
from cowmlx.programs.operations.rules import (
    INEXACT,
    broadcast,
    equal,
    require_dtype,
    require_rank,
    shapes_refused,
    spec,
)


def product_shape(operation: str, left: Shape, right: Shape) -> Shape:
    """Return the shape of a matrix product; vectors lose their axis, as in numpy."""
    rows, inner = ((1, *left) if len(left) == 1 else left)[-2:]
    other, columns = ((*right, 1) if len(right) == 1 else right)[-2:]
    if not equal(inner, other):
        raise shapes_refused(
            operation,
            [left, right],
            f"the last axis of the first ({inner}) must be as long as the last but one of the "
            f"second ({other})",
        )
    batch = broadcast(operation, [left[:-2], right[:-2]])
    found: tuple[Dim, ...] = batch
    if len(left) > 1:
        found += (rows,)
    if len(right) > 1:
        found += (columns,)
    return found


def _matmul(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    left, right = inputs
    for name, given in zip(("a", "b"), inputs, strict=True):
        require_dtype("matmul", name, given, INEXACT)
        require_rank("matmul", name, given, 1)
    dtype = promote("matmul", [left.dtype, right.dtype])
    return [spec("matmul", product_shape("matmul", left.shape, right.shape), dtype)]


def _matmul_cost(inputs: list[Any], attributes: Attributes) -> Dim:
    return count(_matmul(inputs, attributes)[0].shape) * inputs[0].shape[-1]


ROWS = (
    row(
        "matmul",
        ("a", "b"),
        _matmul,
        lambda arrays, attributes: [mx.matmul(*arrays)],
        "The product of matrices, or of stacks of them; a vector is a row on the left and a "
        "column on the right.",
        "out[…, i, j] = sum over k of a[…, i, k] b[…, k, j]",
        [
            example("float32[2,3]", "float32[3,4]"),
            example("float32[3]", "float32[3]"),
            example("float32[2,1,4,3]", "float32[5,3,2]"),
            example("float32[2,3]", "float32[3]"),
            example("float32[0,3]", "float32[3,2]"),
            example("float32[2,0]", "float32[0,2]"),
        ],
        aliases=("dot", "dot_general", "mm", "bmm"),
        differentiable=("a", "b"),
        multiplications=_matmul_cost,
    ),
)
