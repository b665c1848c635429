"""Safetensors files: their headers are checked before mlx reads them.

A header is untrusted: mlx would follow wrong offsets into a short file and fail only when
the array is evaluated, or not at all.
"""

from __future__ import annotations

import os
import reprlib
from itertools import pairwise

from cowmlx import json_text
from cowmlx.errors import BadFormat, InputOutput, NotFound

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import mlx.core as mx

# The name of mlx's type, and its bytes. mlx itself is imported with the first load.
DTYPES = {
    "BOOL": ("bool_", 1),
    "U8": ("uint8", 1),
    "I8": ("int8", 1),
    "F8_E4M3": ("uint8", 1),  # mlx has no such type: its bytes
    "U16": ("uint16", 2),
    "I16": ("int16", 2),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "U32": ("uint32", 4),
    "I32": ("int32", 4),
    "F32": ("float32", 4),
    "U64": ("uint64", 8),
    "I64": ("int64", 8),
    "F64": ("float64", 8),  # in saved contexts; mlx reads no weights of it
    "C64": ("complex64", 8),
}
# The format's own limit; a longer header is garbage read as a length.
_MAX_HEADER = 100_000_000
_MAX_AXES = 32
_MAX_SIZE = (1 << 63) - 1  # of an axis, or an offset


def _bad(path: str, reason: str) -> BadFormat:
    return BadFormat(f"{path} is damaged or not safetensors: {reason}", file=path)


def check_file(path: str) -> dict[str, list[int]]:
    """Check a file's header against the file, and return the shape of every tensor by name.

    Raises:
        NotFound, InputOutput: missing or unreadable.
        BadFormat: the header is no safetensors header, or points outside the file.
    """
    header, _ = read_header(path)
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def read_header(path: str) -> tuple[dict[str, Any], int]:
    """Check a file's header against the file.

    Args:
        path: the file.

    Returns:
        The entries as :func:`parse_header` gives them, and where the data begin.

    Raises:
        NotFound, InputOutput: missing or unreadable.
        BadFormat: the header is no safetensors header, or points outside the file.
    """
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > min(size - 8, _MAX_HEADER):
                raise _bad(path, f"a header of {length} bytes in a file of {size}")
            raw = file.read(length)
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}", file=path) from None
    except OSError as exc:
        raise InputOutput(f"cannot read {path}: {exc.strerror or exc}", file=path) from exc
    if len(raw) != length:
        raise _bad(path, f"the file ends inside its header of {length} bytes")
    return parse_header(raw, size - 8 - length, path), 8 + length


def parse_header(raw: bytes, available: int, path: str) -> dict[str, Any]:
    """Parse a header and check it against the data that follows.

    Args:
        raw: the header's bytes.
        available: bytes of data behind it.
        path: the file, for messages.

    Returns:
        The entries by name: "dtype", "shape" and "data_offsets" of a tensor. What
        "__metadata__" holds is unchecked.

    Raises:
        BadFormat: it is no safetensors header, or points outside the data.
    """
    try:
        header = json_text.parse(raw)
    except json_text.Malformed as exc:
        raise _bad(path, f"its header is not JSON ({exc})") from exc
    if not isinstance(header, dict):
        raise _bad(path, "its header is not a JSON object")
    spans: list[tuple[int, int, str]] = []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        problem, span = _check_entry(entry, available)
        if problem:
            raise _bad(path, f"tensor {name!r} {problem}")
        spans.append((*span, name))
    spans.sort()
    for (_, end, first), (begin, _, second) in pairwise(spans):
        if begin < end:
            raise _bad(path, f"tensors {first!r} and {second!r} overlap")
    return header


def _check_entry(entry: Any, available: int) -> tuple[str, tuple[int, int]]:
    """Return what is wrong with a header entry ("" if nothing) and its byte range."""
    nowhere = (0, 0)
    if not isinstance(entry, dict):
        return "has no description", nowhere
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    offsets: Any = entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        return f"has the unknown dtype {reprlib.repr(dtype)}", nowhere
    if not _is_sizes(shape, _MAX_AXES):
        return f"has the shape {reprlib.repr(shape)}", nowhere
    if not _is_sizes(offsets, 2) or len(offsets) != 2 or offsets[0] > offsets[1]:
        return f"has the offsets {reprlib.repr(offsets)}", nowhere
    begin, end = offsets
    if end > available:
        return f"ends at byte {end} of {available}", nowhere
    _, needed = DTYPES[dtype]
    for side in shape:
        needed *= side
    if needed != end - begin:
        return f"of shape {shape} has {end - begin} bytes, not {needed}", nowhere
    return "", (begin, end)


def _is_sizes(value: object, most: int) -> bool:
    """Whether a value is a list of at most ``most`` sizes."""
    if not isinstance(value, list) or len(value) > most:
        return False
    return all(type(item) is int and 0 <= item <= _MAX_SIZE for item in value)


def load(path: str) -> dict[str, mx.array]:
    """Map a file's tensors lazily.

    mlx takes descriptor 0 for "not open", and gets it in a host that has closed its standard
    input, so it is kept busy meanwhile.
    """
    import mlx.core as mx

    spare = os.open(os.devnull, os.O_RDONLY)
    try:
        try:
            loaded = mx.load(path)
        except RuntimeError:
            with open(path, "rb"):  # raises with the reason, which mlx does not give
                raise
    finally:
        os.close(spare)
    assert isinstance(loaded, dict)
    return loaded


def save(path: str, arrays: dict[str, mx.array]) -> None:
    """Write a file as mlx does, and see that all of it was written.

    Raises:
        InputOutput: it was not.
    """
    import mlx.core as mx

    spare = os.open(os.devnull, os.O_RDONLY)  # see :func:`load`
    try:
        mx.save_safetensors(path, arrays, metadata={"format": "mlx"})
        check_file(path)
    except (RuntimeError, BadFormat) as exc:
        reason = "the disk may be full" if isinstance(exc, BadFormat) else exc
        raise InputOutput(
            f"cannot write {path}: {reason}", reason="write_failed", file=path
        ) from exc
    finally:
        os.close(spare)
