"""GGUF files, the format of llama.cpp: metadata and tensors, read with bounds.

A file is untrusted: every length, offset and type is checked against the file before it is used.
The package ``gguf`` turns the bytes of a tensor into numbers; it is an optional dependency.
"""

from __future__ import annotations

import os
import struct
from itertools import pairwise
from typing import NamedTuple

from cowmlx.errors import BadFormat, InputOutput, NotFound, Unsupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

    import numpy as np

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_FIELDS = 1 << 16
_MAX_TENSORS = 1 << 16
_MAX_NAME = 1 << 16  # bytes of a key
_MAX_TENSOR_NAME = 256
_MAX_TEXT = 1 << 26
_MAX_ITEMS = 1 << 23  # of all arrays
_MAX_AXES = 4
_MAX_SIDE = (1 << 31) - 1  # mlx's
_MAX_ALIGNMENT = 1 << 16
_TEXT, _ARRAY = 8, 9
# Kinds of values: struct's character by number.
_NUMBERS = {
    **{0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f"},
    **{7: "?", 10: "Q", 11: "q", 12: "d"},
}


class TensorType(NamedTuple):
    """A type of tensors.

    Attributes:
        name: llama.cpp's.
        numbers: of a block.
        size: bytes of a block.
    """

    name: str
    numbers: int
    size: int


TYPES = {
    0: TensorType("F32", 1, 4),
    1: TensorType("F16", 1, 2),
    2: TensorType("Q4_0", 32, 18),
    3: TensorType("Q4_1", 32, 20),
    6: TensorType("Q5_0", 32, 22),
    7: TensorType("Q5_1", 32, 24),
    8: TensorType("Q8_0", 32, 34),
    12: TensorType("Q4_K", 256, 144),
    13: TensorType("Q5_K", 256, 176),
    14: TensorType("Q6_K", 256, 210),
    30: TensorType("BF16", 1, 2),
}
"""The types that are read, by their number in a file."""


class Tensor(NamedTuple):
    """A tensor of a file.

    Attributes:
        name: in the file.
        shape: rows first, as mlx has it.
        type: of its numbers.
        begin: the byte of the file where it begins.
        nbytes: its size.
    """

    name: str
    shape: tuple[int, ...]
    type: TensorType
    begin: int
    nbytes: int


class Contents(NamedTuple):
    """A file's contents.

    Attributes:
        path: of the file.
        metadata: texts, numbers and lists of them by key.
        tensors: by name.
    """

    path: str
    metadata: dict[str, Any]
    tensors: dict[str, Tensor]

    def numbers(self, tensor: Tensor) -> np.ndarray:
        """Return the numbers of a tensor, float32 of its shape.

        Raises:
            InputOutput: the file cannot be read, or has become shorter.
            Unsupported: the package ``gguf`` is missing.
        """
        dequantize, types = _package()
        import numpy as np

        try:
            with open(self.path, "rb") as file:
                file.seek(tensor.begin)
                data = np.fromfile(file, np.uint8, tensor.nbytes)
        except OSError as exc:
            raise _unreadable(self.path, exc.strerror or exc) from exc
        if data.size != tensor.nbytes:
            raise _unreadable(self.path, f"it ends within {tensor.name}")
        row = tensor.shape[-1] // tensor.type.numbers * tensor.type.size
        made = dequantize(data.reshape(-1, row), types[tensor.type.name])
        numbers: np.ndarray = np.asarray(made, np.float32).reshape(tensor.shape)
        return numbers


def _package() -> tuple[Any, Any]:
    """Return what dequantizes, and its types by name.

    Raises:
        Unsupported: the package is missing.
    """
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError as exc:
        raise Unsupported(
            f"the package gguf, which reads the numbers of GGUF files, cannot be imported ({exc}): "
            "pip install gguf",
            reason="package_unusable",
            package="gguf",
        ) from exc
    return dequantize, GGMLQuantizationType


def read(path: str) -> Contents:
    """Read a file up to its tensors.

    Raises:
        NotFound, InputOutput: missing or unreadable.
        BadFormat: it is damaged.
        Unsupported: it has another version, is a part of several files, or has tensors of a type
            that is not read.
    """
    try:
        with open(path, "rb") as file:
            return _Reader(path, file).contents()
    except FileNotFoundError:
        raise NotFound(f"no such file: {path}", file=path) from None
    except OSError as exc:
        raise _unreadable(path, exc.strerror or exc) from exc


def _unreadable(path: str, reason: object) -> InputOutput:
    return InputOutput(f"cannot read {path}: {reason}", file=path)


class _Reader:
    def __init__(self, path: str, file: BinaryIO) -> None:
        self._path = path
        self._file = file
        self._left = self._size = os.fstat(file.fileno()).st_size
        self._items = _MAX_ITEMS  # that arrays may have yet

    def contents(self) -> Contents:
        """Return all but the tensors' numbers."""
        if self._take(len(MAGIC), "the header") != MAGIC:
            raise self._bad("it does not begin with GGUF")
        self._check_version()
        count = self._count("tensors", _MAX_TENSORS)
        fields = self._count("fields of metadata", _MAX_FIELDS)
        metadata: dict[str, Any] = {}
        for _ in range(fields):
            name = self._text("the name of a field", _MAX_NAME)
            if name in metadata:
                raise self._bad(f"it has two fields {name!r}")
            metadata[name] = self._value(name, self._number("I", name))
        parts = metadata.get("split.count", 0)
        if parts and parts != 1:
            raise Unsupported(
                f"{self._path} is one of {parts} parts of a model: merge them first, with "
                "llama.cpp's `llama-gguf-split --merge`",
                file=self._path,
            )
        described = [self._tensor() for _ in range(count)]
        return Contents(self._path, metadata, self._placed(described, self._alignment(metadata)))

    def _check_version(self) -> None:
        version = self._number("I", "the version")
        if version not in _VERSIONS:
            raise Unsupported(
                f"{self._path} has version {version} of GGUF, possibly of a big-endian machine; "
                "versions 2 and 3 are read",
                file=self._path,
                value=version,
            )

    # Values.

    def _value(self, name: str, kind: int) -> Any:
        if kind == _TEXT:
            return self._text(name, _MAX_TEXT)
        if kind == _ARRAY:
            return self._array(name)
        if kind not in _NUMBERS:
            raise self._bad(f"{name} is of the unknown kind {kind}")
        return self._number(_NUMBERS[kind], name)

    def _array(self, name: str) -> list[Any]:
        kind = self._number("I", name)
        count = self._count(f"items of {name}", self._items)
        self._items -= count
        if kind == _TEXT:
            return [self._text(name, _MAX_TEXT) for _ in range(count)]
        if kind not in _NUMBERS:
            raise self._bad(f"{name} is an array of the kind {kind}, none of texts or numbers")
        form = f"<{count}{_NUMBERS[kind]}"
        return list(struct.unpack(form, self._take(struct.calcsize(form), name)))

    def _text(self, name: str, most: int) -> str:
        length = self._number("Q", name)
        if length > min(most, self._left):
            raise self._bad(f"a text of {length} bytes in {name}, where {self._left} are left")
        return self._take(length, name).decode("utf-8", "replace")

    def _count(self, name: str, most: int) -> int:
        count: int = self._number("Q", name)
        if count > min(most, self._left):
            raise self._bad(f"{count} {name}; at most {most} are read")
        return count

    def _number(self, form: str, name: str) -> Any:
        return struct.unpack(f"<{form}", self._take(struct.calcsize(f"<{form}"), name))[0]

    def _take(self, count: int, name: str) -> bytes:
        data = self._file.read(count) if count <= self._left else b""
        if len(data) != count:
            raise self._bad(f"it ends within {name}")
        self._left -= count
        return data

    # Tensors.

    def _tensor(self) -> tuple[str, tuple[int, ...], TensorType, int]:
        """Return name, shape, type and offset of the next tensor."""
        name = self._text("the name of a tensor", _MAX_TENSOR_NAME)
        axes = self._number("I", name)
        if not 1 <= axes <= _MAX_AXES:
            raise self._bad(f"tensor {name!r} has {axes} axes")
        sides = [self._number("Q", name) for _ in range(axes)]
        if not all(1 <= side <= _MAX_SIDE for side in sides):
            raise self._bad(f"tensor {name!r} has the shape {sides}")
        number, offset = self._number("I", name), self._number("Q", name)
        known = TYPES.get(number)
        if known is None:
            raise Unsupported(
                f"{self._path}: tensor {name!r} is of type {number}, which is not read; read are "
                f"{', '.join(row.name for row in TYPES.values())}",
                file=self._path,
                value=number,
            )
        if sides[0] % known.numbers:
            raise self._bad(
                f"tensor {name!r} has rows of {sides[0]} numbers, no multiple of {known.numbers}"
            )
        return name, tuple(reversed(sides)), known, offset

    def _alignment(self, metadata: dict[str, Any]) -> int:
        value = metadata.get("general.alignment", 32)
        good = isinstance(value, int) and 1 <= value <= _MAX_ALIGNMENT and not value & (value - 1)
        if not good:
            raise self._bad(f"general.alignment is {value!r}, no power of two")
        return int(value)

    def _placed(
        self, described: list[tuple[str, tuple[int, ...], TensorType, int]], alignment: int
    ) -> dict[str, Tensor]:
        """Return the tensors, where none leaves the file or overlaps another."""
        start = -(-(self._size - self._left) // alignment) * alignment
        tensors: dict[str, Tensor] = {}
        for name, shape, kind, offset in described:
            if name in tensors:
                raise self._bad(f"it has two tensors {name!r}")
            count = 1
            for side in shape:
                count *= side
            nbytes = count // kind.numbers * kind.size
            if offset % alignment or start + offset + nbytes > self._size:
                raise self._bad(
                    f"tensor {name!r} of {nbytes} bytes begins at {start + offset}, in a file of "
                    f"{self._size}"
                )
            tensors[name] = Tensor(name, shape, kind, start + offset, nbytes)
        ordered = sorted(tensors.values(), key=lambda tensor: tensor.begin)
        for first, second in pairwise(ordered):
            if first.begin + first.nbytes > second.begin:
                raise self._bad(f"tensors {first.name!r} and {second.name!r} overlap")
        return tensors

    def _bad(self, reason: str) -> BadFormat:
        return BadFormat(f"{self._path} is damaged or not GGUF: {reason}", file=self._path)
