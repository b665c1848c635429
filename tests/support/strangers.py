"""What listens where a worker should, and is none, or one of another kind."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from cowmlx.machines import handshake, wire
from cowmlx.machines.handshake import Place


class Stranger:
    """Serves connections on the loopback, one after the other, until it is closed.

    Args:
        serve: is given each connection.
    """

    def __init__(self, serve: Callable[[socket.socket], None]):
        self._serve = serve
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with sock:
                try:
                    self._serve(sock)
                except (OSError, wire.Gone):
                    continue

    def close(self) -> None:
        """Serve nobody any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def wait_for_end(sock: socket.socket) -> None:
    """Read until the other end closes."""
    while sock.recv(1 << 16):
        pass


def says(data: bytes) -> Callable[[socket.socket], None]:
    """One that says this to everybody, and then nothing."""

    def serve(sock: socket.socket) -> None:
        sock.sendall(data)
        wait_for_end(sock)

    return serve


def sizes(head: int, body: int) -> bytes:
    """What a message of these sizes begins with."""
    return struct.pack("<II", head, body)


def worker(
    secret: bytes, then: Callable[[socket.socket], None], **greeting: Any
) -> Callable[[socket.socket], None]:
    """A worker that proves itself, tells ``greeting`` of itself, and then does something else."""

    def serve(sock: socket.socket) -> None:
        nonce = handshake.nonce()
        wire.write(sock, {"cowmlx": handshake.PROTOCOL, "nonce": nonce})
        asked, _ = wire.read(sock, 0)
        place = Place(asked["rank"], asked["size"])
        proof = handshake.proof(secret, "worker", asked["nonce"], nonce, place)
        told = {"proof": proof, "versions": handshake.versions(), **greeting}
        wire.write(sock, told)
        wire.read(sock, 0)
        wire.write(sock, {"accepted": True})
        then(sock)

    return serve
