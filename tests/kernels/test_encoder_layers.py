"""Encoder layers as one operation: what they refuse, and texts that do not touch each other."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.accelerate import device, kernels
from cowmlx.accelerate.fused import encoders, stand_in
from cowmlx.networks.encoders.layers import MLP, Attention, Layer, RotaryAttention, Texts

pytestmark = pytest.mark.skipif(not kernels.available(), reason="there are no kernels here")

WIDTH, HEADS = 32, 4


@pytest.fixture(params=["plain", "rotary, gated"])
def layer(request):
    """A layer that kernels compute."""
    mx.random.seed(2)
    rotary = request.param != "plain"
    attention = RotaryAttention(WIDTH, HEADS, 1e4) if rotary else Attention(WIDTH, HEADS)
    made = Layer(attention, MLP(WIDTH, 48, "silu" if rotary else "gelu", gated=rotary), WIDTH, 1e-6)
    device.prepare_for_device(made)
    mx.eval(made.parameters())
    stand_in.put(made, encoders._proved(made, False))
    return made


def test_rows_are_those_of_the_layers_own_code(layer):
    for lengths in ([1], [70], [1, 1, 2, 5, 5, 64, 65, 130, 300]):
        texts = Texts(lengths)
        x = mx.random.normal((texts.size, WIDTH))
        masks = [mx.random.normal((1, HEADS, g.length, g.length)) for g in texts.groups]
        near = [mx.random.uniform(shape=(1, 1, g.length, g.length)) < 0.9 for g in texts.groups]
        near = [mask | mx.eye(mask.shape[-1]).astype(mx.bool_) for mask in near]
        for own in (None, masks, near):
            made = layer(x, texts, own)
            with stand_in.plainly():
                expected = layer(x, texts, own)
            np.testing.assert_allclose(np.array(made), np.array(expected), atol=2e-5)


def test_a_text_has_the_same_rows_beside_others(layer):
    texts = Texts([3, 3, 40, 90])
    x = mx.random.normal((texts.size, WIDTH))
    made, start = layer(x, texts), 0
    for length in texts.lengths:
        part = slice(start, start + length)
        alone = layer(x[part], Texts([length]))
        np.testing.assert_allclose(np.array(alone), np.array(made[part]), atol=1e-5)
        start += length


X = (6, WIDTH)


@pytest.mark.parametrize(
    ("shape", "groups", "masks", "words"),
    [
        ((6, WIDTH + 1), [(0, 2, 3)], [], "x is no array"),
        (X, [(0, 1, 3)], [], "another number"),
        (X, [(1, 2, 3)], [], "follow each other"),
        (X, [(0, 2, 3), (0, 0, 3)], [], "follow each other"),
        (X, [(0, 2, 3)], [(1, 1, 3, 3)] * 2, "as many masks"),
        (X, [(0, 2, 3)], [(1, 1, 2, 3)], "broadcast"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(layer, shape, groups, masks, words):
    fused = layer._fused
    angles = [] if fused._angles is None else fused._angles.upto(3)
    given = [mx.zeros(own) for own in masks]
    with pytest.raises(ValueError, match=words):
        kernels.module().encode_layers(fused._layers, mx.zeros(shape), groups, angles, given)
