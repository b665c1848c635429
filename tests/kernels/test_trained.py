"""Operations with our gradients, against mlx's operations and gradients."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.accelerate import kernels, operations, trained

pytestmark = pytest.mark.skipif(not kernels.available(), reason=f"no kernels: {kernels.reason()}")


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> mx.array:
    return scale * mx.random.normal(shape, key=mx.random.key(seed))


def attend(mask):
    return lambda q, k, v: trained.attention(q, k, v, 0.3, mask)


def attend_by_mlx(mask):
    return lambda q, k, v: mx.fast.scaled_dot_product_attention(q, k, v, scale=0.3, mask=mask)


def heads(length, keys):
    """Six heads that share two groups of keys and values."""
    return [
        random(2, heads, rows, 8, seed=seed)
        for seed, (heads, rows) in enumerate(((6, length), (2, keys), (2, keys)))
    ]


def normalize_channels(x, weight, bias):
    mean, variance = mx.mean(x, axis=(0, 1)), mx.var(x, axis=(0, 1))
    return (x - mean) * mx.rsqrt(variance + 1e-3) * weight + bias


ROWS = [random(3, 5, 7, seed=0), random(3, 5, 7, seed=1)]
TARGETS = mx.random.randint(0, 40, (3, 5), key=mx.random.key(2))
BOOLS = mx.random.uniform(shape=(4, 9), key=mx.random.key(3)) < 0.8
CASES = {
    "softmax": (trained.softmax, lambda x: mx.softmax(x, axis=-1), ROWS[:1]),
    "softmax of large numbers": (
        trained.softmax,
        lambda x: mx.softmax(x, axis=-1),
        [ROWS[0] * 60],
    ),
    "cross-entropy": (
        lambda x: trained.cross_entropy(x, TARGETS),
        lambda x: (
            mx.logsumexp(x, axis=-1) - mx.take_along_axis(x, TARGETS[..., None], axis=-1)[..., 0]
        ),
        [random(3, 5, 40)],
    ),
    "cross-entropy of improbable targets": (
        lambda x: trained.cross_entropy(x, TARGETS),
        lambda x: (
            mx.logsumexp(x, axis=-1) - mx.take_along_axis(x, TARGETS[..., None], axis=-1)[..., 0]
        ),
        [random(3, 5, 40, scale=90.0)],
    ),
    "swiglu": (trained.swiglu, lambda g, u: g * mx.sigmoid(g) * u, ROWS),
    "swiglu far from zero": (
        trained.swiglu,
        lambda g, u: g * mx.sigmoid(g) * u,
        [ROWS[0] * 40, ROWS[1]],
    ),
    "rms_norm": (
        lambda x, w: trained.rms_norm(x, w, 1e-5),
        lambda x, w: mx.fast.rms_norm(x, w, 1e-5),
        [ROWS[0], random(7, seed=4)],
    ),
    "rms_norm without weight": (
        lambda x: trained.rms_norm(x, None, 1e-5),
        lambda x: mx.fast.rms_norm(x, None, 1e-5),
        [ROWS[0]],
    ),
    "relu": (trained.relu, lambda x: mx.maximum(x, 0), [mx.array([[-1.0, 0.0, 2.0]])]),
    "batch_norm": (
        lambda x, w, b: trained.batch_norm(x, w, b, 1e-3),
        normalize_channels,
        [random(9, 5, 7) + 3, random(7, seed=1), random(7, seed=2)],
    ),
    "batch_norm without weight": (
        lambda x: trained.batch_norm(x, None, None, 1e-3),
        lambda x: normalize_channels(x, 1, 0),
        [random(9, 5, 7)],
    ),
    "attention": (attend(None), attend_by_mlx(None), heads(4, 9)),
    "causal attention": (attend("causal"), attend_by_mlx("causal"), heads(9, 9)),
    "causal attention behind a cache": (attend("causal"), attend_by_mlx("causal"), heads(4, 9)),
    "attention with a mask": (attend(BOOLS), attend_by_mlx(BOOLS), heads(4, 9)),
    "attention with what is added": (
        attend(random(4, 9)),
        attend_by_mlx(random(4, 9)),
        heads(4, 9),
    ),
    "attention with a mask of each row": (
        attend(BOOLS[None, None]),
        attend_by_mlx(BOOLS[None, None]),
        heads(4, 9),
    ),
    "attention with what is added to heads": (
        attend(random(2, 6, 4, 9)),
        attend_by_mlx(random(2, 6, 4, 9)),
        heads(4, 9),
    ),
}


def by(function, arrays):
    """Return a function's result, and gradients of its sum weighed at random."""

    def total(*arrays):
        made = function(*arrays)
        return (made * random(*made.shape, seed=9)).sum(), made

    (_, made), gradients = mx.value_and_grad(total, argnums=list(range(len(arrays))))(*arrays)
    return [np.array(each) for each in (made, *gradients)]


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients_are_mlx_s(case):
    ours, theirs, arrays = CASES[case]
    for found, wanted in zip(by(ours, arrays), by(theirs, arrays), strict=True):
        assert np.allclose(found, wanted, rtol=2e-5, atol=2e-6)


def test_gradients_are_the_same_where_activations_are_computed_again():
    ours, _, arrays = CASES["causal attention"]
    for found, wanted in zip(by(mx.checkpoint(ours), arrays), by(ours, arrays), strict=True):
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("mask", [None, "causal"])
def test_a_training_takes_them(mask):
    """What mlx-lm's modules call, as far as it is of float32."""
    q, k, v = heads(9, 9)
    with operations.plainly():
        found = operations.scaled_dot_product_attention(q, k, v, scale=0.3, mask=mask)
        half = operations.rms_norm(q.astype(mx.float16), None, 1e-5)
    assert mx.array_equal(found, trained.attention(q, k, v, 0.3, mask))
    assert half.dtype == mx.float16
