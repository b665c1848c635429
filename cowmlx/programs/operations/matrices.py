"""Functions of matrices with the gradients that mlx lacks, and which matrices they can take."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx

CPU = mx.cpu
"""Where mlx decomposes matrices."""


@mx.custom_function
def _inverse(a: mx.array) -> mx.array:
    """Return inverses, with the gradient that mlx lacks: out^T (-gradient) out^T."""
    return mx.linalg.inv(a, stream=CPU)


@_inverse.vjp
def _inverse_gradient(a: mx.array, gradient: mx.array, out: mx.array) -> mx.array:
    turned = mx.swapaxes(out, -1, -2)
    return -(turned @ gradient @ turned)


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
    return (gradient * out)[..., None, None] * mx.swapaxes(inverse_or_nan(a), -1, -2)


@mx.custom_function
def _log_determinant(a: mx.array) -> tuple[mx.array, mx.array]:
    return mx.linalg.slogdet(a, stream=CPU)


@_log_determinant.vjp
def _log_determinant_gradient(
    a: mx.array, gradients: tuple[mx.array, mx.array], outs: tuple[mx.array, mx.array]
) -> mx.array:
    return gradients[1][..., None, None] * mx.swapaxes(inverse_or_nan(a), -1, -2)


# mlx's stubs call them objects.
inverse: Callable[[mx.array], mx.array] = _inverse  # type: ignore[assignment]
determinant: Callable[[mx.array], mx.array] = _determinant  # type: ignore[assignment]
log_determinant: Callable[[mx.array], tuple[mx.array, mx.array]] = _log_determinant  # type: ignore[assignment]


def inverse_or_nan(a: mx.array) -> mx.array:
    """Return inverses, nan for matrices that have none."""
    good = regular(a)
    found = inverse(where_good(a, good))
    return mx.where(good[..., None, None], found, mx.array(math.nan, dtype=a.dtype))


def finite(a: mx.array) -> mx.array:
    """Return for each matrix whether all its elements are finite."""
    return mx.all(mx.isfinite(mx.stop_gradient(a)), axis=(-2, -1))


def regular(a: mx.array) -> mx.array:
    """Return for each square matrix whether elimination finds a pivot in each column.

    mlx inverts row-major matrices as LAPACK sees them, transposed, where rounding may leave a pivot
    that is 0.
    """
    held = where_good(mx.stop_gradient(a), finite(a))
    if held.size == 0:
        return finite(a)
    _, _, upper = mx.linalg.lu(mx.swapaxes(held, -1, -2), stream=CPU)
    return mx.all(_main_diagonal(upper) != 0, axis=-1) & finite(a)


def definite(a: mx.array, upper: bool) -> mx.array:
    """Return for each matrix whether a Cholesky factor of it was found."""
    held = where_good(mx.stop_gradient(a), finite(a))
    factor = mx.linalg.cholesky(held, upper=upper, stream=CPU)
    turned = mx.swapaxes(factor, -1, -2)
    product = turned @ factor if upper else factor @ turned
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


def triangular(a: mx.array) -> mx.array:
    """Return for each triangular matrix whether no element of its diagonal is 0."""
    return mx.all(_main_diagonal(mx.stop_gradient(a)) != 0, axis=-1) & finite(a)
