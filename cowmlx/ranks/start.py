"""The start of a rank's process: its connection, its config, and then mlx."""

from __future__ import annotations

import ctypes
import os
import socket
import sys
from typing import Any

from cowmlx import blas, json_text

CONNECTION = 3  # the descriptor of its connection
_MAX_CONFIG = 1 << 16
_MAX_DESCRIPTOR = 65536
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def main() -> None:
    """Be a rank until the host is gone.

    The first line of the standard input is a JSON object: "rank" of "size"; "path" of the model's
    folder and the "print" that it must have; "split", "activations" and "threads"; "session" and
    "key" of the ring; "parent", the process to end with, or 0; "paths", where the host finds
    modules, which are looked for there first.
    """
    config = _read_config()
    paths = config.get("paths") or []
    sys.path[1:] = [*paths, *(path for path in sys.path[1:] if path not in paths)]
    os.closerange(CONNECTION + 1, _MAX_DESCRIPTOR)  # what the host has open is not ours
    _end_with(config["parent"])
    from cowmlx.ranks.voice import Voice

    voice = Voice(socket.socket(fileno=CONNECTION), config["parent"])
    voice.start()
    try:
        start_mlx(config["threads"])
        from cowmlx.ranks.log import Log

        log = Log(voice, config)
        while True:
            log.carry_out(*voice.next())
    except ModuleNotFoundError as error:
        from cowmlx.failures import of_import

        voice.fail(of_import(error, "mlx and mlx-lm"))
    except BaseException as error:
        voice.fail(error)


def _read_config() -> dict[str, Any]:
    line = sys.stdin.buffer.readline(_MAX_CONFIG)
    config: dict[str, Any] = json_text.parse(line)
    return config


def _end_with(parent: int) -> None:
    """End when the process that started this one does, also where no thread of ours can run."""
    if parent and sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if parent and os.getppid() != parent:
        from cowmlx.ranks.voice import HOST_IS_GONE, end

        end(HOST_IS_GONE)


def start_mlx(threads: int) -> None:
    """Start mlx with the BLAS, threads and kernels of a host's runtime.

    Args:
        threads: of the kernels; 0: as many as there are processors.
    """
    lend_blas()
    import mlx.core as mx

    from cowmlx import resources
    from cowmlx.accelerate import kernels

    if not mx.is_available(mx.gpu):
        mx.set_default_device(mx.Device(mx.cpu))
        mx.disable_compile()  # it would run a compiler, in a folder with a predictable name
    resources.start_default_stream()
    resources.start_readers()
    kernels.set_threads(threads)


def lend_blas() -> None:
    """Lend libmlx the optimized BLAS, where there is one, before mlx is loaded."""
    wanted = blas.wanted()
    if wanted is None:
        return
    shim = os.path.join(os.path.dirname(blas.__file__), "lib", blas.SHIM)
    try:
        library = ctypes.CDLL(shim)
        library.cow_blas_open.restype = ctypes.c_char_p
        if library.cow_blas_open(os.fsencode(wanted)) is None:
            ctypes.CDLL(shim, mode=ctypes.RTLD_GLOBAL)
    except OSError:
        return  # mlx's own computes, too


if __name__ == "__main__":
    main()
