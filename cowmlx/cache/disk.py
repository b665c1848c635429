"""Files of saved contexts, written whole or not at all. :mod:`disk_reader` reads them.

They are safetensors, as ``mx.load`` reads them too:

* ``__metadata__``: format, version and what the caller says, texts by name;
* the arrays of the context, back to back in the order of their offsets;
* last ``xxh3_64``, two numbers: the XXH3 hash of all bytes up to the end of the header, and of all
  bytes before this array.
"""

from __future__ import annotations

import json
import os
import stat
from contextlib import suppress

import mlx.core as mx
from xxhash import xxh3_64

from cowmlx.errors import InputOutput, NotFound, Unsupported
from cowmlx.folders import own_files, places
from cowmlx.folders.safetensors import DTYPES
from cowmlx.folders.stored_tensors import bytes_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any


# Bytes of a step: others generate between two of them.
PIECE = 4 << 20
# Bytes of a run below which gathering some in a copy costs less than writing each.
_RUN = 64 << 10
# Bytes after which the disk is waited for, so that the last wait is short.
_SYNC = 64 << 20
FORMAT, VERSION = "cow_mlx_context", "1"
CHECKSUM = "xxh3_64"
CHECKSUM_BYTES = 16
MOST_IN_MEMORY = (1 << 31) - 1  # bytes of an array of one axis
# Those of mlx's own types.
TYPES: dict[str, mx.Dtype] = {
    name: getattr(mx, own) for name, (own, _) in DTYPES.items() if name != "F8_E4M3"
}
_NAMES = {dtype: name for name, dtype in TYPES.items()}


def write(
    path: str,
    metadata: dict[str, str],
    arrays: dict[str, mx.array],
    form: str = FORMAT,
    *,
    private: bool = False,
) -> Generator[None, None, None]:
    """Write a saved context, or another format; see :func:`write_whole`."""
    header = {"format": form, "version": VERSION, **metadata}
    steps = write_whole(path, lambda file: _write(file, header, arrays), private=private)
    yield from steps


def write_whole(
    path: str, put_all: Callable[[int], Generator[None, None, None]], *, private: bool = False
) -> Generator[None, None, None]:
    """Write a file in bounded steps; closing the generator leaves nothing behind.

    The old file stays until the new one is whole and on the disk. Partial files of writers that
    were killed are removed from the folder.

    Args:
        path: the file.
        put_all: writes to a descriptor, and syncs it.
        private: only the user may read it, and a link at the path is replaced, not followed.

    Raises:
        NotFound: the folder does not exist.
        InputOutput: the file cannot be written.
    """
    try:
        target = path if private else _target(path)
        folder = os.path.dirname(target)
        yield from own_files.sweep(folder)
        descriptor, written = own_files.create_partial(folder, 0o600 if private else 0o666)
        try:
            if not private:
                _keep_mode(descriptor, target)
            yield from put_all(descriptor)
            os.replace(written, target)
        except BaseException:
            own_files.remove(written)
            raise
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"cannot write {path}: there is no such folder", file=path) from None
    except OSError as exc:
        raise places.unwritable(path, exc) from exc
    with suppress(OSError):  # the file is in its place: there is nothing to undo
        places.sync(folder)


def _target(path: str) -> str:
    """Return the file to write: where a link leads, and never a folder or a device."""
    if not os.path.basename(path):
        raise InputOutput(
            f"cannot write {path!r}: it names no file", reason="write_failed", file=path
        )
    target = os.path.realpath(path)
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return target
    if stat.S_ISDIR(mode):
        raise InputOutput(f"cannot write {path}: it is a folder", reason="write_failed", file=path)
    if not stat.S_ISREG(mode):
        raise InputOutput(
            f"cannot write {path}: it is no regular file", reason="write_failed", file=path
        )
    return target


def _keep_mode(descriptor: int, target: str) -> None:
    """Let the new file be as private as the old one."""
    with suppress(FileNotFoundError):
        os.fchmod(descriptor, stat.S_IMODE(os.stat(target).st_mode))


def _write(
    descriptor: int, metadata: dict[str, str], arrays: dict[str, mx.array]
) -> Generator[None, None, None]:
    step = unsynced = 0
    for data in _contents(metadata, arrays):
        put(descriptor, data)
        step += len(data)
        unsynced += len(data)
        if unsynced >= _SYNC:
            os.fsync(descriptor)
            unsynced = 0
        if step >= PIECE:
            step = 0
            yield
    yield
    os.fsync(descriptor)
    yield


def to_memory(
    metadata: dict[str, str], arrays: dict[str, mx.array]
) -> Generator[None, None, mx.array]:
    """Return what the file of a saved context would have, an array of bytes, in bounded steps.

    Raises:
        Unsupported: an array cannot have so many bytes.
    """
    header = {"format": FORMAT, "version": VERSION, **metadata}
    size = sum(array.nbytes for array in arrays.values())
    size += len(_header(header, arrays)) + CHECKSUM_BYTES
    if size > MOST_IN_MEMORY:
        raise Unsupported(
            f"the saved context has {size} bytes, and an array at most {MOST_IN_MEMORY}: write it "
            "to a file with context_save",
            reason="limit_exceeded",
            needed=size,
            limit=MOST_IN_MEMORY,
        )
    buffer = mx.zeros((size,), mx.uint8)
    mx.eval(buffer)
    memory, step = memoryview(buffer), 0  # type: ignore[arg-type]
    for data in _contents(header, arrays):
        memory[: len(data)] = data
        memory = memory[len(data) :]
        step += len(data)
        if step >= PIECE:
            step = 0
            yield
    return buffer


def _contents(
    metadata: dict[str, str], arrays: dict[str, mx.array]
) -> Iterator[bytes | memoryview]:
    """Yield all bytes of a file in bounded pieces."""
    header = _header(metadata, arrays)
    checksum = xxh3_64(header)
    of_header = checksum.intdigest()
    yield header
    for array in arrays.values():
        for data in _pieces(array):
            checksum.update(data)
            yield data
    yield numbers(of_header, checksum.intdigest())


def numbers(*values: int) -> bytes:
    """Return hashes as the last array of a file has them."""
    return b"".join(value.to_bytes(8, "little") for value in values)


def _header(metadata: dict[str, str], arrays: dict[str, mx.array]) -> bytes:
    entries: dict[str, Any] = {"__metadata__": metadata}
    tensors = {
        name: (_NAMES[array.dtype], list(array.shape), array.nbytes)
        for name, array in arrays.items()
    }
    end = 0
    for name, (dtype, shape, size) in {**tensors, CHECKSUM: ("U64", [2], CHECKSUM_BYTES)}.items():
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    return len(text).to_bytes(8, "little") + text


def _pieces(array: mx.array) -> Iterator[memoryview]:
    """Yield an array's bytes in row-major order, in bounded pieces.

    Caches are allocated ahead, so their used parts are runs with gaps: each is written in place.
    """
    if array.ndim and array.nbytes > PIECE:
        rows = array.shape[0]
        step = PIECE * rows // array.nbytes
        for start in range(0, rows, max(1, step)):
            yield from _pieces(array[start : start + step] if step else array[start])
        return
    mx.eval(array)
    if array.ndim and array.nbytes > _RUN and not memoryview(array).c_contiguous:  # type: ignore[arg-type]
        for row in range(array.shape[0]):
            yield from _pieces(array[row])
        return
    yield bytes_of(array)


def put(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of some bytes."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
