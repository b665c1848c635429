"""How the ranks of a model come to be: started, reached, joined in a ring, and loaded."""

from __future__ import annotations

import secrets
import sys
import time
from collections import deque
from functools import partial
from typing import NamedTuple

from cowmlx.errors import Lost
from cowmlx.failures import kept
from cowmlx.machines import addresses, handshake
from cowmlx.machines.child import Child, python
from cowmlx.machines.dialling import Dialling
from cowmlx.machines.group import Entry, Group, Peer
from cowmlx.machines.handshake import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    Steps = Generator[tuple[float, str] | Callable[[float], object], None, Any]

LOCAL = "local"  # the address of the first rank
# Sessions of this process that are over: a worker whose link was down may not know it yet.
_ended: deque[str] = deque(maxlen=32)
TELL_SECONDS = 0.25  # between reports of progress while nothing goes on: hosts may refuse them
# While ranks start, libraries that are being imported let no other thread of theirs speak.
STARTING_TIMES = 4
# Seconds that ranks have at least: to meet; to join their ring, where mlx tries again after one
# second, and then after two, if a neighbour does not listen yet; between signs of life in a load.
MEET_SECONDS, RING_SECONDS, LOAD_SECONDS = 1.0, 4.0, 2.0


class Workers(NamedTuple):
    """Where the other ranks run, and how long to wait for them.

    Attributes:
        addresses: of workers.
        secret_path: of the file with the secret that they have, too.
        connect_seconds: until all of them are there.
        silence_seconds: without a sign of life, until one is lost.
    """

    addresses: list[str]
    secret_path: str
    connect_seconds: float
    silence_seconds: float


class Opening:
    """Opens a group of ranks, in steps that never block; refused where none could run.

    Args:
        workers: the other machines; none: one rank, here.
        wanted: what every rank is to run: "model", "print", "split", "activations".
        path: the model's folder here.
        threads: that the first rank computes with; 0: as many as there are processors.
    """

    def __init__(
        self, workers: Workers, wanted: dict[str, Any], path: str, threads: int = 0
    ) -> None:
        python(sys.prefix)  # which is wanted late, and missed early
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
        self._shown = 0.0  # when that was told
        self._first: Peer | None = None

    # ------------------------------------------------------------------- Steps

    def steps(self) -> Steps:
        """Yield how far it is, or what waits for news; returns what ranks have told of the model.

        Closed early it ends all that was begun.

        Raises:
            CowMlxError: it cannot be; the message names the machine.
        """
        opened = False
        try:
            yield self._stage
            yield from self._connect()
            yield self._tell(0.0, "shard")
            told = yield from self._load()
            opened = True
            return told
        finally:
            if not opened:
                self.close()

    def close(self) -> None:
        """End all that was begun."""
        self.group.close()
        for dialling in self._diallings:
            dialling.close()

    def wait(self, seconds: float) -> None:
        """Wait for news of ranks, at most so long."""
        if self._first is None:
            time.sleep(seconds)
        else:
            self.group.poll(seconds)

    def _connect(self) -> Steps:
        until = time.monotonic() + self._workers.connect_seconds
        yield from self._find(until)
        while late := [each for each in self._diallings if each.accepted is None]:
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
        yield from self._done(self.group.post({"op": "nothing"}, size=0), until)
        if self._size > 1:
            yield from self._join(until)

    def _start_first(self) -> None:
        """Start the rank of this machine: late, since what a worker refuses needs none."""
        if self._first is None:
            child = Child(self._local)
            self._first = self.group.add(LOCAL, child.connection, child)

    def _find(self, until: float) -> Steps:
        """Find out where workers are: looking a name up blocks, so the first rank does it."""
        where = [addresses.parse(each.address, "workers") for each in self._diallings]
        names = sorted({host for host, _ in where if not addresses.is_numeric(host)})
        found: dict[str, str] = {}
        if names:
            self._start_first()
            self.group.post({"op": "find", "names": names})
            yield from self._until(lambda: "found" in self._told, until)
            found = self._told["found"]
        for dialling, (host, port) in zip(self._diallings, where, strict=True):
            numeric = found.get(host, host) if isinstance(found, dict) else host
            if isinstance(numeric, str) and addresses.is_numeric(numeric):
                dialling.found_at(numeric, port)

    def _join(self, until: float) -> Steps:
        """Let ranks find out that they reach each other, and then join a ring."""
        group = self.group
        group.expect(max(self._silence, MEET_SECONDS))
        listens = group.post({"op": "listen", "address": self._diallings[0].local}, size=0)
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
            yield self._tell(fraction, "shard") if fraction > self._stage[0] else self._pause(now)
        for peer in peers:
            told = entry.answers[peer.rank]
            peer.bytes, peer.layers = _size(told.get("bytes")), _size(told.get("layers"))
            peer.peak = _size(told.get("peak"))
        self.group.is_ready()
        self.group.expect(self._silence)
        return [entry.answers[peer.rank] for peer in peers]

    @property
    def _told(self) -> dict[str, Any]:
        assert self._first is not None
        return self._first.told

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
        """Wait until all ranks have carried an entry out.

        Args:
            entry: of the log.
            until: when one that has not is lost.
            why: it is lost then.
        """
        while late := [peer for peer in self.group.peers if peer.rank not in entry.answers]:
            self._poll()
            now = time.monotonic()
            if now >= until:
                raise self.group.fail(late[0], f"{why} in time")
            yield self._pause(now)

    def _pause(self, now: float) -> tuple[float, str] | Callable[[float], object]:
        """Return what waits for news, or now and then how far it is: a host may refuse that."""
        return self._tell(*self._stage) if now - self._shown >= TELL_SECONDS else self.wait

    def _tell(self, fraction: float, stage: str) -> tuple[float, str]:
        self._stage, self._shown = (fraction, stage), time.monotonic()
        return self._stage


def _places(listens: Entry, name: str) -> dict[str, Any]:
    """Return where ranks listen, for all of them."""
    return {"addresses": [listens.answers[rank].get(name) for rank in sorted(listens.answers)]}


def _size(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value < 1 << 62 else 0
