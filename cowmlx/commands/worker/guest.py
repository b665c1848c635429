"""One host that has connected: its proof, and the rank that runs for it. Never blocks."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cowmlx.errors import InvalidArgument
from cowmlx.machines import handshake, measuring, wire
from cowmlx.machines.handshake import Place
from cowmlx.machines.wire import Connection, Garbage, Gone

HANDSHAKE_SECONDS = 10.0
MAX_RANKS = 64
KILLED_SECONDS = 0.5  # to wait for the end of a killed rank; later ends are seen by the server
_CLOSED: int = getattr(select, "POLLRDHUP", 0) | select.POLLHUP | select.POLLERR | select.POLLNVAL


class Guest:
    """A connection, from its greeting to the end of its rank."""

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        secret: bytes,
        begin: Callable[[dict[str, Any]], dict[str, Any]],
        reach: Callable[[object], dict[str, Any]],
        log: Callable[[str], None],
    ) -> None:
        self.address = address
        self.ended = False  # whether nothing is left of it
        self.session: str | None = None  # of its rank, or None
        self._begin = begin
        self._reach = reach
        self._log = log
        self._secret = secret
        self._sock = sock
        self._own_address = str(sock.getsockname()[0])
        self._connection = Connection(sock)
        self._until = time.monotonic() + HANDSHAKE_SECONDS
        self._nonce = handshake.nonce()
        self._place: Place | None = None
        self._rank: subprocess.Popen[bytes] | None = None
        self._send({"cowmlx": handshake.PROTOCOL, "nonce": self._nonce})

    def fileno(self) -> int:
        """Return the descriptor to wait on; -1 where its rank reads."""
        return -1 if self._rank is not None or self.ended else self._sock.fileno()

    @property
    def runs(self) -> bool:
        """Whether a rank runs for it."""
        return self._rank is not None and not self.ended

    @property
    def is_known(self) -> bool:
        """Whether it has proved that it knows the secret, or has ended."""
        return self._place is not None or self.ended

    def step(self) -> None:
        """Handle its messages, its end, and its time limit."""
        if self.ended:
            return
        try:
            if self._rank is None:
                self._talk()
            elif self._rank.poll() is not None:
                self.end(f"its rank has ended ({_ending(self._rank.returncode)})")
            elif self._is_gone():
                self.end("it is gone")
        except (Gone, Garbage) as error:
            self.end(str(error))
        except Exception as error:
            self._refuse(error)

    def _is_gone(self) -> bool:
        """Whether the host has closed: the rank reads, so nothing is read here."""
        poll = select.poll()
        poll.register(self._sock, _CLOSED)
        return bool(poll.poll(0))

    def _talk(self) -> None:
        self._connection.flush()
        measures = self._place == measuring.NOBODY
        for head, body in self._connection.receive(measuring.ECHO_BYTES if measures else 0):
            self._hear(head, body)
            if self.ended or self._rank is not None:
                return
        if time.monotonic() > self._until:
            self.end(f"it has said nothing of use within {HANDSHAKE_SECONDS:g} seconds")

    def _hear(self, head: dict[str, Any], body: bytes) -> None:
        if self._place == measuring.NOBODY:
            self._measure(head, body)
        elif self._place is None:
            self._place = self._proved(head)
            proof = handshake.proof(self._secret, "worker", head["nonce"], self._nonce, self._place)
            self._send({"proof": proof, "versions": handshake.versions()})
        else:
            self._start(head)

    def _measure(self, head: dict[str, Any], body: bytes) -> None:
        """Answer a host that measures the link, and asks for facts of this machine."""
        self._until = time.monotonic() + HANDSHAKE_SECONDS
        if "measure" in head:
            facts = {"memory": measuring.free_memory(), "processors": os.cpu_count() or 1}
            self._send({"accepted": True, **facts})
        elif "reach" in head:
            self._send({"reached": self._reach(head["reach"])})
        else:
            self._send({"echo": len(body)}, body)

    def _proved(self, head: dict[str, Any]) -> Place:
        rank, size, nonce = head.get("rank"), head.get("size"), head.get("nonce")
        if not (isinstance(rank, int) and isinstance(size, int) and 0 <= rank < size <= MAX_RANKS):
            raise Garbage("no rank of a group was asked for")
        place = Place(rank, size)
        if not handshake.is_nonce(nonce):
            raise Garbage("no nonce")
        expected = handshake.proof(self._secret, "host", str(nonce), self._nonce, place)
        if not handshake.is_proof(head.get("proof"), expected):
            raise InvalidArgument("its secret is another one", reason="wrong_secret")
        return place

    def _start(self, wanted: dict[str, Any]) -> None:
        assert self._place is not None
        config = self._begin(wanted)
        self.session = str(wanted.get("session"))
        config |= {
            "rank": self._place.rank,
            "size": self._place.size,
            "address": self._own_address,
            "key": handshake.ring_key(self._secret, self.session),
            "session": self.session,
            "parent": os.getpid(),
        }
        self._send({"accepted": True})
        self._rank = _spawn(self._sock, config)
        self._log(f"rank {self._place.rank} of {self._place.size} of {config['model']} begins")

    def _send(self, head: dict[str, Any], body: bytes = b"") -> None:
        try:
            self._connection.send(head, body)
        except Gone as error:
            self.end(str(error))

    def _refuse(self, error: Exception) -> None:
        with suppress(Gone):
            self._connection.send({"refused": wire.failure(error)})
        self.end(f"refused: {wire.printable(str(error))}")

    def end(self, why: str) -> None:
        """End its rank and its connection, and say why."""
        self.ended = True
        self._log(why)
        self.close()

    def close(self) -> None:
        """End its rank and its connection."""
        self.ended = True
        self._connection.close()
        if self._rank is not None:
            _kill(self._rank)


_killed: list[subprocess.Popen[bytes]] = []  # that had not ended yet


def reap() -> None:
    """Remove ended ranks from the system's table."""
    _killed[:] = [rank for rank in _killed if rank.poll() is None]


def _kill(rank: subprocess.Popen[bytes]) -> None:
    """Kill a rank, whose memory is free then, unless the system holds it for longer."""
    rank.kill()
    try:
        rank.wait(KILLED_SECONDS)
    except subprocess.TimeoutExpired:
        _killed.append(rank)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _spawn(sock: socket.socket, config: dict[str, Any]) -> subprocess.Popen[bytes]:
    """Start a rank, which gets the connection."""
    sock.setblocking(True)
    # The program moves the descriptor to where a rank expects it.
    program = "import os; from cowmlx.ranks import start; "
    program += f"os.dup2({sock.fileno()}, {3}); start.main()"
    rank = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # failures come as a message
        pass_fds=(sock.fileno(),),
    )
    assert rank.stdin is not None
    try:
        with rank.stdin as given:
            given.write(json.dumps(config).encode() + b"\n")
    except BaseException:
        _kill(rank)
        raise
    return rank
