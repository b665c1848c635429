"""The ring of all ranks: joining it, and findings that need passes of all of them."""

from __future__ import annotations

import faulthandler
import json
import os
import socket
from collections.abc import Callable
from typing import Any

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import CowMlxError, Lost, Unsupported
from cowmlx.machines import handshake

# Limit for mlx, which waits for neighbours without one; the host usually ends it sooner.
JOIN_SECONDS = 30.0


class Port:
    """A reserved port, until mlx listens there: both sides share it."""

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

    Raises:
        Lost: a stranger has joined.
    """
    reader, file = os.pipe()  # a disk may be full
    os.write(file, json.dumps([[address] for address in addresses]).encode())
    os.close(file)
    os.environ["MLX_RANK"], os.environ["MLX_HOSTFILE"] = str(rank), f"/dev/fd/{reader}"
    with open(os.devnull, "w") as null:
        # While mlx waits, no thread of Python runs: only this ends the process then.
        faulthandler.dump_traceback_later(JOIN_SECONDS, exit=True, file=null)
        try:
            group = mx.distributed.init(strict=True, backend="ring")
        finally:
            faulthandler.cancel_dump_traceback_later()
            os.close(reader)
    mine = mx.array(handshake.ring_mark(key, rank), mx.int32)
    seen = mx.distributed.all_gather(mine, group=group).tolist()
    if seen != [part for each in range(len(addresses)) for part in handshake.ring_mark(key, each)]:
        raise Lost("a stranger has joined the ring", reason="machine_lost")
    return group


class Together:
    """Passes of a network that all ranks compute, or none.

    A rank that gave up alone would let the others wait for ever. So a pass is built first, which
    fails where an architecture does not take its arguments: often on some ranks alone, since layers
    differ. Then all ranks exchange whether it failed, and compute.
    """

    def __init__(self, network: Any, group: Any) -> None:
        self._network = network
        self._group = group
        self._over = False  # some rank has given up
        self._torn: CowMlxError | None = None  # it ended a pass that others may be in

    def find_out(self, prove: Callable[[Any, Any], str | None], make_layers: Any) -> str | None:
        """Prove something with passes; returns why not, or None if no rank has found a reason.

        Raises:
            CowMlxError: a pass that all had begun has failed here.
        """
        why = prove(self._pass, make_layers)
        if self._torn is not None:
            raise failures.kept(self._torn)
        if not self._over and not self._agree(why is None) and why is None:
            why = "its network does not take batches on another machine"
        return why

    def _pass(self, ids: mx.array, cache: list[Any]) -> mx.array:
        """Run the network and wait: ranks that compute several passes at once mix them up."""
        logits: mx.array = self._network(ids, cache=cache)
        state = [getattr(layer, "arrays", None) or layer.state for layer in cache]
        if not self._agree(True):
            raise Unsupported("not on another machine")
        try:
            mx.eval(logits, state)
        except Exception as error:
            self._torn = failures.kept(error)
            raise
        return logits

    def _agree(self, good: bool) -> bool:
        """Whether all ranks agree; each calls it as often as the others."""
        if self._group is None:
            return good
        bad = mx.distributed.all_sum(mx.array(0 if good else 1), group=self._group)
        self._over = bad.item() != 0
        return not self._over
