"""Joining the other ranks with mlx's ring, and making sure that they are all ours."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import tempfile

import mlx.core as mx

from cowmlx.errors import Lost
from cowmlx.machines import handshake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

JOIN_SECONDS = 30.0  # that mlx may wait for neighbours, for which it has no limit of its own


def place_to_listen(address: str) -> str:
    """Return an address with a port that is free now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((address, 0))
        return f"{address}:{sock.getsockname()[1]}"


def join(rank: int, addresses: list[str], key: str) -> Any:
    """Return the ring of all ranks.

    Args:
        rank: this one.
        addresses: where each listens.
        key: of the session; whoever does not know it is no rank of it.

    Raises:
        Lost: a stranger has joined.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file, open(os.devnull, "w") as nobody:
        json.dump([[address] for address in addresses], file)
        file.flush()
        os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"] = str(rank), file.name
        # While mlx waits, no thread of Python's runs: only this ends the process then.
        faulthandler.dump_traceback_later(JOIN_SECONDS, exit=True, file=nobody)
        try:
            group = mx.distributed.init(strict=True, backend="ring")
        finally:
            faulthandler.cancel_dump_traceback_later()
    mine = mx.array(handshake.ring_mark(key, rank), mx.int32)
    seen = mx.distributed.all_gather(mine, group=group).tolist()
    if seen != [part for each in range(len(addresses)) for part in handshake.ring_mark(key, each)]:
        raise Lost("a stranger has joined the ring", reason="machine_lost")
    return group
