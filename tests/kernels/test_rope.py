"""Rotary position embeddings against mlx's, on every instruction set at hand."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import PRECISION, exact, random, types, viewed, views
from support.kernel_module import needed

from cowmlx.accelerate import rope
from cowmlx.networks import light_route

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
BASE = 10_000.0


def frequencies(dims: int) -> mx.array:
    half = dims // 2
    return mx.exp(mx.arange(0, -half, -1, dtype=mx.float32) * (math.log(BASE) / half))


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 3),
    st.integers(1, 5),
    st.integers(0, 20),
    st.sampled_from([(2, 2), (8, 8), (24, 31), (64, 64), (34, 80), (128, 128)]),
    types,
    views,
    st.booleans(),
    st.booleans(),
    st.sampled_from([1.0, 0.25]),
    st.integers(0, 4000),
)
def test_heads_are_rotated(
    rows, heads, length, widths, type_, view, traditional, offset_a_row, scale, offset
):
    dims, width = widths
    x = viewed(random((rows, heads, length, width), type_), view)
    offsets = mx.arange(rows) * 37 + offset if offset_a_row else mx.array(offset)
    angles = MODULE.angles(offsets, length, frequencies(dims), scale=scale)
    found = MODULE.rotate(x, angles, traditional=traditional)
    wanted = exact(x)
    positions = np.arange(length) + np.array(offsets).reshape(-1, 1, 1)
    positions = positions.astype(np.float32) * np.float32(scale)
    theta = (positions[..., None] * np.array(frequencies(dims))).astype(np.float64)
    if rows and length:
        pairs = wanted[..., :dims].reshape(rows, heads, length, *(
            (dims // 2, 2) if traditional else (2, dims // 2)
        ))  # fmt: skip
        first, second = (pairs[..., 0], pairs[..., 1]) if traditional else np.moveaxis(pairs, -2, 0)
        turned = first * np.cos(theta) - second * np.sin(theta)
        other = first * np.sin(theta) + second * np.cos(theta)
        both = np.stack([turned, other], -1 if traditional else -2)
        wanted[..., :dims] = both.reshape(rows, heads, length, dims)
    assert (found.shape, found.dtype) == (x.shape, x.dtype)
    assert np.allclose(exact(found), wanted, rtol=PRECISION[type_], atol=2e-6)


@pytest.mark.parametrize("traditional", [False, True])
def test_it_is_what_mlx_means(traditional):
    x, offset = random((2, 3, 7, 80), "float32"), mx.array([3, 500])
    wanted = mx.fast.rope(x, 64, traditional=traditional, base=BASE, scale=0.5, offset=offset)
    angles = MODULE.angles(offset, 7, frequencies(64), scale=0.5)
    assert mx.allclose(MODULE.rotate(x, angles, traditional=traditional), wanted, atol=2e-6)


@pytest.mark.parametrize("longest", [512, 65_536, 10_485_760])
@pytest.mark.parametrize("module", ["rope_utils", "internlm3"])
def test_rotations_that_depend_on_the_length_have_no_table(module, longest):
    kind = light_route.import_module(f"models.{module}").DynamicNTKScalingRoPE
    with pytest.raises(rope.UnsupportedRoPE, match="length"):
        rope.tables_of(kind(64, longest, False, BASE, 2.0), 64)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Llama3RoPE", {"base": 5e5, "scaling_config": {"factor": 8.0}}),
        ("YarnRoPE", {"scaling_factor": 4.0}),
        ("SuScaledRoPE", {"long_factor": [2.0] * 32}),
    ],
)
def test_rotations_that_know_a_length_have_a_table(kind, options):
    module = getattr(light_route.import_module("models.rope_utils"), kind)
    made = module(64, max_position_embeddings=1 << 40, **options)
    cosines, sines = rope.tables_of(made, 64).upto(100)
    x = mx.concatenate([mx.ones((1, 1, 100, 32)), mx.zeros((1, 1, 100, 32))], axis=-1)
    assert mx.allclose(made(x)[0, 0], mx.concatenate([cosines[:100], sines[:100]], axis=-1))


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda: MODULE.angles(mx.array([[1]]), 3, mx.zeros(4)), "offset is a whole number"),
        (lambda: MODULE.angles(mx.array(1.0), 3, mx.zeros(4)), "offset is a whole number"),
        (lambda: MODULE.angles(mx.array(1), -1, mx.zeros(4)), "length is below 0"),
        (lambda: MODULE.angles(mx.array(1), 3, mx.zeros((4, 1))), "frequencies are"),
        (lambda: MODULE.rotate(mx.zeros((1, 3, 8)), mx.zeros((1, 4, 2, 4))), "of 4 positions do"),
        (lambda: MODULE.rotate(mx.zeros((3, 3, 8)), mx.zeros((2, 3, 2, 4))), "2 rows of 3 posit"),
        (lambda: MODULE.rotate(mx.zeros((1, 3, 6)), mx.zeros((1, 3, 2, 4))), "rotate 8 numbers"),
        (lambda: MODULE.rotate(mx.zeros((3, 8)), mx.zeros((1, 3, 2, 4))), "at least three axes"),
    ],
)
def test_what_does_not_fit_is_refused(call, why):
    with pytest.raises(ValueError, match=why):
        call()
