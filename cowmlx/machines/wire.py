"""Messages between a host, workers and ranks: a JSON object and bytes, of bounded sizes."""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, get_args

from cowmlx import errors, json_text
from cowmlx.generated.reasons import Reason

Message = tuple[dict[str, Any], bytes]

MAX_HEAD = 1 << 16
MAX_TOKENS = 1 << 24  # bytes of a prompt's chunk, or of a step's tokens
_SIZES = struct.Struct("<II")
_PIECE = 1 << 20
MAX_MESSAGES = 64  # of one end in a turn, so that others get theirs
# An end that has gone is an error of the send, and no signal.
_NO_SIGNAL: int = getattr(socket, "MSG_NOSIGNAL", 0)
_SO_NOSIGPIPE = 0x1022  # macOS
_KEEPALIVE = (("TCP_KEEPIDLE", 2), ("TCP_KEEPALIVE", 2), ("TCP_KEEPINTVL", 1), ("TCP_KEEPCNT", 3))


class Gone(Exception):
    """The other end has closed, or the connection broke; the text says which."""


class Garbage(Exception):
    """Bytes that are no message, or a message above the limits; the text says which."""


def encoded(head: dict[str, Any], body: bytes = b"") -> bytes:
    """Return the bytes of a message."""
    text = json.dumps(head, separators=(",", ":")).encode()
    return _SIZES.pack(len(text), len(body)) + text + body


def tune(sock: socket.socket) -> None:
    """Send small messages at once, raise no signals, and notice a machine that is gone."""
    if sys.platform == "darwin":
        sock.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)
    if sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _sizes(data: bytes | bytearray, most: int) -> tuple[int, int]:
    """Return the sizes at the beginning of a message, or raise Garbage."""
    head, body = _SIZES.unpack_from(data)
    if head > MAX_HEAD or body > most:
        raise Garbage(f"a message of {head} and {body} bytes; at most {MAX_HEAD} and {most} can be")
    return head, body


def _head(text: bytes) -> dict[str, Any]:
    try:
        head = json_text.parse(text)
    except json_text.Malformed as error:
        raise Garbage(f"a message that is no JSON ({error})") from None
    if not isinstance(head, dict):
        raise Garbage("a message that is no object")
    return head


class Connection:
    """One end, which never blocks: it keeps unsent bytes, and incomplete messages."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        tune(sock)
        self._sock = sock
        self._owner = os.getpid()
        self._in = bytearray()
        self._out = bytearray()
        self._ended = ""  # why nothing more can be received

    def fileno(self) -> int:
        """Return the descriptor; -1 once closed."""
        return self._sock.fileno()

    @property
    def waits_to_send(self) -> bool:
        """Whether unsent bytes are left."""
        return bool(self._out)

    def send(self, head: dict[str, Any], body: bytes = b"") -> None:
        """Send a message, now or with a later :meth:`flush`.

        Raises:
            Gone: the other end is.
        """
        self._out += encoded(head, body)
        self.flush()

    def flush(self) -> None:
        """Send waiting bytes, as far as the socket takes them.

        Raises:
            Gone: the other end is.
        """
        while self._out:
            try:
                sent = self._sock.send(self._out, _NO_SIGNAL)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise Gone(error.strerror or str(error)) from None
            del self._out[:sent]

    def receive(self, most: int = 0, count: int = MAX_MESSAGES) -> list[Message]:
        """Return the first ``count`` received messages; a body has at most ``most`` bytes.

        Raises:
            Gone: the other end is, and no message of it is left.
            Garbage: it sent no message.
        """
        self._read(_SIZES.size + MAX_HEAD + most)
        messages: list[Message] = []
        while len(messages) < count and (message := self._take(most)) is not None:
            messages.append(message)
        if self._ended and not messages:
            raise Gone(self._ended)
        return messages

    def _read(self, enough: int) -> None:
        while not self._ended and len(self._in) <= enough:
            try:
                piece = self._sock.recv(_PIECE)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._ended = error.strerror or str(error)
                return
            if not piece:
                self._ended = "it has closed the connection"
            self._in += piece

    def _take(self, most: int) -> Message | None:
        if len(self._in) < _SIZES.size:
            return None
        head, body = _sizes(self._in, most)
        end = _SIZES.size + head
        if len(self._in) < end + body:
            return None
        message = _head(bytes(self._in[_SIZES.size : end])), bytes(self._in[end : end + body])
        del self._in[: end + body]
        return message

    def detach(self) -> socket.socket:
        """Return the socket, which belongs to the caller now."""
        return self._sock

    def close(self) -> None:
        """Close, also for children that have it from this process; in these for them alone."""
        if os.getpid() == self._owner:
            with suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()


def read(sock: socket.socket, most: int) -> Message:
    """Wait for a message on a socket that blocks.

    Raises:
        Gone: the other end is.
        Garbage: it sent no message.
    """
    head, body = _sizes(_exactly(sock, _SIZES.size), most)
    return _head(_exactly(sock, head)), _exactly(sock, body)


def write(sock: socket.socket, head: dict[str, Any], body: bytes = b"") -> None:
    """Send a message on a socket that blocks.

    Raises:
        Gone: the other end is.
    """
    try:
        sock.sendall(encoded(head, body), _NO_SIGNAL)
    except OSError as error:
        raise Gone(error.strerror or str(error)) from None


def _exactly(sock: socket.socket, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        try:
            piece = sock.recv(min(count - len(parts), _PIECE))
        except OSError as error:
            raise Gone(error.strerror or str(error)) from None
        if not piece:
            raise Gone("it has closed the connection")
        parts += piece
    return bytes(parts)


MAX_TEXT = 1000
_KINDS: dict[str, type[errors.CowMlxError]] = {
    kind.__name__: kind
    for kind in (
        errors.InvalidArgument,
        errors.NotFound,
        errors.BadFormat,
        errors.Unsupported,
        errors.OutOfMemory,
        errors.InputOutput,
        errors.BadState,
        errors.Lost,
    )
}
_REASONS = frozenset(get_args(Reason))


def failure(error: BaseException) -> dict[str, Any]:
    """Return an error as the JSON object that is sent."""
    kind = next((name for name, kind in _KINDS.items() if isinstance(error, kind)), "")
    text = str(error) if kind else f"{type(error).__name__}: {error}"
    return {"kind": kind, "reason": getattr(error, "reason", ""), "message": text[:MAX_TEXT]}


def error_of(failure: object, address: str, rank: int) -> errors.CowMlxError:
    """Return the error of a received failure, which may be any JSON value."""
    fields = failure if isinstance(failure, dict) else {}
    message = printable(fields.get("message")) or "it does not say why"
    kind = _KINDS.get(str(fields.get("kind")), errors.Lost)
    given: Any = fields.get("reason")
    reason: Any = given if isinstance(given, str) and given in _REASONS else None
    if kind is errors.Lost and reason is None:
        reason = "machine_lost"
    place = {"machine": address, "rank": rank} if reason == "machine_lost" else {}
    return kind(f"rank {rank} ({address}): {message}", reason=reason, **place)


def printable(text: object) -> str:
    """Return the printable characters of a text of another machine; others become spaces."""
    if not isinstance(text, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in text[:MAX_TEXT])
