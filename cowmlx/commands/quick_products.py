"""A better BLAS for libmlx in a command's own process, before mlx is imported."""

from __future__ import annotations

import ctypes
import os

from cowmlx import blas


def bring() -> None:
    """Lend libmlx an optimised BLAS, where there is one; without it products are slow."""
    wanted = blas.wanted()
    shim = os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib", blas.SHIM)
    if wanted is None or not os.path.exists(shim):
        return
    library = ctypes.CDLL(shim)
    library.cow_blas_open.restype = ctypes.c_char_p
    if library.cow_blas_open(os.fsencode(wanted), blas.threads()) is None:
        ctypes.CDLL(shim, mode=ctypes.RTLD_GLOBAL)
