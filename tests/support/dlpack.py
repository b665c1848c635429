"""DLPack 1.x as its specification lays it out: a consumer and a producer in ctypes."""

from __future__ import annotations

import ctypes
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    addressof,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from typing import Any

import numpy as np

READ_ONLY, COPIED = 1, 2
CODES = {"int": 0, "uint": 1, "float": 2, "bfloat": 4, "complex": 5, "bool": 6}


class Tensor(Structure):
    """DLTensor."""

    _fields_ = [
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    ]


DELETER = CFUNCTYPE(None, c_void_p)


class Managed(Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", c_uint32),
        ("minor", c_uint32),
        ("manager_ctx", c_void_p),
        ("deleter", DELETER),
        ("flags", c_uint64),
        ("tensor", Tensor),
    ]


def at(address: int) -> Managed:
    """The tensor at an address."""
    return Managed.from_address(address)


def delete(address: int) -> None:
    """Call a tensor's deleter, as its consumer does in the end."""
    at(address).deleter(address)


class Producer:
    """A tensor over a numpy array, in whatever layout.

    Attributes:
        managed: the tensor, any member of which may be changed.
        deleted: how often its deleter was called.
    """

    def __init__(self, array: np.ndarray, code: str = "") -> None:
        self.array = array
        self.deleted = 0
        self.shape = (c_int64 * 9)(*array.shape)
        self.strides = (c_int64 * 9)(*(step // array.itemsize for step in array.strides))
        self._deleter = DELETER(self._delete)
        kind = array.dtype.name.rstrip("0123456789")
        self.managed = Managed(
            major=1, deleter=self._deleter, tensor=Tensor(array.ctypes.data, 1, 0, array.ndim)
        )
        tensor = self.managed.tensor
        tensor.code, tensor.lanes = CODES[code or kind], 1
        tensor.bits = array.itemsize * 8
        tensor.shape, tensor.strides = self.shape, self.strides

    @property
    def address(self) -> int:
        """Where the tensor is."""
        return addressof(self.managed)

    def _delete(self, address: int) -> None:
        assert address == self.address
        self.deleted += 1


class Capsule:
    """A tensor for consumers in Python, such as numpy's from_dlpack."""

    def __init__(self, address: int) -> None:
        self.address = address

    def __dlpack_device__(self) -> tuple[int, int]:
        tensor = at(self.address).tensor
        return tensor.device_type, tensor.device_id

    def __dlpack__(self, **options: Any) -> object:
        make = pythonapi.PyCapsule_New
        make.restype, make.argtypes = py_object, [c_void_p, ctypes.c_char_p, c_void_p]
        return make(self.address, b"dltensor_versioned", None)
