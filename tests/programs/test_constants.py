"""Constants: each number is rounded once, to the dtype that it has, and never through float32."""

from __future__ import annotations

from fractions import Fraction

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.programs import bits, graph, parse

from cowmlx.programs.operations.rules import DTYPES


def constant(dtype: str, value: object) -> mx.array:
    made = graph([], [], ["c"], constants=[{"name": "c", "dtype": dtype, "value": value}])
    (found,) = parse(made).run([]).finish()
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0), (2, 3)])
def test_shapes_and_dtypes_are_those_that_are_said(dtype, shape):
    numbers = np.arange(int(np.prod(shape))).reshape(shape) % 2
    found = constant(dtype, (numbers == 1 if dtype == "bool" else numbers).tolist())
    assert (found.shape, found.dtype) == (shape, getattr(mx, "bool_" if dtype == "bool" else dtype))
    assert found.astype(mx.int32).tolist() == numbers.tolist()


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("int64", 2**53 + 1),
        ("int64", -(2**63)),
        ("uint64", 2**64 - 1),
        ("float64", 0.1),
        ("float64", 2.0**-1074),
        ("float64", 1.7976931348623157e308),
        ("uint32", 2**32 - 1),
    ],
)
def test_what_float32_does_not_hold_is_exact(dtype, value):
    assert constant(dtype, [value, value]).tolist() == [value, value]


def test_infinities_and_nan_are_texts():
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        found = constant(dtype, ["inf", "-inf", "nan"]).astype(mx.float32).tolist()
        assert found[:2] == [float("inf"), float("-inf")] and found[2] != found[2]


def test_complex_numbers_are_texts_or_real():
    assert constant("complex64", ["1-2j", 3, "0.5j"]).tolist() == [1 - 2j, 3, 0.5j]


@given(st.floats(-65000, 65000) | st.floats(-1e-5, 1e-5))
@settings(max_examples=200, deadline=None)
def test_halves_are_the_nearest(value):
    found = constant("float16", value)
    assert bits(found) == bits(mx.array(np.array(value, np.float64).astype(np.float16)))


@given(st.floats(-3e38, 3e38) | st.floats(-1e-37, 1e-37) | st.floats(-4, 4))
@settings(max_examples=300, deadline=None)
def test_bfloat16_is_the_nearest_and_ties_are_even(value):
    found = constant("bfloat16", value)
    (pattern,) = found.reshape(1).view(mx.uint16).tolist()

    def exact(pattern):
        return Fraction(float(np.array([pattern << 16], np.uint32).view(np.float32)[0]))

    mine = abs(exact(pattern) - Fraction(value))
    for other in (pattern - 1, pattern + 1):
        if 0 <= other & 0x7FFF < 0x7F80 and other >> 15 == pattern >> 15 and other >= 0:
            its = abs(exact(other) - Fraction(value))
            assert mine < its or (mine == its and pattern % 2 == 0)
