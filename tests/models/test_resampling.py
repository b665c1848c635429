"""Resizing of images, to the byte against Pillow."""

from __future__ import annotations

import io

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from PIL import Image

from cowmlx.steps import finished
from cowmlx.vision import resampling
from cowmlx.vision.resampling import FILTERS, resize_steps

SIZE = some.integers(1, 70)


def resized(pixels, height, width, resample):
    return np.array(finished(resize_steps(mx.array(pixels), height, width, resample)))


def expected(pixels, height, width, resample):
    return np.asarray(Image.fromarray(pixels).resize((width, height), resample))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(SIZE, SIZE, SIZE, SIZE, some.sampled_from(sorted(FILTERS)), some.integers(0, 2**32 - 1))
@example(1, 1, 70, 70, 3, 0)
@example(70, 70, 1, 1, 1, 0)
@example(33, 44, 33, 44, 2, 0)
@example(33, 44, 33, 7, 1, 0)
def test_every_byte_is_pillow_s(height, width, new_height, new_width, resample, seed):
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    if seed % 3 == 0:
        pixels = np.where(pixels > 128, np.uint8(255), np.uint8(0))  # overshoots are clipped
    found = resized(pixels, new_height, new_width, resample)
    np.testing.assert_array_equal(found, expected(pixels, new_height, new_width, resample))


@pytest.mark.parametrize("resample", sorted(FILTERS))
def test_parts_give_what_the_whole_gives(resample, monkeypatch):
    pixels = np.random.default_rng(5).integers(0, 256, (61, 47, 3), dtype=np.uint8)
    monkeypatch.setattr(resampling, "_PART", 1000)
    steps = resize_steps(mx.array(pixels), 20, 96, resample)
    count = 0
    while True:
        try:
            next(steps)
            count += 1
        except StopIteration as stop:
            found = np.array(stop.value)
            break
    assert count > 10
    np.testing.assert_array_equal(found, expected(pixels, 20, 96, resample))


@pytest.mark.parametrize("resample", sorted(FILTERS))
def test_long_filters_are_few_operations(resample, monkeypatch):
    """One of each thousands of taps would take seconds, in one turn."""
    combined, graphs = resampling._combined, []

    def recorded(rows, taps):
        made, graph = combined(rows, taps), io.StringIO()
        mx.export_to_dot(graph, made)
        graphs.append(graph.getvalue().count("->"))
        return made

    monkeypatch.setattr(resampling, "_combined", recorded)
    pixels = np.random.default_rng(6).integers(0, 256, (3001, 1, 3), dtype=np.uint8)
    found = resized(pixels, 1, 2, resample)
    np.testing.assert_array_equal(found, expected(pixels, 1, 2, resample))
    assert graphs
    assert max(graphs) < 1000


def test_weights_of_long_filters_are_computed_in_turns():
    steps = resampling._taps(20001, 1, FILTERS[1])
    assert len(list(steps)) >= 20001 // resampling._WEIGHTS
