"""Reductions along axes, cumulative operations along one, and differences."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import mlx.core as mx

from cowmlx.programs.dimensions import Shape, count
from cowmlx.programs.operations import elementary, rules, sums
from cowmlx.programs.operations.devices import ordering
from cowmlx.programs.operations.half import in_float32
from cowmlx.programs.operations.making import Result, example, moving, row, same, truth
from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import DTYPES, inexact, mlx_dtype, name_of

AXES = Attribute("axis", "axis or axes", None, "The axes to reduce; null is all.")
KEEPDIMS = Attribute("keepdims", "bool", False, "Whether reduced axes stay, with length 1.")
_DDOF = Attribute("ddof", "int", 0, "What is taken from the count in the divisor.", low=0)
_SOFTMAX_AXES = Attribute("axis", "axis or axes", None, "The axes that sum to 1; null is all.")
_FLAT = Attribute("axis", "axis", None, "The axis; null is the flattened array.")


def summed(dtype: str) -> str:
    """Return the dtype of mlx's sums and products: small integers and bool become int32."""
    if dtype in ("bool", "int8", "int16"):
        return "int32"
    return "uint32" if dtype in ("uint8", "uint16") else dtype


def reduction(
    name: str,
    result: Result,
    *page: Any,
    accepted: Sequence[str] = DTYPES,
    attributes: Sequence[Attribute] = (),
    of_nothing: bool = True,
    function: Callable[..., mx.array] | None = None,
    **more: Any,
) -> Operation:
    """Return the row of a reduction along axes.

    Args:
        name: the row's.
        result: the result's dtype, for the input's.
        page: summary and formula.
        accepted: the input's dtypes.
        attributes: beside ``axis`` and ``keepdims``.
        of_nothing: whether it is something of no elements, as a sum is 0.
        function: mlx's of that name, if None.
        more: as ``row`` takes it.
    """
    reduce = function or getattr(mx, name)

    def rule(shape: Shape, attributes: Attributes) -> Shape:
        axes = rules.axes_of(attributes["axis"], len(shape))
        if not of_nothing:
            rules.require_elements(shape, axes)
        return rules.reduced(shape, axes, attributes["keepdims"])

    def compute(array: mx.array, **attributes: Any) -> mx.array:
        if result is summed and array.dtype.size < 4:
            # mlx keeps small integers where nothing is to sum.
            array = array.astype(mlx_dtype(summed(name_of(array.dtype))))
        found: mx.array = reduce(array, **attributes)
        return found

    examples = [
        example("[2,3]", axis=1),
        example("[2,3]"),
        example("[2,3,4]", axis=[0, -1], keepdims=True),
        example("[3]", axis=-1),
        example("[]"),
        *([example("[0,3]", axis=0), example("[0]")] if of_nothing else []),
        example("[0,3]", axis=1),
    ]
    return moving(
        name,
        rule,
        *(*page, examples, compute),
        result=result,
        accepted=accepted,
        attributes=(AXES, KEEPDIMS, *attributes),
        **more,
    )


def _minmax(given: Any, /, **attributes: Any) -> list[Spec]:
    axes = rules.axes_of(attributes["axis"], len(given.shape))
    rules.require_elements(given.shape, axes)
    return [rules.spec(rules.reduced(given.shape, axes, attributes["keepdims"]), given.dtype)] * 2


def _minmax_arrays(*arrays: Any, **attributes: Any) -> list[mx.array]:
    return [mx.min(*arrays, **attributes), mx.max(*arrays, **attributes)]


def _of_elements(shape: Shape, attributes: Attributes) -> Shape:
    """Reduce an array that has elements: mlx has none of others, along no axis."""
    axes = rules.axes_of(attributes["axis"], len(shape))
    rules.require_elements(shape, range(len(shape)))
    return rules.reduced(shape, axes, attributes["keepdims"])


def _arg(name: str, summary: str, formula: str) -> Operation:
    """Return the row of an index of an extreme."""
    function = getattr(mx, name)

    def compute(array: mx.array, **attributes: Any) -> mx.array:
        if array.ndim == 0:  # mlx 0.32.4 fails for it with keepdims
            return mx.zeros((), mx.uint32)
        if attributes["axis"] is None and attributes["keepdims"]:
            # mlx 0.32.4 puts rows that come last at a wrong place.
            flat: mx.array = function(array)
            return mx.expand_dims(flat, tuple(range(array.ndim)))
        result: mx.array = function(array, **attributes)
        return result

    examples = [
        example("[2,3]", axis=1),
        example("[2,3]"),
        example("[2,3,4]", axis=-2, keepdims=True),
        example("[2,3]", keepdims=True),
        example("[]"),
        example("[]", keepdims=True),
    ]
    return moving(
        name,
        _of_elements,
        summary,
        formula,
        examples,
        compute,
        accepted=rules.REAL,
        result=lambda dtype: "uint32",
        differentiable=False,
        attributes=(_FLAT, KEEPDIMS),
    )


def _softmaxed(
    name: str,
    summary: str,
    formula: str,
    function: Callable[..., mx.array],
    attributes: Sequence[Attribute] = (),
) -> Operation:
    """Return the row of a function along axes that keeps the shape."""

    def rule(shape: Shape, attributes: Attributes) -> Shape:
        rules.axes_of(attributes["axis"], len(shape))
        return shape

    def compute(array: mx.array, **attributes: Any) -> mx.array:
        # mlx keeps integers along some axes.
        return function(array.astype(mlx_dtype(inexact(name_of(array.dtype)))), **attributes)

    examples = [
        example("[2,3]", axis=-1),
        example("[2,3]"),
        example("[2,3,4]", axis=[0, 2]),
        example("[0,3]", axis=-1),
    ]
    return moving(
        name,
        rule,
        summary,
        formula,
        examples,
        compute,
        accepted=rules.REAL,
        result=inexact,
        attributes=(_SOFTMAX_AXES, *attributes),
    )


def _median(a: mx.array, axis: Any, keepdims: bool) -> mx.array:
    if axis == ():  # which mlx refuses
        return a.astype(mlx_dtype(inexact(name_of(a.dtype))))
    return ordering(mx.median)(a, axis=axis, keepdims=keepdims)


def log_softmax(a: mx.array, axis: Any) -> mx.array:
    """Return the logarithm of a softmax, without overflow."""
    if a.size == 0:
        return a.astype(mlx_dtype(inexact(name_of(a.dtype))))
    return a - elementary.logsumexp(a, axis=axis, keepdims=True)


ROWS = (
    reduction(
        "sum",
        summed,
        "The sum along axes; of nothing it is 0. Integers below 32 bits and bool become 32 bits.",
        "out = sum over axes of a",
        function=sums.total,
        aliases="reduce_sum",
    ),
    reduction(
        "prod",
        summed,
        "The product along axes; of nothing it is 1. Dtypes are those of sum.",
        "out = product over axes of a",
        aliases="product reduce_prod",
    ),
    reduction(
        "max",
        same,
        "The largest element along axes; of nothing an error.",
        "out = max over axes of a",
        aliases="reduce_max amax",
        of_nothing=False,
    ),
    reduction(
        "min",
        same,
        "The smallest element along axes; of nothing an error.",
        "out = min over axes of a",
        aliases="reduce_min amin",
        of_nothing=False,
    ),
    row(
        "minmax(∂a)",
        _minmax,
        _minmax_arrays,
        "The smallest and the largest element along axes.",
        "low = min over axes of a, high = max over axes of a",
        [example("[2,3]", axis=1), example("[2,3]", keepdims=True)],
        attributes=(AXES, KEEPDIMS),
        outputs=("low", "high"),
    ),
    reduction(
        "mean",
        inexact,
        "The mean along axes; of nothing nan.",
        "out = sum over axes of a / count",
        function=sums.mean,
        aliases="reduce_mean average",
    ),
    reduction(
        "var",
        inexact,
        "The variance along axes; of nothing nan.",
        "out = sum over axes of (a - mean)^2 / (count - ddof)",
        accepted=rules.REAL,
        attributes=(_DDOF,),
        function=sums.variance,
        aliases="variance",
    ),
    reduction(
        "std",
        inexact,
        "The standard deviation along axes; of nothing nan.",
        "out = sqrt(var)",
        accepted=rules.REAL,
        attributes=(_DDOF,),
        function=sums.deviation,
    ),
    reduction(
        "median",
        inexact,
        "The element in the middle along axes, or the mean of the two there; of nothing an error.",
        "out = the middle of sorted a",
        accepted=rules.REAL,
        of_nothing=False,
        function=_median,
    ),
    reduction(
        "all",
        truth,
        "Whether all elements along axes are true; of nothing true.",
        "out = and over axes of a",
        aliases="reduce_and",
        differentiable=False,
    ),
    reduction(
        "any",
        truth,
        "Whether an element along axes is true; of nothing false.",
        "out = or over axes of a",
        aliases="reduce_or",
        differentiable=False,
    ),
    reduction(
        "count_nonzero",
        lambda dtype: "int32",
        "How many elements along axes are not 0.",
        "out = count over axes of a != 0",
        differentiable=False,
    ),
    moving(
        "logsumexp",
        _of_elements,
        "The logarithm of the sum of exponentials along axes, without overflow; of nothing an "
        "error.",
        "out = ln(sum over axes of e^a)",
        [
            example("[2,3]", axis=1),
            example("[2,3]"),
            example("[2,3,4]", axis=[0, -1], keepdims=True),
        ],
        elementary.logsumexp,
        result=inexact,
        attributes=(AXES, KEEPDIMS),
    ),
    _arg("argmax", "Where the first largest element is, as uint32.", "a[out] = max(a)"),
    _arg("argmin", "Where the first smallest element is, as uint32.", "a[out] = min(a)"),
    _softmaxed(
        "softmax",
        "Positive numbers that sum to 1 along axes.",
        "out = e^a / sum over axes of e^a",
        elementary.softmax,
        (Attribute("precise", "bool", False, "Whether 16-bit floats are summed in float32."),),
    ),
    _softmaxed(
        "softmin",
        "The softmax of the negative: positive numbers that sum to 1 along axes.",
        "out = e^-a / sum over axes of e^-a",
        lambda a, axis: elementary.softmax(-a, axis=axis),
    ),
    _softmaxed(
        "log_softmax",
        "The logarithm of a softmax, without overflow.",
        "out = a - ln(sum over axes of e^a)",
        log_softmax,
    ),
)


def _cumulative(shape: Shape, attributes: Attributes) -> Shape:
    if attributes["axis"] is None:
        return (count(shape),)
    rules.axis_of(attributes["axis"], len(shape))
    return shape


def _extreme(function: Callable[..., mx.array], lowest: float) -> Callable[..., mx.array]:
    """Return a scan of extremes, nan from the first nan on.

    mlx loses nan of 16 bits, and its gradient writes beyond the array where the first is nan.
    """

    def scan(a: mx.array, **attributes: Any) -> mx.array:
        if not mx.issubdtype(a.dtype, mx.floating):
            return function(a, **attributes)
        is_nan = mx.isnan(mx.stop_gradient(a))
        result = function(mx.where(is_nan, lowest, a), **attributes)
        return mx.where(mx.cumsum(is_nan, **attributes) > 0, math.nan, result)

    return scan


def _products(a: mx.array, reverse: bool, inclusive: bool) -> mx.array:
    """Return cumulative products along axis 0, by multiplications (Hillis and Steele, 1986)."""
    found = a[::-1] if reverse else a
    if not inclusive:
        found = mx.concatenate([mx.ones_like(found[:1]), found[:-1]])
    width = 1
    while width < found.shape[0]:
        found = mx.concatenate([found[:width], found[width:] * found[:-width]])
        width *= 2
    return found[::-1] if reverse else found


def _cumprod(a: mx.array, axis: int | None, **attributes: Any) -> mx.array:
    """Multiply up to each element; mlx's gradient of complex numbers lacks a conjugate."""
    if a.dtype != mx.complex64:
        return mx.cumprod(a, axis=axis, **attributes)
    if axis is None:
        a, axis = a.reshape(-1), 0
    custom = cast(Any, mx.custom_function(lambda a: mx.cumprod(a, axis=0, **attributes)))

    @custom.vjp  # type: ignore[untyped-decorator]
    def gradient(a: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
        return mx.vjp(lambda a: _products(a, **attributes), [a], [cotangent])[1][0]

    @custom.vmap  # type: ignore[untyped-decorator]
    def rows(a: mx.array, place: int) -> tuple[mx.array, int]:
        return custom(mx.moveaxis(a, place, -1)), a.ndim - 1

    return mx.moveaxis(custom(mx.moveaxis(a, axis, 0)), 0, axis)


def _diff(shape: Shape, attributes: Attributes) -> Shape:
    axis = rules.axis_of(attributes["axis"], len(shape))
    length, times = shape[axis], attributes["n"]
    left = max(length - times, 0) if isinstance(length, int) else length - times
    return rules.replaced(shape, axis, left)


def _diff_array(a: mx.array, n: int, axis: int) -> mx.array:
    before = (slice(None),) * (axis % a.ndim)
    for _ in range(min(n, a.shape[axis])):
        a = a[(*before, slice(1, None))] - a[(*before, slice(None, -1))]
    return a


_scan = partial(
    moving,
    rule=_cumulative,
    examples=[
        example("[2,3]", axis=1),
        example("[2,3]"),
        example("[4,2]", axis=0, reverse=True),
        example("[4]", axis=-1, inclusive=False),
        example("[0,2]", axis=0),
    ],
    attributes=(
        _FLAT,
        Attribute("reverse", "bool", False, "Whether it begins at the end."),
        Attribute("inclusive", "bool", True, "Whether an element counts for its own place."),
    ),
)

SCANS = (
    _scan(
        "cumsum",
        summary="The sums of all elements up to each.",
        formula="out[i] = a[0] + … + a[i]",
        function=in_float32(mx.cumsum),
        result=lambda dtype: "int32" if dtype == "bool" else dtype,
        aliases="cumulative_sum",
    ),
    _scan(
        "cumprod",
        summary="The products of all elements up to each.",
        formula="out[i] = a[0] … a[i]",
        function=in_float32(_cumprod),
        aliases="cumulative_prod cumulative_product",
    ),
    _scan(
        "cummax",
        summary="The largest of all elements up to each.",
        formula="out[i] = max(a[0], …, a[i])",
        function=_extreme(mx.cummax, -math.inf),
        accepted=rules.REAL,
        aliases="cumulative_max",
    ),
    _scan(
        "cummin",
        summary="The smallest of all elements up to each.",
        formula="out[i] = min(a[0], …, a[i])",
        function=_extreme(mx.cummin, math.inf),
        accepted=rules.REAL,
        aliases="cumulative_min",
    ),
    _scan(
        "logcumsumexp",
        summary="The logarithms of the sums of exponentials up to each element.",
        formula="out[i] = ln(e^a[0] + … + e^a[i])",
        function=in_float32(elementary.logcumsumexp),
        accepted=rules.REAL,
        result=inexact,
    ),
    moving(
        "diff",
        _diff,
        "The differences of neighbors, n times.",
        "out[i] = a[i + 1] - a[i]",
        [example("[2,5]"), example("[5,2]", n=2, axis=0), example("[2]", n=3), example("[2]", n=0)],
        _diff_array,
        accepted=rules.NUMBERS,
        attributes=(
            Attribute("n", "int", 1, "How many times.", low=0, high=64),
            Attribute("axis", "axis", -1, "The axis."),
        ),
    ),
)
