"""Joining the other ranks with mlx's ring, and making sure that they are all ours."""

from __future__ import annotations

import faulthandler
import json
import os
import socket

import mlx.core as mx

from cowmlx.errors import Lost
from cowmlx.machines import handshake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# That mlx may wait for neighbours, for which it has no limit of its own, if no host ends it sooner.
JOIN_SECONDS = 30.0


class Port:
    """A port that nobody else can take, until mlx listens there: it shares it, as mlx does.

    Args:
        host: the address of this machine that others see.
    """

    def __init__(self, host: str) -> None:
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        for option in (socket.SO_REUSEADDR, socket.SO_REUSEPORT):
            self._sock.setsockopt(socket.SOL_SOCKET, option, 1)
        self._sock.bind((host, 0))
        self.address = f"{host}:{self._sock.getsockname()[1]}"

    def close(self) -> None:
        """Leave it to mlx."""
        self._sock.close()


def join(rank: int, addresses: list[str], key: str) -> Any:
    """Return the ring of all ranks.

    Args:
        rank: this one.
        addresses: where each listens.
        key: of the session; whoever does not know it is no rank of it.

    Raises:
        Lost: a stranger has joined.
    """
    told, file = os.pipe()  # a disk may be full
    os.write(file, json.dumps([[address] for address in addresses]).encode())
    os.close(file)
    os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"] = str(rank), f"/dev/fd/{told}"
    with open(os.devnull, "w") as nobody:
        # While mlx waits, no thread of Python's runs: only this ends the process then.
        faulthandler.dump_traceback_later(JOIN_SECONDS, exit=True, file=nobody)
        try:
            group = mx.distributed.init(strict=True, backend="ring")
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.close(told)
    mine = mx.array(handshake.ring_mark(key, rank), mx.int32)
    seen = mx.distributed.all_gather(mine, group=group).tolist()
    if seen != [part for each in range(len(addresses)) for part in handshake.ring_mark(key, each)]:
        raise Lost("a stranger has joined the ring", reason="machine_lost")
    return group
