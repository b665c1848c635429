"""The BLAS for libmlx on Linux, and its path.

mlx's CPU build has a reference BLAS that is tens of times slower than the processor allows. The
package ``scipy-openblas32`` has OpenBLAS; ``csrc/blas/cblas.c`` lends it to libmlx.
"""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from functools import cache

from cowmlx.errors import InvalidArgument

PACKAGE = "scipy_openblas32"
SETTING = "COWMLX_BLAS"
SHIM = "libcowmlx_blas.so"
_NAMES = ("openblas", "reference")


def wanted() -> str | None:
    """Return the path of the BLAS to lend, or None for mlx's own.

    Raises:
        InvalidArgument: ``COWMLX_BLAS`` is neither of its two names.
    """
    chosen = os.environ.get(SETTING) or "openblas"
    if chosen not in _NAMES:
        message = f'{SETTING} is "{chosen}"; it can be {" or ".join(_NAMES)}'
        raise InvalidArgument(message, argument=SETTING, value=chosen, accepted=" or ".join(_NAMES))
    if chosen == "reference" or not sys.platform.startswith("linux") or "mlx.core" in sys.modules:
        return None
    return _library()


def builtin() -> str:
    """Return the name of mlx's own BLAS."""
    return "accelerate" if sys.platform == "darwin" else "reference"


def memory() -> int:
    """Return the bytes to map before OpenBLAS is loaded: with too few it ends the process.

    It may start a thread for each processor, with a stack, a heap and a buffer.
    """
    return (processors() + 1) * (128 << 20)


@cache
def processors() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        with suppress(OSError):  # a sandbox may refuse
            return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _library() -> str | None:
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = os.path.join(folder, "lib", "libscipy_openblas.so")
        if os.path.exists(path):
            return path
    return None
