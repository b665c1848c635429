"""Dtypes, and rules of shapes and dtypes that rows share.

Rules raise OperationError for what they refuse. Two dtypes meet as in mlx, unless that would lose
values unseen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, compare, text_of
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
    dtype = dtypes[0]
    for other in dtypes[1:]:
        both = promoted(dtype, other)
        if both is None:
            wider = "uint64 and signed integers" if "int" in dtype else "float64 and complex64"
            raise OperationError(
                "wrong_type",
                f"would lose values of {dtype} and {other}, which have no common "
                f"dtype: cast one of them ({wider} meet in nothing that holds both)",
                dtypes=", ".join(dtypes),
                accepted="dtypes that meet without loss",
            )
        dtype = both
    return dtype


def inexact(dtype: str) -> str:
    """Return the dtype of functions such as ``exp``: float32 for integers and bool."""
    return dtype if dtype in FLOATS or dtype == "complex64" else "float32"


REAL = tuple(dtype for dtype in DTYPES if dtype != "complex64")
NUMBERS = tuple(dtype for dtype in DTYPES if dtype != "bool")
INEXACT = (*FLOATS, "complex64")
REAL_NUMBERS = (*INTEGERS, *FLOATS)
BITS_OR_BOOL = ("bool", *INTEGERS)


def spec(shape: Iterable[Dim], dtype: str) -> Spec:
    """Return a result's spec."""
    return Spec(tuple(shape), dtype)


def shapes_refused(shapes: Sequence[Shape], why: str) -> OperationError:
    """Return the error of shapes that cannot meet."""
    shown = " and ".join(text_of(shape) for shape in shapes)
    return OperationError("conflict", f"cannot take {shown}: {why}", shapes=shown, accepted=why)


def broadcast(shapes: Sequence[Shape]) -> Shape:
    """Return the shape that all meet in: dimensions are equal, or one of them is 1."""
    rank = max((len(shape) for shape in shapes), default=0)
    lengths: list[Dim] = []
    for at in range(rank):
        here: Dim = 1
        for shape in shapes:
            place = at - (rank - len(shape))
            other = shape[place] if place >= 0 else 1
            if other == 1:
                continue
            if here == 1:
                here = other
                continue
            same = compare(here, other)
            if not same:
                known = "differ" if same is False else "are not known to be equal"
                raise shapes_refused(
                    shapes, f"dimensions {here} and {other} {known}, must be equal or 1"
                )
        lengths.append(here)
    return tuple(lengths)


def broadcasts_to(shape: Shape, wanted: Shape) -> bool:
    """Return whether a shape broadcasts to another one."""
    both = broadcast([shape, wanted])
    return len(both) == len(wanted) and all(map(equal, both, wanted))


def require_same(names: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Check that shapes are equal, without broadcasting."""
    first = shapes[0]
    for shape in shapes[1:]:
        if len(shape) != len(first) or not all(map(equal, first, shape)):
            raise shapes_refused(shapes, f"the shapes of {' and '.join(names)} must be equal")


def equal(left: Dim, right: Dim) -> bool:
    """Return whether two dimensions are proved to be equal."""
    return compare(left, right) is True


def axis_of(axis: int, rank: int, name: str = "axis") -> int:
    """Return an axis counted from 0."""
    if not -rank <= axis < rank:
        accepted = f"{-rank} to {rank - 1}" if rank else "nothing: a 0-d array has no axes"
        raise value_refused(name, axis, accepted)
    return axis % rank


def axes_of(axes: int | tuple[int, ...] | None, rank: int, name: str = "axis") -> tuple[int, ...]:
    """Return axes counted from 0, all for None."""
    if axes is None:
        return tuple(range(rank))
    listed = axes if isinstance(axes, tuple) else (axes,)
    found = tuple(axis_of(axis, rank, name) for axis in listed)
    if len(set(found)) < len(found):
        raise OperationError(
            "out_of_range",
            f"{name} is {list(listed)}, which has an axis twice",
            argument=name,
            value=str(list(listed)),
            accepted="axes that differ",
        )
    return found


def reduced(shape: Shape, axes: Sequence[int], keepdims: bool) -> Shape:
    """Return a shape without axes, or with 1 in their places."""
    if keepdims:
        return tuple(1 if at in axes else length for at, length in enumerate(shape))
    return tuple(length for at, length in enumerate(shape) if at not in axes)


def require_dtype(name: str, given: Spec, accepted: Sequence[str]) -> None:
    """Check an input's dtype."""
    if given.dtype not in accepted:
        raise dtypes_refused(name, given, ", ".join(accepted))


def require_rank(name: str, given: Spec, low: int, high: int | None = None) -> None:
    """Check how many dimensions an input has."""
    rank = len(given.shape)
    if rank < low or (high is not None and rank > high):
        accepted = (
            f"{low}" if high == low else f"{low} or more" if high is None else f"{low} to {high}"
        )
        raise OperationError(
            "conflict",
            f"{name} has {rank} dimensions {text_of(given.shape)}, must have {accepted}",
            argument=name,
            shapes=text_of(given.shape),
            accepted=f"{accepted} dimensions",
        )


def require_elements(shape: Shape, axes: Sequence[int]) -> None:
    """Check that there is something along axes, where it is known: nothing has no maximum."""
    for axis in axes:
        if shape[axis] == 0:
            raise shapes_refused([shape], f"axis {axis} is empty, must have an element or more")


def value_refused(name: str, value: Any, accepted: str) -> OperationError:
    """Return the error of an attribute that does not fit its inputs."""
    return OperationError(
        "out_of_range",
        f"{name} is {value}, must be {accepted}",
        argument=name,
        value=value if isinstance(value, int | float | str) else str(value),
        accepted=accepted,
    )


def without(shape: Shape, axis: int) -> Shape:
    """Return a shape without one axis."""
    return shape[:axis] + shape[axis + 1 :]


def replaced(shape: Shape, axis: int, dimension: Dim) -> Shape:
    """Return a shape with another dimension at an axis."""
    return (*shape[:axis], dimension, *shape[axis + 1 :])


def fits(name: str, value: float | None, dtype: str) -> None:
    """Check that a number is one of a dtype."""
    if value is None or dtype in INEXACT:
        return
    if dtype == "bool":
        low, high = 0, 1
    elif dtype in SIGNED:
        low, high = -(2 ** (BITS[dtype] - 1)), 2 ** (BITS[dtype] - 1) - 1
    else:
        low, high = 0, 2 ** BITS[dtype] - 1
    if not (math.isfinite(value) and value == int(value) and low <= value <= high):
        raise value_refused(name, value, f"a whole number of {low} to {high} ({dtype})")


def dtypes_refused(name: str, given: Spec, accepted: str, dtypes: str = "") -> OperationError:
    """Return the error of an input whose dtype does not fit; the dtypes that do, if not as text."""
    return OperationError(
        "wrong_type",
        f"{name} is {given.dtype}, must be {accepted}",
        argument=name,
        dtypes=given.dtype,
        accepted=dtypes or accepted,
    )
