"""Inverses, determinants and equations of matrices, computed on the CPU, and norms of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Shape
from cowmlx.programs.operations.indices import Check, check_that
from cowmlx.programs.operations.making import cast, example, row
from cowmlx.programs.operations.matrices import (
    CPU,
    determinant,
    inverse,
    log_determinant,
    where_good,
)
from cowmlx.programs.operations.matrix_rows import (
    ANY,
    DTYPES,
    SQUARE,
    TRIANGULAR,
    UPPER,
    Good,
    is_regular,
    is_triangular,
    of_matrices,
    require_square,
    same_shape,
    triangle,
)
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    axes_of,
    equal,
    reduced,
    require_dtype,
    require_elements,
    require_rank,
    shapes_refused,
    spec,
)


def _solve_shape(name: str, inputs: list[Any]) -> Spec:
    a, b = inputs
    require_square(name, a)
    require_dtype(name, "b", b, DTYPES)
    require_rank(name, "b", b, 1)
    dtype = promote(name, [a.dtype, b.dtype])
    rows = b.shape[-1] if len(b.shape) == 1 else b.shape[-2]
    if not equal(rows, a.shape[-1]):
        raise shapes_refused(
            name, [a.shape, b.shape], f"b must have a row for each of a's {a.shape[-1]}"
        )
    if len(b.shape) == 1:
        return spec(name, a.shape[:-1], dtype)
    if len(a.shape) != len(b.shape) or not all(map(equal, a.shape[:-2], b.shape[:-2])):
        raise shapes_refused(name, [a.shape, b.shape], "the axes before matrices must be equal")
    return spec(name, b.shape, dtype)


def _solved(
    name: str,
    function: Callable[[mx.array, mx.array, Attributes], mx.array],
    good: Good,
    summary: str,
    examples: Sequence[Example],
    attributes: Sequence[Attribute] = (),
) -> Operation:
    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        a, b = cast(arrays)
        a = where_good(a, good(a, attributes))
        if b.ndim < a.ndim:  # vectors, which all matrices of a stack share
            b = b.reshape(*b.shape[:-1], *[1] * (a.ndim - b.ndim - 1), b.shape[-1], 1)
            b = mx.broadcast_to(b, (*a.shape[:-1], 1))
            return [function(a, b, attributes)[..., 0]]
        return [function(a, b, attributes)]

    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        a = cast(arrays)[0]
        return check_that(name, "a", good(a, attributes), "is not regular")

    return row(
        name,
        ("a", "b"),
        lambda inputs, attributes: [_solve_shape(name, inputs)],
        compute,
        summary,
        "a out = b",
        examples,
        attributes=attributes,
        checks=checks,
        cpu_only=True,
        stacks=(0, 1),
        differentiable=("a", "b"),
    )


def _solve(a: mx.array, b: mx.array, attributes: Attributes) -> mx.array:
    return mx.matmul(inverse(a), b)


def _solve_triangular(a: mx.array, b: mx.array, attributes: Attributes) -> mx.array:
    return mx.matmul(inverse(triangle(a, attributes)), b)


def _norm(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    require_dtype("norm", "a", given, ("float16", "bfloat16", *DTYPES))
    axes = axes_of("norm", attributes["axis"], len(given.shape))
    if attributes["ord"] == float("inf"):
        require_elements("norm", given, axes)
    return [spec("norm", reduced(given.shape, axes, attributes["keepdims"]), given.dtype)]


def norm(a: mx.array, ord: float | None, axis: Any, keepdims: bool) -> mx.array:
    """Return the norms of vectors, which may lie along several axes."""
    size = mx.abs(a)
    if ord is None or ord == 2:
        return mx.sqrt(mx.sum(mx.square(size), axis=axis, keepdims=keepdims))
    if ord == float("inf"):
        return mx.max(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return mx.sum((size != 0).astype(a.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return mx.sum(size, axis=axis, keepdims=keepdims)
    power = mx.array(ord, dtype=a.dtype)
    return mx.power(mx.sum(mx.power(size, power), axis=axis, keepdims=keepdims), 1 / power)


def _det(a: mx.array, attributes: Attributes) -> Sequence[mx.array]:
    return [determinant(a)]


def _slogdet(a: mx.array, attributes: Attributes) -> Sequence[mx.array]:
    return list(log_determinant(a))


def _matrix_values(shape: Shape, attributes: Attributes) -> list[tuple[Shape, None]]:
    return [(shape[:-2], None)]


ROWS = (
    of_matrices(
        "inv",
        same_shape,
        lambda a, attributes: [inverse(a)],
        "The inverses of matrices.",
        "a out = identity",
        ("out",),
        SQUARE,
        good=is_regular,
        problem="is not regular",
        aliases=("inverse", "matrix_inverse"),
        differentiable=("a",),
    ),
    of_matrices(
        "tri_inv",
        same_shape,
        lambda a, attributes: [
            mx.linalg.tri_inv(triangle(a, attributes), upper=attributes["upper"], stream=CPU)
        ],
        "The inverses of triangular matrices; the other triangle is not read.",
        "a out = identity",
        ("out",),
        TRIANGULAR,
        good=is_triangular,
        problem="is not regular",
        attributes=(UPPER,),
    ),
    of_matrices(
        "pinv",
        lambda shape, attributes: [((*shape[:-2], shape[-1], shape[-2]), None)],
        lambda a, attributes: [mx.linalg.pinv(a, stream=CPU)],
        "The pseudo-inverses of matrices.",
        "a out a = a",
        ("out",),
        ANY,
        square=False,
    ),
    of_matrices(
        "det",
        _matrix_values,
        _det,
        "The determinants of matrices.",
        "det a",
        ("out",),
        SQUARE,
        differentiable=("a",),
    ),
    of_matrices(
        "slogdet",
        lambda shape, attributes: [(shape[:-2], None)] * 2,
        _slogdet,
        "The signs of determinants, and the logarithms of their absolute values.",
        "det a = sign e^logdet",
        ("sign", "logdet"),
        SQUARE,
        differentiable=("a",),
    ),
    _solved(
        "solve",
        _solve,
        is_regular,
        "The solutions of systems of linear equations.",
        [
            example("float32[3,3] regular", "float32[3]"),
            example("float32[2,3,3] regular", "float32[2,3,2]"),
        ],
    ),
    _solved(
        "solve_triangular",
        _solve_triangular,
        is_triangular,
        "The solutions of systems of linear equations whose matrices are triangular.",
        [
            example("float32[3,3] lower", "float32[3]"),
            example("float32[3,3] upper", "float32[3,2]", upper=True),
        ],
        attributes=(UPPER,),
    ),
    row(
        "norm",
        ("a",),
        _norm,
        lambda arrays, attributes: [norm(*arrays, **attributes)],
        "The norms of vectors along axes.",
        "out = (sum over axes of |a|^ord)^(1/ord)",
        [
            example("float32[2,3]", axis=-1),
            example("float32[2,3]"),
            example("float32[2,3]", ord=1.0, axis=0, keepdims=True),
            example("float32[2,3]", ord=3.0, axis=1),
            example("float32[2,3]", ord="inf", axis=1),
            example("float32[2,3]", ord=0.0, axis=1),
        ],
        attributes=(
            Attribute("ord", "float", None, 'The power; null is 2, "inf" the largest.', low=0),
            Attribute("axis", "axis or axes", None, "The axes; null is all."),
            Attribute("keepdims", "bool", False, "Whether reduced axes stay, with length 1."),
        ),
        differentiable=("a",),
    ),
)
