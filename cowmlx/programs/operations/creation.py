"""Arrays made of nothing but a shape, or of another array's shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import MAX_DIMENSION
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    FLOATS,
    REAL_NUMBERS,
    axis_of,
    fits,
    mlx_dtype,
    spec,
    value_refused,
)

SHAPE = Attribute("shape", "shape", REQUIRED, "The result's shape.")
DTYPE = Attribute("dtype", "dtype", "float32", "The result's dtype.")
_LIKE = Attribute("dtype", "dtype", None, "The result's dtype; null is that of the array.")
_N = Attribute("n", "int", REQUIRED, "Rows.", low=0)
_M = Attribute("m", "int", None, "Columns; null is as many as rows.", low=0)
_K = Attribute("k", "int", 0, "The diagonal: above 0 over the main one, below 0 under it.")
_POINTS = Attribute("M", "int", REQUIRED, "How many points.", low=0)


def _filled(
    name: str, value: Callable[[Attributes], Any], like: bool, about: str, *, valued: bool = False
) -> Operation:
    """Return the row of an array of one value."""

    def dtype_of(inputs: Sequence[Any], attributes: Attributes) -> str:
        return attributes["dtype"] or inputs[0].dtype

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        dtype = dtype_of(inputs, attributes)
        if valued:
            fits("vals", attributes["vals"], dtype)
        shape = inputs[0].shape if like else attributes["shape"]
        return spec(shape, dtype)

    def compute(*arrays: Any, **attributes: Any) -> mx.array:
        shape = arrays[0].shape if like else attributes["shape"]
        dtype = arrays[0].dtype if attributes["dtype"] is None else mlx_dtype(attributes["dtype"])
        return mx.broadcast_to(mx.array(value(attributes), dtype=dtype), shape)

    vals = {"vals": 7} if valued else {}
    return row(
        f"{name}({'a' if like else ''})",
        infer,
        compute,
        f"An array of {about}" + (" with another's shape." if like else "."),
        f"out = {about if not valued else 'vals'}",
        [example("[2,3]", **vals), example("[]", dtype="int32", **vals)]
        if like
        else [
            example(shape=[2, 3], **vals),
            example(shape=[], dtype="int32", **vals),
            example(shape=[0, 2], **vals),
        ],
        attributes=(
            *(() if like else (SHAPE,)),
            *((Attribute("vals", "number", REQUIRED, "The number."),) if valued else ()),
            _LIKE if like else DTYPE,
        ),
    )


def _made(
    name: str,
    shape: Callable[[Attributes], Sequence[Any]],
    function: Callable[..., mx.array],
    summary: str,
    formula: str,
    attributes: Sequence[Attribute],
    examples: Sequence[Example],
    **more: Any,
) -> Operation:
    """Return the row of an array made of attributes alone."""

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        return spec(shape(attributes), attributes.get("dtype", "float32"))

    def compute(*arrays: Any, **attributes: Any) -> mx.array:
        given = dict(attributes)
        if "dtype" in given:
            given["dtype"] = mlx_dtype(given["dtype"])
        return function(**given)

    return row(
        f"{name}()", infer, compute, summary, formula, examples, attributes=attributes, **more
    )


def _arange_shape(attributes: Attributes) -> tuple[int]:
    start, stop, step = (attributes[name] for name in ("start", "stop", "step"))
    dtype = attributes["dtype"]
    if dtype not in REAL_NUMBERS:
        raise value_refused("dtype", dtype, ", ".join(REAL_NUMBERS))
    if step == 0 or not all(math.isfinite(number) for number in (start, stop, step)):
        raise value_refused("step", step, "a number that is not 0, as start and stop")
    for name in ("start", "stop", "step"):
        fits(name, attributes[name], dtype if name == "start" else _signed(dtype))
    length = (stop - start) / step
    if length > MAX_DIMENSION:
        raise value_refused("step", step, f"so that there are {MAX_DIMENSION} at most")
    return (math.ceil(max(length, 0)),)


def _signed(dtype: str) -> str:
    """What a step of a dtype's numbers may be, and what their end: also below 0."""
    return dtype if dtype in FLOATS else "int64"


def _arange(start: float, stop: float, step: float, dtype: mx.Dtype) -> mx.array:
    length = max(math.ceil((stop - start) / step), 0)
    wide = mx.float64 if dtype == mx.float64 else mx.float32
    if mx.issubdtype(dtype, mx.integer):
        wide = mx.int64
    places = mx.arange(length, dtype=wide)
    result = mx.array(start, dtype=wide) + places * mx.array(step, dtype=wide)
    return result.astype(dtype)


def _linspace(start: float, stop: float, num: int, endpoint: bool, dtype: mx.Dtype) -> mx.array:
    return mx.linspace(start, stop, num, endpoint=endpoint, dtype=dtype)


def _linspace_shape(attributes: Attributes) -> tuple[int]:
    if attributes["dtype"] not in FLOATS:
        raise value_refused("dtype", attributes["dtype"], ", ".join(FLOATS))
    return (attributes["num"],)


def _iota(*inputs: Any, **attributes: Any) -> Spec:
    shape = attributes["shape"]
    axis_of(attributes["axis"], len(shape))
    if attributes["dtype"] not in REAL_NUMBERS:
        raise value_refused("dtype", attributes["dtype"], ", ".join(REAL_NUMBERS))
    return spec(shape, attributes["dtype"])


def _iota_array(*arrays: Any, **attributes: Any) -> mx.array:
    shape = attributes["shape"]
    axis = attributes["axis"] % len(shape)
    line = mx.arange(shape[axis], dtype=mx.int32).astype(mlx_dtype(attributes["dtype"]))
    lined = [shape[axis] if at == axis else 1 for at in range(len(shape))]
    return mx.broadcast_to(line.reshape(lined), shape)


def _matrix(attributes: Attributes) -> tuple[int, int]:
    n, m = attributes["n"], attributes.get("m")
    return (n, n if m is None else m)


def _banded(function: Callable[..., mx.array]) -> Callable[..., mx.array]:
    """Return a function of matrices for any diagonal: mlx computes with k in 32 bits."""

    def made(n: int, m: int | None, k: int, dtype: mx.Dtype) -> mx.array:
        return function(n, m, k=min(max(k, -n), n if m is None else m), dtype=dtype)

    return made


def _eye(n: int, m: int | None, k: int, dtype: mx.Dtype) -> mx.array:
    """Compare places: mlx writes ones with a scatter, which GPUs lack for 64 bits."""
    rows, columns = mx.arange(n)[:, None], mx.arange(n if m is None else m)
    return (rows + k == columns).astype(dtype)


def _window(name: str, function: Callable[[int], mx.array], formula: str) -> Operation:
    return _made(
        name,
        lambda attributes: (attributes["M"],),
        lambda M: function(M),  # noqa: N803
        f"The {name.capitalize()} window.",
        formula,
        (_POINTS,),
        [example(M=5), example(M=1), example(M=0)],
    )


ROWS = (
    _filled("zeros", lambda attributes: 0, False, "zeros"),
    _filled("ones", lambda attributes: 1, False, "ones"),
    _filled("full", lambda attributes: attributes["vals"], False, "one number", valued=True),
    _filled("zeros_like", lambda attributes: 0, True, "zeros"),
    _filled("ones_like", lambda attributes: 1, True, "ones"),
    _filled("full_like", lambda attributes: attributes["vals"], True, "one number", valued=True),
    _made(
        "arange",
        _arange_shape,
        _arange,
        "Numbers from start up to stop, without it, a step apart.",
        "out[i] = start + i step",
        (
            Attribute("start", "number", 0, "The first."),
            Attribute("stop", "number", REQUIRED, "The end, which is not there."),
            Attribute("step", "number", 1, "From one to the next."),
            Attribute("dtype", "dtype", "int32", "The result's dtype."),
        ),
        [
            example(stop=5),
            example(start=-1, stop=1, step=0.25, dtype="float32"),
            example(start=5, stop=0, step=-2),
            example(start=5, stop=0),
        ],
        aliases="range",
    ),
    row(
        "iota()",
        _iota,
        _iota_array,
        "Each element's place along an axis.",
        "out[…, i, …] = i",
        [example(shape=[2, 3]), example(shape=[2, 3], axis=0, dtype="float32")],
        attributes=(
            SHAPE,
            Attribute("axis", "axis", -1, "The axis."),
            Attribute("dtype", "dtype", "int32", "The result's dtype."),
        ),
        source="XLA's Iota",
    ),
    _made(
        "linspace",
        _linspace_shape,
        _linspace,
        "Numbers from start to stop in even steps.",
        "out[i] = start + i (stop - start) / (num - 1)",
        (
            Attribute("start", "float", REQUIRED, "The first."),
            Attribute("stop", "float", REQUIRED, "The last."),
            Attribute("num", "int", 50, "How many.", low=0),
            Attribute("endpoint", "bool", True, "Whether stop is one of them."),
            DTYPE,
        ),
        [
            example(start=0.0, stop=1.0, num=5),
            example(start=0.0, stop=1.0, num=4, endpoint=False),
            example(start=1.0, stop=2.0, num=1),
            example(start=1.0, stop=2.0, num=0),
        ],
    ),
    _made(
        "eye",
        _matrix,
        _banded(_eye),
        "Ones on a diagonal, zeros elsewhere.",
        "out[i, j] = 1 if j - i = k, else 0",
        (_N, _M, _K, DTYPE),
        [example(n=3), example(n=2, m=3, k=1), example(n=2, k=-5), example(n=0)],
    ),
    _made(
        "identity",
        _matrix,
        lambda n, dtype: _eye(n, None, 0, dtype),
        "Ones on the main diagonal, zeros elsewhere.",
        "out[i, j] = 1 if i = j, else 0",
        (_N, DTYPE),
        [example(n=3), example(n=0)],
    ),
    _made(
        "tri",
        _matrix,
        _banded(mx.tri),
        "Ones on and under a diagonal, zeros elsewhere.",
        "out[i, j] = 1 if j - i <= k, else 0",
        (_N, _M, _K, DTYPE),
        [example(n=3), example(n=2, m=3, k=1)],
    ),
    _window("hanning", mx.hanning, "out[i] = 0.5 - 0.5 cos(2 pi i / (M - 1))"),
    _window("hamming", mx.hamming, "out[i] = 0.54 - 0.46 cos(2 pi i / (M - 1))"),
    _window(
        "blackman",
        mx.blackman,
        "out[i] = 0.42 - 0.5 cos(2 pi i / (M - 1)) + 0.08 cos(4 pi i / (M - 1))",
    ),
    _window("bartlett", mx.bartlett, "out[i] = 1 - |2 i / (M - 1) - 1|"),
)
