"""Rows of operations on matrices, computed on the CPU.

mlx fails at the evaluation of a singular inverse, ends the process for a matrix of no rows, and
returns garbage for a Cholesky of a matrix that is not positive definite; LAPACK prints where it
finds nan. So matrices that mlx cannot take are replaced by the identity before, and a check says
which they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape
from cowmlx.programs.operations.indices import Check, check_that
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.matrices import (
    finite,
    regular,
    triangular,
    where_good,
)
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    equal,
    require_dtype,
    require_rank,
    shapes_refused,
    spec,
)

DTYPES = ("float32", "float64")
"""What LAPACK takes here."""
UPPER = Attribute("upper", "bool", False, "Whether the triangle is the upper one.")
_NOT_FINITE = "is not finite"
SQUARE = [
    example("float32[3,3] regular"),
    example("float32[4,4] regular"),
    example("float32[2,3,3] regular"),
]
TRIANGULAR = [
    example("float32[3,3] lower"),
    example("float32[2,2,2] upper", upper=True),
]
ANY = [example("float32[3,3]"), example("float32[2,4,3]"), example("float32[2,3]")]

Good = Callable[[mx.array, Attributes], mx.array]


def require_square(name: str, given: Spec, place: str = "a") -> None:
    """Check that an input is a matrix, or a stack of them, of as many rows as columns."""
    require_dtype(name, place, given, DTYPES)
    require_rank(name, place, given, 2)
    if not equal(given.shape[-1], given.shape[-2]):
        raise shapes_refused(name, [given.shape], "the last two axes must be as long")
    if given.shape[-1] == 0:
        raise shapes_refused(name, [given.shape], "the matrices must have a row or more")


def require_matrices(name: str, given: Spec) -> None:
    """Check that an input is a matrix with elements, or a stack of them."""
    require_dtype(name, "a", given, DTYPES)
    require_rank(name, "a", given, 2)
    if 0 in given.shape[-2:]:
        raise shapes_refused(name, [given.shape], "the matrices must have elements")


def _eye_less(a: mx.array, attributes: Attributes) -> mx.array:
    return finite(a)


def of_matrices(
    name: str,
    shapes: Callable[[Shape, Attributes], Sequence[tuple[Sequence[Dim], str | None]]],
    function: Callable[[mx.array, Attributes], Sequence[mx.array]],
    summary: str,
    formula: str,
    outputs: Sequence[str],
    examples: Sequence[Example],
    *,
    square: bool = True,
    good: Good = _eye_less,
    problem: str = _NOT_FINITE,
    **more: Any,
) -> Operation:
    """Return the row of a function of matrices.

    Args:
        name: the row's.
        shapes: the shape of each result, and its dtype if it is not the input's.
        function: of matrices that it can take.
        summary: one sentence.
        formula: what it computes.
        outputs: the names of its results.
        examples: inputs that it takes.
        square: whether matrices have as many rows as columns.
        good: for each matrix whether it can be taken.
        problem: what the others are.
        more: as ``row`` takes it.
    """

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        (require_square if square else require_matrices)(name, given)
        return [
            spec(name, shape, dtype or given.dtype)
            for shape, dtype in shapes(given.shape, attributes)
        ]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        (a,) = arrays
        return list(function(where_good(a, good(a, attributes)), attributes))

    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        (a,) = arrays
        return check_that(name, "a", good(a, attributes), problem)

    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        examples,
        outputs=outputs,
        checks=checks,
        cpu_only=True,
        stacks=(0,),
        **more,
    )


def same_shape(shape: Shape, attributes: Attributes) -> list[tuple[Shape, None]]:
    """Return the shape of a result that has its input's."""
    return [(shape, None)]


def is_regular(a: mx.array, attributes: Attributes) -> mx.array:
    """Tell for each matrix whether it has an inverse."""
    return regular(a)


def is_triangular(a: mx.array, attributes: Attributes) -> mx.array:
    """Tell for each triangular matrix whether it has an inverse."""
    return triangular(a)


def triangle(a: mx.array, attributes: Attributes) -> mx.array:
    """Return the triangle of each matrix that ``upper`` names."""
    return mx.triu(a) if attributes["upper"] else mx.tril(a)
