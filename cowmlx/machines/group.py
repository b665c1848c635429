"""The ranks of one model, and the log that all of them carry out in the same order."""

from __future__ import annotations

import os
import select
import time
from contextlib import suppress
from math import inf

from cowmlx.errors import Lost
from cowmlx.machines import failures
from cowmlx.machines.wire import Connection, Garbage, Gone

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.machines.child import Child

PINGS = 4  # in the time after which silence means that a rank is lost
PING_SECONDS = 0.25  # at most, between them
MAX_DROPPED = 1000  # sequences that one entry tells of: what it says is of a bounded size


class Entry:
    """Something that all ranks are to do.

    Attributes:
        number: its place in the log.
        size: bytes that the first rank answers with.
        body: these, once it has.
        answers: what ranks have said, by rank.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number = number
        self.size = size
        self.body = b""
        self.answers: dict[int, dict[str, Any]] = {}


class Peer:
    """A rank, as the host knows it.

    Attributes:
        done: the last entry that it has carried out.
        silent: seconds for which it has not been heard while it was listened to.
        bytes, layers: that it holds.
        peak: bytes that mlx had at most while it loaded.
        state: "loading", "ready" or "lost".
        error: why it is lost, or None.
    """

    def __init__(self, rank: int, address: str, connection: Connection) -> None:
        self.rank = rank
        self.address = address
        self.connection = connection
        self.done = 0
        self.silent = 0.0
        self.fraction = 0.0
        self.bytes = 0
        self.layers = 0
        self.peak = 0
        self.told: dict[str, Any] = {}  # what it said outside of the log
        self.state = "loading"
        self.error: str | None = None

    def info(self) -> dict[str, Any]:
        """Return what ``model_info`` tells."""
        return {
            "rank": self.rank,
            "address": self.address,
            "bytes": self.bytes,
            "layers": self.layers,
            "state": self.state,
            "error": self.error,
        }


class Group:
    """Sends entries, hears answers, and ends all ranks when one is lost. Never blocks.

    Args:
        silence: seconds without a sign of life after which a rank is lost.
        on_end: told of the end.

    Attributes:
        peers: by rank.
    """

    def __init__(self, silence: float, on_end: Callable[[], object]) -> None:
        self.peers: list[Peer] = []
        self._owner = os.getpid()
        self._why: tuple[str, dict[str, Any]] | None = None  # it has ended
        self.failure: BaseException | None = None  # what a rank said itself
        self._silence = silence
        self._on_end = on_end
        self._child: Child | None = None
        self._number = 0
        self._open: dict[int, Entry] = {}  # entries that some rank has not carried out
        self._dropped: list[int] = []
        self._looked = self._pinged = time.monotonic()
        self._ping_number = 0
        self._anew = 0  # the first ping whose answer says something of neighbours
        self._poll = select.poll()

    @property
    def lost(self) -> Lost | None:
        """Why the group has ended, or None.

        Made anew each time: one that was raised refers to whoever met it, and they to the group.
        """
        return None if self._why is None else Lost(self._why[0], **self._why[1])

    def expect(self, silence: float) -> None:
        """Take a rank for lost after so many seconds without a sign of life, from now on."""
        self._silence = silence
        self._begin_to_listen()

    def is_ready(self) -> None:
        """Note that all ranks have loaded."""
        for peer in self.peers:
            peer.state = "ready"

    def add(self, address: str, connection: Connection, child: Child | None = None) -> Peer:
        """Take in the next rank; ``child`` if it is a process of this machine."""
        peer = Peer(len(self.peers), address, connection)
        self.peers.append(peer)
        self._poll.register(connection.fileno(), select.POLLIN)
        self._child = self._child or child
        return peer

    # ------------------------------------------------------------------ The log

    @property
    def waits(self) -> bool:
        """Whether a rank has something left to do."""
        return bool(self._open) and self._why is None

    def post(self, head: dict[str, Any], body: bytes = b"", size: int | None = None) -> Entry:
        """Append an entry to the log.

        Args:
            head: "op" and its arguments.
            body: that goes with it.
            size: bytes that the first rank answers with; None: nobody answers.

        Raises:
            Lost: the group has ended, now or before.
        """
        lost = self.lost
        if lost is not None:
            raise lost
        self._number += 1
        head = {**head, "number": self._number}
        if self._dropped:
            head["drop"] = self._dropped[:MAX_DROPPED]
            del self._dropped[:MAX_DROPPED]
        entry = Entry(self._number, size or 0)
        if size is not None:
            if not self._open:
                self._begin_to_listen()
            self._open[entry.number] = entry
        for peer in self.peers:
            try:
                peer.connection.send(head, body)
            except Gone as error:
                raise self.fail(peer, f"it is gone ({error})") from None
        return entry

    def drop(self, sequence: int) -> None:
        """Let ranks forget a sequence, with the next entry: called whenever one is freed."""
        self._dropped.append(sequence)

    # ------------------------------------------------------------------ Hearing

    def _begin_to_listen(self) -> None:
        self._looked = time.monotonic()
        self._anew = self._ping_number + 1
        for peer in self.peers:
            peer.silent = 0.0

    def poll(self, seconds: float = 0.0) -> None:
        """Take what ranks have said; :attr:`lost` tells if one is gone.

        Args:
            seconds: to wait at most if nothing is there.
        """
        if self._why is not None:
            return
        with suppress(InterruptedError):
            self._poll.poll(seconds * 1000)
        now = time.monotonic()
        # While others had the thread nobody listened; that is no silence of theirs.
        passed = min(now - self._looked, self._silence / PINGS)
        self._looked = now
        for peer in self.peers:
            try:
                self._hear(peer, passed)
            except (Gone, Garbage, Lost) as error:
                if self._why is None:
                    why = "it is gone" if isinstance(error, Gone) else "it sent garbage"
                    self.fail(peer, f"{why} ({error})")
                return
        if self.waits and now - self._pinged >= min(self._silence / PINGS, PING_SECONDS):
            self._ping(now)

    def _hear(self, peer: Peer, passed: float) -> None:
        peer.connection.flush()
        first = peer.rank == 0
        most = max((entry.size for entry in self._open.values()), default=0) if first else 0
        messages = peer.connection.receive(most)
        peer.silent = 0.0 if messages or not self._open else peer.silent + passed
        if peer.silent > self._silence:
            raise self.fail(peer, f"nothing was heard of it for {self._silence:g} seconds")
        for head, body in messages:
            self._take(peer, head, body)

    def _take(self, peer: Peer, head: dict[str, Any], body: bytes) -> None:
        failed = head.get("failed") or head.get("refused")  # by a worker that cannot start it
        if failed:
            self.failure = failures.understood(failed, peer.address, peer.rank)
            raise self.fail(peer, failures.printable(str(self.failure)))
        if "done" in head:
            self._finish(peer, head, body)
        elif "fraction" in head:
            peer.fraction = _number(head["fraction"], 1.0)
        elif "pong" in head:
            self._compare(peer, head)
        elif "gone" in head:
            self._accuse(peer, head["gone"])
        elif "found" in head:
            peer.told["found"] = head["found"]
        else:
            raise Garbage("what no rank says")

    def _accuse(self, peer: Peer, rank: object) -> None:
        """End all ranks, since a neighbour of one is gone."""
        if not (isinstance(rank, int) and 0 <= rank < len(self.peers)):
            raise Garbage("it misses a rank that is none")
        told = f"rank {peer.rank} ({peer.address}) has lost its connection with it"
        raise self.fail(self.peers[rank], told)

    def _compare(self, peer: Peer, pong: dict[str, Any]) -> None:
        """End all ranks if two neighbours cannot reach each other, though both are there."""
        number, silent = pong["pong"], pong.get("silent")
        if not (isinstance(number, int) and number >= self._anew and isinstance(silent, dict)):
            return
        for other in self.peers:
            if self._open and _number(silent.get(str(other.rank)), inf) > self._silence:
                seconds = f"{self._silence:g} seconds"
                raise self.fail(
                    other, f"rank {peer.rank} ({peer.address}) has not reached it for {seconds}"
                )

    def _finish(self, peer: Peer, head: dict[str, Any], body: bytes) -> None:
        entry = self._open.get(head["done"]) if isinstance(head["done"], int) else None
        first = peer.rank == 0
        if entry is None or peer.rank in entry.answers or entry.number <= peer.done:
            raise Garbage("it answers what it was not asked")
        if len(body) != (entry.size if first else 0):
            raise Garbage(f"it answers with {len(body)} bytes")
        peer.done = entry.number
        entry.answers[peer.rank] = head
        if first:
            entry.body = body
        if len(entry.answers) == len(self.peers):
            del self._open[entry.number]

    def _ping(self, now: float) -> None:
        self._pinged = now
        self._ping_number += 1
        ping: dict[str, Any] = {"ping": self._ping_number}
        if self._ping_number == self._anew:
            ping["anew"] = True
        for peer in self.peers:
            try:
                peer.connection.send(ping)
            except Gone as error:
                self.fail(peer, f"it is gone ({error})")
                return

    # --------------------------------------------------------------- The end

    def fail(self, peer: Peer, why: str) -> Lost:
        """End all ranks, since one is lost; returns what calls end with."""
        if self._why is None:
            peer.state, peer.error = "lost", why
            place = f"rank {peer.rank} of {len(self.peers)} ({peer.address})"
            details = {"machine": peer.address, "rank": peer.rank}
            self._why = f"{place} is lost: {why}; load the model again", details
            self.close()
        return Lost(self._why[0], **self._why[1])

    def close(self) -> None:
        """End all ranks; nothing if they have ended, or in a child that the host has forked."""
        if os.getpid() != self._owner:
            return
        self._on_end()
        if self._why is None:
            self._why = "the model was freed", {}
        for peer in self.peers:
            peer.connection.close()
            if peer.state != "lost":
                peer.state = "ended"
        if self._child is not None:
            self._child.end()
        self._open.clear()


def _number(value: object, most: float) -> float:
    good = isinstance(value, int | float) and 0 <= value <= most
    return float(value) if good else 0.0  # type: ignore[arg-type]
