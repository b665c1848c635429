"""Gives mlx, before it is loaded, the BLAS that the library gives it."""

import ctypes
import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def lend_blas():
    """Do what the library does before it loads mlx, if it would."""
    from cowmlx import blas

    wanted = blas.wanted()
    if wanted is None:
        return
    shim = str(ROOT / "cowmlx/lib" / blas.SHIM)
    lender = ctypes.CDLL(shim)
    lender.cow_blas_open.restype = ctypes.c_char_p
    problem = lender.cow_blas_open(os.fsencode(wanted), blas.threads())
    assert problem is None, problem
    ctypes.CDLL(shim, ctypes.RTLD_GLOBAL)
