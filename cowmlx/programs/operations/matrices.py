"""Matrices on the CPU: gradients that mlx lacks, which matrices it takes, and their rows.

mlx fails at the evaluation of a singular inverse, ends the process for a matrix of no rows, and
returns garbage for a Cholesky of a matrix that is not positive definite; LAPACK prints where it
finds nan. So matrices that mlx cannot take are replaced by the identity before, and a check says
which they were.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.indices import Check, check_that
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec

CPU = mx.cpu
"""Where mlx decomposes matrices."""


def _turned(a: mx.array) -> mx.array:
    return mx.swapaxes(a, -1, -2)


@mx.custom_function
def _inverse(a: mx.array) -> mx.array:
    """Return inverses, with the gradient that mlx lacks: out^T (-gradient) out^T."""
    return mx.linalg.inv(a, stream=CPU)


@_inverse.vjp
def _inverse_gradient(a: mx.array, gradient: mx.array, out: mx.array) -> mx.array:
    return -(_turned(out) @ gradient @ _turned(out))


@mx.custom_function
def _determinant(a: mx.array) -> mx.array:
    """Return determinants, with a gradient for all sizes: det(a) inv(a)^T, nan if singular."""
    if a.dtype != mx.float64 or a.size == 0:
        return mx.linalg.det(a, stream=CPU)
    # mlx's own is sign e^logdet, with a float32 exponential.
    triangles, pivots = mx.linalg.lu_factor(a, stream=CPU)
    swapped = pivots != mx.arange(a.shape[-1], dtype=pivots.dtype)
    diagonal = mx.diagonal(triangles, axis1=-2, axis2=-1)
    return mx.prod(mx.where(swapped, -diagonal, diagonal), axis=-1)


@_determinant.vjp
def _determinant_gradient(a: mx.array, gradient: mx.array, out: mx.array) -> mx.array:
    return (gradient * out)[..., None, None] * _turned(inverse_or_nan(a))


@mx.custom_function
def _log_determinant(a: mx.array) -> tuple[mx.array, mx.array]:
    return mx.linalg.slogdet(a, stream=CPU)


@_log_determinant.vjp
def _log_determinant_gradient(
    a: mx.array, gradients: tuple[mx.array, mx.array], outs: tuple[mx.array, mx.array]
) -> mx.array:
    return gradients[1][..., None, None] * _turned(inverse_or_nan(a))


def _half(a: mx.array) -> mx.array:
    """Return lower triangles with half of their diagonals."""
    return mx.tril(a) * (1 - mx.eye(a.shape[-1], dtype=a.dtype) / 2)


def _factoring(upper: bool) -> Callable[[mx.array], mx.array]:
    """Return the function of Cholesky factors, with the gradient that mlx lacks (arXiv 1602.07527).

    The gradient is that of the one triangle that is read.
    """

    def lower(a: mx.array) -> mx.array:
        return _turned(a) if upper else a

    @mx.custom_function
    def factor(a: mx.array) -> mx.array:
        return mx.linalg.cholesky(a, upper=upper, stream=CPU)

    @factor.vjp
    def slope(a: mx.array, gradient: mx.array, out: mx.array) -> mx.array:
        inverted = inverse(lower(out))
        part = _half(_turned(lower(out)) @ mx.tril(lower(gradient)))
        whole = _turned(inverted) @ part @ inverted
        return lower(_half(whole + _turned(whole)))

    return factor  # type: ignore[return-value]


def _eigen(half: str) -> Callable[[mx.array], tuple[mx.array, mx.array]]:
    """Return the function of eigenvalues and eigenvectors of symmetric matrices, with a gradient.

    The gradient is that of the one triangle that is read. Eigenvectors of equal eigenvalues have
    none: it is nan where it is asked for.
    """

    @mx.custom_function
    def eigen(a: mx.array) -> tuple[mx.array, mx.array]:
        return mx.linalg.eigh(a, half, stream=CPU)

    @eigen.vjp
    def slope(
        a: mx.array, gradients: tuple[mx.array, mx.array], outs: tuple[mx.array, mx.array]
    ) -> mx.array:
        values, vectors = outs
        gaps = values[..., None, :] - values[..., :, None]
        turns = _turned(vectors) @ gradients[1]
        identity = mx.eye(values.shape[-1], dtype=a.dtype)
        is_known = (gaps != 0) | (turns == 0) | (identity != 0)
        part = mx.where(gaps == 0, 0, turns / mx.where(gaps == 0, 1, gaps))
        part = mx.where(is_known, part, mx.array(math.nan, dtype=a.dtype))
        whole = vectors @ (part + gradients[0][..., None] * identity) @ _turned(vectors)
        lower = _half(whole + _turned(whole))
        return _turned(lower) if half == "U" else lower

    return eigen  # type: ignore[return-value]


# mlx's stubs call them objects.
inverse: Callable[[mx.array], mx.array] = _inverse  # type: ignore[assignment]
determinant: Callable[[mx.array], mx.array] = _determinant  # type: ignore[assignment]
log_determinant: Callable[[mx.array], tuple[mx.array, mx.array]] = _log_determinant  # type: ignore[assignment]


def _eigenvalues(half: str) -> Callable[[mx.array], mx.array]:
    """Return the function of eigenvalues alone; its gradient needs eigenvectors."""

    @mx.custom_function
    def values(a: mx.array) -> mx.array:
        return mx.linalg.eigvalsh(a, half, stream=CPU)

    @values.vjp
    def slope(a: mx.array, gradient: mx.array, out: mx.array) -> mx.array:
        _, vectors = eigendecompositions[half](a)
        whole = (vectors * gradient[..., None, :]) @ _turned(vectors)
        lower = 2 * _half(whole)
        return _turned(lower) if half == "U" else lower

    return values  # type: ignore[return-value]


cholesky_factors = {upper: _factoring(upper) for upper in (False, True)}
"""Functions of Cholesky factors, by which triangle they read."""
eigendecompositions = {half: _eigen(half) for half in ("L", "U")}
"""Functions of eigenvalues and eigenvectors, by the triangle that they read."""
eigenvalues = {half: _eigenvalues(half) for half in ("L", "U")}
"""Functions of eigenvalues, by the triangle that they read."""


def inverse_or_nan(a: mx.array) -> mx.array:
    """Return inverses, nan for matrices that have none."""
    good = regular(a)
    inverted = inverse(where_good(a, good))
    return mx.where(good[..., None, None], inverted, mx.array(math.nan, dtype=a.dtype))


def finite(a: mx.array, **attributes: Any) -> mx.array:
    """Return for each matrix whether all its elements are finite."""
    return mx.all(mx.isfinite(mx.stop_gradient(a)), axis=(-2, -1))


def regular(a: mx.array, **attributes: Any) -> mx.array:
    """Return for each square matrix whether elimination finds a pivot in each column.

    mlx inverts row-major matrices as LAPACK sees them, transposed, where rounding may leave a pivot
    that is 0.
    """
    held = where_good(mx.stop_gradient(a), finite(a))
    if held.size == 0:
        return finite(a)
    _, _, upper = mx.linalg.lu(_turned(held), stream=CPU)
    return mx.all(_main_diagonal(upper) != 0, axis=-1) & finite(a)


def definite(a: mx.array, upper: bool, **attributes: Any) -> mx.array:
    """Return for each matrix whether a Cholesky factor of it was found."""
    held = where_good(mx.stop_gradient(a), finite(a))
    factor = mx.linalg.cholesky(held, upper=upper, stream=CPU)
    product = _turned(factor) @ factor if upper else factor @ _turned(factor)
    # Only one triangle of the input is read.
    triangle = mx.triu if upper else mx.tril
    wrong = mx.max(mx.abs(triangle(product - held)), axis=(-2, -1))
    scale = mx.max(mx.abs(held), axis=(-2, -1))
    positive = mx.all(_main_diagonal(factor) > 0, axis=-1)
    return positive & (wrong <= 1e-3 * scale) & finite(a)


def _main_diagonal(a: mx.array) -> mx.array:
    return mx.sum(a * mx.eye(a.shape[-1], dtype=a.dtype), axis=-1)


def where_good(a: mx.array, good: mx.array) -> mx.array:
    """Return matrices, the identity in place of those that are not good."""
    identity = mx.eye(a.shape[-2], a.shape[-1], dtype=a.dtype)
    return mx.where(good[..., None, None], a, identity)


def triangular(a: mx.array, **attributes: Any) -> mx.array:
    """Return for each triangular matrix whether no element of its diagonal is 0."""
    return mx.all(_main_diagonal(mx.stop_gradient(a)) != 0, axis=-1) & finite(a)


DTYPES = ("float32", "float64")
"""What LAPACK takes here."""
UPPER = Attribute("upper", "bool", False, "Whether the triangle is the upper one.")
_NOT_FINITE = "is not finite"
SQUARE = [example("[3,3] regular"), example("[4,4] regular"), example("[2,3,3] regular")]
TRIANGULAR = [example("[3,3] lower"), example("[2,2,2] upper", upper=True)]
ANY = [example("[3,3]"), example("[2,4,3]"), example("[2,3]")]

Good = Callable[..., mx.array]
"""For each matrix whether it can be taken, from the matrices and attributes by name."""


def require_square(given: Spec, place: str = "a") -> None:
    """Check that an input is a matrix, or a stack of them, of as many rows as columns."""
    rules.require_dtype(place, given, DTYPES)
    rules.require_rank(place, given, 2)
    if not rules.equal(given.shape[-1], given.shape[-2]):
        raise rules.shapes_refused([given.shape], "the last two axes must be as long")
    if given.shape[-1] == 0:
        raise rules.shapes_refused([given.shape], "the matrices must have a row or more")


def require_matrices(given: Spec) -> None:
    """Check that an input is a matrix with elements, or a stack of them."""
    rules.require_dtype("a", given, DTYPES)
    rules.require_rank("a", given, 2)
    if 0 in given.shape[-2:]:
        raise rules.shapes_refused([given.shape], "the matrices must have elements")


def of_matrices(
    name: str,
    shapes: Callable[[Shape, Attributes], Sequence[tuple[Sequence[Dim], str | None]]],
    function: Callable[[mx.array, Attributes], Sequence[mx.array]],
    *page: Any,
    outputs: Sequence[str] = ("out",),
    square: bool = True,
    good: Good = finite,
    problem: str = _NOT_FINITE,
    **more: Any,
) -> Operation:
    """Return the row of a function of matrices.

    Args:
        name: the row's.
        shapes: the shape of each result, and its dtype if it is not the input's.
        function: of matrices that it can take.
        page: summary, formula and examples, as ``row`` takes them.
        outputs: the names of its results.
        square: whether matrices have as many rows as columns.
        good: for each matrix whether it can be taken.
        problem: what the others are.
        more: as ``row`` takes it.
    """

    def infer(given: Any, /, **attributes: Any) -> list[Spec]:
        (require_square if square else require_matrices)(given)
        return [
            rules.spec(shape, dtype or given.dtype)
            for shape, dtype in shapes(given.shape, attributes)
        ]

    def compute(a: Any, /, **attributes: Any) -> list[mx.array]:
        return list(function(where_good(a, good(a, **attributes)), attributes))

    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        (a,) = arrays
        return check_that("a", good(a, **attributes), problem)

    return row(
        f"{name}(a)",
        infer,
        compute,
        *page,
        outputs=outputs,
        checks=checks,
        cpu_only=True,
        stacks=(0,),
        **more,
    )


def same_shape(shape: Shape, attributes: Attributes) -> list[tuple[Shape, None]]:
    """Return the shape of a result that has its input's."""
    return [(shape, None)]


def triangle(a: mx.array, attributes: Attributes) -> mx.array:
    """Return the triangle of each matrix that ``upper`` names."""
    return mx.triu(a) if attributes["upper"] else mx.tril(a)
