"""How parameters begin: as mlx's own initializers make them, of keys in place of its state."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from mlx.nn import init

from cowmlx.programs.checking.declarations import INITIALIZERS
from cowmlx.training.initial import made

KEY = mx.random.key(5)
PLAIN = {
    "constant": ({"value": 0.5}, lambda: init.constant(0.5)),
    "zeros": ({}, lambda: init.constant(0.0)),
    "ones": ({}, lambda: init.constant(1.0)),
    "identity": ({}, lambda: init.identity()),
    "normal": ({"mean": 1.0, "std": 0.5}, lambda: init.normal(1.0, 0.5)),
    "uniform": ({"low": -1.0, "high": 3.0}, lambda: init.uniform(-1.0, 3.0)),
    "glorot_normal": ({"gain": 2.0}, lambda: lambda a: init.glorot_normal()(a, 2.0)),
    "glorot_uniform": ({"gain": 2.0}, lambda: lambda a: init.glorot_uniform()(a, 2.0)),
    "he_normal": (
        {"mode": "fan_out", "gain": 2.0},
        lambda: lambda a: init.he_normal()(a, "fan_out", 2.0),
    ),
    "he_uniform": (
        {"mode": "fan_in", "gain": 1.0},
        lambda: lambda a: init.he_uniform()(a, "fan_in", 1.0),
    ),
    "orthogonal": ({"gain": 1.5}, lambda: init.orthogonal(1.5)),
    "sparse": ({"sparsity": 0.5, "mean": 0.0, "std": 2.0}, lambda: init.sparse(0.5, 0.0, 2.0)),
}


def test_every_initializer_is_compared():
    assert set(PLAIN) == set(INITIALIZERS)


@pytest.mark.parametrize("name", PLAIN)
def test_initializers_are_those_of_mlx(name):
    """Of the same numbers: one array drawn by both, the same scale and spread."""
    arguments, plain = PLAIN[name]
    shape = (300, 300) if name in ("identity", "orthogonal", "sparse") else (200, 3, 150)
    own = np.array(made((name, arguments), shape, "float32", KEY))
    theirs = np.array(plain()(mx.zeros(shape)))
    assert own.dtype == theirs.dtype and own.shape == theirs.shape
    assert own.mean() == pytest.approx(theirs.mean(), abs=0.02 * max(1, theirs.std()))
    assert own.std() == pytest.approx(theirs.std(), rel=0.02)
    assert own.max() == pytest.approx(theirs.max(), rel=0.35)
    assert (own == 0).sum() == pytest.approx((theirs == 0).sum(), abs=5)
    if name == "orthogonal":
        assert own @ own.T == pytest.approx(np.eye(300) * 1.5**2, abs=1e-4)
    again = np.array(made((name, arguments), shape, "float32", KEY))
    assert np.array_equal(own, again)


def test_a_uniform_number_stays_within_its_limit():
    own = np.array(made(("he_uniform", {"mode": "fan_in", "gain": 1.0}), (50, 40), "float32", KEY))
    assert abs(own).max() <= math.sqrt(3 / 40) < abs(own).max() * 1.01


@pytest.mark.parametrize("name", PLAIN)
def test_initializers_have_the_digits_of_float64(name):
    shape = (40, 40)
    own = np.array(made((name, PLAIN[name][0]), shape, "float64", KEY))
    near = np.array(made((name, PLAIN[name][0]), shape, "float32", KEY))
    assert own.dtype == np.float64 and own.shape == shape
    assert own.std() == pytest.approx(near.std(), rel=0.1)
    if name == "orthogonal":
        assert own @ own.T == pytest.approx(np.eye(40) * 1.5**2, abs=1e-14)
    elif own.std() and name != "identity":
        drawn = own[own != 0]
        assert np.mean(drawn == drawn.astype(np.float32)) < 0.01
