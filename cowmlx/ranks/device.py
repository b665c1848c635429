"""What a rank computes with: the BLAS, mlx's threads and kernels, as a host's runtime has them."""

from __future__ import annotations

import ctypes
import os

from cowmlx import blas


def start(threads: int) -> None:
    """Bring mlx up.

    Args:
        threads: that kernels compute with; 0: as many as there are processors.
    """
    _bring_blas()
    import mlx.core as mx

    from cowmlx import resources
    from cowmlx.accelerate import kernels

    if not mx.is_available(mx.gpu):
        mx.set_default_device(mx.Device(mx.cpu))
        mx.disable_compile()  # it would run a compiler, in a folder that others can guess
    resources.start_default_stream()
    resources.start_readers()
    kernels.set_threads(threads)


def _bring_blas() -> None:
    """Lend libmlx the optimised BLAS, where there is one, before it is loaded."""
    wanted = blas.wanted()
    if wanted is None:
        return
    shim = os.path.join(os.path.dirname(blas.__file__), "lib", blas.SHIM)
    try:
        library = ctypes.CDLL(shim)
        library.cow_blas_open.restype = ctypes.c_char_p
        problem = library.cow_blas_open(os.fsencode(wanted), blas.threads())
        if problem is None:
            ctypes.CDLL(shim, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return  # mlx's own computes, too
