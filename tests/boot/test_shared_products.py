"""Matrix products of OpenBLAS that are cut into parts, one for each thread."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

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


CORE = """
import ctypes, os, sys
library, shim = sys.argv[1:]
if shim:
    assert ctypes.CDLL(shim).cow_blas_open(os.fsencode(library)) == 0
core = ctypes.CDLL(library).scipy_openblas_get_corename
core.restype = ctypes.c_char_p
read = ctypes.CDLL(None).getenv
read.restype = ctypes.c_char_p
print(core().decode(), read(b"OPENBLAS_CORETYPE"))
"""


def core_of(shim: str, **chosen: str) -> list[str]:
    """What OpenBLAS takes the processor for, and what the environment says of it."""
    library = f"{pytest.importorskip('scipy_openblas32').get_lib_dir()}/libscipy_openblas.so"
    environment = {name: text for name, text in os.environ.items() if "OPENBLAS" not in name}
    command = [sys.executable, "-c", CORE, library, shim]
    environment |= chosen
    told = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return told.stdout.split()


def is_zen5() -> bool:
    """Whether it is a processor of AMD's family 26 or later, with AVX-512."""
    facts = dict(
        line.replace("\t", "").split(":", 1)
        for line in Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
        if ":" in line
    )
    amd = "AuthenticAMD" in facts.get("vendor_id", "")
    return amd and int(facts["cpu family"]) >= 26 and "avx512vl" in facts["flags"]


def test_openblas_has_kernels_for_the_processor():
    """Those that it chooses itself, or those for AVX-512 where it does not know the processor."""
    expected = "SkylakeX" if is_zen5() else core_of("")[0]
    assert core_of(str(LIBRARY.parent / blas.SHIM)) == [expected, "None"]


def test_a_user_s_choice_of_kernels_stays():
    chosen = core_of("", OPENBLAS_CORETYPE="Haswell")
    assert chosen[1] == "b'Haswell'"
    assert core_of(str(LIBRARY.parent / blas.SHIM), OPENBLAS_CORETYPE="Haswell") == chosen


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
