"""Arrays over the C ABI from and to numpy's, whatever their strides."""

from __future__ import annotations

import json
from ctypes import byref, c_char, c_char_p, c_int32, c_int64, c_size_t, c_void_p, sizeof
from typing import Any

import numpy as np

from support import signatures
from support.library import Library
from support.outputs import Buffer, poisoned

MAX_RANK = 8
# numpy's types of the dtypes that it has; bfloat16 travels as its bits.
NUMPY = {name: np.dtype("uint16" if name == "bfloat16" else name) for name in signatures.DTYPES}


def owner_of(array: np.ndarray) -> np.ndarray:
    """The array whose memory another one views."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def value_of(dtype: str) -> int:
    """The header's value of a dtype."""
    return signatures.DTYPES[dtype][0]


def tensor(array: np.ndarray, dtype: str | int | None = None, **members: Any) -> Any:
    """Describe an array, strides included; ``members`` replace what that gives."""
    owner = owner_of(array)
    shape = (c_int64 * max(array.ndim, 1))(*array.shape)
    strides = (c_int64 * max(array.ndim, 1))(*(step // array.itemsize for step in array.strides))
    told = {
        "struct_size": sizeof(signatures.cow_mlx_tensor),
        "data": owner.ctypes.data,
        "bytes": owner.nbytes,
        "offset": array.ctypes.data - owner.ctypes.data,
        "dtype": dtype if isinstance(dtype, int) else value_of(dtype or array.dtype.name),
        "rank": array.ndim,
        "shape": shape,
        "strides": strides,
        **members,
    }
    made = signatures.cow_mlx_tensor(**told)
    made.kept = (array, shape, strides, members)  # a Structure keeps no buffers alive itself
    return made


class Arrays:
    """The calls of arrays; handles are plain integers."""

    def __init__(self, lib: Library) -> None:
        self.lib = lib
        self.c = lib.c

    def create(self, array: np.ndarray, dtype: str | None = None, **members: Any) -> int:
        """Copy a numpy array, in whatever layout."""
        out = poisoned(c_int64)
        status = self.c.cow_mlx_array_create(byref(tensor(array, dtype, **members)), byref(out))
        self.lib.check(status, out)
        return out.value

    def read_into(
        self, handle: int, to: np.ndarray, dtype: str | None = None, **members: Any
    ) -> None:
        """Copy an array into a numpy array, in whatever layout; one that fails writes nothing."""
        owner = owner_of(to)
        before = owner.tobytes()
        try:
            status = self.c.cow_mlx_array_read(handle, byref(tensor(to, dtype, **members)))
            self.lib.check(status)
        except BaseException:
            assert owner.tobytes() == before, "a read that failed has written"
            raise

    def read(self, handle: int) -> np.ndarray:
        """The elements as numpy has them."""
        dtype, shape = self.type(handle)
        out = np.zeros(shape, NUMPY[dtype])
        self.read_into(handle, out, dtype)
        return out

    def type(self, handle: int) -> tuple[str, tuple[int, ...]]:
        """The dtype's name, and the shape."""
        dtype, shape = poisoned(c_int32), Buffer(c_int64, MAX_RANK)
        self.lib.check(self.c.cow_mlx_array_type(handle, byref(dtype), *shape.arguments()), dtype)
        names = {value: name for name, (value, _) in signatures.DTYPES.items()}
        return names[dtype.value], tuple(shape.value())

    def view(self, handle: int) -> np.ndarray:
        """The elements where they are, read-only."""
        data = poisoned(c_void_p)
        layout = signatures.cow_mlx_tensor(struct_size=sizeof(signatures.cow_mlx_tensor))
        self.lib.check(self.c.cow_mlx_array_view(handle, byref(data), byref(layout)), data)
        assert (layout.data, layout.offset) == (data.value, 0)
        names = {value: name for name, (value, _) in signatures.DTYPES.items()}
        kind = NUMPY[names[layout.dtype]]
        buffer = (c_char * layout.bytes).from_address(data.value)
        shape = [layout.shape[i] for i in range(layout.rank)]
        strides = [layout.strides[i] * kind.itemsize for i in range(layout.rank)]
        array = np.ndarray(shape, kind, buffer, 0, strides)
        array.flags.writeable = False
        return array

    def wait(self, handle: int, timeout_ms: int = 2**32 - 1) -> None:
        """Wait until an array is computed."""
        self.lib.check(self.c.cow_mlx_array_wait(handle, timeout_ms))

    def apply(
        self, operation: str, *inputs: int, capacity: int = 8, **attributes: Any
    ) -> list[int]:
        """Apply an operation; the handles of its results."""
        given = (c_int64 * max(len(inputs), 1))(*inputs)
        text = json.dumps(attributes).encode() if attributes else None
        out, length = (c_int64 * max(capacity, 1))(), c_size_t()
        status = self.c.cow_mlx_array_apply(
            operation.encode(), given, len(inputs), text, out, capacity, byref(length)
        )
        assert status >= 0 or not any(out), "a call that failed has given handles"
        self.lib.check(status)
        return list(out)[: length.value]

    def free(self, handle: int) -> None:
        """Free an array."""
        self.lib.check(self.c.cow_mlx_array_free(handle))

    def load(self, path: object, *names: str) -> list[int]:
        """Load arrays of a file."""
        out = poisoned(c_int64 * max(len(names), 1))
        texts = (c_char_p * max(len(names), 1))(*(name.encode() for name in names))
        status = self.c.cow_mlx_arrays_load(str(path).encode(), texts, len(names), out)
        self.lib.check(status, out)
        return list(out)[: len(names)]

    def save(self, path: object, arrays: list[tuple[str, int]]) -> None:
        """Save arrays under names."""
        count = len(arrays)
        texts = (c_char_p * max(count, 1))(*(name.encode() for name, _ in arrays))
        handles = (c_int64 * max(count, 1))(*(handle for _, handle in arrays))
        self.lib.check(self.c.cow_mlx_arrays_save(str(path).encode(), texts, handles, count))

    def info(self, path: object) -> dict[str, Any]:
        """What a file holds."""
        size = c_size_t()
        raw = str(path).encode()
        self.lib.check(self.c.cow_mlx_arrays_info(raw, None, 0, byref(size)))
        out = Buffer(c_char, size.value)
        self.lib.check(self.c.cow_mlx_arrays_info(raw, *out.arguments()))
        return json.loads(bytes(out.value()))

    def to_dlpack(self, handle: int) -> int:
        """A DLPack tensor; its address."""
        out = poisoned(c_void_p)
        self.lib.check(self.c.cow_mlx_array_to_dlpack(handle, byref(out)), out)
        return out.value

    def from_dlpack(self, address: int) -> int:
        """Make an array of a DLPack tensor, whose deleter is called then."""
        out = poisoned(c_int64)
        self.lib.check(self.c.cow_mlx_array_from_dlpack(address, byref(out)), out)
        return out.value
