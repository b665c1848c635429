"""Matrices as products of others, and their eigenvalues, computed on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least
from cowmlx.programs.operations.making import example
from cowmlx.programs.operations.matrices import (
    CPU,
    definite,
)
from cowmlx.programs.operations.matrix_rows import (
    ANY,
    SQUARE,
    TRIANGULAR,
    UPPER,
    is_triangular,
    of_matrices,
    same_shape,
    triangle,
)
from cowmlx.programs.operations.row import Attribute, Attributes
from cowmlx.programs.operations.rules import (
    shapes_refused,
)

_SINGLE = 1e-6
"""Of results that are complex64, whatever the input."""
_DEFINITE = [
    example("float32[3,3] definite"),
    example("float32[2,2,2] definite", upper=True),
]
_SYMMETRIC = [example("float32[3,3] definite"), example("float32[2,2,2] definite", UPLO="U")]
_UPLO = Attribute("UPLO", "choice", "L", "The triangle that is read.", choices=("L", "U"))


def _least(shape: Shape, name: str) -> Dim:
    """Return the shorter of the last two axes."""
    rows, columns = shape[-2:]
    if at_least(rows, columns):
        return columns
    if at_least(columns, rows):
        return rows
    raise shapes_refused(name, [shape], f"it must be known which of {rows} and {columns} is less")


def _definite(a: mx.array, attributes: Attributes) -> mx.array:
    return definite(a, attributes["upper"])


def _cholesky_inv(a: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return inverses; the rest of each matrix is 0, since mlx's vmap inverts all of it."""
    factor = triangle(a, attributes)
    return [mx.linalg.cholesky_inv(factor, upper=attributes["upper"], stream=CPU)]


def _svd_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], None]]:
    rows, columns = shape[-2:]
    values = ((*shape[:-2], _least(shape, "svd")), None)
    if not attributes["compute_uv"]:
        return [values]
    return [((*shape[:-2], rows, rows), None), values, ((*shape[:-2], columns, columns), None)]


def _svd(a: mx.array, attributes: Attributes) -> Sequence[mx.array]:
    found = mx.linalg.svd(a, compute_uv=attributes["compute_uv"], stream=CPU)
    return [found] if isinstance(found, mx.array) else list(found)


def _qr_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], None]]:
    rows, columns = shape[-2:]
    least = _least(shape, "qr")
    return [((*shape[:-2], rows, least), None), ((*shape[:-2], least, columns), None)]


def _lu_shapes(shape: Shape, attributes: Attributes) -> list[tuple[Sequence[Dim], str | None]]:
    rows, columns = shape[-2:]
    least = _least(shape, "lu")
    return [
        ((*shape[:-2], rows), "uint32"),
        ((*shape[:-2], rows, least), None),
        ((*shape[:-2], least, columns), None),
    ]


def _lu_factor_shapes(
    shape: Shape, attributes: Attributes
) -> list[tuple[Sequence[Dim], str | None]]:
    return [(shape, None), ((*shape[:-2], _least(shape, "lu_factor")), "uint32")]


def _lu_factor(a: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return both triangles in an array that owns what it says it does.

    mlx's has a length in bytes where its elements are counted, so what is computed of it in place
    writes beyond its buffer. A strided view counts them anew.
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


ROWS = (
    of_matrices(
        "cholesky",
        same_shape,
        lambda a, attributes: [mx.linalg.cholesky(a, upper=attributes["upper"], stream=CPU)],
        "The triangular factors of symmetric matrices that are positive definite.",
        "a = out out^T, or out^T out with upper",
        ("out",),
        _DEFINITE,
        good=_definite,
        problem="is not positive definite",
        attributes=(UPPER,),
    ),
    of_matrices(
        "cholesky_inv",
        same_shape,
        _cholesky_inv,
        "The inverse of the matrix of which a is a Cholesky factor.",
        "out = inv(a a^T), or inv(a^T a) with upper",
        ("out",),
        TRIANGULAR,
        good=is_triangular,
        problem="is not regular",
        attributes=(UPPER,),
    ),
    of_matrices(
        "qr",
        _qr_shapes,
        lambda a, attributes: mx.linalg.qr(a, stream=CPU),
        "Matrices as a product of orthonormal columns and an upper triangle.",
        "a = q r",
        ("q", "r"),
        ANY,
        square=False,
    ),
    of_matrices(
        "svd",
        _svd_shapes,
        _svd,
        "The singular values of matrices, and the rotations before and behind them.",
        "a = u diag(s) vt",
        ("u", "s", "vt"),
        [*ANY, example("float32[2,3]", compute_uv=False)],
        square=False,
        attributes=(
            Attribute("compute_uv", "bool", True, "Whether u and vt are wanted, too; if not, s."),
        ),
        outputs_vary=True,
    ),
    of_matrices(
        "eigh",
        _eigen_shapes(None, True),
        lambda a, attributes: mx.linalg.eigh(a, attributes["UPLO"], stream=CPU),
        "The eigenvalues, in ascending order, and eigenvectors of symmetric matrices.",
        "a vectors = vectors diag(values)",
        ("values", "vectors"),
        _SYMMETRIC,
        attributes=(_UPLO,),
    ),
    of_matrices(
        "eigvalsh",
        _eigen_shapes(None, False),
        lambda a, attributes: [mx.linalg.eigvalsh(a, attributes["UPLO"], stream=CPU)],
        "The eigenvalues, in ascending order, of symmetric matrices.",
        "det(a - out identity) = 0",
        ("out",),
        _SYMMETRIC,
        attributes=(_UPLO,),
    ),
    of_matrices(
        "eig",
        _eigen_shapes("complex64", True),
        lambda a, attributes: mx.linalg.eig(a, stream=CPU),
        "The eigenvalues and eigenvectors of matrices, complex.",
        "a vectors = vectors diag(values)",
        ("values", "vectors"),
        SQUARE,
        float64_error=_SINGLE,
    ),
    of_matrices(
        "eigvals",
        _eigen_shapes("complex64", False),
        lambda a, attributes: [mx.linalg.eigvals(a, stream=CPU)],
        "The eigenvalues of matrices, complex.",
        "det(a - out identity) = 0",
        ("out",),
        SQUARE,
        float64_error=_SINGLE,
    ),
    of_matrices(
        "lu",
        _lu_shapes,
        _lu,
        "Matrices as a product of a lower and an upper triangle, with rows in another order.",
        "a = l[p] u",
        ("p", "l", "u"),
        ANY,
        square=False,
    ),
    of_matrices(
        "lu_factor",
        _lu_factor_shapes,
        _lu_factor,
        "Both triangles of lu in one matrix, and which rows were swapped.",
        "lu = l - identity + u",
        ("lu", "pivots"),
        ANY,
        square=False,
    ),
)
