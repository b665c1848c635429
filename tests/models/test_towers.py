"""The rows of images that towers give, beside those of transformers with torch."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_vision_models
from support.paths import ROOT

from cowmlx.steps import finished
from cowmlx.text import tokenizer_files
from cowmlx.vision.image_encoders import open_encoder
from cowmlx.vision.pixels import pixels_steps


@pytest.mark.parametrize("name", list(tiny_vision_models.FAMILIES))
def test_rows_are_those_of_transformers(tmp_path, name):
    recorded = np.load(ROOT / f"tests/fixtures/images/{name}.npz")
    folder = str(tiny_vision_models.make(tmp_path, name))
    config = json.loads((tmp_path / "config.json").read_text())
    settings = tokenizer_files.read_config(folder)
    encoder = open_encoder(folder, config, tokenizer_files.load(folder, settings, config))
    for image in ("first", "second"):
        array = recorded[image]
        pixels = finished(pixels_steps(array, memoryview(array), array.shape))
        rows = np.array(finished(encoder.steps(pixels)))
        if name == "gemma3":  # the network multiplies by this
            rows = rows * float(mx.array(rows.shape[1] ** 0.5, mx.bfloat16))
        expected = recorded[f"rows_{image}"]  # features for the network's first layers follow
        found = rows[:, : expected.shape[1]]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-4)
        layout = encoder.layout(array.shape[1], array.shape[0])
        assert layout.count(-1) == len(rows)
    assert not encoder._tower.training  # with gradients, nothing of it is the kernels'
