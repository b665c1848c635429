"""The start of a rank's process: its connection, what it is to be, and then mlx."""

from __future__ import annotations

import os
import socket
import sys

from cowmlx import json_text
from cowmlx.ranks.voice import HOST_IS_GONE, Voice, end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    voice = Voice(socket.socket(fileno=CONNECTION), config["parent"])
    voice.start()
    try:
        from cowmlx.ranks import device
        from cowmlx.ranks.log import Log

        device.start(config["threads"])
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
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    if parent and os.getppid() != parent:
        end(HOST_IS_GONE)


if __name__ == "__main__":
    main()
