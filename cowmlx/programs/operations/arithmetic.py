"""Sums, products, quotients, powers, roundings and bounds of elements."""

from __future__ import annotations

from functools import partial
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations import rules
from cowmlx.programs.operations.elementary import power
from cowmlx.programs.operations.making import (
    PAIR,
    cast,
    constant,
    elementwise,
    example,
    magnitude,
    row,
)
from cowmlx.programs.operations.row import Attribute, Spec
from cowmlx.programs.operations.rules import inexact, promote

_SIGNED = (mx.int8, mx.int16, mx.int32, mx.int64)


def floor_divide(a: mx.array, b: mx.array) -> mx.array:
    """Divide and round down, also where integers overflow and quotients of floats are rounded.

    The least integer divided by -1 has no quotient, and its division ends the process on x86.
    mlx rounds integer quotients towards 0, so those of different signs are corrected.
    """
    a, b = cast([a, b])
    if mx.issubdtype(a.dtype, mx.floating):
        return _floor_divide_floats(a, b)
    if a.dtype not in _SIGNED:
        return mx.floor_divide(a, b)
    by_minus_one = b == -1
    divisor = mx.where(by_minus_one, mx.ones_like(b), b)
    quotient = mx.floor_divide(a, divisor)
    rest = a - quotient * divisor
    # Not with &: rows of mlx's own are wrong where one of the two is the same for all.
    down = mx.logical_and((rest < 0) != (divisor < 0), mx.logical_and(rest != 0, divisor != 0))
    quotient = mx.where(down, quotient - 1, quotient)
    return mx.where(by_minus_one, -a, quotient)


def _floor_divide_floats(a: mx.array, b: mx.array) -> mx.array:
    """Divide and round down: a quotient just below an integer, rounded, would be that integer."""
    dtype = a.dtype
    if dtype in (mx.float16, mx.bfloat16):
        a, b = a.astype(mx.float32), b.astype(mx.float32)
    quotient = mx.round((a - mx.remainder(a, b)) / b)
    # Of what is not finite, and of 0, there is no remainder.
    quotient = mx.where(mx.isfinite(quotient), quotient, mx.floor_divide(a, b))
    return quotient.astype(dtype)


def remainder(a: mx.array, b: mx.array) -> mx.array:
    """Return what a division that rounds down leaves; see :func:`floor_divide`."""
    a, b = cast([a, b])
    if a.dtype not in _SIGNED:
        return mx.remainder(a, b)
    by_minus_one = b == -1
    divisor = mx.where(by_minus_one, mx.ones_like(b), b)
    return mx.where(by_minus_one, mx.zeros_like(a), mx.remainder(a, divisor))


def _divmod(*inputs: Any, **attributes: Any) -> list[Spec]:
    for place, given in zip(PAIR, inputs, strict=True):
        rules.require_dtype(place, given, rules.REAL)
    dtype = promote([given.dtype for given in inputs])
    spec = rules.spec(rules.broadcast([given.shape for given in inputs]), dtype)
    return [spec, spec]


def _round(a: mx.array, decimals: int) -> mx.array:
    """Round to decimals; mlx scales by float32 numbers, which other types lose digits by."""
    if decimals == 0:
        return mx.round(a)
    scale = 10 ** abs(decimals)
    if not mx.issubdtype(a.dtype, mx.floating):
        return a if decimals > 0 else _round_integers(a, scale)
    wide = a.astype(mx.float32) if a.dtype in (mx.float16, mx.bfloat16) else a
    by = constant(scale, wide)
    result = mx.round(wide * by) / by if decimals > 0 else mx.round(wide / by) * by
    result = mx.where(mx.isfinite(result), result, wide)  # too large to have such digits
    return result.astype(a.dtype)


def _round_integers(a: mx.array, scale: int) -> mx.array:
    """Round to multiples of a power of 10, the bounds of the dtype instead of those beyond."""
    if a.dtype == mx.bool_:
        return mx.zeros_like(a)
    least, most = (int(bound) for bound in (mx.iinfo(a.dtype).min, mx.iinfo(a.dtype).max))
    wide = a.astype(mx.int32) if a.dtype.size < 4 else a
    by = mx.array(scale, wide.dtype)
    above = remainder(wide, by)
    below = by - above
    is_odd = remainder(floor_divide(wide, by), mx.array(2, wide.dtype)) == 1
    up = mx.logical_or(above > below, mx.logical_and(above == below, is_odd))
    low = mx.array(least, wide.dtype)
    # mlx takes no number of 64 bits.
    high = ~mx.array(0, wide.dtype) if most >> 63 else mx.array(most, wide.dtype)
    lowered = mx.where(wide < low + above, low, wide - above)
    raised = mx.where(wide > high - below, high, wide + below)
    return mx.where(up, raised, lowered).astype(a.dtype)


def _clip(given: Any, /, **attributes: Any) -> Spec:
    rules.require_dtype("a", given, rules.REAL)
    low, high = attributes["a_min"], attributes["a_max"]
    if low is None and high is None:
        raise rules.value_refused("a_min", "null, as is a_max", "a number, or a_max must be one")
    for name in ("a_min", "a_max"):
        rules.fits(name, attributes[name], given.dtype)
    return rules.spec(given.shape, given.dtype)


def _clip_arrays(result: Any, /, **attributes: Any) -> mx.array:
    dtype = result.dtype
    if attributes["a_min"] is not None:
        result = mx.maximum(result, mx.array(attributes["a_min"], dtype=dtype))
    if attributes["a_max"] is not None:
        result = mx.minimum(result, mx.array(attributes["a_max"], dtype=dtype))
    return result


def _nan_to_num(a: mx.array, nan: float, posinf: float | None, neginf: float | None) -> mx.array:
    most = mx.finfo(a.dtype).max
    above = mx.array(most if posinf is None else posinf, dtype=a.dtype)
    below = mx.array(-most if neginf is None else neginf, dtype=a.dtype)
    result = mx.where(mx.isnan(a), mx.array(nan, dtype=a.dtype), a)
    result = mx.where(mx.isposinf(result), above, result)
    return mx.where(mx.isneginf(result), below, result)


_pair = partial(elementwise, places=PAIR)

ROWS = (
    _pair("add", "The sum of two arrays; of bools it is their or.", "a + b"),
    _pair(
        "subtract", "The difference of two arrays.", "a - b", accepted=rules.NUMBERS, aliases="sub"
    ),
    _pair("multiply", "The product of two arrays; of bools it is their and.", "a b", aliases="mul"),
    _pair(
        "divide",
        "The quotient of two arrays; integers and bools become float32.",
        "a / b",
        result=inexact,
        values=" 0.5..2",
        aliases="div true_divide",
    ),
    _pair(
        "floor_divide",
        "The quotient of two arrays, rounded down; of integers and 0 it is 0.",
        "floor(a / b)",
        floor_divide,
        accepted=rules.REAL,
        values=" 0.5..2",
        aliases="floordiv",
        differentiable=False,
    ),
    _pair(
        "remainder",
        "What a division that is rounded down leaves, with the divisor's sign; integers with 0 "
        "stay.",
        "a - b floor(a / b)",
        remainder,
        accepted=rules.REAL,
        values=" 0.5..2",
        aliases="mod rem",
    ),
    row(
        "divmod(∂a, ∂b)",
        _divmod,
        lambda *arrays, **attributes: [floor_divide(*arrays), remainder(*arrays)],
        "floor_divide and remainder at once.",
        "quotient = floor(a / b), remainder = a - b quotient",
        [example("[2,3] 0.5..2", "[3] 0.5..2"), example("int32[3] 1..9", "int32[]")],
        outputs=("quotient", "remainder"),
    ),
    _pair(
        "power",
        "An array to the power of another; of integers and a negative power it is 0.",
        "a^b",
        power,
        values=" 0.5..2",
        aliases="pow",
    ),
    elementwise(
        "negative",
        "An array with the other sign; unsigned integers wrap.",
        "-a",
        accepted=rules.NUMBERS,
        aliases="negate neg",
    ),
    elementwise("positive", "The array itself.", "a", lambda a: a, aliases="copy"),
    elementwise(
        "abs",
        "The absolute value; of complex numbers float32.",
        "|a|",
        result=magnitude,
        aliases="absolute fabs",
    ),
    elementwise(
        "sign",
        "-1, 0 or 1; of a complex number the number over its absolute value.",
        "a / |a|, 0 of 0",
        differentiable=False,
    ),
    elementwise("square", "The square.", "a^2"),
    elementwise("sqrt", "The square root.", "a^(1/2)", result=inexact, values=" 0.5..2"),
    elementwise("rsqrt", "One over the square root.", "a^(-1/2)", result=inexact, values=" 0.5..2"),
    elementwise(
        "reciprocal",
        "One over the array.",
        "1 / a",
        result=inexact,
        values=" 0.5..2",
        aliases="recip",
    ),
    _pair(
        "maximum",
        "The larger of two elements; nan if one is nan.",
        "max(a, b)",
        aliases="max_elementwise",
    ),
    _pair(
        "minimum",
        "The smaller of two elements; nan if one is nan.",
        "min(a, b)",
        aliases="min_elementwise",
    ),
    elementwise(
        "floor", "The next integer below.", "floor(a)", accepted=rules.REAL, differentiable=False
    ),
    elementwise(
        "ceil", "The next integer above.", "ceil(a)", accepted=rules.REAL, differentiable=False
    ),
    elementwise(
        "trunc",
        "The next integer towards 0.",
        "sign(a) floor(|a|)",
        accepted=rules.REAL,
        aliases="fix",
        differentiable=False,
    ),
    elementwise(
        "round",
        "The nearest number with so many decimals, halves to the even one; an integer stays within "
        "its dtype.",
        "round(a 10^d) / 10^d",
        function=_round,
        accepted=rules.REAL,
        examples=[
            example("[2,3]"),
            example("[]"),
            example("[0]"),
            example("[2,3] 0.5..2", decimals=2),
            example("[4] 100..2000", decimals=-2),
            example("int32[6] -99..99", decimals=-1),
        ],
        aliases="rint round_nearest_even",
        attributes=(
            Attribute("decimals", "int", 0, "How many digits after the point.", low=-9, high=9),
        ),
        differentiable=False,
    ),
    row(
        "clip(∂a)",
        _clip,
        _clip_arrays,
        "Elements below a_min become it, elements above a_max that.",
        "min(max(a, a_min), a_max)",
        [
            example("[2,3]", a_min=-0.5, a_max=0.5),
            example("int32[4] -3..3", a_min=0),
            example("[]", a_max=0.25),
        ],
        aliases="clamp",
        attributes=(
            Attribute("a_min", "number", None, "The least value; null is none."),
            Attribute("a_max", "number", None, "The greatest value; null is none."),
        ),
    ),
    elementwise(
        "nan_to_num",
        "Numbers in place of nan and infinities.",
        "nan, inf and -inf become numbers, others stay",
        _nan_to_num,
        accepted=rules.INEXACT[:-1],
        attributes=(
            Attribute("nan", "float", 0.0, "In place of nan."),
            Attribute("posinf", "float", None, "In place of inf; null is the greatest number."),
            Attribute("neginf", "float", None, "In place of -inf; null is the least number."),
        ),
    ),
    elementwise("degrees", "Radians as degrees.", "a 180 / pi", result=inexact, aliases="rad2deg"),
    elementwise("radians", "Degrees as radians.", "a pi / 180", result=inexact, aliases="deg2rad"),
    elementwise("real", "The real part.", "Re a", result=magnitude),
    elementwise(
        "imag",
        "The imaginary part.",
        "Im a",
        result=magnitude,
        accepted=("complex64",),
        examples=[example("complex64[2,3]"), example("complex64[]")],
        differentiable=False,
    ),
    elementwise(
        "conjugate", "The complex conjugate; real numbers stay.", "Re a - i Im a", aliases="conj"
    ),
)
