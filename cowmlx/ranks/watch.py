"""Connections to a rank's neighbours beside the ring.

In the ring, a neighbour that computes and one that is cut off are both silent. So each rank has
another connection to either neighbour, and pings it whenever its host pings the rank.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import Any

from cowmlx.errors import Lost
from cowmlx.machines import handshake
from cowmlx.machines.wire import Connection, Garbage, Gone

AGAIN_SECONDS = 0.1  # between tries to reach a neighbour
LONGEST_WAIT = 60.0  # between checks of the time
MAX_STRANGERS = 16  # connections without a proof at a time


class Neighbour:
    """The rank at one side."""

    def __init__(self, rank: int, connection: Connection) -> None:
        self.rank = rank
        self.connection = connection
        self.gone = False
        self._since: float | None = None  # the time of an unanswered ping

    def hear(self) -> None:
        """Take its messages, and answer."""
        if self.gone:
            return
        try:
            self.connection.flush()
            for head, _ in self.connection.receive():
                if "ping" in head:
                    self.connection.send({"pong": 0})
                else:
                    self._since = None
        except (Gone, Garbage):
            self.gone = True
            self._since = self._since or time.monotonic()

    def silent(self, anew: bool) -> float:
        """Return the seconds since an unanswered ping, or from now; ping again after an answer."""
        self.hear()
        now = time.monotonic()
        if self._since is None:
            self._since = now
            try:
                self.connection.send({"ping": 0})
            except Gone:
                self.gone = True
        elif anew:
            self._since = now
        return now - self._since


class Watch:
    """The neighbours, and how long they have been silent."""

    def __init__(self, rank: int, size: int, key: str) -> None:
        self._rank = rank
        self._key = key
        self._left, self._right = (rank - 1) % size, (rank + 1) % size
        self._listener: socket.socket | None = None
        self._neighbours: list[Neighbour] = []

    def listen(self, address: str) -> str:
        """Listen for the left neighbour; returns the address."""
        self._listener = socket.create_server((address, 0))
        self._listener.setblocking(False)
        return f"{address}:{self._listener.getsockname()[1]}"

    def meet(self, places: list[str], seconds: float) -> None:
        """Connect with both neighbours.

        Raises:
            Lost: one is not reached, or does not connect; the message names it.
        """
        until = time.monotonic() + seconds
        right = self._dial(places[self._right], until)
        left = self._accept(places[self._left], until)
        self._neighbours = [Neighbour(self._right, right), Neighbour(self._left, left)]

    def silent(self, anew: bool) -> dict[str, float]:
        """Return the seconds for which neighbours have been silent, by rank."""
        seconds: dict[str, float] = {}
        for neighbour in self._neighbours:
            name = str(neighbour.rank)
            seconds[name] = max(seconds.get(name, 0.0), neighbour.silent(anew))
        return seconds

    def wait(self) -> None:
        """Wait for a message or the end of a neighbour."""
        poll = select.poll()
        for neighbour in self._neighbours:
            poll.register(neighbour.connection.fileno(), select.POLLIN)
        poll.poll()

    def hear(self) -> int | None:
        """Answer neighbours; returns a lost one, or None."""
        for neighbour in self._neighbours:
            neighbour.hear()
        return next((peer.rank for peer in self._neighbours if peer.gone), None)

    def _proof(self, rank: int) -> str:
        return handshake.digest(self._key.encode(), f"watch {rank}")

    def _dial(self, place: str, until: float) -> Connection:
        host, _, port = place.rpartition(":")
        while True:
            left = until - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError("timed out")
                sock = socket.create_connection((host, int(port)), timeout=left)
            except OSError as error:
                if time.monotonic() + AGAIN_SECONDS >= until:
                    why = error.strerror or error
                    what = f"it cannot reach rank {self._right}"
                    raise self._unreachable(what, place, why) from None
                time.sleep(AGAIN_SECONDS)
                continue
            connection = Connection(sock)
            connection.send({"proof": self._proof(self._rank)})
            return connection

    def _accept(self, place: str, until: float) -> Connection:
        """Wait for the left neighbour; strangers may connect, too."""
        assert self._listener is not None
        coming: list[Connection] = []
        while time.monotonic() < until:
            poll = select.poll()
            for number in (
                self._listener.fileno(),
                *(connection.fileno() for connection in coming),
            ):
                poll.register(number, select.POLLIN)
            poll.poll(min(max(0.0, until - time.monotonic()), LONGEST_WAIT) * 1000)
            with suppress(OSError):  # no new connection
                coming.append(Connection(self._listener.accept()[0]))
            for connection in coming:
                if self._is_left(connection):
                    self._listener.close()
                    return connection
            coming = [connection for connection in coming if connection.fileno() >= 0][
                -MAX_STRANGERS:
            ]
        why = "timed out"
        raise self._unreachable(f"it is not reached by rank {self._left}", place, why)

    def _is_left(self, connection: Connection) -> bool:
        """Whether a connection is the left neighbour's; a stranger's is closed.

        Messages behind its proof stay for :meth:`hear`.
        """
        try:
            messages = connection.receive(count=1)
        except (Gone, Garbage):
            connection.close()
            return False
        for head, _ in messages:
            if handshake.is_proof(head.get("proof"), self._proof(self._left)):
                return True
            connection.close()
        return False

    @staticmethod
    def _unreachable(what: str, place: str, why: Any) -> Lost:
        host = place.rpartition(":")[0]
        return Lost(f"{what} at {host} ({why})", reason="unreachable")
