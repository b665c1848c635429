"""The link to a worker: the delay of a small message, and bytes a second."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from cowmlx.errors import Lost
from cowmlx.machines.dialling import Dialling
from cowmlx.machines.handshake import Place, parse_address
from cowmlx.machines.wire import Connection, Garbage, Gone

ECHO_BYTES = 1 << 20
REACH_SECONDS = 3.0  # limit of a worker for another one
NOBODY = Place(0, 1)  # for measurements, without a rank
_ROUNDS, _PIECES = 50, 16
_WAIT_SECONDS = 0.05
_LARGE = 1e18  # above every size and time
_MAX_PROBLEM = 500  # characters of a worker's text


class Way(NamedTuple):
    """A worker, as another machine sees it."""

    facts: dict[str, int | None]  # of the worker's machine; None: it does not say
    milliseconds: float  # of a message and its answer, the median
    megabytes: float  # a second, there and back
    reached: dict[str, dict[str, Any]]  # links from there to others, or their problems, by address


def free_memory() -> int:
    """Return the bytes that are free on this machine; 0 if that is not known."""
    try:
        if sys.platform.startswith("linux"):
            with open("/proc/meminfo", encoding="ascii") as file:
                fields = dict(line.split(":", 1) for line in file)
            return int(fields["MemAvailable"].split()[0]) << 10
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, KeyError):
        return 0


def measure(
    address: str, numeric: str, secret: bytes, seconds: float, others: Sequence[str] = ()
) -> Way:
    """Measure the link to a worker, and from there to others. Blocks.

    The connection and all answers may take ``seconds``, and each worker's about another one
    ``seconds`` and :data:`REACH_SECONDS`.

    Raises:
        CowMlxError: the worker is not reached; the message names it.
    """
    dialling = Dialling(address, secret, NOBODY, {"measure": True})
    dialling.found_at(numeric, parse_address(address, "address")[1])
    until = time.monotonic() + seconds
    try:
        while dialling.accepted is None:
            dialling.step(time.monotonic())
            if time.monotonic() > until and dialling.accepted is None:
                raise dialling.late(seconds)
            time.sleep(0.001)
        assert dialling.connection is not None
        ask = _Asking(address, dialling.connection, seconds, until)
        began = time.monotonic()
        left = until - began
        round_trips = ask.several(_ROUNDS, b"", began + left / 4)
        pieces = ask.several(_PIECES, bytes(ECHO_BYTES), began + left / 2)
        from statistics import median  # late: bundles have no command that measures

        speed = 2 * ECHO_BYTES / median(pieces) / 1e6
        reached = {other: _link(ask.answer({"reach": other}).get("reached")) for other in others}
        facts = {name: _count(dialling.accepted.get(name)) for name in ("memory", "processors")}
        return Way(facts, median(round_trips) * 1e3, speed, reached)
    finally:
        dialling.close()


def _link(said: object) -> dict[str, Any]:
    """Return the link to another worker as a worker describes it: numbers, or a problem."""
    known = said if isinstance(said, dict) else {}
    problem = known.get("problem", "it does not say")
    numbers = {name: known.get(name) for name in ("milliseconds", "megabytes")}
    if all(_is_number(number) for number in numbers.values()):
        return numbers
    return {"problem": " ".join(str(problem).split())[:_MAX_PROBLEM]}


def _count(said: object) -> int | None:
    return said if isinstance(said, int) and _is_number(said) else None


def _is_number(said: object) -> bool:
    is_numeric = isinstance(said, int | float) and not isinstance(said, bool)
    return is_numeric and 0 <= said < _LARGE  # type: ignore[operator]


class _Asking:
    """Questions to a worker; :meth:`__call__` returns the seconds until the answer."""

    def __init__(self, address: str, connection: Connection, seconds: float, until: float) -> None:
        self._address = address
        self._connection = connection
        self._seconds = seconds
        self._until = until

    def __call__(self, head: dict[str, Any], body: bytes = b"") -> float:
        began = time.perf_counter()
        self.answer(head, body)
        return time.perf_counter() - began

    def several(self, count: int, body: bytes, begun: float) -> list[float]:
        """Return the seconds of up to ``count`` echoes: the first, and others before ``begun``."""
        taken = [self({"echo": 0}, body)]
        while len(taken) < count and time.monotonic() < begun:
            taken.append(self({"echo": 0}, body))
        return taken

    def answer(self, head: dict[str, Any], body: bytes = b"") -> dict[str, Any]:
        """Return the answer to a message.

        Raises:
            Lost: there is none.
        """
        connection = self._connection
        until = self._until
        if "reach" in head:
            until = time.monotonic() + self._seconds + REACH_SECONDS
        try:
            connection.send(head, body)
            while time.monotonic() < until:
                events = select.POLLIN | (select.POLLOUT if connection.waits_to_send else 0)
                poll = select.poll()
                poll.register(connection.fileno(), events)
                poll.poll(_WAIT_SECONDS * 1000)
                connection.flush()
                for head, _ in connection.receive(ECHO_BYTES):
                    return head
        except Gone as error:
            raise self._lost(f"it is gone ({error})") from None
        except Garbage as error:
            raise self._lost(f"it sent {error}") from None
        raise self._lost(f"it has not answered within {self._seconds:g} seconds")

    def _lost(self, why: str) -> Lost:
        return Lost(f"worker {self._address}: {why}", machine=self._address)
