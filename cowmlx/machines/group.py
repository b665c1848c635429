"""The ranks of one model, and their log, which all carry out in the same order."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

from cowmlx.errors import Lost
from cowmlx.machines import wire
from cowmlx.machines.child import Child
from cowmlx.machines.wire import Connection, Garbage, Gone, Message

PINGS = 4  # in the time limit for silence
PING_SECONDS = 0.25  # at most, between them
MAX_DROPPED = 1000  # sequences in one entry, whose size is bounded


@dataclass
class Entry:
    """An operation of all ranks."""

    number: int  # in the log
    size: int  # bytes of the first rank's answer
    body: bytes = b""  # of that answer
    answers: dict[int, dict[str, Any]] = field(default_factory=dict)  # by rank


@dataclass
class Peer:
    """A rank, in the host."""

    rank: int
    address: str
    connection: Connection
    done: int = 0  # the last entry that it has carried out
    silent: float = 0.0  # seconds without a message while the host listened
    fraction: float = 0.0  # of its load
    bytes: int = 0  # of its part of the model
    layers: int = 0
    peak: int = 0  # most bytes of mlx while it loaded
    facts: dict[str, Any] = field(default_factory=dict)  # from messages outside of the log
    state: str = "loading"  # then "ready", "lost" or "ended"
    error: str | None = None  # why it is lost

    def info(self) -> dict[str, Any]:
        """Return the fields of ``model_info``."""
        names = ("rank", "address", "bytes", "layers", "state", "error")
        return {name: getattr(self, name) for name in names}


class Group:
    """Sends entries, hears answers, and ends all ranks when one is lost. Never blocks.

    A rank is lost after ``silence`` seconds without a sign of life.
    """

    def __init__(self, silence: float, on_end: Callable[[], object]) -> None:
        self.peers: list[Peer] = []
        self._owner = os.getpid()
        self._why: tuple[str, dict[str, Any]] | None = None  # it has ended
        self.failure: BaseException | None = None  # reported by a rank
        self._silence = silence
        self._on_end = on_end
        self._has_ended = False
        self._child: Child | None = None
        self._number = 0
        self._open: dict[int, Entry] = {}  # entries that some rank has not carried out
        self._dropped: list[int] = []
        self._looked = self._pinged = time.monotonic()
        self._ping_number = 0
        self._anew = 0  # the first ping whose answer is about neighbours of now
        self._poll = select.poll()

    @property
    def lost(self) -> Lost | None:
        """Why the group has ended, or None.

        A new error each time: a raised one refers to frames, and they to the group.
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
            body: its bytes.
            size: bytes of the first rank's answer; None: no rank answers.

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
                raise self._gone(peer, error) from None
        return entry

    def drop(self, sequence: int) -> None:
        """Drop a freed sequence with the next entry."""
        self._dropped.append(sequence)

    def rest(self) -> None:
        """Drop freed sequences and unused buffers now; does nothing for lost ranks."""
        with suppress(Lost):
            self.post({"op": "rest"})
            while self._dropped:
                self.post({"op": "rest"})

    # ------------------------------------------------------------------ Hearing

    def _begin_to_listen(self) -> None:
        self._looked = time.monotonic()
        self._anew = self._ping_number + 1
        for peer in self.peers:
            peer.silent = 0.0

    def poll(self, seconds: float = 0.0) -> None:
        """Take messages of ranks, after a wait of so many seconds; sets :attr:`lost`."""
        if self._why is not None:
            return
        with suppress(InterruptedError):
            self._poll.poll(seconds * 1000)
        now = time.monotonic()
        # The host did not listen while other work had the thread: that is no silence.
        passed = min(now - self._looked, self._silence / PINGS)
        self._looked = now
        for peer in self.peers:
            try:
                self._hear(peer, passed)
            except (Gone, Garbage, Lost) as error:
                if isinstance(error, Gone):
                    self._gone(peer, error)
                elif self._why is None:
                    self.fail(peer, f"it sent garbage ({error})")
                return
        if self.waits and now - self._pinged >= min(self._silence / PINGS, PING_SECONDS):
            self._ping(now)

    def _hear(self, peer: Peer, passed: float) -> None:
        peer.connection.flush()
        messages = self._received(peer)
        peer.silent = 0.0 if messages or not self._open else peer.silent + passed
        if peer.silent > self._silence:
            raise self.fail(peer, f"nothing was heard of it for {self._silence:g} seconds")
        for head, body in messages:
            self._take(peer, head, body)

    def _received(self, peer: Peer) -> list[Message]:
        sizes = [entry.size for entry in self._open.values()] if peer.rank == 0 else []
        return peer.connection.receive(max(sizes, default=0))

    def _gone(self, peer: Peer, error: Gone) -> Lost:
        """End all ranks, since one has gone: a reason that it has sent is in its last messages."""
        with suppress(Gone, Garbage, Lost):
            for head, body in self._received(peer):
                self._take(peer, head, body)
        return self.fail(peer, f"it is gone ({error})")

    def _take(self, peer: Peer, head: dict[str, Any], body: bytes) -> None:
        failed = head.get("failed") or head.get("refused")  # by a worker that cannot start it
        if failed:
            self.failure = wire.error_of(failed, peer.address, peer.rank)
            raise self.fail(peer, wire.printable(str(self.failure)))
        if "done" in head:
            self._finish(peer, head, body)
        elif "fraction" in head:
            peer.fraction = _number(head["fraction"], 1.0)
        elif "pong" in head:
            self._compare(peer, head)
        elif "gone" in head:
            self._accuse(peer, head["gone"])
        elif "found" in head:
            peer.facts["found"] = head["found"]
        else:
            raise Garbage("an unknown message")

    def _accuse(self, peer: Peer, rank: object) -> None:
        """End all ranks, since a neighbour of one is gone."""
        if not (isinstance(rank, int) and 0 <= rank < len(self.peers)):
            raise Garbage("a lost rank that does not exist")
        why = f"rank {peer.rank} ({peer.address}) has lost its connection with it"
        raise self.fail(self.peers[rank], why)

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
            raise Garbage("an answer without a question")
        if len(body) != (entry.size if first else 0):
            raise Garbage(f"an answer of {len(body)} bytes")
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
                self._gone(peer, error)
                return

    # --------------------------------------------------------------- The end

    def fail(self, peer: Peer, why: str) -> Lost:
        """End all ranks, since one is lost; returns the error of calls."""
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
        if not self._has_ended:
            self._has_ended = True
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
