"""Arrays in safetensors files: loaded and saved whole or not at all, in bounded steps."""

from __future__ import annotations

import json
import os
from io import FileIO
from math import prod

from cowmlx import resources
from cowmlx.arrays.table import no_handles
from cowmlx.cache import disk
from cowmlx.errors import BadFormat, InputOutput, InvalidArgument, OutOfMemory, Unsupported
from cowmlx.folders import safetensors
from cowmlx.folders.opening import without_waiting
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.arrays.table import ArrayTable, Held, Memory

_METADATA = "__metadata__"
_MAX_SIDE = (1 << 31) - 1
# The format's names of the library's dtypes: mlx's type of truth values is called bool_.
_NAMES = {
    own.rstrip("_"): name for name, (own, _) in safetensors.DTYPES.items() if name != "F8_E4M3"
}
_DTYPES = {name: own for own, name in _NAMES.items()}
# Every byte of a truth value but 0 is true.
_TRUTH = bytes([0]) + bytes([1]) * 255


def info(path: str) -> dict[str, Any]:
    """Return the result of ``arrays_info``."""
    header, _ = safetensors.read_header(path)
    metadata = header.pop(_METADATA, None) or {}  # mlx writes null where there is none
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise BadFormat(f"{path} is damaged or not safetensors: its metadata is no text", file=path)
    tensors = {
        name: {
            "dtype": _DTYPES.get(entry["dtype"]),
            "shape": entry["shape"],
            "bytes": entry["data_offsets"][1] - entry["data_offsets"][0],
        }
        for name, entry in header.items()
    }
    return {"tensors": tensors, "metadata": metadata}


class Wanted:
    """A tensor of a file that becomes an array.

    Attributes:
        begin: where its bytes are in the file.
        size: how many they are.
        dtype: one of ``DTYPES``'s values.
        shape: its sizes.
    """

    __slots__ = ("begin", "dtype", "shape", "size")

    def __init__(self, entry: dict[str, Any], begin: int) -> None:
        first, end = entry["data_offsets"]
        self.begin = begin + first
        self.size = end - first
        self.dtype = constants.DTYPES[_DTYPES[entry["dtype"]]][0]
        self.shape = tuple(entry["shape"])


def wanted(path: str, names: list[str], has_float64: bool) -> list[Wanted]:
    """Return what is to be loaded, once all of it is known to be loadable.

    Raises:
        NotFound, InputOutput: the file is missing or unreadable.
        BadFormat: it is damaged.
        InvalidArgument: it has no tensor of a name.
        Unsupported: a tensor is of a dtype, rank or size that no array has.
    """
    header, begin = safetensors.read_header(path)
    header.pop(_METADATA, None)
    for index, name in enumerate(names):
        if name not in header:
            raise InvalidArgument(
                f"names[{index}] is {name!r}, but {path} has no tensor of that name",
                reason="missing",
                argument=f"names[{index}]",
            )
        _check(path, name, header[name], has_float64)
    return [Wanted(header[name], begin) for name in names]


def _check(path: str, name: str, entry: dict[str, Any], has_float64: bool) -> None:
    dtype, shape = entry["dtype"], entry["shape"]
    if dtype not in _DTYPES or (dtype == "F64" and not has_float64):
        where = "the library" if dtype not in _DTYPES else "a GPU"
        raise Unsupported(
            f"tensor {name!r} of {path} is of {dtype}, which {where} does not have",
            argument=name,
            value=dtype,
            file=path,
        )
    sides = prod(max(side, 1) for side in shape)
    if len(shape) > constants.MAX_RANK or max([0, *shape]) > _MAX_SIDE or sides >= 1 << 60:
        raise Unsupported(
            f"tensor {name!r} of {path} has the shape {shape}; arrays have at most "
            f"{constants.MAX_RANK} dimensions, of at most {_MAX_SIDE}",
            argument=name,
            value=f"{shape}",
            file=path,
        )


def load(table: ArrayTable, path: str, tensors: list[Wanted]) -> Generator[None, None, list[int]]:
    """Read tensors; return their handles, all opened in the last step.

    Raises:
        OutOfMemory: there is too little memory.
        InputOutput: the operating system failed a read.
        BadFormat: the file has become shorter.
    """
    resources.require_memory(sum(tensor.size for tensor in tensors) or 1, "arrays_load")
    memories: list[Memory] = []
    try:
        descriptor = without_waiting(path)
    except OSError as error:
        raise _unreadable(path, error) from error
    try:
        file = FileIO(descriptor, closefd=False)
        for tensor in tensors:
            memory = table.memory(tensor.size)
            if memory is None:
                raise OutOfMemory(
                    f"a tensor needs {tensor.size} bytes of memory, and there are fewer",
                    needed=tensor.size,
                )
            memories.append(memory)
            yield from _fill(file, path, tensor, memory)
    finally:
        os.close(descriptor)
    return _open(table, tensors, memories)


def _fill(file: FileIO, path: str, tensor: Wanted, memory: Memory) -> Generator[None, None, None]:
    target = memory.bytes()
    is_truth = tensor.dtype == constants.BOOL
    done = 0
    while done < tensor.size:
        piece = target[done : done + disk.PIECE]
        try:
            file.seek(tensor.begin + done)
            count = file.readinto(piece)
        except OSError as error:
            raise _unreadable(path, error) from error
        if not count:
            raise BadFormat(f"{path} has become shorter while it was read", file=path)
        if is_truth:
            piece[:count] = bytes(piece[:count]).translate(_TRUTH)
        done += count
        yield


def _open(table: ArrayTable, tensors: list[Wanted], memories: list[Memory]) -> list[int]:
    handles: list[int] = []
    for tensor, memory in zip(tensors, memories, strict=True):
        handle = table.add_memory(memory, tensor.dtype, tensor.shape)
        if not handle:
            for opened in handles:
                table.close(opened)
            raise no_handles(table)
        handles.append(handle)
    return handles


def _unreadable(path: str, error: OSError) -> InputOutput:
    return InputOutput(f"cannot read {path}: {error.strerror or error}", file=path)


def check_names(names: list[str]) -> None:
    """Make sure that a file can have tensors of these names.

    Raises:
        InvalidArgument: a name is there twice, or means something else.
    """
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen or name == _METADATA:
            raise InvalidArgument(
                f"names[{index}] is {name!r}, which "
                + ("is there twice" if name in seen else "safetensors files keep for metadata"),
                reason="conflict",
                argument=f"names[{index}]",
            )
        seen.add(name)


def save(path: str, arrays: dict[str, Held]) -> Generator[None, None, None]:
    """Write arrays that are computed.

    Raises:
        NotFound, InputOutput: the file cannot be written.
    """
    yield from disk.write_whole(path, lambda descriptor: _put_all(descriptor, arrays))


def _put_all(descriptor: int, arrays: dict[str, Held]) -> Generator[None, None, None]:
    disk.put(descriptor, _header(arrays))
    for held in arrays.values():
        memory = held.memory()
        for begin in range(0, memory.nbytes, disk.PIECE):
            disk.put(descriptor, memory[begin : begin + disk.PIECE])
            yield
    os.fsync(descriptor)


def _header(arrays: dict[str, Held]) -> bytes:
    names = {value: name for name, (value, _) in constants.DTYPES.items()}
    entries: dict[str, Any] = {}
    end = 0
    for name, held in arrays.items():
        size = held.memory().nbytes
        entries[name] = {
            "dtype": _NAMES[names[held.dtype]],
            "shape": list(held.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # data begins at a multiple of 8
    return len(text).to_bytes(8, "little") + text
