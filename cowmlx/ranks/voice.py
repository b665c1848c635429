"""A rank's messages while mlx computes: a second thread answers, and ends the process.

mlx has no way to end an evaluation that waits for a lost rank. So nothing here is cleaned up: once
the host is gone, or asks for it, the process ends at once.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from typing import Any, NoReturn

from cowmlx.errors import CowMlxError
from cowmlx.machines import wire
from cowmlx.machines.wire import Message
from cowmlx.ranks.watch import Watch

HOST_IS_GONE = 3  # exit codes
FAILED = 4
NEIGHBOUR_SECONDS = 0.1  # until the end of a neighbour is noticed
LOOK_SECONDS = 0.5  # between looks at the process that started this one
FAREWELL_SECONDS = 1.0  # until a rank that has failed ends, if its host does not end it


class Voice:
    """The connection with the host, read by a second thread; ends with the parent process."""

    def __init__(self, sock: socket.socket, parent: int) -> None:
        wire.tune(sock)
        self._sock = sock
        self._parent = parent
        self._watch: Watch | None = None
        self._watching = threading.Lock()
        self._log: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._speaking = threading.Lock()

    def start(self) -> None:
        """Start to listen."""
        for work in (self._hear, self._look):
            threading.Thread(target=work, daemon=True).start()

    def next(self) -> Message:
        """Wait for the next entry of the log."""
        return self._log.get()

    def say(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message to the host; ends the process if the host is gone."""
        try:
            with self._speaking:
                wire.write(self._sock, head, body)
        except wire.Gone:
            end(HOST_IS_GONE)

    def fail(self, error: BaseException) -> NoReturn:
        """Report a failure to the host, and end; the host ends all other ranks."""
        if not isinstance(error, CowMlxError) and self._watch is not None:
            time.sleep(NEIGHBOUR_SECONDS)
            with self._watching:
                gone = self._watch.hear()
            if gone is not None:  # the cause of the ring's failure
                self._miss(gone)
        self.say({"failed": wire.failure(error)})
        time.sleep(FAREWELL_SECONDS)
        end(FAILED)

    def _miss(self, gone: int) -> NoReturn:
        """Report a lost neighbour to the host, and end.

        The host may be gone, too, while a child that it has forked keeps the connection.
        """
        self.say({"gone": gone})
        time.sleep(FAREWELL_SECONDS)
        end(FAILED)

    def _hear(self) -> None:
        try:
            while True:
                message = wire.read(self._sock, wire.MAX_TOKENS)
                if "ping" in message[0]:
                    self._answer(message[0])
                elif message[0].get("op") == "find":
                    self.say({"found": _found(message[0]["names"])})
                else:
                    self._log.put(message)
        except BaseException:
            end(HOST_IS_GONE)

    def _answer(self, ping: dict[str, Any]) -> None:
        silent: dict[str, float] = {}
        if self._watch is not None:
            with self._watching:
                silent = self._watch.silent("anew" in ping)
        self.say({"pong": ping["ping"], "silent": silent})

    def watch(self, watch: Watch) -> None:
        """From now on report and answer neighbours; the process ends with the first of them."""
        self._watch = watch

        def answer() -> None:
            gone = None
            while gone is None:
                with self._watching:  # first: some may have come with the proof
                    gone = watch.hear()
                if gone is None:
                    watch.wait()
            self._miss(gone)

        threading.Thread(target=answer, daemon=True).start()

    def _look(self) -> None:
        while self._parent:
            if os.getppid() != self._parent:
                end(HOST_IS_GONE)
            time.sleep(LOOK_SECONDS)


def end(code: int) -> NoReturn:
    """End this process at once."""
    os._exit(code)


def _found(names: list[str]) -> dict[str, str]:
    """Return the IPv4 addresses of names that have one."""
    held = {}
    for name in names:
        try:
            places = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            continue
        held[name] = str(places[0][4][0])
    return held
