"""Encoder layers as one operation: what they refuse, and texts that do not touch each other."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.accelerate import device, kernels
from cowmlx.accelerate.fused import encoders, stand_in
from cowmlx.networks.encoders.layers import MLP, Attention, Layer, RotaryAttention, Texts
from cowmlx.networks.encoders.model import Embeddings, EncoderArgs

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
    stand_in.put(made, encoders.FusedEncoderLayer(*encoders._proved(made), rounded=False))
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


@pytest.mark.parametrize("rounded", [False, True])
def test_layers_together_are_the_same_one_after_the_other(layer, rounded):
    part = encoders._proved(layer)
    joined = encoders.FusedEncoderLayers([part] * 3, rounded)
    alone = encoders.FusedEncoderLayer(*part, rounded)
    texts = Texts([2, 2, 70])
    x = mx.random.normal((texts.size, WIDTH))
    own = [mx.random.normal((1, HEADS, g.length, g.length)) for g in texts.groups]
    for given in (None, own):
        expected = x
        for _ in range(2):
            expected = alone.take(expected, texts, given)
        made = joined.take(x, texts, [given] * 3, 1, 3)
        np.testing.assert_array_equal(np.array(made), np.array(expected))
    assert joined.take(x, texts, [None, own, None], 0, 3) is None
    np.testing.assert_array_equal(
        np.array(joined.take(x, texts, [None, own, None], 2, 3)),
        np.array(alone.take(x, texts)),
    )


TABLES = ("word", "position", "token_type")


@pytest.fixture(params=[TABLES, TABLES[:2], TABLES[:1]], ids="-".join)
def embeddings(request):
    """Embeddings of 50 tokens with some of the tables, in blocks."""
    mx.random.seed(3)
    has = {name: name in request.param for name in TABLES}
    positions, segments = 20 * has["position"], 3 * has["token_type"]
    args = EncoderArgs(50, WIDTH, positions=positions, segments=segments, embedding=WIDTH)
    args.first_position = 2
    made = Embeddings(args)
    made.norm.weight, made.norm.bias = mx.random.normal((2, WIDTH))
    device.prepare_for_device(made)
    mx.eval(made.parameters())
    return made


def test_embeddings_are_those_of_the_networks_own_code(embeddings):
    fused = encoders.FusedEmbeddings(embeddings)
    for lengths in ([1], [18], [4, 4, 9], [1] * 40):
        texts = Texts(lengths)
        tokens = mx.random.randint(0, 50, (texts.size,)).astype(mx.int32)
        kinds = mx.random.randint(0, 3, (texts.size,)).astype(mx.int32)
        mx.eval(tokens, kinds)
        for own in (None, kinds):
            made, expected = fused.take(tokens, texts, own), embeddings(tokens, texts, own)
            np.testing.assert_allclose(np.array(made), np.array(expected), atol=1e-5)
    assert fused.take(mx.zeros((1,), mx.int64), Texts([1]), None) is None
    assert fused.take(mx.zeros((1,), mx.int32) + 1, Texts([1]), None) is None  # not evaluated


@pytest.mark.parametrize(
    ("tokens", "kinds", "lengths", "words"),
    [
        ([50], None, [1], "a token"),
        ([-1], None, [1], "a token"),
        ([1], [3], [1], "a type"),
        ([1], [-1], [1], "a type"),
        ([1, 2], [1], [2], "type each"),
        ([1] * 19, None, [19], "positions"),
        ([1, 2], None, [1], "another number"),
        ([], None, [], "another number"),
    ],
    ids=str,
)
def test_tokens_that_no_table_has_are_refused(tokens, kinds, lengths, words):
    args = EncoderArgs(50, WIDTH, positions=20, segments=3, embedding=WIDTH, first_position=2)
    made = Embeddings(args)
    device.prepare_for_device(made)
    mx.eval(made.parameters())
    fused = encoders.FusedEmbeddings(made)
    own = None if kinds is None else mx.array(kinds, mx.int32)
    with pytest.raises(ValueError, match=words):
        fused.take(mx.array(tokens, mx.int32), Texts(lengths), own)


def expected_vector(rows, kind, skipped):
    """Pool (T, D) of float64."""
    if kind in ("cls", "last"):
        return rows[0 if kind == "cls" else -1]
    first = skipped if skipped < len(rows) else 0
    numbers = np.arange(first + 1, len(rows) + 1)
    rows = rows[first:]
    if kind == "max":
        return rows.max(axis=0)
    weights = numbers if kind == "weighted" else np.ones(len(rows))
    return (rows * weights[:, None]).sum(axis=0) / weights.sum()


@pytest.mark.parametrize("kind", ["cls", "last", "max", "mean", "weighted"])
def test_vectors_are_those_of_sums_in_float64(kind):
    for lengths, skipped in (([1], 0), ([3, 3, 70], 0), ([2, 9, 9], 2), ([5], 5)):
        texts = Texts(lengths)
        hidden = mx.random.normal((texts.size, 19)) * 1e3
        rows = np.array(hidden, np.float64)
        parts = [rows[a : a + n] for a, n in zip(texts.starts, texts.lengths, strict=True)]
        expected = np.stack([expected_vector(part, kind, skipped) for part in parts])
        made = kernels.module().pool_texts(hidden, texts.groups, kind, skipped, False)
        np.testing.assert_allclose(np.array(made), expected, rtol=1e-5, atol=1e-3)
        unit = kernels.module().pool_texts(hidden, texts.groups, kind, skipped, True)
        lengths_of = np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(np.array(unit), expected / lengths_of, atol=1e-5)


def test_vectors_of_zeros_and_of_the_largest_numbers():
    hidden = mx.array([[0.0, 0.0], [3e38, -3e38], [float("nan"), 1.0]])
    groups = Texts([1, 1, 1]).groups
    for kind in ("max", "mean"):
        made = np.array(kernels.module().pool_texts(hidden, groups, kind, 0, True))
        np.testing.assert_allclose(made[:2], [[0, 0], [0.5**0.5, -(0.5**0.5)]], atol=1e-6)
        assert np.isnan(made[2]).all()
        assert np.isnan(np.array(kernels.module().pool_texts(hidden, groups, kind, 0, False))[2, 0])


@pytest.mark.parametrize(
    ("shape", "groups", "kind", "skipped", "words"),
    [
        ((3, 2), [(0, 1, 2)], "mean", 0, "another number"),
        ((0, 2), [], "mean", 0, "another number"),
        ((3, 2), [(0, 1, 3)], "median", 0, "can be cls"),
        ((3, 2), [(0, 1, 3)], "mean", -1, "below 0"),
        ((3,), [(0, 1, 3)], "mean", 0, "no array"),
        ((3, 2), [(1, 1, 3)], "mean", 0, "follow each other"),
    ],
    ids=str,
)
def test_what_cannot_be_pooled_is_refused(shape, groups, kind, skipped, words):
    with pytest.raises(ValueError, match=words):
        kernels.module().pool_texts(mx.zeros(shape), groups, kind, skipped, False)


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


@pytest.mark.parametrize(("first", "end"), [(0, 2), (1, 1), (-1, 1), (1, 0)])
def test_layers_that_there_are_not_are_refused(layer, first, end):
    fused = layer._fused
    angles = [] if fused._angles is None else fused._angles.upto(3)
    with pytest.raises(ValueError, match="no such layers"):
        kernels.module().encode_layers(
            fused._layers, mx.zeros(X), [(0, 2, 3)], angles, [], first, end
        )
