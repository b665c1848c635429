"""What a rank says and hears while mlx computes: a second thread answers, and ends the process.

mlx gives no way to end an evaluation that waits for a rank that is gone. So nothing here is ever
cleaned up: once the host is gone, or says so, the process ends where it stands.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time

from cowmlx.errors import CowMlxError
from cowmlx.machines import failures, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from cowmlx.machines.wire import Message
    from cowmlx.ranks.watch import Watch

HOST_IS_GONE = 3  # exit codes
FAILED = 4
NEIGHBOUR_SECONDS = 0.1  # until a neighbour that has ended is known to have
LOOK_SECONDS = 0.5  # between looks at the process that started this one
FAREWELL_SECONDS = 1.0  # until a rank that has failed ends, if its host does not end it


class Voice:
    """The connection with the host, heard by a thread of its own.

    Args:
        sock: connected; blocks.
        parent: the process that this one ends with; 0: none.
    """

    def __init__(self, sock: socket.socket, parent: int) -> None:
        wire.tune(sock)
        self._sock = sock
        self._parent = parent
        self._watch: Watch | None = None
        self._watching = threading.Lock()
        self._log: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self._speaking = threading.Lock()

    def start(self) -> None:
        """Begin to hear."""
        for work in (self._hear, self._look):
            threading.Thread(target=work, daemon=True).start()

    def next(self) -> Message:
        """Wait for the next entry of the log."""
        return self._log.get()

    def say(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Tell the host something; ends the process if it is gone."""
        try:
            with self._speaking:
                wire.write(self._sock, head, body)
        except wire.Gone:
            end(HOST_IS_GONE)

    def fail(self, error: BaseException) -> NoReturn:
        """Tell the host what has failed, and end: it ends all other ranks."""
        if not isinstance(error, CowMlxError) and self._watch is not None:
            time.sleep(NEIGHBOUR_SECONDS)
            with self._watching:
                gone = self._watch.hear()
            if gone is not None:  # the ring fails for that
                self._miss(gone)
        self.say({"failed": failures.described(error)})
        time.sleep(FAREWELL_SECONDS)
        end(FAILED)

    def _miss(self, gone: int) -> NoReturn:
        """Tell the host that a neighbour is gone, and end.

        The host may be gone, too, and a child that it has forked keep the connection.
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
        """Tell the host of neighbours, and answer them, from now on; end with the first of them."""
        self._watch = watch

        def answer() -> None:
            gone = None
            while gone is None:
                watch.wait()
                with self._watching:
                    gone = watch.hear()
            self._miss(gone)

        threading.Thread(target=answer, daemon=True).start()

    def _look(self) -> None:
        while self._parent:
            if os.getppid() != self._parent:
                end(HOST_IS_GONE)
            time.sleep(LOOK_SECONDS)


def end(code: int) -> NoReturn:
    """End this process at once, whatever it does."""
    os._exit(code)


def _found(names: list[str]) -> dict[str, str]:
    """Return the IPv4 addresses of names, of those that have one."""
    found = {}
    for name in names:
        try:
            places = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        except OSError:
            continue
        found[name] = str(places[0][4][0])
    return found
