"""A host in a separate network, with workers on islands: argv: folder, secret.

The last line is JSON: what each call ended with, and after how many seconds.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Any

from support import islands
from support.lag import Lag
from support.library import Library, StatusError
from support.workers import Worker

PROMPT = [*range(20, 60)]
SILENCE_MS = 1000
COUNT = 12


class Host:
    """A host, and two workers."""

    def __init__(self, folder: Path, secret: Path):
        self.folder, self.secret = folder, secret
        self.islands = islands.build((2, 3))
        self.workers = [
            Worker(folder.parent, secret, listen=f"{island.address}:0", within=island.within)
            for island in self.islands
        ]
        self.lib = Library()
        self.lib.start()
        self.model = 0

    def load(self) -> None:
        """Load the model on all three."""
        self.model = self.lib.load(
            self.folder,
            workers=[worker.address for worker in self.workers],
            secret_path=self.secret,
            silence_timeout_ms=SILENCE_MS,
        )

    def generates(self) -> int:
        """Open a context that generates without an end."""
        context = self.lib.context(self.model)
        self.lib.begin(context, PROMPT, max_tokens=1 << 40)
        self.lib.next(context)
        return context

    def tokens(self) -> list[int]:
        """Generate a few tokens in a new context."""
        context = self.lib.context(self.model)
        self.lib.begin(context, PROMPT, max_tokens=COUNT)
        pieces = self.lib.drain(context)
        self.lib.free(context)
        return [piece.token for piece in pieces][:COUNT]

    def forget(self) -> None:
        """Free the model, and wait until no rank is left."""
        self.lib.free_model(self.model)
        self.wait_until_workers_are_free()

    def wait_until_workers_are_free(self) -> None:
        """Wait until no worker runs a rank."""
        until = monotonic() + 60
        while any(worker.ranks() for worker in self.workers):
            assert monotonic() < until, "a rank outlives its host's connection"

    def part(self) -> None:
        """Put the last worker into another network, where only the first one is, too."""
        first, last = self.islands
        first.join(islands.OTHER)
        last.join(islands.OTHER, leave=islands.NETWORK)
        self.workers[1].end()
        listen = f"{last.address}:0"
        self.workers[1] = Worker(self.folder.parent, self.secret, listen=listen, within=last.within)

    def cut(self) -> None:
        """Let the workers reach this host alone."""
        for island in self.islands:
            island.isolate("on")

    def mend(self) -> None:
        """Let all reach all."""
        for island in self.islands:
            island.isolate("off")
            island.link("up")


def ended(call: Callable[[], Any]) -> dict[str, Any]:
    """What a call that has to fail ends with."""
    began = monotonic()
    try:
        with Lag() as lag:
            call()
    except StatusError as error:
        seconds = monotonic() - began
        return {
            "status": error.status,
            "reason": error.reason,
            "message": error.message,
            "seconds": seconds,
            "lag": lag.seconds,
        }
    return {"status": 0}


def endless(host: Host, context: int) -> Callable[[], None]:
    """Take pieces for ever."""

    def call() -> None:
        while True:
            host.lib.next(context)

    return call


def main() -> None:
    """Say what comes of ways that are cut."""
    folder, secret = sys.argv[1:]
    host = Host(Path(folder), Path(secret))
    try:
        print(json.dumps(cut_all(host)), flush=True)
    finally:
        host.lib.stop()
        for worker in host.workers:
            worker.end()
        for island in host.islands:
            island.close()


def cut_all(host: Host) -> dict[str, Any]:
    """Cut the ways in all places, one after the other."""
    told: dict[str, Any] = {}
    began = monotonic()
    host.load()
    told["load"] = monotonic() - began
    told["tokens"] = host.tokens()
    host.cut()
    host.mend()
    told["mended"] = host.tokens()
    context = host.generates()
    host.cut()
    told["between"] = ended(endless(host, context))
    host.forget()
    told["joining"] = ended(host.load)
    host.mend()
    host.wait_until_workers_are_free()
    host.load()
    context = host.generates()
    host.islands[1].link("down")
    told["down"] = ended(endless(host, context))
    host.mend()
    host.forget()
    host.load()
    told["again"] = host.tokens()
    host.forget()
    host.part()
    told["parted"] = ended(host.load)
    told["apart"] = host.tokens() if told["parted"]["status"] == 0 else None
    return told


if __name__ == "__main__":
    main()
