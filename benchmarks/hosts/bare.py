"""The engine without the library around it, for Python hosts: its BLAS and its networks.

Import it before mlx.
"""

import ctypes
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
from cowmlx import blas


def lend_blas():
    """Give mlx the library's BLAS, as the library does before it loads mlx."""
    wanted = blas.wanted()
    if wanted is None:
        return
    shim = str(Path(blas.__file__).parent / "lib" / blas.SHIM)
    lender = ctypes.CDLL(shim)
    lender.cow_blas_open.restype = ctypes.c_char_p
    problem = lender.cow_blas_open(os.fsencode(wanted))
    assert problem is None, problem
    ctypes.CDLL(shim, ctypes.RTLD_GLOBAL)


lend_blas()

import mlx.core as mx  # noqa: E402

if mx.default_device() == mx.Device(mx.cpu):
    mx.disable_compile()


def load(path, **params):
    """Load a model folder."""
    from cowmlx.models import registry

    params = {"adapter_path": None, "lazy": False, "trust_remote_code": False, **params}
    loading = registry.load(str(path), **params)
    while True:
        try:
            next(loading)
        except StopIteration as done:
            return done.value
