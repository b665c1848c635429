"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations import elementary
from cowmlx.programs.operations.making import Result, example, inexact, mlx_dtype, row, same, truth
from cowmlx.programs.operations.promotion import DTYPES as ALL_DTYPES
from cowmlx.programs.operations.promotion import name_of
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import (
    REAL,
    axes_of,
    reduced,
    require_dtype,
    require_elements,
    spec,
)

AXES = Attribute("axis", "axis or axes", None, "The axes to reduce; null is all.")
KEEPDIMS = Attribute("keepdims", "bool", False, "Whether reduced axes stay, with length 1.")


def summed(dtype: str) -> str:
    """Return the dtype of mlx's sums and products: small integers and bool become int32."""
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


def reduction(
    name: str,
    function: Callable[..., mx.array],
    result: Result,
    summary: str,
    formula: str,
    *,
    accepted: Sequence[str] = ALL_DTYPES,
    attributes: Sequence[Attribute] = (),
    aliases: Sequence[str] = (),
    differentiable: bool = False,
    of_nothing: bool = True,
    examples: Sequence[Example] | None = None,
) -> Operation:
    """Return the row of a reduction along axes.

    Args:
        name: the row's.
        function: takes the array, then attributes by name.
        result: the result's dtype, for the input's.
        summary: one sentence.
        formula: what it computes.
        accepted: the input's dtypes.
        attributes: beside ``axis`` and ``keepdims``.
        aliases: other names.
        differentiable: whether a gradient goes through it.
        of_nothing: whether it is something of no elements, as a sum is 0.
        examples: if not the usual ones.
    """

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype("a", given, accepted)
        axes = axes_of(attributes["axis"], len(given.shape))
        if not of_nothing:
            require_elements(given, axes)
        shape = reduced(given.shape, axes, attributes["keepdims"])
        return [spec(shape, result(given.dtype))]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        (array,) = arrays
        if result is summed:
            # mlx keeps small integers where nothing is to sum.
            array = array.astype(mlx_dtype(summed(name_of(array.dtype))))
        return [function(array, **attributes)]

    kind = "float32" if "float32" in accepted else "bool"
    if examples is None:
        examples = [
            example(f"{kind}[2,3]", axis=1),
            example(f"{kind}[2,3]"),
            example(f"{kind}[2,3,4]", axis=[0, -1], keepdims=True),
            example(f"{kind}[3]", axis=-1),
            example(f"{kind}[]"),
            *([example(f"{kind}[0,3]", axis=0), example(f"{kind}[0]")] if of_nothing else []),
            example(f"{kind}[0,3]", axis=1),
        ]
    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        examples,
        aliases=aliases,
        attributes=(AXES, KEEPDIMS, *attributes),
        differentiable=("a",) if differentiable else (),
    )


def _minmax(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    axes = axes_of(attributes["axis"], len(given.shape))
    require_elements(given, axes)
    found = spec(reduced(given.shape, axes, attributes["keepdims"]), given.dtype)
    return [found, found]


def _minmax_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    return [mx.min(*arrays, **attributes), mx.max(*arrays, **attributes)]


def _arg(name: str, function: Callable[..., mx.array], summary: str, formula: str) -> Operation:
    """Return the row of an index of an extreme."""

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype("a", given, REAL)
        axis = attributes["axis"]
        axes = axes_of(axis, len(given.shape))
        # mlx has none of an array without elements, even along an axis that has some.
        require_elements(given, range(len(given.shape)))
        shape = reduced(given.shape, axes, attributes["keepdims"])
        return [spec(shape, "uint32")]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        (array,) = arrays
        if array.ndim == 0:  # mlx 0.32.4 fails for it with keepdims
            return [mx.zeros((), mx.uint32)]
        return [function(array, **attributes)]

    return row(
        name,
        ("a",),
        infer,
        compute,
        summary,
        formula,
        [
            example("float32[2,3]", axis=1),
            example("float32[2,3]"),
            example("float32[2,3,4]", axis=-2, keepdims=True),
            example("float32[]"),
            example("float32[]", keepdims=True),
        ],
        attributes=(
            Attribute("axis", "axis", None, "The axis; null is the flattened array."),
            KEEPDIMS,
        ),
    )


def _logsumexp(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    (given,) = inputs
    require_elements(given, range(len(given.shape)))
    axes = axes_of(attributes["axis"], len(given.shape))
    return [spec(reduced(given.shape, axes, attributes["keepdims"]), inexact(given.dtype))]


def _normalised(
    name: str, function: Callable[..., mx.array], summary: str, formula: str, **more: Any
) -> Operation:
    """Return the row of a function along axes that keeps the shape."""

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype("a", given, REAL)
        axes_of(attributes["axis"], len(given.shape))
        return [spec(given.shape, inexact(given.dtype))]

    return row(
        name,
        ("a",),
        infer,
        # mlx keeps integers along some axes.
        lambda arrays, attributes: [
            function(arrays[0].astype(mlx_dtype(inexact(name_of(arrays[0].dtype)))), **attributes)
        ],
        summary,
        formula,
        [
            example("float32[2,3]", axis=-1),
            example("float32[2,3]"),
            example("float32[2,3,4]", axis=[0, 2]),
            example("float32[0,3]", axis=-1),
        ],
        differentiable=("a",),
        **more,
    )


def _median(a: mx.array, axis: Any, keepdims: bool) -> mx.array:
    if axis == ():  # which mlx refuses
        return a.astype(mlx_dtype(inexact(name_of(a.dtype))))
    return mx.median(a, axis=axis, keepdims=keepdims)


def log_softmax(a: mx.array, axis: Any) -> mx.array:
    """Return the logarithm of a softmax, without overflow."""
    if a.size == 0:
        return a.astype(mlx_dtype(inexact(name_of(a.dtype))))
    return a - elementary.logsumexp(a, axis=axis, keepdims=True)


_SOFTMAX_AXES = Attribute("axis", "axis or axes", None, "The axes that sum to 1; null is all.")
_DDOF = Attribute("ddof", "int", 0, "What is taken from the count in the divisor.", low=0)

ROWS = (
    reduction(
        "sum",
        mx.sum,
        summed,
        "The sum along axes; of nothing it is 0. Integers below 32 bits and bool become 32 bits.",
        "out = sum over axes of a",
        aliases=("reduce_sum",),
        differentiable=True,
    ),
    reduction(
        "prod",
        mx.prod,
        summed,
        "The product along axes; of nothing it is 1. Dtypes are those of sum.",
        "out = product over axes of a",
        aliases=("product", "reduce_prod"),
        differentiable=True,
    ),
    reduction(
        "max",
        mx.max,
        same,
        "The largest element along axes; of nothing an error.",
        "out = max over axes of a",
        aliases=("reduce_max", "amax"),
        differentiable=True,
        of_nothing=False,
    ),
    reduction(
        "min",
        mx.min,
        same,
        "The smallest element along axes; of nothing an error.",
        "out = min over axes of a",
        aliases=("reduce_min", "amin"),
        differentiable=True,
        of_nothing=False,
    ),
    row(
        "minmax",
        ("a",),
        _minmax,
        _minmax_arrays,
        "The smallest and the largest element along axes.",
        "low = min over axes of a, high = max over axes of a",
        [example("float32[2,3]", axis=1), example("float32[2,3]", keepdims=True)],
        attributes=(AXES, KEEPDIMS),
        outputs=("low", "high"),
        differentiable=("a",),
    ),
    reduction(
        "mean",
        mx.mean,
        inexact,
        "The mean along axes; of nothing nan.",
        "out = sum over axes of a / count",
        aliases=("reduce_mean", "average"),
        differentiable=True,
    ),
    reduction(
        "var",
        mx.var,
        inexact,
        "The variance along axes; of nothing nan.",
        "out = sum over axes of (a - mean)^2 / (count - ddof)",
        accepted=REAL,
        attributes=(_DDOF,),
        aliases=("variance",),
        differentiable=True,
    ),
    reduction(
        "std",
        mx.std,
        inexact,
        "The standard deviation along axes; of nothing nan.",
        "out = sqrt(var)",
        accepted=REAL,
        attributes=(_DDOF,),
        differentiable=True,
    ),
    reduction(
        "median",
        _median,
        inexact,
        "The element in the middle along axes, or the mean of the two there; of nothing an error.",
        "out = the middle of sorted a",
        accepted=REAL,
        differentiable=True,
        of_nothing=False,
    ),
    reduction(
        "all",
        mx.all,
        truth,
        "Whether all elements along axes are true; of nothing true.",
        "out = and over axes of a",
        aliases=("reduce_and",),
    ),
    reduction(
        "any",
        mx.any,
        truth,
        "Whether an element along axes is true; of nothing false.",
        "out = or over axes of a",
        aliases=("reduce_or",),
    ),
    reduction(
        "count_nonzero",
        mx.count_nonzero,
        lambda dtype: "int32",
        "How many elements along axes are not 0.",
        "out = count over axes of a != 0",
    ),
    row(
        "logsumexp",
        ("a",),
        _logsumexp,
        lambda arrays, attributes: [elementary.logsumexp(*arrays, **attributes)],
        "The logarithm of the sum of exponentials along axes, without overflow; of nothing an "
        "error.",
        "out = ln(sum over axes of e^a)",
        [
            example("float32[2,3]", axis=1),
            example("float32[2,3]"),
            example("float32[2,3,4]", axis=[0, -1], keepdims=True),
        ],
        attributes=(AXES, KEEPDIMS),
        differentiable=("a",),
    ),
    _arg("argmax", mx.argmax, "Where the first largest element is, as uint32.", "a[out] = max(a)"),
    _arg("argmin", mx.argmin, "Where the first smallest element is, as uint32.", "a[out] = min(a)"),
    _normalised(
        "softmax",
        elementary.softmax,
        "Positive numbers that sum to 1 along axes.",
        "out = e^a / sum over axes of e^a",
        attributes=(
            _SOFTMAX_AXES,
            Attribute("precise", "bool", False, "Whether 16-bit floats are summed in float32."),
        ),
    ),
    _normalised(
        "softmin",
        lambda a, axis: elementary.softmax(-a, axis=axis),
        "The softmax of the negative: positive numbers that sum to 1 along axes.",
        "out = e^-a / sum over axes of e^-a",
        attributes=(_SOFTMAX_AXES,),
    ),
    _normalised(
        "log_softmax",
        log_softmax,
        "The logarithm of a softmax, without overflow.",
        "out = a - ln(sum over axes of e^a)",
        attributes=(_SOFTMAX_AXES,),
    ),
)
