"""Exponentials, logarithms, error functions and trigonometry, accurate in every dtype.

mlx evaluates some functions of float64 arrays in float32. They are computed here from functions
that mlx evaluates in float64 (expm1, tan, log and log1p are the C library's), to a few units in
the last place, with derivatives of the same accuracy. Arrays of other dtypes go to mlx's functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.programs.operations.devices import complex_on_cpu
from cowmlx.programs.operations.making import PAIR, elementwise
from cowmlx.programs.operations.rules import REAL, inexact

Axis = int | tuple[int, ...] | None
Function = Callable[[mx.array], mx.array]


def with_slope(value: Function, slope: Callable[[mx.array, mx.array], mx.array]) -> Function:
    """Return a function of elements with this derivative, of the argument and the value."""
    custom = cast(Any, mx.custom_function(value))

    @custom.vjp  # type: ignore[untyped-decorator]
    def gradient(a: mx.array, cotangent: mx.array, out: mx.array) -> mx.array:
        return cotangent * slope(a, out)

    @custom.vmap  # type: ignore[untyped-decorator]
    def rows(a: mx.array, axis: int) -> tuple[mx.array, int]:
        """Keep the derivative: mlx's own vmap would lose it."""
        return custom(a), axis

    return cast(Function, custom)


def _unary(
    plain: Function, value: Function, slope: Callable[[mx.array, mx.array], mx.array]
) -> Function:
    """Return a function of elements: mlx's own, and ours for float64.

    Args:
        plain: mlx's function.
        value: the function of a float64 array.
        slope: its derivative, of the argument and the value.
    """
    custom = with_slope(value, slope)
    return lambda a: custom(a) if a.dtype == mx.float64 else plain(a)


def _exp(a: mx.array) -> mx.array:
    """Avoid the cancellation of expm1(a) + 1 below 0: there it is (1 / e^(-a / 2))^2."""
    below = a < 0
    root = mx.reciprocal(mx.expm1(mx.where(below, -0.5 * a, 0)) + 1)
    return mx.where(below, mx.square(root), mx.expm1(mx.where(below, 0, a)) + 1)


def _sin(a: mx.array) -> mx.array:
    half = mx.tan(0.5 * a)
    return 2 * half / (1 + mx.square(half))


def _cos(a: mx.array) -> mx.array:
    """Avoid the cancellation of 1 - tan(a / 2)^2 near the zeros: there it is sin(a) / tan(a)."""
    half, whole = mx.tan(0.5 * a), mx.tan(a)
    scale = 1 + mx.square(half)
    steep = mx.abs(whole) > 1
    return mx.where(steep, 2 * half / mx.where(steep, whole, 1), (1 - half) * (1 + half)) / scale


# Both were fitted with mpmath.chebyfit; highest power first, errors below 2e-17.
# erf(x) / x on 0 <= x <= 1, in powers of x^2.
_ERF = (
    5.957176147748911e-11,
    -1.1372848856791674e-09,
    1.4659775274047436e-08,
    -1.6350312701054695e-07,
    1.6461000484121368e-06,
    -1.4925595266831182e-05,
    0.0001205533111164271,
    -0.000854832698083379,
    0.0052239776248180145,
    -0.026866170645076792,
    0.11283791670954879,
    -0.3761263890318375,
    1.1283791670955126,
)
# erfc(x) e^(x^2) (x + 3) on 1 <= x <= 28, in powers of ((x - 3) / (x + 3) - 19/124) 124/81.
_ERFC = (
    -1.7409231842163069e-12,
    4.487395346808229e-11,
    5.3493626362383665e-11,
    -7.104127737697985e-10,
    -8.694688975381411e-10,
    8.867717538843475e-09,
    1.0132210300238094e-08,
    -1.2009475809169943e-07,
    -5.760471359722852e-08,
    1.8187014177595832e-06,
    -1.903309101944877e-06,
    -2.6636637534024688e-05,
    0.00011057158088958468,
    0.00012517713871551927,
    -0.003160534528324875,
    0.018008414533197917,
    -0.06788244453437302,
    0.1977266549430353,
    -0.472112362785163,
    0.9514522659706822,
)
_SLOPE = 2 / math.sqrt(math.pi)


def _polynomial(coefficients: Sequence[float], x: mx.array) -> mx.array:
    result = coefficients[0] * x + coefficients[1]
    for coefficient in coefficients[2:]:
        result = result * x + coefficient
    return result


def _near(a: mx.array) -> mx.array:
    """Return erf of numbers from -1 to 1."""
    return a * _polynomial(_ERF, mx.square(a))


def _tail(size: mx.array) -> mx.array:
    """Return 1 - erf of numbers from 1 to 28, beyond which float64 has only 0."""
    place = ((size - 3) / (size + 3) - 19 / 124) * (124 / 81)
    return _exp(-mx.square(size)) * _polynomial(_ERFC, place) / (size + 3)


def _split(a: mx.array) -> tuple[mx.array, mx.array, mx.array]:
    """Return which numbers have |a| > 1, with erf(a) of the others and 1 - erf(|a|) of these."""
    size = mx.abs(a)
    above = size > 1
    return above, _near(mx.where(above, 0, a)), _tail(mx.clip(size, 1, 28))


def _erf(a: mx.array) -> mx.array:
    above, near, tail = _split(a)
    return mx.where(above, mx.sign(a) * (1 - tail), near)


def _erfinv(a: mx.array) -> mx.array:
    """Improve S. Winitzki's estimate (2008) by two steps of Halley's method."""
    size = mx.abs(a)
    inside = size < 1
    held = mx.where(inside, size, 0)
    # Where 1 - erf is small it alone has all digits.
    rest = 1 - held
    logarithm = mx.log1p(-held) + mx.log1p(held)
    middle = 2 / (math.pi * 0.147) + 0.5 * logarithm
    result = mx.sqrt(mx.sqrt(mx.square(middle) - logarithm / 0.147) - middle)
    for _ in range(2):
        above, near, tail = _split(result)
        error = mx.where(above, rest - tail, near - held)
        step = error / (_SLOPE * _exp(-mx.square(result)))
        result = result - step / (1 + result * step)
    result = mx.where(inside, result, mx.where(size == 1, math.inf, math.nan).astype(a.dtype))
    return mx.where(a < 0, -result, result)


def _sigmoid(a: mx.array) -> mx.array:
    return mx.reciprocal(1 + _exp(-a))


exp: Function = _unary(mx.exp, _exp, lambda a, out: out)
sin: Function = _unary(mx.sin, _sin, lambda a, out: cos(a))
cos: Function = _unary(mx.cos, _cos, lambda a, out: -sin(a))
log2: Function = _unary(mx.log2, mx.log2, lambda a, out: 1 / (a * math.log(2)))
log10: Function = _unary(mx.log10, mx.log10, lambda a, out: 1 / (a * math.log(10)))
tan: Function = _unary(mx.tan, mx.tan, lambda a, out: 1 + mx.square(out))
erf: Function = _unary(mx.erf, _erf, lambda a, out: _SLOPE * exp(-mx.square(a)))
erfinv: Function = _unary(mx.erfinv, _erfinv, lambda a, out: exp(mx.square(out)) / _SLOPE)
sigmoid: Function = _unary(mx.sigmoid, _sigmoid, lambda a, out: out * sigmoid(-a))


root: Function = with_slope(
    mx.sqrt, lambda a, out: mx.where(out == 0, 0, 0.5 / mx.where(out == 0, 1, out))
)
"""The square root, whose slope at 0 counts as 0: of the length of a vector of zeros."""


def exp2(a: mx.array) -> mx.array:
    """Return the power of 2."""
    if a.dtype == mx.float64:
        return mx.power(mx.array(2, mx.float64), a)
    return mx.exp(a * math.log(2))


def _of_pairs(
    value: Callable[[mx.array, mx.array], mx.array],
    slopes: Callable[[mx.array, mx.array, mx.array], tuple[mx.array, mx.array]],
) -> Callable[[mx.array, mx.array], mx.array]:
    """Return a function of two arrays of one shape and dtype, with this gradient.

    Args:
        value: the function.
        slopes: its derivatives, of the arguments and the value; complex ones as mlx multiplies
            cotangents by them, conjugated.
    """
    custom = cast(Any, mx.custom_function(value))

    @custom.vjp  # type: ignore[untyped-decorator]
    def gradient(
        arrays: tuple[mx.array, mx.array], cotangent: mx.array, out: mx.array
    ) -> tuple[mx.array, mx.array]:
        left, right = slopes(*arrays, out)
        return cotangent * left, cotangent * right

    @custom.vmap  # type: ignore[untyped-decorator]
    def rows(
        arrays: tuple[mx.array, mx.array], axes: tuple[int | None, int | None]
    ) -> tuple[mx.array, int]:
        """Keep the gradient, as above; an array that all rows share has no axis."""
        parts = [
            array[None] if axis is None else mx.moveaxis(array, axis, 0)
            for array, axis in zip(arrays, axes, strict=True)
        ]
        return custom(*mx.broadcast_arrays(*parts)), 0

    def function(a: mx.array, b: mx.array) -> mx.array:
        dtype = mx.result_type(a, b)
        result: mx.array = custom(*mx.broadcast_arrays(a.astype(dtype), b.astype(dtype)))
        return result

    return function


def _logaddexp(a: mx.array, b: mx.array) -> mx.array:
    high, low = mx.maximum(a, b), mx.minimum(a, b)
    # Of infinities there is no difference.
    same = high == low
    more = mx.log1p(_exp(mx.where(same, 0, low - high)))
    return high + more


def _power(a: mx.array, b: mx.array) -> mx.array:
    """Raise complex numbers to powers; mlx's 0^0 is nan."""
    return mx.where(b == 0, 1, mx.power(a, b))


def _power_slopes(a: mx.array, b: mx.array, out: mx.array) -> tuple[mx.array, mx.array]:
    base = mx.where(b == 0, 0, b * power(mx.where(b == 0, 1, a), b - 1))
    exponent = mx.where(a == 0, 0, out * mx.log(mx.where(a == 0, 1, a)))
    return mx.conjugate(base), mx.conjugate(exponent)


def _real_slopes(a: mx.array, b: mx.array, out: mx.array) -> tuple[mx.array, mx.array]:
    """Return mlx's derivatives, but 0 of 0^0, where they are nan and -inf."""
    base = mx.where(b == 0, 0, b * power(mx.where(b == 0, 1, a), b - 1))
    flat = mx.where(b < 0, False, a == 0)
    return base, mx.where(flat, 0, out * mx.log(mx.where(flat, 1, a)))


_logaddexp64 = _of_pairs(_logaddexp, lambda a, b, out: (sigmoid(a - b), sigmoid(b - a)))
# mlx has no gradient of the first, and does not conjugate the second's.
_complex_logaddexp = _of_pairs(
    mx.logaddexp,
    lambda a, b, out: (mx.conjugate(mx.exp(a - out)), mx.conjugate(mx.exp(b - out))),
)
_complex_power = _of_pairs(_power, _power_slopes)
_real_power = _of_pairs(mx.power, _real_slopes)


def logaddexp(a: mx.array, b: mx.array) -> mx.array:
    """Return ln(e^a + e^b), without overflow."""
    dtype = mx.result_type(a, b)
    if dtype == mx.complex64:
        return _complex_logaddexp(a, b)
    return _logaddexp64(a, b) if dtype == mx.float64 else mx.logaddexp(a, b)


def power(a: mx.array, b: mx.array) -> mx.array:
    """Return a^b."""
    dtype = mx.result_type(a, b)
    if dtype == mx.complex64:
        return _complex_power(a, b)
    return _real_power(a, b) if mx.issubdtype(dtype, mx.floating) else mx.power(a, b)


def _largest(a: mx.array, axis: Axis) -> mx.array:
    """Return the maximum along axes, 0 for infinities, without a gradient."""
    result = mx.max(mx.stop_gradient(a), axis=axis, keepdims=True)
    return mx.where(mx.isfinite(result), result, 0)


def logsumexp(a: mx.array, axis: Axis = None, keepdims: bool = False) -> mx.array:
    """Return the logarithm of the sum of exponentials along axes, without overflow."""
    if a.dtype != mx.float64:
        if not mx.issubdtype(a.dtype, mx.inexact):
            a = a.astype(mx.float32)  # mlx subtracts the largest before, also from unsigned ones
        return mx.logsumexp(a, axis=axis, keepdims=keepdims)
    largest = _largest(a, axis)
    result = mx.log(mx.sum(exp(a - largest), axis=axis, keepdims=True)) + largest
    if keepdims:
        return result
    return mx.squeeze(result, axis=axis)


def softmax(a: mx.array, axis: Axis = None, precise: bool = False) -> mx.array:
    """Return positive numbers that sum to 1 along axes."""
    if a.dtype != mx.float64 or a.size == 0:
        made = operations.softmax(a) if _is_last(axis, a.ndim) else None
        return mx.softmax(a, axis=axis, precise=precise) if made is None else made
    powers = exp(a - mx.max(mx.stop_gradient(a), axis=axis, keepdims=True))
    return powers / mx.sum(powers, axis=axis, keepdims=True)


def _is_last(axis: Axis, rank: int) -> bool:
    """Whether an axis is the last one alone."""
    if axis is None:
        return rank == 1
    axes = axis if isinstance(axis, tuple) else (axis,)
    return len(axes) == 1 and rank > 0 and axes[0] in (-1, rank - 1)


def logcumsumexp(
    a: mx.array, axis: int | None = None, reverse: bool = False, inclusive: bool = True
) -> mx.array:
    """Return the logarithms of the cumulative sums of exponentials."""
    if a.dtype != mx.float64:
        return mx.logcumsumexp(a, axis=axis, reverse=reverse, inclusive=inclusive)
    if axis is None:
        a, axis = a.reshape(-1), 0
    result = mx.moveaxis(a, axis, 0)
    if reverse:
        result = result[::-1]
    if not inclusive:
        result = mx.concatenate([mx.full(result[:1].shape, -math.inf, a.dtype), result[:-1]])
    # Each round doubles how many elements a place has (Hillis and Steele, 1986).
    width = 1
    while width < result.shape[0]:
        more = logaddexp(result[width:], result[:-width])
        result = mx.concatenate([result[:width], more])
        width *= 2
    return mx.moveaxis(result[::-1] if reverse else result, 0, axis)


_function = partial(elementwise, result=inexact)

EXPONENTIALS = (
    _function("exp", "The exponential.", "e^a", exp),
    _function("expm1", "The exponential less 1, exact near 0.", "e^a - 1", accepted=REAL),
    _function("exp2", "The power of 2.", "2^a", exp2, accepted=REAL),
    _function("log", "The natural logarithm.", "ln a", values=" 0.5..2", aliases="ln"),
    _function("log1p", "The logarithm of 1 + a, exact near 0.", "ln(1 + a)", values=" -0.5..2"),
    _function("log2", "The logarithm of base 2.", "ln a / ln 2", log2, values=" 0.5..2"),
    _function("log10", "The logarithm of base 10.", "ln a / ln 10", log10, values=" 0.5..2"),
    _function(
        "logaddexp",
        "The logarithm of a sum of exponentials, without overflow.",
        "ln(e^a + e^b)",
        logaddexp,
        places=PAIR,
    ),
    _function(
        "erf",
        "The error function.",
        "2 / sqrt(pi) integral from 0 to a of e^(-t^2) dt",
        erf,
        accepted=REAL,
    ),
    _function(
        "erfinv",
        "The inverse of the error function.",
        "erf(out) = a",
        erfinv,
        accepted=REAL,
        values=" -0.8..0.8",
        aliases="erf_inv",
    ),
)


TRIGONOMETRY = (
    _function("sin", "The sine.", "sin a", sin, aliases="sine"),
    _function("cos", "The cosine.", "cos a", cos, aliases="cosine"),
    _function("tan", "The tangent.", "sin a / cos a", tan, values=" -1..1"),
    _function("arcsin", "The inverse sine.", "sin out = a", values=" -0.8..0.8", aliases="asin"),
    _function("arccos", "The inverse cosine.", "cos out = a", values=" -0.8..0.8", aliases="acos"),
    _function("arctan", "The inverse tangent.", "tan out = a", aliases="atan"),
    _function(
        "arctan2",
        "The angle of the point (b, a).",
        "atan(a / b) in the quadrant of (b, a)",
        places=PAIR,
        accepted=REAL,
        values=" 0.5..2",
        aliases="atan2",
    ),
    _function("sinh", "The hyperbolic sine.", "(e^a - e^-a) / 2"),
    _function("cosh", "The hyperbolic cosine.", "(e^a + e^-a) / 2"),
    _function("tanh", "The hyperbolic tangent.", "sinh a / cosh a"),
    _function(
        "arcsinh",
        "The inverse hyperbolic sine.",
        "sinh out = a",
        complex_on_cpu(mx.arcsinh),
        aliases="asinh",
    ),
    _function(
        "arccosh",
        "The inverse hyperbolic cosine.",
        "cosh out = a",
        complex_on_cpu(mx.arccosh),
        values=" 1.5..3",
        aliases="acosh",
    ),
    _function(
        "arctanh",
        "The inverse hyperbolic tangent.",
        "tanh out = a",
        complex_on_cpu(mx.arctanh),
        values=" -0.8..0.8",
        aliases="atanh",
    ),
)
