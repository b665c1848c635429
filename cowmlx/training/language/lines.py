"""JSON lines from memory or a file: one bounded line after another."""

from __future__ import annotations

import io
import os
import stat

from cowmlx.errors import InputOutput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

MAX_LINE = 64 << 20  # bytes
_BOM = b"\xef\xbb\xbf"


def read(source: bytes | str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of data by their numbers, from 1; what is behind the last line end is one.

    Args:
        source: the data, or the path of a file.

    Yields:
        A line that is too long as its first ``MAX_LINE`` bytes and one more.

    Raises:
        NotFound, InputOutput: the file is missing, unreadable, or no regular file.
    """
    if isinstance(source, bytes):
        yield from _lines(io.BytesIO(source))
        return
    try:
        # Without waiting for whoever writes to a pipe.
        descriptor = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"no such file: {source}", file=source) from None
    except (OSError, ValueError) as exc:
        raise _unreadable(source, exc) from exc
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputOutput(f"cannot read {source}: it is no regular file", file=source)
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield from _lines(file)
    except OSError as exc:
        raise _unreadable(source, exc) from exc
    finally:
        os.close(descriptor)


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    number = 0
    while line := file.readline(MAX_LINE + 2):
        number += 1
        whole = line.endswith(b"\n")
        while not whole and len(line) > MAX_LINE:
            rest = file.readline(MAX_LINE)
            if not rest or rest.endswith(b"\n"):
                break
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield number, line.removeprefix(_BOM) if number == 1 else line


def _unreadable(path: str, exc: OSError | ValueError) -> InputOutput:
    reason = getattr(exc, "strerror", None) or exc
    return InputOutput(f"cannot read {path}: {reason}", file=path)
