"""Estimates of memory against the peak, on models of 60 to 300 MB with random weights."""

from __future__ import annotations

import json
import os
import sys
from ctypes import c_char
from pathlib import Path

import mlx.core as mx
import pytest
from driver import prompt
from support import tiny_models, without_kernels
from support.compiler import run
from support.paths import ROOT

from cowmlx.generation.pace import Pace

HOST = Path(__file__).parents[1] / "hosts/estimated.py"
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
    "deepseek_v3",
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


# Attentions that hold the scores of all heads: the scores are most of what a chunk takes.
HOLDING = {
    "llama": {"hidden_size": 64, "num_attention_heads": 16, "head_dim": 64},
    "deepseek_v3": {"num_attention_heads": 16, "num_key_value_heads": 16},
}


@pytest.mark.parametrize(("family", "kv_bits"), [("llama", 0), ("llama", 8), ("deepseek_v3", 0)])
def test_scores_of_all_heads_are_part_of_the_estimate(tmp_path, family, kv_bits):
    config = {"max_position_embeddings": 4096, "num_hidden_layers": 2, **HOLDING[family]}
    path = tiny_models.make(tmp_path, family, config=config)
    paths = f"{ROOT / 'tests'}:{ROOT / 'tests/engine'}"
    environment = {**without_kernels.environment(), "PYTHONPATH": paths}
    done = run([sys.executable, HOST, path, str(kv_bits)], env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    estimate, peak = json.loads(done.stdout)
    assert peak < 1.1 * estimate < 2.2 * peak
