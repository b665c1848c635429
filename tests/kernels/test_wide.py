"""Experts of 16 bits where no kernels take them: computed in float32, in the network's own type."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_models, without_kernels
from support.loaded import load

from cowmlx.accelerate import switch

PROMPT = [3, 5, 7, 2, 9, 11]


pytestmark = pytest.mark.usefixtures("on_cpu")


@pytest.mark.parametrize(
    ("family", "dtype", "near"), [("mixtral", mx.bfloat16, 0.2), ("gpt_oss", mx.float16, 0.03)]
)
def test_mixtures_of_experts_run_without_kernels(tmp_path, family, dtype, near):
    path = tiny_models.make(tmp_path / "model", family)
    model = load(path)
    expected = np.array(model.network(mx.array([PROMPT]), cache=model.make_cache())[0, -1])
    weights = mx.load(str(path / "model.safetensors"))
    half = {name: array.astype(dtype) for name, array in weights.items()}
    mx.save_safetensors(str(path / "model.safetensors"), half)
    (own,) = without_kernels.logits(path, [PROMPT])
    assert np.abs(np.array(own) - expected).max() / np.abs(expected).max() < near


def test_only_experts_of_sixteen_bits_are_widened(tmp_path):
    model = load(tiny_models.make(tmp_path / "model", "mixtral"))
    before = [type(module) for _, module in model.network.named_modules()]
    switch.widen(model.network)
    assert [type(module) for _, module in model.network.named_modules()] == before
