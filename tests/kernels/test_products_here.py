"""Products of mlx that the caller of a recording computes, if the library's BLAS is in place.

A separate process gets the BLAS before it loads mlx, as the library does.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from itertools import product
from typing import Any

import pytest
from support.paths import LIBRARY, ROOT

from cowmlx import blas

pytestmark = pytest.mark.skipif(not (LIBRARY.parent / blas.SHIM).exists(), reason="Linux only")

SIDES = [(1, 1, 1), (64, 784, 256), (3, 70, 5), (256, 64, 10), (130, 130, 130)]


def lend_blas() -> None:
    shim = str(LIBRARY.parent / blas.SHIM)
    lender = ctypes.CDLL(shim)
    lender.cow_blas_open.restype = ctypes.c_char_p
    assert lender.cow_blas_open(os.fsencode(blas.wanted())) is None
    ctypes.CDLL(shim, ctypes.RTLD_GLOBAL)


def test_products_are_computed_by_the_caller_with_the_bits_of_mlx():
    code = "from kernels import test_products_here as it; it.lend_blas(); it.compare()"
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=300)


def compare() -> None:
    """Compare products of operands that lie in memory in every way."""
    import mlx.core as mx
    import numpy as np

    from cowmlx.accelerate import kernels

    def numbers(*shape: int) -> mx.array:
        return mx.random.normal(shape, key=mx.random.key(sum(shape)))

    def ways(*batch_and_sides: int) -> list[mx.array]:
        """The same shape: as rows, as columns, with gaps, and as rows of a larger batch."""
        *batch, rows, columns = batch_and_sides
        made = [
            numbers(*batch, rows, columns),
            mx.swapaxes(numbers(*batch, columns, rows), -1, -2),
            numbers(*batch, 2 * rows, columns + 3)[..., ::2, 1:-2],
        ]
        if batch:
            made.append(mx.broadcast_to(numbers(rows, columns), (*batch, rows, columns)))
            made.append(numbers(*batch, rows, columns)[::-1])
        return made

    def check(a: mx.array, b: mx.array) -> None:
        recording = kernels.module().Recording(lambda a, b: [mx.maximum(a @ b, 0)], [a, b])
        assert recording.is_short(), (a.shape, b.shape)
        found, wanted = np.array(recording.compute([a, b])[0]), np.array(mx.maximum(a @ b, 0))
        again = np.array(recording.replay([a, b])[0])
        assert found.tobytes() == again.tobytes(), (a.shape, b.shape)
        # A BLAS may add in another order where it computes a part of a product.
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=2e-5)

    mx.set_default_device(mx.cpu)
    for (m, k, n), batch in product(SIDES, ([], [5], [2, 3])):
        for a, b in product(ways(*batch, m, k), ways(*batch, k, n)):
            mx.eval(a, b)
            check(a, b)
    check_sums(numbers(1200, 30), numbers(1200, 32))
    recording = kernels.module().Recording(
        lambda a, b: [a @ b], [mx.zeros((3, 0)), mx.zeros((0, 4))]
    )
    assert not recording.is_short()
    assert mx.array_equal(
        recording.replay([mx.zeros((3, 0)), mx.zeros((0, 4))])[0], mx.zeros((3, 4))
    )


def check_sums(x: Any, y: Any) -> None:
    """Check the sum of products of many rows, as a gradient through a loop has it."""
    import mlx.core as mx
    import numpy as np

    from cowmlx.accelerate import kernels

    def products(x: Any, y: Any) -> list[Any]:
        parts = [x[at : at + 60].T @ y[at : at + 60] for at in range(0, 1200, 60)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return [total]

    mx.eval(x, y)
    recording = kernels.module().Recording(products, [x, y])
    assert recording.is_short()
    found = np.array(recording.compute([x, y])[0])
    np.testing.assert_allclose(found, np.array(x.T @ y), rtol=1e-5, atol=1e-4)
    kernels.module().set_threads(1)
    assert found.tobytes() == np.array(recording.compute([x, y])[0]).tobytes()
