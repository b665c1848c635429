"""Weights in files of PyTorch (``pytorch_model.bin``), without running anything that they hold.

A file is an archive with a pickle and a member for each storage, or, before PyTorch 1.6, pickles
with the storages behind them.
"""

from __future__ import annotations

import os
import struct
import zipfile
from typing import NamedTuple

from cowmlx import resources
from cowmlx.errors import BadFormat, InputOutput, NotFound
from cowmlx.folders import pickled
from cowmlx.folders.pickled import Name, Stored, Tensor
from cowmlx.folders.safetensors import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, BinaryIO, Literal

    import mlx.core as mx

# Types of storages, and safetensors' names of them.
_STORAGES = {
    "FloatStorage": "F32",
    "HalfStorage": "F16",
    "BFloat16Storage": "BF16",
    "LongStorage": "I64",
    "IntStorage": "I32",
    "ShortStorage": "I16",
    "CharStorage": "I8",
    "ByteStorage": "U8",
    "BoolStorage": "BOOL",
}
_ZIP = b"PK\x03\x04"
_OLD = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."  # the pickle of a number
# pickled.Odd, and what zipfile raises.
_DAMAGES = (ValueError, RuntimeError, EOFError, struct.error, zipfile.BadZipFile)
# Integers as memoryview calls them, by bytes: it knows no bfloat16.
_INTEGERS: dict[int, Literal["B", "H", "I", "Q"]] = {1: "B", 2: "H", 4: "I", 8: "Q"}
_LOCAL_HEADER = 30  # bytes, before the name of an archive's member


class Place(NamedTuple):
    """Where a tensor lies in a file.

    Attributes:
        dtype: by safetensors' name.
        shape: of the tensor.
        begin: its first byte.
    """

    dtype: str
    shape: tuple[int, ...]
    begin: int

    @property
    def nbytes(self) -> int:
        """The bytes of the tensor."""
        return _product(self.shape) * DTYPES[self.dtype][1]


def places(path: str) -> dict[str, Place]:
    """Return where the tensors of a file lie, by name; their bytes are in the file.

    Raises:
        NotFound, InputOutput: missing or unreadable.
        BadFormat: it is none of PyTorch's files, or one that holds something else than tensors.
    """
    try:
        with open(path, "rb") as file:
            begin = file.read(max(len(_ZIP), len(_OLD)))
            file.seek(0)
            if not begin.startswith((_ZIP, _OLD)):
                raise pickled.Odd("it does not begin as they do")
            read = _read_archive if begin.startswith(_ZIP) else _read_old
            found = _placed(*read(file))
            # Parts that are there twice are the same or apart, so that a file is no bomb.
            if sum(place.nbytes for place in set(found.values())) > os.fstat(file.fileno()).st_size:
                raise pickled.Odd("its tensors overlap")
            return found
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}", file=path) from None
    except OSError as exc:
        raise InputOutput(f"cannot read {path}: {exc.strerror or exc}", file=path) from exc
    except _DAMAGES as exc:
        raise BadFormat(f"{path} is damaged or not of PyTorch: {exc}", file=path) from exc


def load(path: str) -> dict[str, mx.array]:
    """Read a file's tensors, by name; unlike safetensors', at once.

    Raises:
        NotFound, InputOutput, BadFormat: as :func:`places`.
        OutOfMemory: there is no memory for them.
    """
    import mlx.core as mx

    found = places(path)
    different = set(found.values())
    resources.require_memory(sum(p.nbytes for p in different), f"the weights of {path}")
    arrays = {}
    with open(path, "rb") as file:
        for place in different:
            file.seek(place.begin)
            data = file.read(place.nbytes)
            if len(data) != place.nbytes:
                raise InputOutput(f"{path} became shorter while it was read", file=path)
            dtype = getattr(mx, DTYPES[place.dtype][0])
            # Not as bytes: mlx counts the elements of an axis in 32 bits.
            values: Any = memoryview(data).cast(_INTEGERS[dtype.size])
            arrays[place] = mx.array(values).view(dtype).reshape(place.shape)
            mx.eval(arrays[place])
    return {name: arrays[place] for name, place in found.items()}


def _read_archive(file: BinaryIO) -> tuple[Any, Callable[[str], tuple[int, int]]]:
    """Return the pickle's value, and a function that finds storages."""
    archive = zipfile.ZipFile(file)
    members = {info.filename: info for info in archive.infolist()}
    folders = [name.removesuffix("/data.pkl") for name in members if name.endswith("/data.pkl")]
    if len(folders) != 1:
        raise pickled.Odd("it has no data.pkl, or several")

    def find(name: str) -> tuple[int, int]:
        member = members.get(f"{folders[0]}/{name}")
        if member is None:
            raise pickled.Odd(f"it has no {name[:80]}")
        if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 1:
            raise pickled.Odd(f"{name[:80]} is compressed or encrypted")
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER)
        if len(header) != _LOCAL_HEADER or not header.startswith(_ZIP):
            raise pickled.Odd(f"{name[:80]} is not where the archive says")
        names = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        begin = member.header_offset + _LOCAL_HEADER + names
        if begin + member.file_size > os.fstat(file.fileno()).st_size:
            raise pickled.Odd(f"{name[:80]} ends behind the file")
        return begin, member.file_size

    if f"{folders[0]}/byteorder" in members:
        begin, size = find("byteorder")
        file.seek(begin)
        if file.read(min(size, 16)) != b"little":
            raise pickled.Odd("its numbers are not little-endian")
    file.seek(find("data.pkl")[0])
    return pickled.read(file), lambda key: find(f"data/{key}")


def _read_old(file: BinaryIO) -> tuple[Any, Callable[[str], tuple[int, int]]]:
    """Return the third pickle's value, and a function that finds storages."""
    pickled.read(file)  # the number by which it is known
    if pickled.read(file) != 1001:
        raise pickled.Odd("it is of another version than 1001")
    system = pickled.read(file)
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise pickled.Odd("its numbers are not little-endian")
    value, keys = pickled.read(file), pickled.read(file)
    sizes = {}
    for tensor in _tensors(value).values():
        key, dtype, count = _storage(tensor.storage)
        sizes[key] = count * DTYPES[dtype][1]
    found: dict[str, tuple[int, int]] = {}
    for key in keys if isinstance(keys, list) else []:
        if not isinstance(key, str) or key not in sizes:
            raise pickled.Odd("it has a storage that no tensor uses")
        begin = file.tell() + 8  # behind a count
        found[key] = begin, sizes[key]
        file.seek(begin + sizes[key])
    end = os.fstat(file.fileno()).st_size

    def find(key: str) -> tuple[int, int]:
        begin, size = found.get(key, (end, 1))
        if begin + size > end:
            raise pickled.Odd(f"the storage {key[:80]} ends behind the file")
        return begin, size

    return value, find


def _tensors(value: Any) -> dict[str, Tensor]:
    if not isinstance(value, dict) or not value:
        raise pickled.Odd("it holds no tensors by name")
    for name, tensor in value.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise pickled.Odd(f"{str(name)[:80]!r} is no tensor")
    return value


def _storage(storage: Stored) -> tuple[str, str, int]:
    """Return a storage's key, its type by safetensors' name, and how many numbers it holds."""
    parts = storage.parts
    if len(parts) not in (5, 6) or parts[0] != "storage" or (len(parts) == 6 and parts[5]):
        raise pickled.Odd("its pickle has a storage of an odd form")
    _, kind, key, _, count = parts[:5]
    name = kind.text.rpartition(" ")[2] if isinstance(kind, Name) else ""
    if name not in _STORAGES:
        raise pickled.Odd(f"it has numbers of the type {name[:80]!r}, which is not read")
    if not isinstance(key, str) or not isinstance(count, int) or count < 0:
        raise pickled.Odd("its pickle has a storage of an odd form")
    return key, _STORAGES[name], count


def _placed(value: Any, find: Callable[[str], tuple[int, int]]) -> dict[str, Place]:
    """Return the places of tensors, checked against their storages."""
    made: dict[str, Place] = {}
    known: dict[str, tuple[int, int]] = {}
    for name, tensor in _tensors(value).items():
        key, dtype, _ = _storage(tensor.storage)
        if key not in known:
            known[key] = find(key)
        begin, size = known[key]
        if not _is_in_order(tensor):
            raise pickled.Odd(f"{name[:80]!r} does not lie row by row; save it as contiguous")
        place = Place(dtype, tensor.shape, begin + tensor.begin * DTYPES[dtype][1])
        if place.begin + place.nbytes > begin + size:
            raise pickled.Odd(f"{name[:80]!r} ends behind its storage")
        made[name] = place
    return made


def _is_in_order(tensor: Tensor) -> bool:
    """Whether the numbers of a tensor lie behind each other, the last axis first."""
    if len(tensor.strides) != len(tensor.shape):
        return False
    if not _product(tensor.shape):
        return True
    step = 1
    for side, stride in zip(reversed(tensor.shape), reversed(tensor.strides), strict=True):
        if side != 1 and stride != step:
            return False
        step *= side
    return True


def _product(sides: tuple[int, ...]) -> int:
    count = 1
    for side in sides:
        count *= side
    return count
