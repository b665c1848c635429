"""Dtypes, and which dtype two of them meet in: mlx's, less what would lose values unseen."""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from cowmlx.programs.operations.row import DTYPES as WRONG_DTYPE
from cowmlx.programs.operations.row import OperationError, Spec

UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
SIGNED = ("int8", "int16", "int32", "int64")
INTEGERS = (*UNSIGNED, *SIGNED)
SMALL_FLOATS = ("float16", "bfloat16", "float32")
FLOATS = (*SMALL_FLOATS, "float64")
DTYPES = ("bool", *INTEGERS, *FLOATS, "complex64")

BITS = {
    name: 8 if name == "bool" else int(name.removeprefix("b").lstrip("abcdefghijklmnopqrstuvwxyz"))
    for name in DTYPES
}
"""complex64 has 64: two of float32."""


def mlx_dtype(name: str) -> mx.Dtype:
    """Return mlx's dtype of a name."""
    return getattr(mx, "bool_" if name == "bool" else name)


def name_of(dtype: mx.Dtype) -> str:
    """Return the name of mlx's dtype."""
    return str(dtype).removeprefix("mlx.core.").removesuffix("_")


def described(array: mx.array) -> Spec:
    """Return the dtype and shape of an array."""
    return Spec(tuple(array.shape), name_of(array.dtype))


def is_as_declared(array: mx.array, spec: Spec) -> bool:
    """Whether an array has the dtype and shape, in numbers, that were declared."""
    return array.shape == spec.shape and array.dtype == mlx_dtype(spec.dtype)


def promoted(left: str, right: str) -> str | None:
    """Return the dtype that two meet in; None where values would be lost.

    That is a uint64 with a signed integer, which mlx turns into float32, and a float64 with a
    complex64, whose parts are float32. Integers with a float take that float's dtype, as in mlx.
    """
    if left == right:
        return left
    low, high = sorted((left, right), key=DTYPES.index)
    if high == "complex64":
        return None if low == "float64" else high
    if high in FLOATS:
        # The two 16-bit floats hold different values, so they meet above both.
        return "float32" if (low, high) == ("float16", "bfloat16") else high
    if low == "bool" or high in UNSIGNED or low in SIGNED:
        return high
    if low == "uint64":
        return None
    # An unsigned integer with a signed one: the signed one that holds both.
    bits = max(BITS[high], 2 * BITS[low])
    return f"int{bits}"


def promote(dtypes: Sequence[str]) -> str:
    """Return the dtype that all meet in."""
    found = dtypes[0]
    for other in dtypes[1:]:
        both = promoted(found, other)
        if both is None:
            wider = "uint64 and signed integers" if "int" in found else "float64 and complex64"
            raise OperationError(
                WRONG_DTYPE,
                f"would lose values of {found} and {other}, which have no common "
                f"dtype: cast one of them ({wider} meet in nothing that holds both)",
                dtypes=", ".join(dtypes),
                accepted="dtypes that meet without loss",
            )
        found = both
    return found


def inexact(dtype: str) -> str:
    """Return the dtype of functions such as ``exp``: float32 for integers and bool."""
    return dtype if dtype in FLOATS or dtype == "complex64" else "float32"
