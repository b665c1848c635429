"""Parts of tokenizers in a folder that a host names, so that no later load parses their files.

An entry's name is the hash of the file that it was made of, so it fits that file alone. It begins
with a hash of its bytes, and every number in it is checked before it is used. All bounds on
tokenizers are checked as for a file. An entry that does not fit is made again.

An entry is

* a line, :data:`_FORMAT`, the SHA-256 of what follows, and the sizes of five parts in bytes;
* the JSON text without vocabulary and merges; the texts of the vocabulary, a byte 0 between two;
  their ids; the places of what merges merge, left, then right.
"""

from __future__ import annotations

import os
import re
import sys

from cowmlx.folders import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.text.tokenizer_parts import Parts

_FORMAT = f"cowmlx tokenizer 1 {sys.byteorder}\n".encode()
_HASH = 32
_SUFFIX = ".tokenizer"
_NAME = re.compile(r"[0-9a-f]{64}\.tokenizer")
_ENTRIES = 16  # that are kept
_SMALL = 1 << 20  # bytes of a file that is parsed as fast


class Cache:
    """The entries of a folder.

    Attributes:
        folder: the folder; "" for none.
        problem: why the last entry could not be written; "" if it could.
    """

    def __init__(self) -> None:
        self.folder = ""
        self.problem = ""

    def use(self, folder: str) -> None:
        """Use a folder from now on; "" for none."""
        self.folder, self.problem = folder, ""

    def info(self) -> dict[str, str] | None:
        """Return what ``runtime_info`` reports; None without a folder."""
        return {"path": self.folder, "problem": self.problem} if self.folder else None

    def entry(self, digest: str) -> Entry | None:
        """Return the entry of a file with this hash; None without a hash or a folder."""
        if not self.folder or not digest:
            return None
        return Entry(self, os.path.join(self.folder, digest + _SUFFIX))


def digest(data: bytes) -> str:
    """Return the hash of a file's bytes; "" of one that is parsed as fast."""
    if len(data) < _SMALL:
        return ""
    from hashlib import sha256  # late: small models need none of it

    return sha256(data).hexdigest()


class Entry:
    """The place of an entry, whether it is there or not.

    Args:
        cache: whose it is.
        path: the file.
    """

    def __init__(self, cache: Cache, path: str) -> None:
        self._cache = cache
        self._path = path

    def read(self) -> Parts | None:
        """Return the parts; None if there are none, or they are damaged or someone else's."""
        try:
            with open(own_files.open_private(self._path), "rb") as file:
                data = file.read()
        except OSError:
            return None
        try:
            return _parts(memoryview(data))
        except (ValueError, IndexError):
            return None

    def write(self, parts: Parts) -> None:
        """Write the parts, whole or not at all; a failure is noted in the cache."""
        if any("\0" in text for text in parts.texts):
            return
        try:
            os.makedirs(self._cache.folder, mode=0o700, exist_ok=True)
            for _ in own_files.sweep(self._cache.folder):
                pass
            descriptor, partial = own_files.create_partial(self._cache.folder, 0o600)
            try:
                with open(descriptor, "wb") as file:
                    for piece in _pieces(parts):
                        file.write(piece)
                    file.flush()
                    os.replace(partial, self._path)
            except BaseException:
                own_files.remove(partial)
                raise
            self._drop_oldest()
        except (OSError, UnicodeEncodeError) as exc:
            self._cache.problem = f"cannot write {self._path}: {exc}"

    def _drop_oldest(self) -> None:
        entries = []
        with os.scandir(self._cache.folder) as found:
            for entry in found:
                if _NAME.fullmatch(entry.name):
                    state = entry.stat(follow_symlinks=False)
                    if own_files.is_private(state):
                        entries.append((state.st_mtime, entry.path))
        for _, path in sorted(entries, reverse=True)[_ENTRIES:]:
            own_files.remove(path)


def _pieces(parts: Parts) -> list[Any]:
    from array import array
    from hashlib import sha256

    texts = "\0".join(parts.texts).encode()
    bodies = [parts.rest, texts, *map(bytes, (parts.ids, parts.lefts, parts.rights))]
    sizes = array("Q", map(len, bodies)).tobytes()
    digest = sha256(sizes)
    for body in bodies:
        digest.update(body)
    return [_FORMAT, digest.digest(), sizes, *bodies]


def _parts(data: memoryview) -> Parts:
    """Return the parts of an entry.

    Raises:
        ValueError, IndexError: it is damaged.
    """
    from array import array
    from hashlib import sha256

    from cowmlx.text.tokenizer_parts import Parts

    start = len(_FORMAT) + _HASH
    if (
        data[: len(_FORMAT)] != _FORMAT
        or sha256(data[start:]).digest() != data[start - _HASH : start]
    ):
        raise ValueError("it is no entry, or a damaged one")
    sizes = data[start : start + 40].cast("Q").tolist()
    bodies, at = [], start + 40
    for size in sizes:
        bodies.append(data[at : at + size])
        at += size
    if at != len(data):
        raise ValueError("it is cut short")
    texts = bytes(bodies[1]).decode().split("\0")
    ids, lefts, rights = (array("I", bytes(body)) for body in bodies[2:])
    if len(ids) != len(texts) or len(set(texts)) != len(texts) or len(lefts) != len(rights):
        raise ValueError("its parts do not fit")
    if max(lefts, default=0) >= len(texts) or max(rights, default=0) >= len(texts):
        raise ValueError("it merges what it does not have")
    return Parts(bytes(bodies[0]), texts, ids, lefts, rights)


# The one that the runtime's parameters select.
CACHE = Cache()
