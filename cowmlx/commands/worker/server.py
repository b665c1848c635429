"""The worker: waits for hosts, and starts and ends a process for each. It never imports mlx."""

from __future__ import annotations

import errno
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from cowmlx.commands.worker import guest as guests
from cowmlx.commands.worker.guest import Guest
from cowmlx.errors import BadState, CowMlxError, NotFound
from cowmlx.folders import places
from cowmlx.machines import handshake, measuring

LOOK_SECONDS = 0.1  # between looks at ranks that run
MAX_GUESTS = 16  # that may be proving who they are at a time
_LONGEST_WAIT = 60.0
_GONE = (errno.EAGAIN, errno.EWOULDBLOCK, errno.EINTR, errno.ECONNABORTED)


class _Stopped(BaseException):
    """A signal asked for the end: Python resumes a wait that a signal interrupts."""


def _stop(*_: Any) -> None:
    raise _Stopped


class Server:
    """Serves hosts that know the secret; ``most`` models run at a time."""

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
                guests.reap()
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
            sock, place = self._listener.accept()
        except OSError as error:
            # A connection that has gone is no longer there. One that no descriptor is free for
            # stays, and the next wait would end at once.
            if error.errno not in _GONE:
                time.sleep(LOOK_SECONDS)
            return
        if sum(not guest.runs for guest in self._guests) >= MAX_GUESTS:
            unknown = next((guest for guest in self._guests if not guest.is_known), None)
            if unknown is None:
                sock.close()
                return
            unknown.end("others want to prove who they are")
        try:
            address = f"{place[0]}:{place[1]}"
            log = partial(self._say, address)
            guest = Guest(sock, address, self._secret, self._begin, self._reach, log)
        except (OSError, TypeError):  # it has gone: macOS gives no address then
            sock.close()
            return
        self._guests.append(guest)

    def _begin(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """Return the config of a rank; raises why none can start."""
        ended = wanted.get("ended")
        for guest in self._guests:  # one whose host is gone makes place
            if guest.runs and isinstance(ended, list) and guest.session in ended:
                guest.end("its host has let it go")
            guest.step() if guest.runs else None
        if sum(guest.runs for guest in self._guests) >= self._most:
            text = f"it runs {self._most} of {self._most} models"
            raise BadState(text, reason="machine_busy")
        path = folder_of(self._models, wanted.get("model"))
        keys = ("model", "print", "split", "activations")
        return {**{key: wanted.get(key) for key in keys}, "path": path, "threads": 0}

    def _reach(self, address: object) -> dict[str, Any]:
        """Measure the link to another worker, for which other guests wait a little."""
        try:
            host, _ = handshake.parse_address(str(address), "reach")
            found = socket.gethostbyname(host)
            way = measuring.measure(str(address), found, self._secret, measuring.REACH_SECONDS)
        except (CowMlxError, OSError, UnicodeError) as error:
            return {"problem": str(error)}
        return {"milliseconds": way.milliseconds, "megabytes": way.megabytes}

    def _say(self, address: str, text: str) -> None:
        self._log(f"{address}: {text}")


def log(text: str) -> None:
    """Write a line that a person can read."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", file=sys.stderr, flush=True)


MAX_NAME = 256
_ENTRY = "models--"


def models_in(folder: Path) -> dict[str, Path]:
    """Return the models under a folder by name, "org/name" for those of Hugging Face's cache."""
    models = {}
    for entry in sorted(folder.iterdir()):
        if entry.name.startswith(_ENTRY):
            name = entry.name.removeprefix(_ENTRY).replace("--", "/", 1)
            if (entry / "snapshots").is_dir():
                models[name] = entry
        elif (entry / "config.json").is_file():
            models[entry.name] = entry
    return models


def folder_of(folder: Path, name: object) -> str:
    """Return the folder of a model; no name leads above or beside the given folder.

    Raises:
        NotFound: there is no model of that name, or it is not downloaded.
    """
    path = models_in(folder).get(name) if isinstance(name, str) and len(name) <= MAX_NAME else None
    if path is None:
        shown = ascii(name)[:MAX_NAME]
        raise NotFound(f"it has no model named {shown}; copy the host's folder there")
    return places.find(os.fspath(path))[0]
