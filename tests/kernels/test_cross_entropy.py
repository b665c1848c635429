"""The kernel of cross entropies with class ids, against mlx's operations."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from support.programs import bits

from cowmlx.accelerate import kernels

cross_entropy = kernels.module().cross_entropy
SHAPES = [(1,), (7,), (64, 10), (3, 5, 40), (2, 1, 1), (9, 5000)]
TYPES = (mx.int8, mx.uint8, mx.int16, mx.uint16, mx.int32, mx.uint32, mx.int64, mx.uint64)
in_order = pytest.mark.skipif(not kernels.module().ADDS_IN_ORDER, reason="mlx adds in vectors here")


def composed(logits: mx.array, ids: mx.array) -> mx.array:
    """What programs computed by mlx's operations."""
    logits = logits - mx.stop_gradient(mx.max(logits, axis=-1, keepdims=True))
    score = mx.take_along_axis(logits, mx.expand_dims(ids, -1), -1).squeeze(-1)
    return mx.logsumexp(logits, axis=-1) - score


def made(shape, dtype=mx.int32, scale=3.0):
    logits = scale * mx.random.normal(shape, key=mx.random.key(len(shape)))
    ids = mx.random.randint(0, min(shape[-1], 100), shape[:-1], key=mx.random.key(2))
    return logits, ids.astype(dtype)


def with_gradient(function, logits, ids, weights):
    def total(logits):
        losses = function(logits, ids)
        return (losses * weights).sum(), losses

    (_, losses), gradient = mx.value_and_grad(total)(logits)
    return losses, gradient


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("exactly", [False, pytest.param(True, marks=in_order)])
def test_losses_and_gradients_are_mlx_s(instruction_set, shape, exactly):
    for dtype, scale in ((mx.int32, 3.0), (mx.int32, 90.0), *((dtype, 1.0) for dtype in TYPES)):
        logits, ids = made(shape, dtype, scale)
        weights = mx.random.normal(ids.shape, key=mx.random.key(5))
        pairs = zip(
            with_gradient(lambda *given: cross_entropy(*given, exactly), logits, ids, weights),
            with_gradient(composed, logits, ids, weights),
            strict=True,
        )
        for found, wanted in pairs:
            if exactly:
                assert bits(found) == bits(wanted)
            else:
                assert np.allclose(np.array(found), np.array(wanted), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("exactly", [False, True])
def test_what_lies_otherwise_and_rows_of_rows(exactly):
    logits, ids = made((6, 40))
    turned = mx.contiguous(logits.T).T
    plain = cross_entropy(logits, ids, exactly)
    assert mx.array_equal(cross_entropy(turned, ids[::-1][::-1], exactly), plain)
    rows = mx.vmap(lambda one, other: cross_entropy(one, other, exactly))
    assert mx.array_equal(rows(logits.reshape(2, 3, 40), ids.reshape(2, 3)), plain.reshape(2, 3))
    shared = mx.vmap(lambda one: cross_entropy(one, ids, exactly))
    assert mx.array_equal(shared(mx.stack([logits, logits])), mx.stack([plain, plain]))
    slopes = mx.vmap(mx.grad(lambda one, other: cross_entropy(one, other, exactly).sum()))
    whole = mx.grad(lambda one: cross_entropy(one, ids, exactly).sum())(logits)
    found = slopes(logits.reshape(2, 3, 40), ids.reshape(2, 3))
    assert mx.array_equal(found, whole.reshape(2, 3, 40))


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_slope_of_slopes(exactly, dtype):
    """Of more classes than the smallest type can count, with ids out of range."""
    logits, ids = made((4, 300), dtype)
    direction = mx.random.normal(logits.shape, key=mx.random.key(8))

    def curvature(function, ids):
        slope = mx.grad(lambda x: (function(x, ids) * mx.arange(1.0, 5.0)).sum())
        return mx.grad(lambda x: (slope(x) * direction).sum())(logits)

    for given, inside in ((ids, ids), (mx.array([127, 0, 1, 2], dtype), mx.array([127, 0, 1, 2]))):
        found = curvature(lambda x, y: cross_entropy(x, y, exactly), given)
        assert mx.allclose(found, curvature(composed, inside), rtol=1e-4, atol=1e-5)
    if dtype == mx.int64:
        found = curvature(lambda x, y: cross_entropy(x, y, exactly), mx.array([-5, 999, 0, 1]))
        inside = mx.array([0, 299, 0, 1])
        assert mx.allclose(found, curvature(composed, inside), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("exactly", [False, True])
def test_numbers_that_are_not_finite(exactly):
    rows = mx.array(
        [[0, -math.inf, 1], [math.inf, 0, 0], [math.nan, 0, 0], [-math.inf] * 3, [0, 200, -200]]
    )
    found = cross_entropy(rows, mx.array([1, 1, 1, 0, 2]), exactly).tolist()
    assert found[0] == math.inf
    assert all(math.isnan(one) for one in found[1:4])
    assert found[4] == 400
    # A row that does not count gives nothing back.
    weights = mx.array([0.0, 0, 0, 0, 1])
    slopes = mx.grad(lambda x: (cross_entropy(x, mx.array([1, 1, 1, 0, 2]), exactly) * weights)[4])
    assert slopes(rows)[:4].tolist() == [[0.0] * 3] * 4


@pytest.mark.parametrize("exactly", [False, True])
def test_ids_out_of_range_are_clamped(exactly):
    logits = mx.random.normal((4, 5), key=mx.random.key(1))
    inside = cross_entropy(logits, mx.array([0, 0, 4, 4]), exactly)
    for dtype in (mx.int8, mx.int64):
        assert mx.array_equal(
            cross_entropy(logits, mx.array([-100, -1, 5, 127], dtype), exactly), inside
        )
    large = mx.array(np.array([0, 0, 2**63, 2**64 - 1], np.uint64))
    assert mx.array_equal(cross_entropy(logits, large, exactly), inside)


@pytest.mark.parametrize(
    ("logits", "ids"),
    [
        (mx.zeros((3, 4), mx.float16), mx.zeros(3, mx.int32)),
        (mx.zeros((3, 4)), mx.zeros(3)),
        (mx.zeros((3, 4)), mx.zeros(4, mx.int32)),
        (mx.zeros((3, 0)), mx.zeros(3, mx.int32)),
        (mx.zeros(()), mx.zeros((), mx.int32)),
    ],
)
def test_what_does_not_fit_is_refused(logits, ids):
    with pytest.raises(ValueError, match=r"logits|ids"):
        cross_entropy(logits, ids)


def test_no_rows():
    assert cross_entropy(mx.zeros((0, 4)), mx.zeros(0, mx.int32)).shape == (0,)
