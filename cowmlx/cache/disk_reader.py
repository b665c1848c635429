"""Reading files of saved contexts, which may have come from anywhere."""

from __future__ import annotations

import os
import stat
from io import FileIO
from math import prod

import mlx.core as mx
from xxhash import xxh3_64

from cowmlx.cache.disk import CHECKSUM, CHECKSUM_BYTES, FORMAT, PIECE, TYPES, VERSION
from cowmlx.cache.layer_state import ArrayInfo
from cowmlx.errors import BadFormat, InputOutput, NotFound
from cowmlx.folders import own_files
from cowmlx.folders.opening import without_waiting
from cowmlx.folders.safetensors import parse_header
from cowmlx.folders.stored_tensors import bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.generated.reasons import Reason

_MAX_HEADER = 16 << 20  # a model of a thousand layers has one of 1 MiB
_MAX_SIDE = (1 << 31) - 1  # mlx's
_SAME_SIZE = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


class Reader:
    """An open file whose header was checked; its arrays are still to be read.

    Bytes are checked in the memory of the arrays, so later changes of the file do no harm.

    Args:
        path: the file.
        form: its format.
        noun: for such a file.
        mismatch: the reason for a file of another version.
        private: refuse links, and files that others may write.

    Attributes:
        metadata: texts by name.
        arrays: type and shape of every array by name, in the order of the file.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: it is damaged, or of another version.
    """

    def __init__(
        self,
        path: str,
        form: str = FORMAT,
        noun: str = "saved context",
        mismatch: Reason = "saved_context_mismatch",
        *,
        private: bool = False,
    ) -> None:
        self.path = path
        self._form = form
        self._noun = noun
        self._mismatch = mismatch
        try:
            self._descriptor = own_files.open_private(path) if private else without_waiting(path)
        except (FileNotFoundError, NotADirectoryError):
            raise NotFound(f"no such file: {path}", file=path) from None
        except OSError as exc:
            raise self._unreadable(exc) from exc
        try:
            self._read_header()
        except BaseException:
            self.close()
            raise

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(map(_nbytes, self.arrays.values()))

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def bad(self, reason: str) -> BadFormat:
        """Return an error about the file."""
        return BadFormat(f"{self.path} is damaged or no {self._noun}: {reason}", file=self.path)

    def peek(self, name: str) -> bytes:
        """Return an array's bytes, which no checksum has confirmed yet; none if it has no such.

        Raises:
            BadFormat: the file is shorter than it was.
            InputOutput: the operating system failed a read.
        """
        position = self._begin
        for own, info in self.arrays.items():
            if own == name:
                return self._take(position, _nbytes(info))
            position += _nbytes(info)
        return b""

    def read(self) -> Generator[None, None, dict[str, mx.array]]:
        """Return the arrays by name, evaluated; a bounded piece is read in every step.

        Raises:
            BadFormat: the file is shorter than it was, or its checksum is wrong.
            InputOutput: the operating system failed a read.
        """
        checksum = self._checksum
        position = self._begin
        step = 0
        buffers = {
            name: mx.zeros(info.shape, _SAME_SIZE[info.dtype.size])
            for name, info in self.arrays.items()
        }
        following = iter([*buffers.values(), mx.array(0)])
        mx.async_eval(next(following))
        for buffer in buffers.values():
            mx.async_eval(next(following))  # is allocated while this one is filled
            memory = bytes_of(buffer)
            for begin in range(0, len(memory), PIECE):
                piece = memory[begin : begin + PIECE]
                self._fill(piece, position)
                checksum.update(piece)
                position += len(piece)
                step += len(piece)
                if step >= PIECE:
                    step = 0
                    yield
        yield
        if checksum.intdigest() != self._of_all:
            raise self.bad("its checksum is wrong")
        arrays = {name: buffers[name].view(info.dtype) for name, info in self.arrays.items()}
        mx.eval(arrays)
        return arrays

    def _size(self) -> int:
        """Return how many bytes there are."""
        try:
            status = os.fstat(self._descriptor)
        except OSError as exc:
            raise self._unreadable(exc) from exc
        if not stat.S_ISREG(status.st_mode):
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
            raise InputOutput(f"cannot read {self.path}: it is {what}", file=self.path)
        self._file = FileIO(self._descriptor, closefd=False)
        return status.st_size

    def _read_header(self) -> None:
        size = self._size()
        if size < 8:
            raise self.bad(f"it has {size} bytes")
        prefix = self._take(0, 8)
        length = int.from_bytes(prefix, "little")
        if length > min(size - 8, _MAX_HEADER):
            raise self.bad(f"a header of {length} bytes in a file of {size}")
        raw = self._take(8, length)
        header = parse_header(raw, size - 8 - length, self.path)
        self._begin = 8 + length
        self.metadata = self._checked_metadata(header.pop("__metadata__", None))
        self.arrays = self._checked_arrays(header, size - self._begin)
        sums = self._take(size - CHECKSUM_BYTES, CHECKSUM_BYTES)
        self._checksum = xxh3_64(prefix + raw)
        self._of_all = int.from_bytes(sums[CHECKSUM_BYTES // 2 :], "little")
        if self._checksum.intdigest() != int.from_bytes(sums[: CHECKSUM_BYTES // 2], "little"):
            raise self.bad("the checksum of its header is wrong")

    def _checked_metadata(self, metadata: Any) -> dict[str, str]:
        """Return the metadata of a file of this format and version."""
        if not isinstance(metadata, dict) or metadata.get("format") != self._form:
            raise BadFormat(f"{self.path} is no {self._noun}", file=self.path)
        if metadata.get("version") != VERSION:
            raise BadFormat(
                f"{self.path} is of version {metadata.get('version')!r}; this library reads "
                f"version {VERSION!r}",
                reason=self._mismatch,
                file=self.path,
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
                raise self.bad(f"no tensor has the bytes from {end} to {begin}")
            if entry["dtype"] not in TYPES:
                raise self.bad(f"tensor {name!r} has the type {entry['dtype']}")
            if max(entry["shape"], default=0) > _MAX_SIDE:
                raise self.bad(f"tensor {name!r} has the shape {entry['shape']}")
            end = stop
            arrays[name] = ArrayInfo(TYPES[entry["dtype"]], tuple(entry["shape"]))
        last = arrays.pop(CHECKSUM, None)
        if (
            last is None
            or entries[-1][0] != CHECKSUM
            or _nbytes(last) != CHECKSUM_BYTES
            or end != available
        ):
            raise self.bad("it does not end with its checksum")
        return arrays

    def _take(self, position: int, size: int) -> bytes:
        """Read exactly ``size`` bytes."""
        data = bytearray(size)
        self._fill(memoryview(data), position)
        return bytes(data)

    def _fill(self, memory: memoryview, position: int) -> None:
        """Fill all of the memory."""
        try:
            self._file.seek(position)
            while memory:
                filled = self._file.readinto(memory)
                if not filled:
                    raise self.bad(f"it ends at byte {self._file.tell()}")
                memory = memory[filled:]
        except OSError as exc:
            raise self._unreadable(exc) from exc

    def _unreadable(self, exc: OSError) -> InputOutput:
        return InputOutput(f"cannot read {self.path}: {exc.strerror or exc}", file=self.path)


class MemoryReader(Reader):
    """The same of memory that holds such a file.

    Args:
        name: of the memory, for messages.
        memory: all bytes.

    Raises:
        BadFormat: it is damaged, or of another version.
    """

    def __init__(self, name: str, memory: memoryview) -> None:
        self.path = name
        self._form = FORMAT
        self._noun = "saved context"
        self._mismatch: Reason = "saved_context_mismatch"
        self._memory = memory
        self._read_header()

    def close(self) -> None:
        """Let go of the memory."""
        self._memory = memoryview(b"")

    def _size(self) -> int:
        return len(self._memory)

    def _fill(self, memory: memoryview, position: int) -> None:
        memory[:] = self._memory[position : position + len(memory)]


def _nbytes(info: ArrayInfo) -> int:
    return prod(info.shape) * info.dtype.size
