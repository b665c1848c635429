"""Comparisons, truth, bits and choice of elements."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.making import PAIR, elementwise, example, row, truth
from cowmlx.programs.operations.row import Attribute, Spec
from cowmlx.programs.operations.rules import BITS_OR_BOOL, INTEGERS, REAL, broadcast, promote, spec

_RTOL = Attribute("rtol", "float", 1e-5, "What may differ, relative to b.", low=0)
_ATOL = Attribute("atol", "float", 1e-8, "What may differ besides.", low=0)
_EQUAL_NAN = Attribute("equal_nan", "bool", False, "Whether nan equals nan.")

_UNSIGNED = {1: mx.uint8, 2: mx.uint16, 4: mx.uint32, 8: mx.uint64}


def _differ(a: mx.array, b: mx.array) -> mx.array:
    """Compare with ``equal``: mlx 0.32.4 loses rows of ``not_equal`` if only b has rows."""
    return mx.logical_not(mx.equal(a, b))


def _bits(function: Callable[[mx.array, mx.array], mx.array]) -> Callable[..., mx.array]:
    """A function of bits whose operands both vary, and have one shape, wherever one of them does.

    mlx 0.32.4 loses rows where only one operand is vectorized.
    """

    def like(a: mx.array, b: mx.array) -> mx.array:
        if a.dtype == mx.bool_:
            return mx.logical_or(a, mx.not_equal(b, b))
        return a + (b - b).astype(a.dtype)

    def of_both(a: mx.array, b: mx.array) -> mx.array:
        dtype = mx.result_type(a, b)
        a, b = a.astype(dtype), b.astype(dtype)
        return function(like(a, b), like(b, a))

    return of_both


def _shifted(left: bool) -> Callable[[mx.array, mx.array], mx.array]:
    """Shift by bits; by as many as there are, or by fewer than none, nothing is left."""
    shift = mx.left_shift if left else mx.right_shift

    def function(a: mx.array, b: mx.array) -> mx.array:
        dtype = mx.result_type(a, b)
        a, b = a.astype(dtype), b.astype(dtype)
        bits = 8 * dtype.size
        outside = (b < 0) | (b >= bits)
        result = _bits(shift)(a, mx.where(outside, mx.zeros_like(b), b))
        if left:
            return mx.where(outside, mx.zeros_like(result), result)
        return mx.where(outside, mx.where(a < 0, -mx.ones_like(a), mx.zeros_like(a)), result)

    return function


def _isclose(a: mx.array, b: mx.array, **attributes: Any) -> mx.array:
    """Compare integers by their distance, which their own dtype may not hold."""
    dtype = mx.result_type(a, b)
    if not mx.issubdtype(dtype, mx.integer):
        return mx.isclose(a, b, **attributes)
    a, b = a.astype(dtype), b.astype(dtype)
    distance = (mx.maximum(a, b) - mx.minimum(a, b)).astype(_UNSIGNED[dtype.size])
    bound = attributes["atol"] + attributes["rtol"] * mx.abs(b.astype(mx.float32))
    return distance.astype(mx.float32) <= bound


def _where(*inputs: Any, **attributes: Any) -> Spec:
    dtype = promote([given.dtype for given in inputs[1:]])
    return spec(broadcast([given.shape for given in inputs]), dtype)


def _array_equal(*inputs: Any, **attributes: Any) -> Spec:
    promote([given.dtype for given in inputs])
    return spec((), "bool")


def _array_equal_arrays(a: Any, b: Any, /, **attributes: Any) -> mx.array:
    return mx.array_equal(a, b, equal_nan=attributes["equal_nan"])


def _allclose(*inputs: Any, **attributes: Any) -> Spec:
    promote([given.dtype for given in inputs])
    broadcast([given.shape for given in inputs])
    return spec((), "bool")


_tested = partial(elementwise, result=truth, differentiable=False)
_compared = partial(_tested, places=PAIR)
_bitwise = partial(elementwise, accepted=BITS_OR_BOOL, values=" 0..9", differentiable=False)

ROWS = (
    _compared("equal", "Whether elements are equal.", "a = b", aliases="eq"),
    _compared("not_equal", "Whether elements differ.", "a != b", _differ, aliases="ne"),
    _compared("greater", "Whether a is above b.", "a > b", accepted=REAL, aliases="gt"),
    _compared("greater_equal", "Whether a is b or above.", "a >= b", accepted=REAL, aliases="ge"),
    _compared("less", "Whether a is below b.", "a < b", accepted=REAL, aliases="lt"),
    _compared("less_equal", "Whether a is b or below.", "a <= b", accepted=REAL, aliases="le"),
    _compared(
        "isclose",
        "Whether elements are nearly equal.",
        "|a - b| <= atol + rtol |b|",
        _isclose,
        attributes=(_RTOL, _ATOL, _EQUAL_NAN),
    ),
    row(
        "allclose(a, b)",
        _allclose,
        lambda *arrays, **attributes: mx.all(_isclose(*arrays, **attributes)),
        "Whether all elements are nearly equal.",
        "all of |a - b| <= atol + rtol |b|",
        [example("[2,3]", "[2,3]"), example("[0]", "[]")],
        attributes=(_RTOL, _ATOL, _EQUAL_NAN),
    ),
    row(
        "array_equal(a, b)",
        _array_equal,
        _array_equal_arrays,
        "Whether two arrays have one shape and equal elements.",
        "all of a = b",
        [example("[2,3]", "[2,3]"), example("[2]", "[3]")],
        attributes=(_EQUAL_NAN,),
    ),
    _compared("logical_and", "Whether both are true; a number other than 0 is true.", "a and b"),
    _compared("logical_or", "Whether one or both are true.", "a or b"),
    _compared(
        "logical_xor",
        "Whether one of both is true.",
        "a xor b",
        lambda a, b: _differ(a.astype(mx.bool_), b.astype(mx.bool_)),
    ),
    _tested("logical_not", "Whether an element is false.", "logical_not(a)"),
    _tested("isnan", "Whether an element is nan.", "isnan(a)"),
    _tested("isinf", "Whether an element is infinite.", "isinf(a)"),
    _tested(
        "isfinite",
        "Whether an element is neither infinite nor nan.",
        "isfinite(a)",
        aliases="is_finite",
    ),
    _tested("isposinf", "Whether an element is inf.", "isposinf(a)", accepted=REAL),
    _tested("isneginf", "Whether an element is -inf.", "isneginf(a)", accepted=REAL),
    _bitwise("bitwise_and", "The and of bits.", "a & b", _bits(mx.bitwise_and), places=PAIR),
    _bitwise("bitwise_or", "The or of bits.", "a | b", _bits(mx.bitwise_or), places=PAIR),
    _bitwise(
        "bitwise_xor", "The exclusive or of bits.", "a ^ b", _bits(mx.bitwise_xor), places=PAIR
    ),
    _bitwise("bitwise_invert", "All bits inverted.", "~a", aliases="bitwise_not invert"),
    elementwise(
        "left_shift",
        "Bits moved up by b places; 0 for places that the dtype lacks.",
        "a 2^b",
        _shifted(left=True),
        places=PAIR,
        accepted=INTEGERS,
        values=" 0..5",
        aliases="bitwise_left_shift shift_left",
        differentiable=False,
    ),
    elementwise(
        "right_shift",
        "Bits moved down by b places; 0, or -1 of negative numbers, for places that the dtype "
        "lacks.",
        "floor(a / 2^b)",
        _shifted(left=False),
        places=PAIR,
        accepted=INTEGERS,
        values=" 0..5",
        aliases="bitwise_right_shift shift_right",
        differentiable=False,
    ),
    row(
        "where(condition, ∂x, ∂y)",
        _where,
        lambda *arrays, **attributes: mx.where(*arrays),
        "An element of x where the condition is true, of y elsewhere.",
        "x if condition else y",
        [
            example("bool[2,3]", "[2,3]", "[2,3]"),
            example("bool[2,1]", "[3]", "[]"),
            example("int32[3] 0..1", "[0,3]", "[1]"),
        ],
        aliases="select",
    ),
)
