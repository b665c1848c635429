"""Addresses of workers, and proofs of both ends that they know a secret, which neither sends.

The worker speaks first. A proof holds for one connection alone, since it depends on random numbers
of both ends, and on the rank.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import secrets
import stat
from typing import Any, NamedTuple

from cowmlx.errors import InputOutput, InvalidArgument, NotFound, OutOfRange
from cowmlx.folders.opening import without_waiting
from cowmlx.machines.wire import printable

PROTOCOL = 1
MIN_SECRET = 16  # bytes, without the white space around them
MAX_SECRET = 4096
_NONCE = 32  # hexadecimal digits


class Place(NamedTuple):
    """The wanted rank, and the number of ranks; rank 0 is for measurements alone."""

    rank: int
    size: int


def read_secret(path: str, named: str = "secret_path", *, waits: bool = False) -> bytes:
    """Return the secret of a file, without the white space around it.

    Args:
        path: of the file.
        named: what the path is in messages.
        waits: whether it may be a pipe too, whose writer is waited for.

    Raises:
        NotFound, InputOutput: it cannot be read.
        InvalidArgument: it is no file, too short, or too long.
    """
    try:
        with os.fdopen(_opened(path, named, waits), "rb") as file:
            found = file.read(MAX_SECRET + 1)
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}, which should hold the secret", file=path) from error
    except OSError as error:
        raise InputOutput(f"cannot read the secret in {path}: {error}", file=path) from error
    secret = found.strip()
    if not len(secret) >= MIN_SECRET or len(found) > MAX_SECRET:
        raise InvalidArgument(
            f"{named}: the secret in {path} has {len(secret)} bytes, must have {MIN_SECRET} to "
            f"{MAX_SECRET} bytes",
            argument=named,
            value=len(secret),
            accepted=f"{MIN_SECRET} to {MAX_SECRET} bytes",
        )
    return secret


def _opened(path: str, named: str, waits: bool) -> int:
    """Open a secret's file.

    Raises:
        OSError: it cannot be opened.
        InvalidArgument: it is no file.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if waits else without_waiting(path)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or (waits and stat.S_ISFIFO(mode)):
        return descriptor
    os.close(descriptor)
    raise OutOfRange(named, path, "a regular file")


def nonce() -> str:
    """Return a new random number."""
    return secrets.token_hex(_NONCE // 2)


def is_nonce(value: object) -> bool:
    """Whether a value has the form of one."""
    return isinstance(value, str) and len(value) == _NONCE and value.isalnum()


def proof(secret: bytes, who: str, host: str, worker: str, place: Place) -> str:
    """Return the proof of "host" or "worker": neither can send the other's back."""
    return digest(secret, f"{who} {host} {worker} {place.rank} {place.size}")


def digest(key: bytes, text: str) -> str:
    """Return the digest of a text, which needs the key."""
    return hmac.new(key, f"cowmlx {PROTOCOL} {text}".encode(), "sha256").hexdigest()


def is_proof(given: object, expected: str) -> bool:
    """Whether a value is the expected proof."""
    is_text = isinstance(given, str) and given.isascii()
    return is_text and hmac.compare_digest(str(given), expected)


def ring_key(secret: bytes, session: str) -> str:
    """Return the key with which the ranks of a session recognize each other."""
    return digest(secret, f"ring {session}")


def ring_mark(key: str, rank: int) -> list[int]:
    """Return the numbers, of 24 bits each, that a rank shows the others."""
    shown = digest(key.encode(), f"rank {rank}")
    return [int(shown[i : i + 6], 16) for i in (0, 6)]


def versions() -> dict[str, str]:
    """Return the versions that must be the same at all ends."""
    from importlib import metadata

    from cowmlx.generated import constants

    known = {"libcowmlx": constants.VERSION}
    for package in ("mlx", "mlx-lm"):
        try:
            known[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            known[package] = "none"
    return known


def difference(own: dict[str, str], other: Any) -> str:
    """Return which versions of two ends differ; "" if none."""
    if not isinstance(other, dict):
        return "it names no versions"
    odd = [
        f"{name} {printable(str(other.get(name)))[:40]}, not {version}"
        for name, version in own.items()
        if other.get(name) != version
    ]
    return " and ".join(odd)


def random_key() -> bytes:
    """Return a secret for ranks of this machine alone."""
    return os.urandom(MIN_SECRET).hex().encode()


MAX_PORT = 65535
MAX_ADDRESS = 255


def parse_address(text: str, argument: str, least: int = 1) -> tuple[str, int]:
    """Return the host and port of an address.

    Raises:
        InvalidArgument: the text is no address.
    """
    host, colon, port = text.rpartition(":")
    good = colon and host and len(text) <= MAX_ADDRESS and port.isascii() and port.isdigit()
    if not good or not least <= int(port) <= MAX_PORT or ":" in host or not host.isascii():
        raise InvalidArgument(
            f'{argument} is "{text[:MAX_ADDRESS]}", must be HOST:PORT, with a name or an IPv4 '
            "address and a port from 1 to 65535",
            argument=argument,
            value=text[:MAX_ADDRESS],
            accepted="HOST:PORT",
        )
    return host, int(port)


def is_numeric(host: str) -> bool:
    """Whether a host is an IPv4 address, not a name."""
    try:
        ipaddress.IPv4Address(host)
    except ValueError:
        return False
    return True


def is_private(host: str) -> bool:
    """Whether an address is of this machine alone, or of a private network."""
    address = ipaddress.IPv4Address(host)
    return (address.is_private or address.is_link_local) and not address.is_unspecified
