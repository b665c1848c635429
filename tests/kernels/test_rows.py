"""Norms, softmax and gates against float64, on every instruction set at hand."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import close, exact, random, types, viewed, views
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
EPS = 1e-5
SHAPES = st.tuples(
    st.sampled_from([(), (1,), (5,), (2, 3), (2, 3, 4), (0,), (300,)]),
    st.sampled_from([1, 2, 15, 16, 17, 64, 65, 100, 333]),
).map(lambda parts: (*parts[0], parts[1]))

settled = settings(max_examples=50, deadline=None)


def normal(z: np.ndarray) -> np.ndarray:
    """The normal distribution function, with its digits where it is small."""
    return np.array([math.erfc(-value / math.sqrt(2)) / 2 for value in z.ravel()]).reshape(z.shape)


ACTIVATIONS = {
    "silu": lambda z: z / (1 + np.exp(-z)),
    "gelu": lambda z: z * normal(z),
    "gelu_tanh": lambda z: z / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))),
    "relu": lambda z: np.maximum(z, 0),
    "relu2": lambda z: np.maximum(z, 0) ** 2,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
}


@settled
@given(SHAPES, types, views, st.booleans())
def test_rms_norm(shape, type_, view, weighted):
    x = viewed(random(shape, type_, scale=3), view)
    weight = random(shape[-1:], type_, 1) if weighted else None
    found = MODULE.rms_norm(x, weight, EPS)
    z = exact(x)
    wanted = z / np.sqrt((z**2).mean(-1, keepdims=True) + EPS)
    if weight is not None:
        wanted = wanted * exact(weight)
    assert found.dtype == x.dtype
    assert close(found, wanted)


@settled
@given(SHAPES, types, views, st.booleans(), st.booleans())
def test_layer_norm(shape, type_, view, weighted, biased):
    x = viewed(random(shape, type_, scale=3), view) + mx.array(7).astype(mx.float16)
    weight = random(shape[-1:], "float32", 1) if weighted else None
    bias = random(shape[-1:], "float32", 2) if biased else None
    found = MODULE.layer_norm(x, weight, bias, EPS)
    z = exact(x)
    far = z - z.mean(-1, keepdims=True)
    deviation = np.sqrt((far**2).mean(-1, keepdims=True) + EPS)
    wanted, scale = far / deviation, np.abs(z) / deviation
    if weight is not None:
        wanted, scale = wanted * exact(weight), scale * np.abs(exact(weight))
    if bias is not None:
        wanted, scale = wanted + exact(bias), scale + np.abs(exact(bias))
    assert close(found, wanted, scale)


@settled
@given(SHAPES, types, views)
def test_softmax(shape, type_, view):
    x = viewed(random(shape, type_, scale=10), view)
    z = exact(x)
    powers = np.exp(z - z.max(-1, keepdims=True)) if z.size else z
    wanted = powers / powers.sum(-1, keepdims=True)
    assert close(MODULE.softmax(x), wanted, 0.03)


def test_softmax_of_what_is_excluded():
    x = mx.array([[0.0, -mx.inf, 0.0], [-mx.inf, -mx.inf, -mx.inf]])
    found = np.array(MODULE.softmax(x))
    assert found[0].tolist() == [0.5, 0, 0.5]
    assert np.isnan(found[1]).all()


@settled
@given(SHAPES, types, views, st.sampled_from(list(ACTIVATIONS)), st.booleans())
def test_gates(shape, type_, view, activation, gated):
    x = viewed(random(shape, type_, scale=4), view)
    up = viewed(random(shape, type_, 1), view) if gated else None
    wanted = ACTIVATIONS[activation](exact(x))
    if up is not None:
        wanted = wanted * exact(up)
    assert close(MODULE.gate(x, up, activation=activation), wanted, 0.3 * np.abs(wanted))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_far_from_zero(activation):
    x = mx.linspace(-12, 12, 5001)
    wanted = ACTIVATIONS[activation](exact(x))
    found = exact(MODULE.gate(x, activation=activation))
    assert np.allclose(found, wanted, rtol=1e-6 if activation != "gelu" else 5e-6, atol=2e-7)
    ends = MODULE.gate(mx.array([-1e4, 1e4, 0.0]), activation=activation).tolist()
    wanted = {"relu2": [0.0, 1e8, 0.0], "sigmoid": [0.0, 1.0, 0.5]}
    assert ends == wanted.get(activation, [0.0, 1e4, 0.0])


def test_rows_are_the_same_alone_and_beside_others():
    x, weight = random((200, 100), "float32"), random((100,), "float32", 1)
    together = MODULE.rms_norm(x, weight, EPS)
    for row in (0, 7, 199):
        assert mx.array_equal(MODULE.rms_norm(x[row], weight, EPS), together[row])
    MODULE.set_threads(1)
    alone = MODULE.rms_norm(x, weight, EPS)
    mx.eval(alone)
    MODULE.set_threads(0)
    assert mx.array_equal(alone, together)


X = mx.zeros((3, 64))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: MODULE.rms_norm(X, mx.zeros(63), EPS), "weight has one axis, as wide as the last"),
        (lambda: MODULE.rms_norm(X.astype(mx.int32), None, EPS), "x is int32; it can be float32"),
        (lambda: MODULE.layer_norm(X, None, mx.zeros((1, 64)), EPS), "bias has one axis"),
        (lambda: MODULE.softmax(mx.array(1.0)), "at least one axis"),
        (lambda: MODULE.gate(X, X[:2]), "gate and up have the same shape"),
        (lambda: MODULE.gate(X, activation="elu"), 'activation is "elu"; it can be silu'),
    ],
)
def test_what_does_not_fit_is_refused(call, why):
    with pytest.raises(ValueError, match=why):
        call()
