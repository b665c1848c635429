"""Loops in recordings: slices, concatenations and products that the caller computes by rows.

A separate process gets the BLAS before it loads mlx, as the library does.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.paths import LIBRARY, ROOT

from cowmlx import blas

pytestmark = pytest.mark.skipif(not (LIBRARY.parent / blas.SHIM).exists(), reason="Linux only")

CHECKS = ["gates", "sums_of_products", "parts_of_every_shape", "rows_of_others", "odd_numbers"]
CHECKS += ["many_slices", "operands_as_slices", "shared_matrices"]


@pytest.mark.parametrize("check", CHECKS)
def test_the_caller_computes_loops_as_mlx_does(check):
    code = (
        "from kernels.test_products_here import lend_blas; lend_blas()\n"
        f"from kernels import test_row_batches as it; it.{check}()"
    )
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)


def numbers(*shape: int, seed: int = 0):
    """Return normal numbers."""
    import mlx.core as mx

    return 0.3 * mx.random.normal(shape, key=mx.random.key(sum(shape) + seed))


def compare(function, arrays, exactly: bool = True, is_short: bool | None = True) -> None:
    """Compare a recording with its replay and with mlx, for one thread and for several."""
    import mlx.core as mx
    import numpy as np

    from cowmlx.accelerate import kernels

    mx.set_default_device(mx.cpu)
    mx.eval(arrays)
    wanted = [np.array(one) for one in function(*arrays)]
    recording = kernels.module().Recording(lambda *given: function(*given), arrays)
    assert is_short is None or recording.is_short() == is_short
    first = None
    for threads in (1, 2, 5):
        kernels.module().set_threads(threads)
        for found in (recording.compute([*arrays]), recording.replay(arrays)):
            made = [np.array(one) for one in found]
            for one, other in zip(made, wanted, strict=True):
                np.testing.assert_allclose(one, other, rtol=1e-4, atol=2e-5)
                if exactly:
                    assert one.tobytes() == other.tobytes()
            first = first or [one.tobytes() for one in made]
            assert [one.tobytes() for one in made] == first
    kernels.module().set_threads(0)


def gates() -> None:
    """Gradients of cells of two kinds, by batches with rows for all threads and without."""
    import mlx.core as mx

    def rows_of(x):
        return [row.squeeze(1) for row in mx.split(x, x.shape[1], axis=1)]

    def lstm(x, wh, bias):
        h = c = mx.zeros((x.shape[0], wh.shape[0]))
        for row in rows_of(x):
            i, f, g, o = mx.split(row + h @ wh + bias, 4, axis=1)
            c = mx.sigmoid(f) * c + mx.sigmoid(i) * mx.tanh(g)
            h = mx.sigmoid(o) * mx.tanh(c)
        return (h * h).sum()

    def gru(x, wh, bias):
        h = mx.zeros((x.shape[0], wh.shape[0]))
        for row in rows_of(x):
            rows, own = mx.split(row, 3, axis=1), mx.split(h @ wh + bias, 3, axis=1)
            r, z = mx.sigmoid(rows[0] + own[0]), mx.sigmoid(rows[1] + own[1])
            h = (1 - z) * mx.tanh(rows[2] + r * own[2]) + z * h
        return (h * h).sum()

    for cell, parts in ((lstm, 4), (gru, 3)):
        gradients = mx.value_and_grad(cell, argnums=(0, 1, 2))
        for batch, hidden in ((64, 64), (96, 20), (83, 33), (5, 16)):
            arrays = [
                numbers(batch, 7, parts * hidden),
                numbers(hidden, parts * hidden),
                numbers(parts * hidden),
            ]

            def both(*given, gradients=gradients):
                value, found = gradients(*given)
                return [value, *found]

            compare(both, arrays, exactly=False)


def sums_of_products() -> None:
    """Chains of additions, also ones that are read midway or are of other depths."""

    def chain(*given):
        pairs = list(zip(given[::2], given[1::2], strict=True))
        total = pairs[0][0].T @ pairs[0][1]
        for at, (a, b) in enumerate(pairs[1:]):
            total = total + a.T @ b if at % 2 else a.T @ b + total
        return [total]

    def midway(a, b, c, d, e, f):
        first = a.T @ b + c.T @ d
        return [first + e.T @ f, first * 2]

    for rows, columns in ((64, 256), (256, 64), (3, 5), (130, 90)):
        arrays = [numbers(32, columns if at % 2 else rows, seed=at) for at in range(6)]
        compare(chain, arrays, exactly=False)
        compare(midway, arrays, exactly=False)
    depths = [numbers(depth, 40, seed=depth) for depth in (8, 8, 9, 9, 8, 8)]
    compare(chain, depths, exactly=False)
    twice = lambda a, b: [a.T @ a + a.T @ a, b.T @ b + a.T @ a]  # noqa: E731
    compare(twice, [depths[0], depths[2]], exactly=False)


def parts_of_every_shape() -> None:
    """Slices and concatenations along each axis, of parts that are wide, narrow or read twice."""
    import mlx.core as mx

    def axes(x):
        made = []
        for axis in range(3):
            first, *rest = mx.split(mx.exp(x) + x, 3, axis=axis)
            made.append(mx.concatenate([first * 2, *(one - first for one in rest)], axis=axis))
            made.append(mx.concatenate([one + 1 for one in rest] + [rest[0] + 1], axis=axis))
        return made

    def stacked(x):
        rows = [mx.tanh(x[:, at]) for at in range(x.shape[1])]
        return [mx.stack(rows).transpose(1, 0, 2).sum(axis=(0, 1)), mx.stack(rows[::-1], axis=1)]

    def spread(x):
        parts = mx.split(x * x[:1] + x[:, :1] * 0.5, [1, 4], axis=1)
        return [mx.exp(part) for part in parts] + [mx.sin(x[1:] - 1)[:, 2:]]

    for shape in ((6, 9, 48), (48, 3, 6), (33, 6, 3)):
        compare(axes, [numbers(*shape)])
        compare(stacked, [numbers(*shape)], exactly=False)
        compare(spread, [numbers(*shape)], is_short=None)


def rows_of_others() -> None:
    """Operations that read other rows than they write, or rows of other results."""
    import mlx.core as mx

    def function(x, w):
        y = mx.tanh(x @ w)
        turned = mx.exp(y[::-1] * 0.1) + y
        z = mx.concatenate([turned, mx.sigmoid(turned)], axis=0)
        whole = y.T @ mx.sin(y) / len(y)
        again = mx.tanh(turned @ whole) * y[:1] + y.mean(axis=0)
        return [z, again, (again @ w.T) @ w, mx.cos(again.T) + turned.T, again[1:] - again[:-1]]

    for rows in (64, 80, 127):
        compare(function, [numbers(rows, rows), numbers(rows, rows, seed=1)], exactly=False)


def many_slices() -> None:
    """Functions before many slices, or narrow ones, are computed once for all of them."""
    import mlx.core as mx

    from cowmlx.accelerate import kernels

    def function(x, parts):
        for _ in range(5):
            x = mx.tanh(x) * 1.1
        return [mx.concatenate([mx.exp(part) for part in mx.split(x, parts, axis=1)], axis=1)]

    for parts in (2, 16, 64):
        compare(lambda x, parts=parts: function(x, parts), [numbers(64, 256)], exactly=False)
    wide, many = (
        kernels.module().Recording(lambda x, n=n: function(x, n), [numbers(64, 256)])
        for n in (2, 64)
    )
    assert many.steps() <= wide.steps() + 3 * 64


def operands_as_slices() -> None:
    """Products with rows that lie apart, or as columns."""
    import mlx.core as mx

    def function(x, w):
        return [mx.tanh(x @ w.T), mx.tanh(x @ w.T) @ w]

    w, plain = numbers(64, 128), numbers(192, 128)
    wide = mx.concatenate([plain, plain], axis=1)
    for x in (plain, wide[:, :128], mx.contiguous(plain.T).T):
        compare(function, [x, w], exactly=False)


def shared_matrices() -> None:
    """Small matrices of any shape and strides that several products read."""
    import mlx.core as mx

    from cowmlx.accelerate import kernels

    def function(x, w, v):
        y = mx.tanh(x @ w)
        for _ in range(3):
            y = mx.tanh(0.1 * ((y @ v) @ w)) + 0.1 * y[::-1]
        return [y, y @ w.T, x @ w + y, (x * 2) @ w]

    for name in kernels.module().instruction_sets():
        kernels.module().select(name)
        for rows in (1, 15, 33, 64):
            for k, n in ((1, 8), (64, 7), (37, 100), (256, 64)):
                w, v = numbers(k, n), numbers(n, k)
                compare(function, [numbers(rows, k), w, v], exactly=False)
                turned = [numbers(n, k).T, mx.concatenate([v, v], axis=1)[:, k:]]
                compare(function, [numbers(k, rows).T, *turned], exactly=False)


def odd_numbers() -> None:
    """Not finite numbers come out as mlx gives them."""
    import mlx.core as mx

    def function(x, w):
        for _ in range(3):
            a, b = mx.split(x @ w, 2, axis=1)
            x = mx.concatenate([mx.maximum(a, 0), b * a], axis=1)
        return [x]

    x = numbers(64, 64)
    x[3, 5], x[17, 2], x[40, 63] = mx.nan, mx.inf, -mx.inf
    compare(function, [x, numbers(64, 64, seed=2)], exactly=False)
