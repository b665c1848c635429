"""Tensors of ONNX files: every length checked, and elements read when they are needed."""

from __future__ import annotations

import os
import stat
from math import prod
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, NotFound, Unsupported
from cowmlx.programs.dimensions import MAX_DIMENSION, MAX_RANK
from cowmlx.programs.failure import shown
from cowmlx.programs.importing.failures import shortened, unreadable
from cowmlx.programs.importing.values import numpy_type

DTYPES = {
    1: "float32",
    2: "uint8",
    3: "int8",
    4: "uint16",
    5: "int16",
    6: "int32",
    7: "int64",
    9: "bool",
    10: "float16",
    11: "float64",
    12: "uint32",
    13: "uint64",
    14: "complex64",
    16: "bfloat16",
}
"""The library's dtypes by ONNX's numbers."""
FOUR_BITS = {21: "uint8", 22: "int8"}
"""Two elements to a byte, the lower half first; read as bytes."""
OTHERS = {
    8: "strings",
    15: "complex128",
    17: "float8e4m3fn",
    18: "float8e4m3fnuz",
    19: "float8e5m2",
    20: "float8e5m2fnuz",
    21: "uint4",
    22: "int4",
    23: "float4e2m1",
    24: "float8e8m0",
    25: "uint2",
    26: "int2",
}
_FIELDS = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "int64": "int64_data",
    "uint64": "uint64_data",
    "uint32": "uint64_data",
}
EXTERNAL = 1
MAX_TENSOR = 1 << 40


def dtype_of(number: int, what: str) -> str:
    """Return the library's dtype for ONNX's number.

    Raises:
        Unsupported: the library has none.
    """
    if number in DTYPES:
        return DTYPES[number]
    kind = OTHERS.get(number, f"type {number}")
    raise Unsupported(f"{what} is of {kind}, which programs do not have", value=kind)


def shape_of(tensor: Any, what: str) -> tuple[int, ...]:
    """Return the shape of a tensor, within bounds."""
    shape = tuple(tensor.dims)
    if len(shape) > MAX_RANK:
        raise Unsupported(f"{what} has {len(shape)} dimensions, arrays have at most {MAX_RANK}")
    if any(not 0 <= side <= MAX_DIMENSION for side in shape):
        raise BadFormat(f"{what} has the shape {list(shape)[:8]}, which no array has")
    if prod(shape) > MAX_TENSOR:
        raise BadFormat(f"{what} has {prod(shape)} elements, must be {MAX_TENSOR} at most")
    return shape


def checked(tensor: Any, folder: str) -> tuple[str, tuple[int, ...]]:
    """Return the dtype and shape of a tensor whose data has the length that they need.

    Args:
        tensor: a TensorProto.
        folder: where external data may be.

    Raises:
        BadFormat: its data is longer or shorter, or outside of the folder.
        Unsupported: its dtype.
    """
    what = f"tensor {shown(tensor.name)}"
    four = tensor.data_type in FOUR_BITS
    dtype = FOUR_BITS[tensor.data_type] if four else dtype_of(tensor.data_type, what)
    shape = shape_of(tensor, what)
    if tensor.data_location == EXTERNAL:
        _place(tensor, folder, _bytes(tensor, dtype, shape))
        return dtype, shape
    if tensor.HasField("raw_data"):
        given, needed = len(tensor.raw_data), _bytes(tensor, dtype, shape)
    else:
        given = len(getattr(tensor, _FIELDS.get(dtype, "int32_data")))
        needed = prod(shape) * (2 if dtype == "complex64" else 1)
        needed = (needed + 1) // 2 if four else needed
    if given != needed:
        raise BadFormat(
            f"{what} of the shape {list(shape)} has data of {given}, must have {needed}",
            value=given,
            needed=needed,
        )
    return dtype, shape


def external_file(tensor: Any, folder: str) -> tuple[str, int]:
    """Return the file that has the data of a tensor that :func:`checked` took, and its bytes."""
    path, _, size = _place(tensor, folder, _bytes(tensor, *checked(tensor, folder)))
    return path, size


def array_of(tensor: Any, folder: str) -> Any:
    """Return the elements of a tensor as a numpy array.

    Raises:
        BadFormat, Unsupported: as :func:`checked`.
        InputOutput: external data cannot be read.
    """
    dtype, shape = checked(tensor, folder)
    kind = numpy_type(dtype)
    if tensor.data_location == EXTERNAL:
        data = _external(tensor, folder, _bytes(tensor, dtype, shape))
    elif tensor.HasField("raw_data"):
        data = tensor.raw_data
    else:
        return _typed(tensor, dtype, shape, kind)
    if tensor.data_type in FOUR_BITS:
        return _halves(np.frombuffer(data, "uint8"), tensor.data_type, shape)
    if dtype == "bool":
        return (np.frombuffer(data, "uint8") != 0).reshape(shape)
    return np.frombuffer(data, kind).reshape(shape)


def _bytes(tensor: Any, dtype: str, shape: tuple[int, ...]) -> int:
    if tensor.data_type in FOUR_BITS:
        return (prod(shape) + 1) // 2
    return prod(shape) * numpy_type(dtype).itemsize


def _typed(tensor: Any, dtype: str, shape: tuple[int, ...], kind: Any) -> Any:
    values = getattr(tensor, _FIELDS.get(dtype, "int32_data"))
    if tensor.data_type in FOUR_BITS:
        packed = np.array(values, "int64").astype("uint8")
        return _halves(packed, tensor.data_type, shape)
    if dtype in ("float16", "bfloat16"):
        return np.array(values, "int64").astype("uint16").view(kind).reshape(shape)
    if dtype == "complex64":
        return np.array(values, "float32").view("complex64").reshape(shape)
    wide = np.array(values, None if len(values) else kind)
    return wide.astype(kind).reshape(shape)


def _halves(packed: Any, number: int, shape: tuple[int, ...]) -> Any:
    both = np.stack([packed & 15, packed >> 4], -1).reshape(-1)[: prod(shape)]
    if FOUR_BITS[number] == "int8":
        both = ((both.astype("int8") ^ 8) - 8).astype("int8")
    return both.reshape(shape)


def _place(tensor: Any, folder: str, needed: int) -> tuple[str, int, int]:
    """Return the file and the first byte of external data, and the bytes of the file."""
    what = f"external data of tensor {shown(tensor.name)}"
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    numbers = {}
    for key in ("offset", "length"):
        text = entries.get(key, "0" if key == "offset" else str(needed))
        if not (text.isascii() and text.isdigit() and len(text) < 19):
            raise BadFormat(f"{what} has the {key} {shown(text)}, must be a number from 0")
        numbers[key] = int(text)
    if numbers["length"] != needed:
        raise BadFormat(f"{what} has {numbers['length']} bytes, must have {needed}", needed=needed)
    parts = location.replace("\\", "/").split("/")
    path = os.path.join(folder, location)
    inside = os.path.realpath(folder)
    real = os.path.realpath(path) if location and "\0" not in location else ""
    if not real or os.path.isabs(location) or ".." in parts or not _within(real, inside):
        raise BadFormat(f"{what} is in {shown(location)}, must be in the folder of the file")
    try:
        found = os.stat(real)
    except OSError as error:
        raise NotFound(
            f"{what} is in {shown(location)}, which is missing", file=location
        ) from error
    if not stat.S_ISREG(found.st_mode) or numbers["offset"] + needed > found.st_size:
        raise BadFormat(
            f"{what} is {needed} bytes at {numbers['offset']} of {shown(location)}, which has "
            f"{found.st_size}",
            file=location,
            needed=needed,
        )
    return real, numbers["offset"], found.st_size


def _within(path: str, folder: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def _external(tensor: Any, folder: str, needed: int) -> bytes:
    path, offset, _ = _place(tensor, folder, needed)
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            data = file.read(needed)
    except OSError as error:
        raise unreadable(path, error) from error
    if len(data) != needed:
        raise shortened(path)
    return data
