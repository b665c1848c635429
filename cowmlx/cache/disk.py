"""Files of saved contexts, written whole or not at all. :mod:`disk_reader` reads them.

They are safetensors, as ``mx.load`` reads them too:

* ``__metadata__``: format, version and what the caller says, texts by name;
* the arrays of the context, back to back in the order of their offsets;
* last ``crc32``, two numbers: the checksum of all bytes up to the end of the header, and of all
  bytes before this array.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from contextlib import suppress

import mlx.core as mx

from cowmlx.errors import InputOutput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import Any

# Bytes of a step: others generate between two of them.
PIECE = 4 << 20
# Bytes after which the disk is waited for, so that the last wait is short.
_SYNC = 64 << 20
FORMAT, VERSION = "cow_mlx_context", "1"
CHECKSUM = "crc32"
TYPES = {
    "BOOL": mx.bool_,
    "U8": mx.uint8,
    "I8": mx.int8,
    "U16": mx.uint16,
    "I16": mx.int16,
    "F16": mx.float16,
    "BF16": mx.bfloat16,
    "U32": mx.uint32,
    "I32": mx.int32,
    "F32": mx.float32,
    "U64": mx.uint64,
    "I64": mx.int64,
    "F64": mx.float64,
    "C64": mx.complex64,
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}


def write(
    path: str, metadata: dict[str, str], arrays: dict[str, mx.array]
) -> Generator[None, None, None]:
    """Write a file in bounded steps; closing the generator leaves nothing behind.

    The old file, if any, stays until the new one is whole and on the disk.

    Raises:
        NotFound: the folder does not exist.
        InputOutput: the file cannot be written.
    """
    try:
        target = _target(path)
        descriptor, partial = _create(os.path.dirname(target))
        try:
            try:
                _keep_mode(descriptor, target)
                yield from _write(descriptor, metadata, arrays)
            finally:
                os.close(descriptor)
            os.replace(partial, target)
        except BaseException:
            _remove(partial)
            raise
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"cannot write {path}: there is no such folder") from None
    except OSError as exc:
        raise InputOutput(f"cannot write {path}: {exc.strerror or exc}") from exc
    _sync_folder(os.path.dirname(target))


def _target(path: str) -> str:
    """Return the file to write: where a link leads, and never a folder or a device."""
    if not os.path.basename(path):
        raise InputOutput(f"cannot write {path!r}: it names no file")
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise InputOutput(f"cannot write {path}: it is a folder")
    if not stat.S_ISREG(mode):
        raise InputOutput(f"cannot write {path}: it is no regular file")
    return target


def _create(folder: str) -> tuple[int, str]:
    """Open a new file in the folder of the target: a rename across file systems copies."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    while True:
        partial = os.path.join(folder, f".cow_mlx-{os.urandom(8).hex()}.partial")
        try:
            return os.open(partial, flags, 0o666), partial
        except FileExistsError:
            continue


def _keep_mode(descriptor: int, target: str) -> None:
    """Let the new file be as private as the old one."""
    with suppress(FileNotFoundError):
        os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))


def _remove(partial: str) -> None:
    with suppress(OSError):
        os.unlink(partial)


def _sync_folder(folder: str) -> None:
    """Make the rename last. The file is in its place: there is nothing to undo if this fails."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _write(
    descriptor: int, metadata: dict[str, str], arrays: dict[str, mx.array]
) -> Generator[None, None, None]:
    header = _header(metadata, arrays)
    of_header = zlib.crc32(header)
    _put(descriptor, header)
    checksum, unsynced = of_header, 0
    for array in arrays.values():
        for piece in _pieces(array):
            data = _bytes_of(piece)
            checksum = zlib.crc32(data, checksum)
            _put(descriptor, data)
            unsynced += len(data)
            if unsynced >= _SYNC:
                os.fsync(descriptor)
                unsynced = 0
            yield
    _put(descriptor, of_header.to_bytes(4, "little") + checksum.to_bytes(4, "little"))
    os.fsync(descriptor)
    yield


def _header(metadata: dict[str, str], arrays: dict[str, mx.array]) -> bytes:
    made = {"format": FORMAT, "version": VERSION, **metadata}
    entries: dict[str, Any] = {"__metadata__": made}
    tensors = {
        name: (_NAMES[array.dtype], list(array.shape), array.nbytes)
        for name, array in arrays.items()
    }
    end = 0
    for name, (dtype, shape, size) in {**tensors, CHECKSUM: ("U32", [2], 8)}.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _pieces(array: mx.array) -> Iterator[mx.array]:
    """Yield an array in row-major order, cut where rows begin."""
    if array.nbytes <= PIECE or not array.ndim:
        yield array
        return
    rows = array.shape[0]
    step = PIECE * rows // array.nbytes
    if not step:
        for row in range(rows):
            yield from _pieces(array[row])
        return
    for start in range(0, rows, step):
        yield array[start : start + step]


def _bytes_of(array: mx.array) -> memoryview:
    flat = mx.contiguous(array).reshape(-1).view(mx.uint8)
    mx.eval(flat)
    return memoryview(flat)  # type: ignore[arg-type]


def _put(descriptor: int, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
