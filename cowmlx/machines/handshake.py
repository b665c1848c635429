"""Who may talk to whom: both ends prove that they know a secret, and neither tells it.

The worker speaks first. What either end proves holds for this connection alone, since it is made
of the numbers that both drew for it, and of the rank that is wanted.
"""

from __future__ import annotations

import hmac
import os
import secrets
from typing import NamedTuple

from cowmlx.errors import InputOutput, InvalidArgument, NotFound
from cowmlx.machines.failures import printable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PROTOCOL = 1
MIN_SECRET = 16  # bytes, without the white space around them
MAX_SECRET = 4096
_NONCE = 32  # hexadecimal digits


class Place(NamedTuple):
    """Which rank of how many is wanted; a rank of 0 asks for nothing but measurements."""

    rank: int
    size: int


def read_secret(path: str) -> bytes:
    """Return the secret of a file, without the white space around it.

    Raises:
        NotFound, InputOutput: it cannot be read.
        InvalidArgument: it is too short, or too long.
    """
    try:
        with open(path, "rb") as file:
            found = file.read(MAX_SECRET + 1)
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}, which should hold the secret", file=path) from error
    except OSError as error:
        raise InputOutput(f"cannot read the secret in {path}: {error}", file=path) from error
    secret = found.strip()
    if not len(secret) >= MIN_SECRET or len(found) > MAX_SECRET:
        raise InvalidArgument(
            f"secret_path: the secret in {path} has {len(secret)} bytes, must have {MIN_SECRET} to "
            f"{MAX_SECRET} bytes",
            argument="secret_path",
            value=len(secret),
            accepted=f"{MIN_SECRET} to {MAX_SECRET} bytes",
        )
    return secret


def nonce() -> str:
    """Return a number that nobody has seen before."""
    return secrets.token_hex(_NONCE // 2)


def is_nonce(value: object) -> bool:
    """Whether a value can be one."""
    return isinstance(value, str) and len(value) == _NONCE and value.isalnum()


def proof(secret: bytes, who: str, host: str, worker: str, place: Place) -> str:
    """Return what an end proves itself with.

    Args:
        secret: that both know.
        who: "host" or "worker", so that neither can send the other's back.
        host: the number that it drew.
        worker: the same.
        place: that is wanted.
    """
    return digest(secret, f"{who} {host} {worker} {place.rank} {place.size}")


def digest(key: bytes, text: str) -> str:
    """Return what only those who know the key can tell of a text."""
    return hmac.new(key, f"cowmlx {PROTOCOL} {text}".encode(), "sha256").hexdigest()


def is_proof(given: object, expected: str) -> bool:
    """Whether a value is the proof that was expected."""
    is_text = isinstance(given, str) and given.isascii()
    return is_text and hmac.compare_digest(str(given), expected)


def ring_key(secret: bytes, session: str) -> str:
    """Return what the ranks of a session tell each other from strangers by."""
    return digest(secret, f"ring {session}")


def ring_mark(key: str, rank: int) -> list[int]:
    """Return the numbers, of 24 bits each, that a rank shows the others."""
    shown = digest(key.encode(), f"rank {rank}")
    return [int(shown[i : i + 6], 16) for i in (0, 6)]


def versions() -> dict[str, str]:
    """Return the versions that all ends must have alike."""
    from importlib import metadata

    from cowmlx.generated import constants

    found = {"libcowmlx": constants.VERSION}
    for package in ("mlx", "mlx-lm"):
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "none"
    return found


def difference(own: dict[str, str], other: Any) -> str:
    """Say which versions of two ends differ; "" if none."""
    if not isinstance(other, dict):
        return "it tells no versions"
    odd = [
        f"{name} {printable(str(other.get(name)))[:40]}, not {version}"
        for name, version in own.items()
        if other.get(name) != version
    ]
    return " and ".join(odd)


def random_key() -> bytes:
    """Return a secret for ranks that are all on this machine."""
    return os.urandom(MIN_SECRET).hex().encode()
