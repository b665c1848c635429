"""Reaching one worker: the connection, the proofs of both ends, and the request."""

from __future__ import annotations

import errno
import os
import select
import socket
from typing import Any

from cowmlx.errors import BadState, CowMlxError, InvalidArgument, Lost, Unsupported
from cowmlx.machines import handshake, wire
from cowmlx.machines.handshake import Place
from cowmlx.machines.wire import Connection, Garbage, Gone

AGAIN_SECONDS = 0.2  # between tries: a worker may start later than its host
# Of a try without any answer: the system's own repetitions come later and later.
TRY_SECONDS = 5.0
_UNDER_WAY = (0, errno.EINPROGRESS, errno.EALREADY, errno.EINTR)
_LATE = (errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ENETUNREACH)


class Dialling:
    """Becomes a connection to a worker that has accepted a request. Never blocks."""

    def __init__(self, address: str, secret: bytes, place: Place, wanted: dict[str, Any]) -> None:
        self.address = address
        self.connection: Connection | None = None  # with the worker, or None
        self.accepted: dict[str, Any] | None = None  # its answer to the request, or None
        self.greeting: dict[str, Any] | None = None  # its proof and versions, or None
        self._where: tuple[str, int] | None = None
        self._secret = secret
        self._place = place
        self._wanted = wanted
        self._host, self._worker = handshake.nonce(), ""
        self._sock: socket.socket | None = None
        self._again = self._dialled = 0.0
        self._why = "nothing has answered yet"

    def found_at(self, host: str, port: int) -> None:
        """Set the worker's address."""
        self._where = host, port

    @property
    def local(self) -> str:
        """The address of this machine that the worker sees."""
        assert self._sock is not None
        return str(self._sock.getsockname()[0])

    def step(self, now: float) -> None:
        """Advance as far as possible now.

        Raises:
            CowMlxError: it failed; the message names the worker.
        """
        if self.accepted is not None or self._where is None:
            return
        try:
            if self._sock is None and now >= self._again:
                self._dial(now)
            if self._sock is not None and self.connection is None:
                self._see_whether_connected(now)
            if self.connection is not None:
                self._talk(now)
        except Garbage as error:
            raise self._error(
                Lost, f"it is no worker: it sent {error}", reason="unreachable"
            ) from None

    def _dial(self, now: float) -> None:
        self._dialled = now
        self._sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._sock.setblocking(False)
        number = self._sock.connect_ex(self._where)  # type: ignore[arg-type]
        if number not in _UNDER_WAY:
            self._refused(number, now)

    def _see_whether_connected(self, now: float) -> None:
        assert self._sock is not None
        poll = select.poll()
        poll.register(self._sock, select.POLLOUT)
        if not poll.poll(0):
            if now - self._dialled >= TRY_SECONDS:
                self._hang_up(self._why, now)
            return
        number = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            self._refused(number, now)
        else:
            self.connection = Connection(self._sock)

    def _refused(self, number: int, now: float) -> None:
        self._hang_up(os.strerror(number), now)
        if number not in (*_LATE, errno.ETIMEDOUT):
            raise self._error(Lost, os.strerror(number), reason="unreachable")

    def _hang_up(self, why: str, now: float) -> None:
        assert self._sock is not None
        self._sock.close()
        self._sock = self.connection = None
        self._why, self._again = why, now + AGAIN_SECONDS

    def _talk(self, now: float) -> None:
        assert self.connection is not None
        try:
            self.connection.flush()
            # Messages behind the acceptance come from the rank: the group reads them.
            while self.accepted is None and (messages := self.connection.receive(count=1)):
                self._hear(messages[0][0])
        except Gone as error:
            if self.greeting is not None:
                raise self._error(Lost, f"it is gone ({error})", reason="unreachable") from None
            self._worker = ""
            self._hang_up(str(error), now)

    def _hear(self, head: dict[str, Any]) -> None:
        assert self.connection is not None
        if "refused" in head:
            raise self._refusal(head["refused"])
        if not self._worker:
            if head.get("cowmlx") != handshake.PROTOCOL or not handshake.is_nonce(
                head.get("nonce")
            ):
                raise Garbage("no greeting of this version")
            self._worker = head["nonce"]
            proof = handshake.proof(self._secret, "host", self._host, self._worker, self._place)
            asked = {"nonce": self._host, "rank": self._place.rank, "size": self._place.size}
            self.connection.send({**asked, "proof": proof})
        elif self.greeting is None:
            expected = handshake.proof(
                self._secret, "worker", self._host, self._worker, self._place
            )
            if not handshake.is_proof(head.get("proof"), expected):
                raise self._wrong_secret()
            odd = handshake.difference(handshake.versions(), head.get("versions"))
            if odd:
                why = f"its versions are other ones: {odd}"
                raise self._error(Unsupported, why, reason="version_mismatch")
            self.greeting = head
            self.connection.send(self._wanted)
        else:
            self.accepted = head

    def _refusal(self, failure: object) -> CowMlxError:
        reason = failure.get("reason") if isinstance(failure, dict) else None
        if reason == "wrong_secret":
            return self._wrong_secret()
        if reason == "machine_busy":
            return self._error(BadState, "it runs another model", reason="machine_busy")
        return wire.error_of(failure, self.address, self._place.rank)

    def _wrong_secret(self) -> CowMlxError:
        return self._error(InvalidArgument, "its secret is another one", reason="wrong_secret")

    def late(self, seconds: float) -> CowMlxError:
        """Return the error of an expired time limit."""
        if self._where is None:
            self._why = "its name was not found"
        why = f"no worker was there within {seconds:g} seconds: {self._why}"
        return self._error(Lost, why, reason="unreachable")

    def _error(self, kind: type[CowMlxError], why: str, reason: Any) -> CowMlxError:
        message = f"worker {self.address}: {why}"
        return kind(message, reason=reason, machine=self.address)

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            self.connection.close()
        elif self._sock is not None:
            self._sock.close()
