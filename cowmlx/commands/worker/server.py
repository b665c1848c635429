"""The worker: waits for hosts, and starts and ends a process for each. It never imports mlx."""

from __future__ import annotations

import select
import signal
import socket
import sys
import time
from pathlib import Path

from cowmlx.commands.worker import places
from cowmlx.commands.worker.guest import Guest, busy
from cowmlx.errors import CowMlxError
from cowmlx.machines import addresses, measuring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

LOOK_SECONDS = 0.1  # between looks at ranks that run
MAX_GUESTS = 16  # that may be proving who they are at a time
_LONGEST_WAIT = 60.0


class _Stopped(BaseException):
    """Nothing goes on: a wait that a signal interrupts would be taken up again."""


def _stop(*_: Any) -> None:
    raise _Stopped


class Server:
    """Serves hosts that know the secret.

    Args:
        listener: bound and listening.
        secret: that hosts have to know.
        models: the folder that has the models.
        most: models that run at a time.
        log: is told what people want to know.
    """

    def __init__(
        self,
        listener: socket.socket,
        secret: bytes,
        models: Path,
        most: int,
        log: Callable[[str], None],
    ) -> None:
        self._listener = listener
        self._secret = secret
        self._models = models
        self._most = most
        self._log = log
        self._guests: list[Guest] = []

    def serve(self) -> None:
        """Serve until a signal ends it."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        self._listener.setblocking(False)
        try:
            while True:
                self._wait()
                self._accept()
                for guest in self._guests:
                    guest.step()
                self._guests = [guest for guest in self._guests if not guest.ended]
        except _Stopped:
            return
        finally:
            for guest in self._guests:
                guest.close()
            self._listener.close()

    def _wait(self) -> None:
        poll = select.poll()
        poll.register(self._listener, select.POLLIN)
        for guest in self._guests:
            if guest.fileno() >= 0:
                poll.register(guest.fileno(), select.POLLIN)
        poll.poll(1000 * (LOOK_SECONDS if self._guests else _LONGEST_WAIT))

    def _accept(self) -> None:
        try:
            sock, (host, port) = self._listener.accept()
        except OSError:  # it has gone again
            return
        address = f"{host}:{port}"
        if sum(not guest.runs for guest in self._guests) >= MAX_GUESTS:
            unknown = next((guest for guest in self._guests if not guest.is_known), None)
            if unknown is None:
                sock.close()
                return
            unknown.end("others want to prove who they are")
        self._guests.append(
            Guest(
                sock,
                address,
                self._secret,
                self._begin,
                self._reach,
                lambda text: self._say(address, text),
            )
        )

    def _begin(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Return what a rank is started with.

        Raises:
            CowMlxError: it cannot be.
        """
        ended = wanted.get("ended")
        for guest in self._guests:  # one whose host is gone makes place
            if guest.runs and isinstance(ended, list) and guest.session in ended:
                guest.end("its host has let it go")
            guest.step() if guest.runs else None
        if sum(guest.runs for guest in self._guests) >= self._most:
            raise busy(self._most)
        path = places.place(self._models, wanted.get("model"))
        keys = ("model", "print", "split", "activations")
        return {**{key: wanted.get(key) for key in keys}, "path": path, "threads": 0}

    def _reach(self, address: object) -> dict[str, Any]:
        """Return what the way to another worker is like; whoever waits here waits a little."""
        try:
            host, _ = addresses.parse(str(address), "reach")
            found = socket.gethostbyname(host)
            way = measuring.measure(str(address), found, self._secret, measuring.REACH_SECONDS)
        except (CowMlxError, OSError) as error:
            return {"problem": str(error)}
        return {"milliseconds": way.milliseconds, "megabytes": way.megabytes}

    def _say(self, address: str, text: str) -> None:
        self._log(f"{address}: {text}")


def log(text: str) -> None:
    """Write a line that a person can read."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)
