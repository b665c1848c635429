"""Writes safetensors files tensor by tensor, so that one of them at a time is in memory."""

from __future__ import annotations

import json
import os

from cowmlx.errors import BadFormat, CowMlxError
from cowmlx.folders import places, safetensors

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    import mlx.core as mx

    Specification = tuple[mx.Dtype, tuple[int, ...]]

_PIECE = 64 << 20  # bytes of a write


def header(tensors: dict[str, Specification]) -> bytes:
    """Return the header of a file with these tensors, in this order."""
    entries: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + nbytes(dtype, shape)
        described = {"dtype": _stored_name(dtype), "shape": list(shape)}
        entries[name] = {**described, "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def nbytes(dtype: mx.Dtype, shape: tuple[int, ...]) -> int:
    """Return the bytes of a tensor."""
    count = int(dtype.size)
    for side in shape:
        count *= side
    return count


def write(
    path: str, tensors: dict[str, Specification], arrays: Iterable[tuple[str, mx.array]]
) -> None:
    """Write a file and synchronize it; it takes its place once it is whole.

    Args:
        path: the file.
        tensors: types and shapes by name.
        arrays: the tensors in the same order.

    Raises:
        InputOutput: it cannot be written.
    """
    partial = f"{path}.partial"
    try:
        with open(partial, "wb") as file:
            file.write(header(tensors))
            for (name, (dtype, shape)), (own, array) in zip(tensors.items(), arrays, strict=True):
                if (own, array.dtype, array.shape) != (name, dtype, shape):
                    raise BadFormat(
                        f"{own} is {array.dtype} {array.shape}, where {name}, {dtype} {shape}, "
                        "was to be written",
                        file=path,
                    )
                _put(file, array)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as exc:
        raise places.unwritable(path, exc) from exc


def is_whole(path: str, tensors: dict[str, Specification]) -> bool:
    """Whether a file is there that :func:`write` has written with these tensors."""
    if not os.path.isfile(path):
        return False
    try:
        found, _ = safetensors.read_header(path)
    except CowMlxError:
        return False
    own = {
        name: (entry["dtype"], entry["shape"]) for name, entry in found.items() if name[:2] != "__"
    }
    return own == {
        name: (_stored_name(dtype), list(shape)) for name, (dtype, shape) in tensors.items()
    }


def _stored_name(dtype: mx.Dtype) -> str:
    own = str(dtype).rpartition(".")[2]
    own = "bool_" if own == "bool" else own
    return next(
        name for name, (ours, _) in safetensors.DTYPES.items() if ours == own and name != "F8_E4M3"
    )


def bytes_of(array: mx.array) -> memoryview:
    """Return an array's bytes in row-major order; those of a contiguous array are no copy."""
    import mlx.core as mx

    if not array.size:
        return memoryview(b"")
    mx.eval(array)
    if not memoryview(array).c_contiguous:  # type: ignore[arg-type]
        array = mx.contiguous(array)
        mx.eval(array)
    # mlx would view them along one axis, which has no room for 2 GiB.
    return memoryview(array).cast("B")  # type: ignore[arg-type]


def _put(file: Any, array: mx.array) -> None:
    view = bytes_of(array)
    for begin in range(0, len(view), _PIECE):
        file.write(view[begin : begin + _PIECE])
