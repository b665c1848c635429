"""The start of a model's ranks: connect, join a ring, load."""

from __future__ import annotations

import secrets
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from functools import partial
from typing import Any, NamedTuple

from cowmlx.errors import Lost
from cowmlx.failures import kept
from cowmlx.machines import handshake
from cowmlx.machines.child import Child, python
from cowmlx.machines.dialling import Dialling
from cowmlx.machines.group import Entry, Group, Peer
from cowmlx.machines.handshake import Place

Steps = Generator[tuple[float, str] | Callable[[float], object], None, Any]

LOCAL = "local"  # the address of the first rank
# Ended sessions of this process: a worker whose link was down may not know it yet.
_ended: deque[str] = deque(maxlen=32)
REPORT_SECONDS = 0.25  # between reports of unchanged progress: hosts may cancel in one
# While ranks start, imports of libraries keep their other threads silent.
STARTING_TIMES = 4
# Least limits of ranks: to meet; to join their ring, where mlx tries again after one second, and
# then after two, if a neighbour does not listen yet; between signs of life in a load.
MEET_SECONDS, RING_SECONDS, LOAD_SECONDS = 1.0, 4.0, 2.0
START_SECONDS = 60.0  # that ranks have at least to start mlx, once all workers are connected


class Workers(NamedTuple):
    """The machines of the other ranks, and time limits."""

    addresses: list[str]  # of workers
    secret_path: str  # of the file with the secret
    connect_seconds: float  # until all of them are connected
    silence_seconds: float  # without a sign of life, until one is lost


class Opening:
    """Opens a group of ranks, in steps that never block.

    Args:
        workers: the other machines; none: one rank, here.
        wanted: the request to every rank: "model", "print", "split", "activations".
        path: the model's folder here.
        threads: of the first rank; 0: as many as there are processors.

    Raises:
        CowMlxError: no rank could run here, or the secret is missing or bad.
    """

    def __init__(
        self, workers: Workers, wanted: dict[str, Any], path: str, threads: int = 0
    ) -> None:
        python(sys.prefix)  # raises now, though it is used late
        self._workers = workers
        self._size = len(workers.addresses) + 1
        self._session = secrets.token_hex(8)
        self._wanted = {**wanted, "session": self._session, "size": self._size}
        self._wanted["ended"] = [*_ended]
        given = workers.addresses
        secret = handshake.read_secret(workers.secret_path) if given else handshake.random_key()
        self._key = handshake.ring_key(secret, self._session)
        self._diallings = [
            Dialling(address, secret, Place(rank, self._size), {**self._wanted, "rank": rank})
            for rank, address in enumerate(given, 1)
        ]
        self._local = {**self._wanted, "rank": 0, "path": path, "key": self._key}
        self._local["threads"] = threads
        self._silence = workers.silence_seconds
        self.group = Group(STARTING_TIMES * self._silence, partial(_ended.append, self._session))
        self._stage = 0.0, "connect"
        self._shown = 0.0  # when it was reported
        self._first: Peer | None = None

    # ------------------------------------------------------------------- Steps

    def steps(self) -> Steps:
        """Yield the progress, or a function that waits; returns the ranks' facts of the model.

        Where it is closed or fails, all ranks end.

        Raises:
            CowMlxError: it failed; the message names the machine.
        """
        opened = False
        try:
            yield self._stage
            yield from self._connect()
            yield self._report(0.0, "shard")
            facts = yield from self._load()
            opened = True
            return facts
        except Lost:
            if self.group.failure is None:
                raise
            raise kept(self.group.failure) from None
        finally:
            if not opened:
                self.close()

    def close(self) -> None:
        """End all ranks and connections."""
        self.group.close()
        for dialling in self._diallings:
            dialling.close()

    def wait(self, seconds: float) -> None:
        """Wait for a message of a rank."""
        if self._first is None:
            time.sleep(seconds)
        else:
            self.group.poll(seconds)

    def _connect(self) -> Steps:
        until = time.monotonic() + self._workers.connect_seconds
        yield from self._find(until)
        while late := [dialled for dialled in self._diallings if dialled.accepted is None]:
            now = time.monotonic()
            for dialling in late:
                dialling.step(now)
                if now >= until and dialling.accepted is None:
                    raise dialling.late(self._workers.connect_seconds)
            self._poll()
            yield self._pause(now)
        self._start_first()
        for dialling in self._diallings:
            assert dialling.connection is not None
            self.group.add(dialling.address, dialling.connection)
        until = max(until, time.monotonic() + START_SECONDS)
        yield from self._done(self.group.post({"op": "nothing"}, size=0), until)
        if self._size > 1:
            yield from self._join(until)

    def _start_first(self) -> None:
        """Start the rank of this machine, once no worker can refuse."""
        if self._first is None:
            child = Child(self._local)
            self._first = self.group.add(LOCAL, child.connection, child)

    def _find(self, until: float) -> Steps:
        """Find the workers' addresses: looking a name up blocks, so the first rank does it."""
        where = [handshake.parse_address(dialled.address, "workers") for dialled in self._diallings]
        names = sorted({host for host, _ in where if not handshake.is_numeric(host)})
        addresses: dict[str, str] = {}
        if names:
            self._start_first()
            self.group.post({"op": "find", "names": names})
            yield from self._until(lambda: "found" in self._facts, until)
            addresses = self._facts["found"]
        for dialling, (host, port) in zip(self._diallings, where, strict=True):
            numeric = addresses.get(host, host) if isinstance(addresses, dict) else host
            if isinstance(numeric, str) and handshake.is_numeric(numeric):
                dialling.found_at(numeric, port)

    def _join(self, until: float) -> Steps:
        """Let ranks check that they reach each other, and join a ring."""
        group = self.group
        group.expect(max(self._silence, MEET_SECONDS))
        # The last rank is the one that connects to the first.
        listens = group.post({"op": "listen", "address": self._diallings[-1].local}, size=0)
        yield from self._done(listens, until)
        seconds = max(self._silence, MEET_SECONDS)
        meets = group.post({"op": "meet", "seconds": seconds, **_places(listens, "watch")}, size=0)
        yield from self._done(meets, until + seconds)
        # While mlx waits for neighbours it keeps the interpreter: all of a rank is silent.
        seconds = max(self._silence, RING_SECONDS)
        group.expect(2 * seconds)
        joins = group.post({"op": "ring", **_places(listens, "ring")}, size=0)
        yield from self._done(joins, time.monotonic() + seconds, "it has not joined the ring")

    def _load(self) -> Steps:
        self.group.expect(max(self._silence, LOAD_SECONDS))
        entry = self.group.post({"op": "load"}, size=0)
        peers = self.group.peers
        while len(entry.answers) < len(peers):
            self._poll()
            fraction, now = min(peer.fraction for peer in peers), time.monotonic()
            yield self._report(fraction, "shard") if fraction > self._stage[0] else self._pause(now)
        for peer in peers:
            facts = entry.answers[peer.rank]
            peer.bytes, peer.layers = _size(facts.get("bytes")), _size(facts.get("layers"))
            peer.peak = _size(facts.get("peak"))
        self.group.is_ready()
        self.group.expect(self._silence)
        return [entry.answers[peer.rank] for peer in peers]

    @property
    def _facts(self) -> dict[str, Any]:
        assert self._first is not None
        return self._first.facts

    # ----------------------------------------------------------------- Waiting

    def _poll(self) -> None:
        """Hear ranks.

        Raises:
            CowMlxError: one has failed, or is lost.
        """
        self.group.poll()
        lost = self.group.lost
        if lost is not None:
            said = self.group.failure
            raise lost if said is None else kept(said)

    def _until(self, there: Callable[[], bool], until: float) -> Steps:
        while not there():
            self._poll()
            if time.monotonic() >= until:
                seconds = self._workers.connect_seconds
                raise Lost(
                    f"the ranks were not ready within {seconds:g} seconds", reason="unreachable"
                )
            yield self._pause(time.monotonic())

    def _done(self, entry: Entry, until: float, why: str = "it is not ready") -> Steps:
        """Wait until all ranks have carried an entry out."""
        while late := [peer for peer in self.group.peers if peer.rank not in entry.answers]:
            self._poll()
            now = time.monotonic()
            if now >= until:
                raise self.group.fail(late[0], f"{why} in time")
            yield self._pause(now)

    def _pause(self, now: float) -> tuple[float, str] | Callable[[float], object]:
        """Return a function that waits, or now and then the progress: a host may cancel there."""
        return self._report(*self._stage) if now - self._shown >= REPORT_SECONDS else self.wait

    def _report(self, fraction: float, stage: str) -> tuple[float, str]:
        self._stage, self._shown = (fraction, stage), time.monotonic()
        return self._stage


def _places(listens: Entry, name: str) -> dict[str, Any]:
    """Return the addresses of all ranks."""
    return {"addresses": [listens.answers[rank].get(name) for rank in sorted(listens.answers)]}


def _size(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
