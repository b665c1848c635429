"""A model without the library around it, for the Python hosts: its engine's network and BLAS."""

import ctypes
from pathlib import Path

from cowmlx import blas

_shim = Path(blas.__file__).parent / "lib" / blas.SHIM
_wanted = blas.wanted()
if _wanted is not None:  # before mlx is there
    ctypes.CDLL(str(_shim)).cow_blas_open(_wanted.encode(), blas.threads())
    ctypes.CDLL(str(_shim), mode=ctypes.RTLD_GLOBAL)

import mlx.core as mx  # noqa: E402

from cowmlx.models import registry  # noqa: E402

if mx.default_device() == mx.Device(mx.cpu):
    mx.disable_compile()


def load(path, **params):
    """Load a model folder."""
    given = {"adapter_path": None, "lazy": False, "trust_remote_code": False, **params}
    loading = registry.load(str(path), **given)
    while True:
        try:
            next(loading)
        except StopIteration as done:
            return done.value
