"""Reading files of saved contexts, which may have come from anywhere."""

from __future__ import annotations

import os
import stat
import zlib
from math import prod

import mlx.core as mx

from cowmlx.cache.disk import CHECKSUM, FORMAT, PIECE, TYPES, VERSION
from cowmlx.cache.layer_state import ArrayInfo
from cowmlx.errors import BadFormat, InputOutput, NotFound
from cowmlx.models.safetensors import parse_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

_LONGEST_HEADER = 16 << 20  # a model of a thousand layers has one of 1 MiB


class Reader:
    """An open file whose header was checked; its arrays are still to be read.

    Everything is read with ``pread`` into memory of our own, so that it stays what was checked,
    whatever becomes of the file.

    Attributes:
        metadata: texts by name.
        arrays: type and shape of every array by name, in the order of the file.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: it is damaged, or of another version.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            # Without O_NONBLOCK a pipe that nobody writes to would block.
            self._descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"no such file: {path}") from None
        except OSError as exc:
            raise self._unreadable(exc) from exc
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def bad(self, reason: str) -> BadFormat:
        """Return an error that says what is wrong with the file."""
        return BadFormat(f"{self.path} is damaged or no saved context: {reason}")

    def read(self) -> Generator[None, None, dict[str, mx.array]]:
        """Return the arrays by name, evaluated; a bounded piece is read in every step.

        Raises:
            BadFormat: the file is shorter than it was, or its checksum is wrong.
            InputOutput: the operating system failed a read.
        """
        checksum = self._of_header
        position = self._begin
        arrays = {}
        for name, info in self.arrays.items():
            pieces = []
            end = position + _nbytes(info)
            while position < end:
                data = self._take(position, min(PIECE, end - position))
                checksum = zlib.crc32(data, checksum)
                pieces.append(mx.array(data))  # type: ignore[arg-type]
                position += len(data)
                yield
            arrays[name] = _joined(pieces, info)
            mx.async_eval(arrays[name])
        if checksum != self._of_all:
            raise self.bad("its checksum is wrong")
        mx.eval(arrays)
        return arrays

    def _read_header(self) -> None:
        try:
            found = os.fstat(self._descriptor)
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if not stat.S_ISREG(found.st_mode):
            what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
            raise InputOutput(f"cannot read {self.path}: it is {what}")
        size = found.st_size
        if size < 8:
            raise self.bad(f"it has {size} bytes")
        prefix = self._take(0, 8)
        length = int.from_bytes(prefix, "little")
        if length > min(size - 8, _LONGEST_HEADER):
            raise self.bad(f"a header of {length} bytes in a file of {size}")
        raw = self._take(8, length)
        header = parse_header(raw, size - 8 - length, self.path)
        self._begin = 8 + length
        self.metadata = self._checked_metadata(header.pop("__metadata__", None))
        self.arrays = self._checked_arrays(header, size - self._begin)
        sums = self._take(size - 8, 8)
        self._of_header = zlib.crc32(raw, zlib.crc32(prefix))
        self._of_all = int.from_bytes(sums[4:], "little")
        if self._of_header != int.from_bytes(sums[:4], "little"):
            raise self.bad("the checksum of its header is wrong")

    def _checked_metadata(self, metadata: Any) -> dict[str, str]:
        """Return the metadata of a file of this format and version."""
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
            raise BadFormat(f"{self.path} is no saved context")
        if metadata.get("version") != VERSION:
            raise BadFormat(
                f"{self.path} is of version {metadata.get('version')!r}; this library reads "
                f"version {VERSION!r}"
            )
        if not all(isinstance(value, str) for value in metadata.values()):
            raise self.bad("its metadata is not text")
        return metadata

    def _checked_arrays(self, header: dict[str, Any], available: int) -> dict[str, ArrayInfo]:
        """Return the arrays by name: known types, back to back, the checksum last."""
        entries = sorted(header.items(), key=lambda entry: entry[1]["data_offsets"])
        arrays: dict[str, ArrayInfo] = {}
        end = 0
        for name, entry in entries:
            begin, stop = entry["data_offsets"]
            if begin != end:
                raise self.bad(f"nobody owns the bytes from {end} to {begin}")
            if entry["dtype"] not in TYPES:
                raise self.bad(f"tensor {name!r} has the type {entry['dtype']}")
            end = stop
            arrays[name] = ArrayInfo(TYPES[entry["dtype"]], tuple(entry["shape"]))
        last = arrays.pop(CHECKSUM, None)
        if last is None or entries[-1][0] != CHECKSUM or _nbytes(last) != 8 or end != available:
            raise self.bad("it does not end with its checksum")
        return arrays

    def _take(self, position: int, size: int) -> bytes:
        """Read so many bytes, all of them."""
        data = b""
        while len(data) < size:
            try:
                more = os.pread(self._descriptor, size - len(data), position + len(data))
            except OSError as exc:
                raise self._unreadable(exc) from exc
            if not more:
                raise self.bad(f"it ends at byte {position + len(data)}")
            data = data + more if data else more
        return data

    def _unreadable(self, exc: OSError) -> InputOutput:
        return InputOutput(f"cannot read {self.path}: {exc.strerror or exc}")


def _nbytes(info: ArrayInfo) -> int:
    return prod(info.shape) * info.dtype.size


def _joined(pieces: list[mx.array], info: ArrayInfo) -> mx.array:
    """Return the array whose bytes were read, lazily."""
    if not pieces:
        return mx.zeros(info.shape, info.dtype)
    flat = pieces[0] if len(pieces) == 1 else mx.concatenate(pieces)
    return flat.view(info.dtype).reshape(info.shape)
