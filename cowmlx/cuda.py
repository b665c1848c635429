"""Settings of mlx's build for NVIDIA GPUs, which it reads from environment variables.

They are set before mlx is imported, where the host has not set them itself.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress

EXACT = "MLX_ENABLE_TF32"
FOLDER = "MLX_PTX_CACHE_DIR"
# What the driver has on Linux, and in WSL.
_DRIVERS = ("/dev/nvidiactl", "/dev/dxg")


def set_up() -> None:
    """Set what the host has not set, if there is a driver and mlx is still to be imported.

    mlx multiplies float32 with a mantissa of 10 bits there, unless it is 0; results would be wrong
    in the third digit, and differ between a batch and a context alone. And mlx keeps the kernels
    that it compiles in a folder whose name others can guess, and loads what lies there.
    """
    if "mlx.core" in sys.modules or not any(map(os.path.exists, _DRIVERS)):
        return
    os.environ.setdefault(EXACT, "0")
    if FOLDER not in os.environ:
        os.environ[FOLDER] = _private_folder() or ""  # "": kernels are kept in memory alone


def _private_folder() -> str | None:
    """Return a folder that nobody else can write to, made if need be; None if there is none."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(base, "cowmlx", "cuda")
    if not os.path.isabs(path):
        return None
    with suppress(OSError):
        os.makedirs(path, mode=0o700, exist_ok=True)
        found = os.lstat(path)
        others = stat.S_IWGRP | stat.S_IWOTH
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid():
            return path if not found.st_mode & others and os.access(path, os.W_OK) else None
    return None
