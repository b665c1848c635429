"""Products with the experts that indices choose, against float64."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import PRECISION, exact, random, types
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
MODES = [("dense", 0, 0), ("affine", 4, 64), ("affine", 8, 32), ("mxfp4", 4, 32), ("mxfp8", 8, 32)]


def packed(weight: mx.array, mode: str, bits: int, group: int) -> tuple[list[mx.array], mx.array]:
    """What experts() takes of (E, N, K) weights, and the numbers that it stands for."""
    parts, numbers = (weight,), weight
    if mode != "dense":
        parts = mx.quantize(weight, group_size=group, bits=bits, mode=mode)
        numbers = mx.dequantize(*parts, group_size=group, bits=bits, mode=mode, dtype=mx.float32)
    filled = (-weight.shape[1]) % 16
    return [
        MODULE.pack(mx.pad(part, [(0, 0), (0, filled), (0, 0)]).flatten(0, 1)) for part in parts
    ], numbers


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(1,), (3,), (2, 5), (1, 40, 2), (0, 2), (70,)]),
    count=st.integers(1, 6),
    rows=st.integers(1, 50),
    width=st.integers(1, 3),
    mode=st.sampled_from(MODES),
    type_=types,
    biased=st.booleans(),
    shared=st.booleans(),
    seed=st.integers(0, 99),
)
def test_experts(shape, count, rows, width, mode, type_, biased, shared, seed):
    name, bits, group = mode
    columns = math.lcm(max(group, 1), 32) * width
    indices = mx.random.randint(0, count, shape, key=mx.random.key(seed))
    places = (*shape[:-1], 1) if shared else shape
    x = random((*places, columns), type_, seed)
    parts, numbers = packed(random((count, rows, columns), "float32", seed + 1), *mode)
    bias = random((count, rows), "float32", 2) if biased else None
    found = MODULE.experts(
        x, indices, *parts, bias=bias, count=count, rows=rows, mode=name, bits=bits, group=group
    )
    chosen = exact(numbers)[np.array(indices)]
    z = np.broadcast_to(exact(x), (*shape, columns))[..., None]
    wanted, scale = (chosen @ z)[..., 0], (np.abs(chosen) @ np.abs(z))[..., 0]
    if bias is not None:
        wanted = wanted + exact(bias)[np.array(indices)]
        scale = scale + np.abs(exact(bias)[np.array(indices)])
    assert (found.shape, found.dtype) == ((*shape, rows), x.dtype)
    assert np.all(np.abs(exact(found) - wanted) <= PRECISION[type_] * (scale + 1e-30))


def test_a_row_is_the_same_whoever_chose_the_same_expert():
    x = random((90, 64), "float32")
    (weight,), _ = packed(random((3, 33, 64), "float32", 1), "dense", 0, 0)
    together = MODULE.experts(x, mx.array([1] * 90), weight, count=3, rows=33)
    apart = MODULE.experts(x, mx.array([1, 0, 2] * 30), weight, count=3, rows=33)
    assert mx.array_equal(together[::3], apart[::3])
    for row in (0, 3, 87):
        alone = MODULE.experts(x[row], mx.array(1), weight, count=3, rows=33)
        assert mx.array_equal(alone, together[row])


def test_experts_that_are_not_there_give_no_numbers():
    (weight,), _ = packed(random((3, 5, 32), "float32"), "dense", 0, 0)
    x = random((5, 32), "float32", 1)
    for other, dtype in ((2**31 - 1, np.int32), (2**32 + 1, np.int64), (2**64 - 1, np.uint64)):
        indices = mx.array(np.array([0, 3, 7, 2, other], dtype))
        found = MODULE.experts(x, indices, weight, count=3, rows=5)
        assert mx.isnan(found).all(-1).tolist() == [False, True, True, False, True]
        assert mx.isnan(found).any(-1).tolist() == [False, True, True, False, True]
    assert mx.isnan(MODULE.experts(x[0], mx.array(-1), weight, count=3, rows=5)).all()


X, INDICES, W = mx.zeros((4, 64)), mx.zeros(4, dtype=mx.int32), mx.zeros((6, 64, 16))


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((X[:, :63], INDICES, W), {"count": 3, "rows": 20}, "63 wide; the matrices take 64"),
        ((X, INDICES, W), {"count": 3, "rows": 40}, r"weight has the shape \(6, 64, 16\)"),
        ((X, INDICES, W), {"count": 0, "rows": 20}, "there are 0 experts of 20 rows"),
        ((X, INDICES.astype(mx.float32), W), {"count": 3, "rows": 20}, "indices are whole numbers"),
        ((X, INDICES[:3], W), {"count": 3, "rows": 20}, "broadcast"),
        (
            (X, INDICES, W, None, None, mx.zeros((3, 32))),
            {"count": 3, "rows": 20},
            r"must be \(3, 20\)",
        ),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, why):
    with pytest.raises(ValueError, match=why):
        MODULE.experts(*arguments, **options)
