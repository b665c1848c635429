"""Estimates of activations: which attentions hold the scores of all heads, and of encoders."""

from __future__ import annotations

from types import SimpleNamespace

import mlx.core as mx
import pytest
from support import tiny_encoders
from support.loaded import drain, load

from cowmlx.accelerate.device import Form
from cowmlx.cache.footprint import Footprint, LayerGrowth, bytes_of_texts
from cowmlx.generated.constants import POOLING_MEAN
from cowmlx.models import encoding
from cowmlx.models.encoding import EncodedText
from cowmlx.remembered import Remembered

HEADS, CHUNK, TOKENS = 16, 512, 2048
SCORES = 4 * HEADS * CHUNK * TOKENS  # bytes of one copy
GPU, CPU = Form(on_cpu=False, why_not="the device is no CPU"), Form(on_cpu=True)
PLAIN_CPU = Form(on_cpu=True, why_not="there are no kernels: none were built")
LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "v_head_dim": 96}


def growth(keys=128, values=None, *, window=0, is_quantized=False):
    return LayerGrowth(0, 256, 256, window, (keys, values or keys), is_quantized)


def held(form, layer, *, is_fused=False, **config):
    """Bytes of activations of a chunk that grow with the tokens held, as multiples of scores."""
    sizes = {"hidden_size": 64, "num_attention_heads": HEADS, "num_hidden_layers": 2}
    model = SimpleNamespace(
        form=form,
        is_fused=is_fused,
        config={**sizes, **config},
        vocabulary_size=64,
        remembered=Remembered(),
    )
    footprint = Footprint(model, [layer])
    return footprint.activations(CHUNK, TOKENS) - footprint.activations(CHUNK, 0)


@pytest.mark.parametrize("keys", [64, 128])
def test_kernels_of_gpus_hold_no_scores(keys):
    assert held(GPU, growth(keys)) == 0


@pytest.mark.parametrize(
    "layer",
    [growth(256), growth(192, 128), growth(is_quantized=True)],
    ids=["wide heads", "keys and values that differ", "quantized"],
)
def test_other_attentions_on_gpus_hold_them(layer):
    assert held(GPU, layer) >= 2 * SCORES


def test_on_a_cpu_kernels_hold_none_but_behind_windows():
    assert held(CPU, growth(256)) == held(CPU, growth(is_quantized=True)) == 0
    assert held(CPU, growth(window=64)) >= 2 * SCORES
    assert held(CPU, growth(window=64), is_fused=True) == 0
    assert held(PLAIN_CPU, growth()) >= 2 * SCORES


@pytest.mark.parametrize("form", [GPU, CPU], ids=["GPU", "CPU"])
def test_latent_attention_holds_scores_keys_and_values(form):
    expanded = 4 * HEADS * (128 + 96) * TOKENS
    assert held(form, growth(512, 64), is_fused=True, **LATENT) >= 2 * SCORES + expanded
    assert held(CPU, growth(192, 128), **LATENT) == 0  # its caches have keys and values


@pytest.mark.parametrize("name", ["deberta-v2", "modernbert"])
def test_texts_of_encoders_are_near_their_peak(tmp_path, name):
    config = {"max_position_embeddings": 512}
    model = load(tiny_encoders.make(tmp_path, name, config=config))
    texts = [EncodedText([5 + index % 20 for index in range(400)])]

    def embed():
        return drain(
            encoding.rows_of(model.network, texts, 4096, pooled, lambda lengths: (len(lengths), 0))
        )

    def pooled(states, lengths):
        return encoding.pooled(states, lengths, POOLING_MEAN)

    embed()
    mx.clear_cache()
    before = mx.get_active_memory()
    mx.reset_peak_memory()
    embed()
    peak = mx.get_peak_memory() - before
    assert peak < 1.2 * bytes_of_texts(model, [400], CHUNK) < 2.4 * peak
