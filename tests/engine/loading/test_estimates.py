"""Estimates of memory against the peak, on models of 60 to 300 MB with random weights."""

from __future__ import annotations

import json
import os
from ctypes import c_char

import mlx.core as mx
import pytest
from driver import prompt
from support import tiny_models

from cowmlx.generation.pace import Pace

pytestmark = pytest.mark.long

LARGE = {
    "hidden_size": 512,
    "num_hidden_layers": 6,
    "intermediate_size": 1536,
    "moe_intermediate_size": 512,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 8192,
}
FAMILIES = [
    *("llama", "mistral", "qwen2", "qwen3_moe", "gemma2", "gemma3_text"),
    *("falcon_h1", "phi3", "olmo2", "gpt_neox", "cohere2", "stablelm"),
]


@pytest.mark.parametrize("family", FAMILIES)
def test_the_estimate_is_within_a_tenth_of_the_peak(lib, tmp_path, monkeypatch, family):
    # Chunks change with the machine's speed, and the estimate with them.
    monkeypatch.setattr(Pace, "observe", lambda *_: None)
    known = tiny_models.FAMILIES[family]
    config = {key: value for key, value in LARGE.items() if key in known}
    path = tiny_models.make(tmp_path, family, config=config)
    facts = json.loads(lib._fill(c_char, lib.c.cow_mlx_model_inspect, os.fsencode(path), 0))
    lib.trim_memory()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    model = lib.load(path)
    peak = mx.get_peak_memory() - before
    assert facts["load_bytes"] == pytest.approx(peak, rel=0.1)
    context = lib.context(model)
    lib.trim_memory()
    mx.reset_peak_memory()
    for _ in range(2):  # the peak depends on which operations overlap
        lib.generate(context, prompt(1500), max_tokens=256)
        lib.reset(context)
    peak = mx.get_peak_memory() - before
    assert facts["bytes"] + lib.info(context)["estimate"] == pytest.approx(peak, rel=0.1)
    lib.free(context)
    lib.free_model(model)
