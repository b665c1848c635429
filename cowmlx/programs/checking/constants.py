"""Constants of a program: numbers as the bytes of a dtype, each rounded once; lists as arrays."""

from __future__ import annotations

import math
import re
import struct
from array import array
from collections.abc import Sequence
from itertools import chain
from typing import Any

import mlx.core as mx

from cowmlx.programs.bounds import MAX_CONSTANT
from cowmlx.programs.dimensions import MAX_RANK
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.graph import Constant
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import BITS, mlx_dtype

_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_COMPLEX = re.compile(r"[-+0-9.eEjinfa]{1,64}")
_PACKED = {"float64": "d", "float32": "f", "float16": "e"}


class Unfit(ValueError):
    """A number that a dtype does not hold; the text says what it takes.

    Attributes:
        wrong_type: whether it is of the wrong kind, and not only out of range.
    """

    def __init__(self, accepted: str, wrong_type: bool = True) -> None:
        super().__init__(accepted)
        self.wrong_type = wrong_type


def encode(values: Sequence[object], dtype: str) -> bytes:
    """Return the bytes of numbers as JSON has them.

    Args:
        values: numbers, true and false, "nan", "inf" and "-inf"; for complex64 texts such as
            "1-2j" too.
        dtype: the name of the dtype.

    Raises:
        Unfit: the dtype does not hold one of them.
    """
    if dtype == "bool":
        return bytes(_bool(value) for value in values)
    if "int" in dtype:
        return _integers(values, dtype)
    if dtype == "complex64":
        pairs = [_complex(value) for value in values]
        return _floats([part for pair in pairs for part in (pair.real, pair.imag)], "float32")
    return _floats([_float(value) for value in values], dtype)


def array_of(data: bytes, dtype: str, shape: Sequence[int]) -> mx.array:
    """Return the array of some bytes in row-major order, evaluated."""
    kind = mlx_dtype(dtype)
    if not data:
        found = mx.zeros(shape, kind, stream=mx.cpu)
    else:
        view: Any = memoryview(data)
        plain = mx.array(view)  # uint8: other formats are rounded to float32
        if dtype == "bool":
            found = plain.astype(kind, stream=mx.cpu).reshape(shape, stream=mx.cpu)
        else:
            found = plain.view(kind, stream=mx.cpu).reshape(shape, stream=mx.cpu)
    mx.eval(found)
    return found


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise Unfit("true or false")
    return value


def _integers(values: Sequence[object], dtype: str) -> bytes:
    bits = BITS[dtype]
    signed = not dtype.startswith("u")
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    accepted = f"an integer from {low} to {high}"
    whole: list[int] = []
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unfit(accepted)
        if not low <= value <= high:
            raise Unfit(accepted, wrong_type=False)
        whole.append(value)
    letter = {8: "b", 16: "h", 32: "i", 64: "q"}[bits]
    return array(letter if signed else letter.upper(), whole).tobytes()


def _float(value: object) -> float:
    if isinstance(value, str) and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit('a number, "nan", "inf" or "-inf"')
    try:
        return float(value)
    except OverflowError:
        raise Unfit("a number within float64", wrong_type=False) from None


def _complex(value: object) -> complex:
    if isinstance(value, str) and value not in _NOT_FINITE and _COMPLEX.fullmatch(value):
        try:
            return complex(value)
        except ValueError:
            raise Unfit('a number or a text such as "1-2j"') from None
    return complex(_float(value))


def _floats(values: list[float], dtype: str) -> bytes:
    if dtype == "bfloat16":
        return array("H", [_bfloat16(value) for value in values]).tobytes()
    try:
        return struct.pack(f"={len(values)}{_PACKED[dtype]}", *values)
    except OverflowError:
        raise Unfit(f"a number within {dtype}", wrong_type=False) from None


def _bfloat16(value: float) -> int:
    """Return the bits of the nearest bfloat16; ties go to the even one.

    The step through float32 rounds to odd, so that the second rounding sees what the first dropped.
    """
    if math.isnan(value):
        return 0x7FC0
    if math.isinf(value):
        return 0x7F80 if value > 0 else 0xFF80
    try:
        (bits,) = struct.unpack("=I", struct.pack("=f", value))
        (near,) = struct.unpack("=f", struct.pack("=I", bits))
    except OverflowError:
        raise Unfit("a number within bfloat16", wrong_type=False) from None
    if near != value:
        if abs(near) > abs(value):
            bits -= 1
        bits |= 1
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    if rounded & 0x7FFF >= 0x7F80:
        raise Unfit("a number within bfloat16", wrong_type=False)
    return int(rounded)


def read(name: str, dtype: str, value: object) -> Constant:
    """Return the constant of a JSON value.

    Args:
        name: its name.
        dtype: its dtype's name.
        value: a number, true, false, a text such as "nan", or nested lists of them.
    """
    shape, flat = _flat(name, value)
    try:
        data = encode(flat, dtype)
    except Unfit as unfit:
        bad = next(element for element in flat if not _fits(element, dtype))
        raise ProgramError(
            "wrong_type" if unfit.wrong_type else "out_of_range",
            f"constant {shown(name)} of {dtype} has {shown(bad)}, must be {unfit}",
            argument=name,
            value=shown(bad),
            accepted=str(unfit),
        ) from None
    return Constant(name, Spec(tuple(shape), dtype), array_of(data, dtype, shape))


def _fits(value: object, dtype: str) -> bool:
    try:
        encode([value], dtype)
    except Unfit:
        return False
    return True


def _flat(name: str, value: object) -> tuple[list[int], list[Any]]:
    """Return the shape of nested lists, and what is in them."""
    shape: list[int] = []
    level: list[Any] = [value]
    while any(isinstance(element, list) for element in level):
        lengths = {len(element) if isinstance(element, list) else -1 for element in level}
        if len(lengths) > 1:
            raise ProgramError(
                "conflict",
                f"constant {shown(name)} has lists of different lengths beside each other in "
                f"dimension {len(shape)}, must be all alike",
                argument=name,
            )
        if len(shape) == MAX_RANK:
            raise ProgramError(
                "limit_exceeded",
                f"constant {shown(name)} has more than {MAX_RANK} dimensions",
                argument=name,
                limit=MAX_RANK,
            )
        shape.append(lengths.pop())
        if len(level) * shape[-1] > MAX_CONSTANT:
            raise ProgramError(
                "limit_exceeded",
                f"constant {shown(name)} has more than {MAX_CONSTANT} elements: pass large arrays "
                "as inputs",
                argument=name,
                limit=MAX_CONSTANT,
            )
        level = list(chain.from_iterable(level))
    return shape, level
