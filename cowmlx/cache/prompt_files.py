"""A folder of processed prompts, which several processes may use at the same time.

Each file is a saved context. Its name says which weights and type of cache it fits, and what it
holds; its time of change is when it was last used. A file that another process removes meanwhile
counts as absent. So does all that is not a file of such a name that this user alone may write.
"""

from __future__ import annotations

import os
import re
from array import array
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

import mlx.core as mx
from xxhash import xxh3_64_hexdigest

from cowmlx.cache.disk_reader import Reader
from cowmlx.errors import BadFormat, CowMlxError, InputOutput
from cowmlx.folders import own_files

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

_NAME = re.compile(r"([0-9a-f]{32})-([0-9]{1,9})-[0-9a-f]{16}\.prompt")  # key, tokens, their hash
_MOST_NAMES = 100_000  # of the folder that are looked at
_TOKEN = 4  # bytes


class PromptFile(NamedTuple):
    """A file of the folder.

    Attributes:
        path: of it.
        common: tokens that it has in common with a prompt.
        size: tokens that it holds.
    """

    path: str
    common: int
    size: int


class PromptFiles:
    """The files of processed prompts in a folder.

    Args:
        folder: is made if it does not exist.
        capacity: bytes of all files; those that were not used for longest are removed.

    Raises:
        InputOutput: the folder cannot be made or written to.
    """

    def __init__(self, folder: str, capacity: int) -> None:
        self.folder = os.path.abspath(folder)
        self.capacity = capacity
        self._tokens: dict[str, bytes] = {}  # of files, by name
        problem = None
        try:
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            if not os.access(self.folder, os.R_OK | os.W_OK | os.X_OK):
                problem = "permission denied"
        except OSError as exc:
            problem = exc.strerror or str(exc)
        if problem is not None:
            raise InputOutput(
                f"prompt_cache_dir is {folder}, which cannot be used: {problem}",
                reason="write_failed",
                file=folder,
            )

    def path_for(self, key: str, tokens: list[int]) -> str:
        """Return the path of the file with these tokens.

        Args:
            key: of weights and cache.
            tokens: that it holds.
        """
        hashed = xxh3_64_hexdigest(_bytes_of(tokens))
        return os.path.join(self.folder, f"{key}-{len(tokens)}-{hashed}.prompt")

    def longest(
        self, key: str, prompt: list[int], *, cuts: bool
    ) -> Generator[None, None, PromptFile | None]:
        """Return the file that has the most in common with a prompt; a step reads one file.

        Args:
            key: of weights and cache.
            prompt: the tokens that are of use.
            cuts: whether a part of a file is of use.
        """
        wanted = _bytes_of(prompt)
        best: PromptFile | None = None
        names = list(self._names())
        for gone in self._tokens.keys() - set(names):  # other processes remove files, too
            del self._tokens[gone]
        for name in names:
            size = _size_of(name, key)
            if size is None or (not cuts and size > len(prompt)):
                continue
            if best is not None and size <= best.common:
                continue
            common = _common((yield from self._tokens_of(name, size)), wanted)
            if common > (best.common if best else 0) and (cuts or common == size):
                best = PromptFile(os.path.join(self.folder, name), common, size)
        return best

    def touch(self, path: str) -> None:
        """Note that a file was used."""
        with suppress(OSError):
            os.utime(path)

    def remove(self, path: str) -> None:
        """Remove a file, if it is there."""
        self._tokens.pop(os.path.basename(path), None)
        with suppress(OSError):
            os.unlink(path)

    def discard(self, path: str) -> None:
        """Remove a damaged file; one that cannot be removed counts as empty."""
        self.remove(path)
        if os.path.lexists(path):
            self._tokens[os.path.basename(path)] = b""

    def note_written(self, path: str) -> None:
        """Note that a file was written anew."""
        self._tokens.pop(os.path.basename(path), None)

    def remove_contained(self, key: str, tokens: list[int]) -> Generator[None, None, None]:
        """Remove shorter files whose tokens begin these; a step reads one file."""
        whole = _bytes_of(tokens)
        for name in list(self._names()):
            size = _size_of(name, key)
            if size is not None and size < len(tokens):
                own = yield from self._tokens_of(name, size)
                if own and whole.startswith(own):
                    self.remove(os.path.join(self.folder, name))

    def drop_excess(self) -> None:
        """Remove the files that were not used for longest, until the rest fits."""
        self._drop(self.usage()[1] - self.capacity)

    def make_room(self, count: int) -> bool:
        """Remove the files that were not used for longest; false if all have fewer bytes."""
        has_as_many = self.usage()[1] >= count
        if has_as_many:
            self._drop(count)
        return has_as_many

    def _drop(self, count: int) -> None:
        """Remove the files that were not used for longest, so many bytes or a little more."""
        for _, size, path in sorted(self._states()):
            if count <= 0:
                return
            self.remove(path)
            count -= size

    def has_any(self) -> bool:
        """Whether there is a file."""
        return next(self._names(), None) is not None

    def usage(self) -> tuple[int, int]:
        """Return how many files there are, and their bytes."""
        files = list(self._states())
        return len(files), sum(size for _, size, _ in files)

    def _states(self) -> Iterator[tuple[float, int, str]]:
        """Yield when each file was last used, its bytes and its path."""
        for name in self._names():
            path = os.path.join(self.folder, name)
            with suppress(OSError):
                status = os.lstat(path)
                if own_files.is_private(status):
                    yield status.st_mtime, status.st_size, path

    def _names(self) -> Iterator[str]:
        """Yield the names of files that may be the cache's."""
        with suppress(OSError), os.scandir(self.folder) as entries:
            for entry in islice(entries, _MOST_NAMES):
                if _NAME.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    yield entry.name

    def _tokens_of(self, name: str, size: int) -> Generator[None, None, bytes]:
        """Return the tokens that a file says it holds; none of one that cannot be read.

        Args:
            name: of the file.
            size: tokens that it holds by its name.
        """
        if name not in self._tokens:
            path = os.path.join(self.folder, name)
            yield
            try:
                reader = Reader(path, private=True)
                try:
                    info = reader.arrays.get("tokens")
                    if info is None or info.dtype != mx.int32 or info.shape != (size,):
                        raise reader.bad(f"it does not hold {size} tokens")
                    self._tokens[name] = reader.peek("tokens")
                finally:
                    reader.close()
            except BadFormat:
                self.discard(path)
                return b""
            except CowMlxError:  # it is gone, another user's, or there is no descriptor left
                return b""
        return self._tokens[name]


def _bytes_of(tokens: list[int]) -> bytes:
    return array("i", tokens).tobytes()


def _size_of(name: str, key: str) -> int | None:
    """Return how many tokens a file holds by its name; None for a file of another key."""
    parts = _NAME.fullmatch(name)
    return int(parts[2]) if parts and parts[1] == key else None


def _common(one: bytes, other: bytes) -> int:
    """Return how many leading tokens two sequences share."""
    low, high = 0, min(len(one), len(other)) // _TOKEN
    while low < high:
        middle = (low + high + 1) // 2
        if one[: middle * _TOKEN] == other[: middle * _TOKEN]:
            low = middle
        else:
            high = middle - 1
    return low
