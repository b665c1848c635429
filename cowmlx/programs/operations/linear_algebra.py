"""Inverses, equations, decompositions and eigenvalues of matrices, on the CPU; norms of vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.elementary import root
from cowmlx.programs.operations.half import in_float32
from cowmlx.programs.operations.indices import Check, check_that
from cowmlx.programs.operations.making import cast, example, moving, row
from cowmlx.programs.operations.matrices import (
    ANY,
    CPU,
    DTYPES,
    SQUARE,
    TRIANGULAR,
    UPPER,
    Good,
    cholesky_factors,
    definite,
    determinant,
    eigendecompositions,
    eigenvalues,
    inverse,
    log_determinant,
    of_matrices,
    regular,
    require_square,
    same_shape,
    triangle,
    triangular,
    where_good,
)
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import FLOATS, promote
from cowmlx.programs.operations.sums import total


def _solve_shape(inputs: Sequence[Any]) -> Spec:
    a, b = inputs
    require_square(a)
    rules.require_dtype("b", b, DTYPES)
    rules.require_rank("b", b, 1)
    dtype = promote([a.dtype, b.dtype])
    rows = b.shape[-1] if len(b.shape) == 1 else b.shape[-2]
    if not rules.equal(rows, a.shape[-1]):
        raise rules.shapes_refused(
            [a.shape, b.shape], f"b must have a row for each of a's {a.shape[-1]}"
        )
    if len(b.shape) == 1:
        return rules.spec(a.shape[:-1], dtype)
    if len(a.shape) != len(b.shape) or not all(map(rules.equal, a.shape[:-2], b.shape[:-2])):
        raise rules.shapes_refused([a.shape, b.shape], "the axes before matrices must be equal")
    return rules.spec(b.shape, dtype)


def _solved(
    name: str,
    function: Callable[[mx.array, mx.array, Attributes], mx.array],
    good: Good,
    summary: str,
    examples: Sequence[Example],
    attributes: Sequence[Attribute] = (),
) -> Operation:
    def compute(a: Any, b: Any, /, **attributes: Any) -> mx.array:
        a, b = cast([a, b])
        a = where_good(a, good(a, **attributes))
        if b.ndim < a.ndim:  # vectors, which all matrices of a stack share
            b = b.reshape(*b.shape[:-1], *[1] * (a.ndim - b.ndim - 1), b.shape[-1], 1)
            b = mx.broadcast_to(b, (*a.shape[:-1], 1))
            return function(a, b, attributes)[..., 0]
        return function(a, b, attributes)

    def checks(arrays: Sequence[Any], attributes: Attributes) -> list[Check]:
        a = cast(arrays)[0]
        return check_that("a", good(a, **attributes), "is not regular")

    return row(
        f"{name}(a, b)",
        lambda *inputs, **attributes: _solve_shape(inputs),
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


def _norm(shape: Shape, attributes: Attributes) -> Shape:
    axes = rules.axes_of(attributes["axis"], len(shape))
    if attributes["ord"] == float("inf"):
        rules.require_elements(shape, axes)
    return rules.reduced(shape, axes, attributes["keepdims"])


def norm(a: mx.array, ord: float | None, axis: Any, keepdims: bool) -> mx.array:
    """Return the norms of vectors, which may lie along several axes."""
    size = mx.abs(a)
    if ord is None or ord == 2:
        return root(total(mx.square(size), axis=axis, keepdims=keepdims))
    if ord == float("inf"):
        return mx.max(size, axis=axis, keepdims=keepdims)
    if ord == 0:
        return total((size != 0).astype(a.dtype), axis=axis, keepdims=keepdims)
    if ord == 1:
        return total(size, axis=axis, keepdims=keepdims)
    power = mx.array(ord, dtype=a.dtype)
    # The slope of a root at 0 is infinite; that of a norm is 0 there, as with ord 2.
    powers = _sloped(size, power) if ord < 1 else mx.power(size, power)
    return _sloped(total(powers, axis=axis, keepdims=keepdims), 1 / power)


def _sloped(a: mx.array, power: mx.array) -> mx.array:
    """Return a power above 0 of numbers from 0 on, whose slope at 0 is 0."""
    is_zero = a == 0
    return mx.where(is_zero, 0, mx.power(mx.where(is_zero, 1, a), power))


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
        SQUARE,
        good=regular,
        problem="is not regular",
        aliases="inverse matrix_inverse",
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
        TRIANGULAR,
        good=triangular,
        problem="is not regular",
        attributes=(UPPER,),
    ),
    of_matrices(
        "pinv",
        lambda shape, attributes: [((*shape[:-2], shape[-1], shape[-2]), None)],
        lambda a, attributes: [mx.linalg.pinv(a, stream=CPU)],
        "The pseudo-inverses of matrices.",
        "a out a = a",
        ANY,
        square=False,
    ),
    of_matrices(
        "det",
        _matrix_values,
        _det,
        "The determinants of matrices.",
        "det a",
        SQUARE,
        differentiable=("a",),
    ),
    of_matrices(
        "slogdet",
        lambda shape, attributes: [(shape[:-2], None)] * 2,
        _slogdet,
        "The signs of determinants, and the logarithms of their absolute values.",
        "det a = sign e^logdet",
        SQUARE,
        differentiable=("a",),
        outputs=("sign", "logdet"),
    ),
    _solved(
        "solve",
        _solve,
        regular,
        "The solutions of systems of linear equations.",
        [example("[3,3] regular", "[3]"), example("[2,3,3] regular", "[2,3,2]")],
    ),
    _solved(
        "solve_triangular",
        _solve_triangular,
        triangular,
        "The solutions of systems of linear equations whose matrices are triangular.",
        [example("[3,3] lower", "[3]"), example("[3,3] upper", "[3,2]", upper=True)],
        attributes=(UPPER,),
    ),
    moving(
        "norm",
        _norm,
        "The norms of vectors along axes.",
        "out = (sum over axes of |a|^ord)^(1/ord)",
        [
            example("[2,3]", axis=-1),
            example("[2,3]"),
            example("[2,3]", ord=1.0, axis=0, keepdims=True),
            example("[2,3]", ord=3.0, axis=1),
            example("[2,3]", ord="inf", axis=1),
            example("[2,3]", ord=0.0, axis=1),
        ],
        in_float32(norm),
        accepted=FLOATS,
        attributes=(
            Attribute("ord", "float", None, 'The power; null is 2, "inf" the largest.', low=0),
            Attribute("axis", "axis or axes", None, "The axes; null is all."),
            Attribute("keepdims", "bool", False, "Whether reduced axes stay, with length 1."),
        ),
    ),
)


_SINGLE = 1e-6
"""Of results that are complex64, whatever the input."""
_DEFINITE = [example("[3,3] definite"), example("[2,2,2] definite", upper=True)]
_SYMMETRIC = [example("[3,3] definite"), example("[2,2,2] definite", UPLO="U")]
_UPLO = Attribute("UPLO", "choice", "L", "The triangle that is read.", ("L", "U"))


def _least(shape: Shape) -> Dim:
    """Return the shorter of the last two axes."""
    rows, columns = shape[-2:]
    if at_least(rows, columns):
        return columns
    if at_least(columns, rows):
        return rows
    raise rules.shapes_refused([shape], f"it must be known which of {rows} and {columns} is less")


def _cholesky_inv(a: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return inverses; the rest of each matrix is 0, since mlx's vmap inverts all of it."""
    factor = triangle(a, attributes)
    return [mx.linalg.cholesky_inv(factor, upper=attributes["upper"], stream=CPU)]


def _svd_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], None]]:
    rows, columns = shape[-2:]
    values = ((*shape[:-2], _least(shape)), None)
    if not attributes["compute_uv"]:
        return [values]
    return [((*shape[:-2], rows, rows), None), values, ((*shape[:-2], columns, columns), None)]


def _svd(a: mx.array, attributes: Attributes) -> Sequence[mx.array]:
    result = mx.linalg.svd(a, compute_uv=attributes["compute_uv"], stream=CPU)
    return [result] if isinstance(result, mx.array) else list(result)


def _qr_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], None]]:
    rows, columns = shape[-2:]
    least = _least(shape)
    return [((*shape[:-2], rows, least), None), ((*shape[:-2], least, columns), None)]


def _lu_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], str | None]]:
    rows, columns = shape[-2:]
    least = _least(shape)
    return [
        ((*shape[:-2], rows), "uint32"),
        ((*shape[:-2], rows, least), None),
        ((*shape[:-2], least, columns), None),
    ]


def _lu_factor_shapes(
    shape: Shape, attributes: Attributes
) -> list[tuple[Sequence[Dim], str | None]]:
    return [(shape, None), ((*shape[:-2], _least(shape)), "uint32")]


def _lu_factor(a: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return both triangles in an array that owns what it says it does.

    mlx's has a length in bytes where its elements are counted, so what is computed of it in place
    writes beyond its buffer. A strided view counts them right.
    """
    packed, pivots = mx.linalg.lu_factor(a, stream=CPU)
    return [mx.as_strided(packed, packed.shape, stream=CPU), pivots]


def _lu(a: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return the order of rows and both triangles."""
    order, lower, upper = mx.linalg.lu(a, stream=CPU)
    rows, columns = a.shape[-2:]
    if 1 in (rows, columns):
        # Only here do mlx's own steps count elements as _lu_factor says.
        packed, _ = _lu_factor(a, attributes)
        lower = mx.tril(packed, -1)[..., :, :1] + mx.eye(rows, 1, dtype=a.dtype)
        upper = mx.triu(packed)[..., :1, :]
    return [order, lower, upper]


def _eigen_shapes(dtype: str | None, vectors: bool) -> Any:
    def shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], str | None]]:
        return [(shape[:-1], dtype), *([(shape, dtype)] if vectors else [])]

    return shapes


DECOMPOSITIONS = (
    of_matrices(
        "cholesky",
        same_shape,
        lambda a, attributes: [cholesky_factors[attributes["upper"]](a)],
        "The triangular factors of symmetric matrices that are positive definite.",
        "a = out out^T, or out^T out with upper",
        _DEFINITE,
        good=definite,
        problem="is not positive definite",
        attributes=(UPPER,),
        differentiable=("a",),
    ),
    of_matrices(
        "cholesky_inv",
        same_shape,
        _cholesky_inv,
        "The inverse of the matrix of which a is a Cholesky factor.",
        "out = inv(a a^T), or inv(a^T a) with upper",
        TRIANGULAR,
        good=triangular,
        problem="is not regular",
        attributes=(UPPER,),
    ),
    of_matrices(
        "qr",
        _qr_shapes,
        lambda a, attributes: mx.linalg.qr(a, stream=CPU),
        "Matrices as a product of orthonormal columns and an upper triangle.",
        "a = q r",
        ANY,
        square=False,
        outputs=("q", "r"),
    ),
    of_matrices(
        "svd",
        _svd_shapes,
        _svd,
        "The singular values of matrices, and the rotations before and behind them.",
        "a = u diag(s) vt",
        [*ANY, example("[2,3]", compute_uv=False)],
        square=False,
        attributes=(
            Attribute("compute_uv", "bool", True, "Whether u and vt are wanted, too; if not, s."),
        ),
        outputs_vary=True,
        outputs=("u", "s", "vt"),
    ),
    of_matrices(
        "eigh",
        _eigen_shapes(None, True),
        lambda a, attributes: eigendecompositions[attributes["UPLO"]](a),
        "The eigenvalues, in ascending order, and eigenvectors of symmetric matrices.",
        "a vectors = vectors diag(values)",
        _SYMMETRIC,
        attributes=(_UPLO,),
        outputs=("values", "vectors"),
        differentiable=("a",),
    ),
    of_matrices(
        "eigvalsh",
        _eigen_shapes(None, False),
        lambda a, attributes: [eigenvalues[attributes["UPLO"]](a)],
        "The eigenvalues, in ascending order, of symmetric matrices.",
        "det(a - out identity) = 0",
        _SYMMETRIC,
        attributes=(_UPLO,),
        differentiable=("a",),
    ),
    of_matrices(
        "eig",
        _eigen_shapes("complex64", True),
        lambda a, attributes: mx.linalg.eig(a, stream=CPU),
        "The eigenvalues and eigenvectors of matrices, complex.",
        "a vectors = vectors diag(values)",
        SQUARE,
        float64_error=_SINGLE,
        outputs=("values", "vectors"),
    ),
    of_matrices(
        "eigvals",
        _eigen_shapes("complex64", False),
        lambda a, attributes: [mx.linalg.eigvals(a, stream=CPU)],
        "The eigenvalues of matrices, complex.",
        "det(a - out identity) = 0",
        SQUARE,
        float64_error=_SINGLE,
    ),
    of_matrices(
        "lu",
        _lu_shapes,
        _lu,
        "Matrices as a product of a lower and an upper triangle, with rows in another order.",
        "a = l[p] u",
        ANY,
        square=False,
        outputs=("p", "l", "u"),
    ),
    of_matrices(
        "lu_factor",
        _lu_factor_shapes,
        _lu_factor,
        "Both triangles of lu in one matrix, and which rows were swapped.",
        "lu = l - identity + u",
        ANY,
        square=False,
        outputs=("lu", "pivots"),
    ),
)
