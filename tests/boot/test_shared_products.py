"""Matrix products of OpenBLAS that are cut into parts, one for each thread."""

from __future__ import annotations

import ctypes
import os
import shutil
from itertools import product

import numpy as np
import pytest
from support.paths import LIBRARY

from cowmlx import blas

pytestmark = pytest.mark.skipif(not (LIBRARY.parent / blas.SHIM).exists(), reason="Linux only")

ROWS, COLUMNS = 101, 102
PLAIN, TRANSPOSED, CONJUGATED = 111, 112, 113
TYPES = {"s": np.float32, "d": np.float64, "c": np.complex64}
# Rows, columns and numbers to a sum; each has a side that parts do not divide.
LARGE = [(300, 77, 450), (65, 770, 300), (700, 701, 129), (2051, 33, 257)]
SMALL = [(1, 1, 1), (64, 64, 64), (63, 90, 2000), (127, 127, 127), (0, 500, 500), (500, 500, 0)]
COUNT = ctypes.CFUNCTYPE(ctypes.c_int)
CHUNK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int)
PARALLEL = ctypes.CFUNCTYPE(None, ctypes.c_int, CHUNK, ctypes.c_void_p)


class Pool:
    """Runs chunks in reverse, and notes how many there were."""

    def __init__(self) -> None:
        self.size = 1
        self.counts: list[int] = []
        self.count = COUNT(lambda: self.size)
        self.parallel = PARALLEL(self._run)

    def _run(self, count, chunk, context):
        self.counts.append(count)
        for index in reversed(range(count)):
            chunk(context, index)


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    """A copy of the library, apart from the runtime's, and its pool."""
    openblas = pytest.importorskip("scipy_openblas32").get_lib_dir()
    copy = tmp_path_factory.mktemp("blas") / blas.SHIM
    shutil.copy(LIBRARY.parent / blas.SHIM, copy)
    library = ctypes.CDLL(str(copy))
    library.cow_blas_open.restype = ctypes.c_char_p
    assert library.cow_blas_open(os.fsencode(f"{openblas}/libscipy_openblas.so")) is None
    pool = Pool()
    library.cow_blas_share(pool.count, pool.parallel)
    return library, pool


def matrix(rng, dtype, rows, columns, order):
    """Numbers with a gap behind each row or column; the memory and the matrix in it."""
    lines, length = (rows, columns) if order == ROWS else (columns, rows)
    memory = rng.standard_normal((lines, length + 3)).astype(dtype)
    if dtype == np.complex64:
        memory.imag = rng.standard_normal(memory.shape)
    inside = memory[:, :length]
    return memory, inside if order == ROWS else inside.T


def given(value, turn):
    return {PLAIN: value, TRANSPOSED: value.T, CONJUGATED: value.T.conj()}[turn]


def scalar(letter, value):
    if letter == "c":
        return np.array([value], np.complex64).ctypes.data_as(ctypes.c_void_p)
    return (ctypes.c_float if letter == "s" else ctypes.c_double)(value)


def multiply(library, letter, order, turns, shape, rng):
    """Call a product; returns the result, what numpy gives, and what lies in the gaps."""
    dtype, (m, n, k) = TYPES[letter], shape
    a_memory, a = matrix(rng, dtype, *((m, k) if turns[0] == PLAIN else (k, m)), order)
    b_memory, b = matrix(rng, dtype, *((k, n) if turns[1] == PLAIN else (n, k)), order)
    c_memory, c = matrix(rng, dtype, m, n, order)
    wide = np.complex128 if letter == "c" else np.float64
    wanted = 1.5 * (given(a, turns[0]).astype(wide) @ given(b, turns[1])) + 0.5 * c
    gaps = c_memory[:, -3:].copy()
    sides = [ctypes.c_int(side) for side in shape]
    lines = [memory.shape[1] for memory in (a_memory, b_memory, c_memory)]
    places = [memory.ctypes.data_as(ctypes.c_void_p) for memory in (a_memory, b_memory, c_memory)]
    getattr(library, f"cblas_{letter}gemm")(
        *(order, *turns, *sides, scalar(letter, 1.5), places[0], lines[0]),
        *(places[1], lines[1], scalar(letter, 0.5), places[2], lines[2]),
    )
    assert np.array_equal(c_memory[:, -3:], gaps)
    return c, wanted


def close(letter, found, wanted):
    limit = 1e-11 if letter == "d" else 2e-4
    return np.allclose(found, wanted, rtol=limit, atol=limit * 10)


@pytest.mark.parametrize("threads", [1, 2, 3, 16])
@pytest.mark.parametrize("letter", TYPES)
def test_parts_give_the_whole(shim, letter, threads):
    library, pool = shim
    pool.size = threads
    rng = np.random.default_rng(threads)
    turns = (PLAIN, TRANSPOSED, CONJUGATED) if letter == "c" else (PLAIN, TRANSPOSED)
    for order, left, right, shape in product((ROWS, COLUMNS), turns, turns, LARGE):
        pool.counts.clear()
        found, wanted = multiply(library, letter, order, (left, right), shape, rng)
        assert close(letter, found, wanted), (order, left, right, shape)
        assert bool(pool.counts) == (threads > 1), (order, shape)
        assert all(1 < count <= threads for count in pool.counts)


@pytest.mark.parametrize("shape", SMALL, ids=str)
def test_small_products_stay_whole(shim, shape):
    library, pool = shim
    pool.size = 16
    pool.counts.clear()
    found, wanted = multiply(library, "s", ROWS, (PLAIN, PLAIN), shape, np.random.default_rng(0))
    assert close("s", found, wanted)
    assert not pool.counts
