"""Folders that bring a wiring: the tokens that float64 gives for their weights."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from driver import greedy, opened, prompt
from support import plain_wiring, tiny_adapters, tiny_models, without_kernels
from support.rounding import assert_as_exact
from support.threads import at_once

from cowmlx.accelerate import kernels

PROMPT, COUNT = prompt(24), 12
MAD = [name for name in tiny_models.OWN if name.startswith("mad-")]
names = pytest.mark.parametrize("name", MAD)


@pytest.fixture(scope="module")
def expected():
    """The greedy tokens of a folder, in float64."""
    known = {}

    def expected(folder, tokens=PROMPT, count=COUNT):
        key = (str(folder), count, *tokens)
        if key not in known:
            wiring = json.loads((folder / "config.json").read_text())["wiring"]
            known[key] = plain_wiring.greedy(wiring, plain_wiring.stored(folder), tokens, count)
        return known[key]

    return expected


def greedy_of(lib, folder, tokens=PROMPT, count=COUNT):
    model = lib.load(folder)
    with opened(lib, model) as context:
        given = greedy(lib, context, tokens, count)
    lib.free_model(model)
    return given


@names
def test_greedy_tokens_are_those_of_float64(lib, folder, expected, name):
    given = greedy_of(lib, folder(name))
    assert given == expected(folder(name))
    assert len(set(given)) > 2, "a model that repeats itself shows little"


@names
def test_logits_are_those_of_float64(lib, tiny, folder, open_context, name):
    wiring = json.loads((folder(name) / "config.json").read_text())["wiring"]
    reference = plain_wiring.logits(wiring, plain_wiring.stored(folder(name)), PROMPT)[-1]
    context = open_context(tiny(name))
    lib.begin(context, PROMPT, max_tokens=0)
    got = lib.logits(context)
    assert max(abs(a - b) for a, b in zip(got, reference, strict=True)) < 2e-3


@names
@pytest.mark.parametrize("bits", [4, 8])
def test_packed_weights(lib, expected, tmp_path, name, bits):
    folder = tiny_models.make(tmp_path, name, quantize={"group_size": 32, "bits": bits})
    stored = mx.load(str(folder / "model.safetensors"))
    assert sum(key.endswith(".scales") for key in stored) > 5
    assert greedy_of(lib, folder) == expected(folder)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("mode", ["single", "fused"])
def test_packed_weights_of_xlstm(lib, tmp_path, bits, mode):
    """Through its wiring, which a config of "mad" can say too; its gates are left as they are."""
    quantize = {"group_size": 32, "bits": bits}
    folder = tiny_models.make(
        tmp_path / "xlstm", "xlstm", quantize=quantize, config={"weight_mode": mode}
    )
    dense = tiny_models.make(tmp_path / "plain", "xlstm", config={"weight_mode": mode})
    weights = plain_wiring.stored(folder)
    arrays = {name: mx.array(array.astype("float32")) for name, array in weights.items()}
    mx.save_safetensors(str(dense / "model.safetensors"), arrays, metadata={"format": "mlx"})
    assert greedy_of(lib, folder) == greedy_of(lib, dense)


@pytest.mark.plain
@pytest.mark.parametrize("name", ["xlstm", "mad-hybrid", "mad-parallel"])
def test_bfloat16(lib, tiny, folder, open_context, tmp_path, name):
    """Not exactly what float32 gives, but nearly."""
    path, wide = (tiny_models.make(tmp_path / kind, name) for kind in ("halves", "wide"))
    weights = mx.load(str(path / "model.safetensors"))
    halves = {key: array.astype(mx.bfloat16) for key, array in weights.items()}
    numbers = {key: array.astype(mx.float32) for key, array in halves.items()}
    for place, arrays in ((path, halves), (wide, numbers)):
        mx.save_safetensors(str(place / "model.safetensors"), arrays, metadata={"format": "mlx"})
    model = lib.load(path)
    assert lib.info(model)["bytes"] < 0.6 * lib.info(tiny(name))["bytes"]
    short = [PROMPT[:6], *(prompt(6, seed) for seed in range(4))]  # rounding grows with what it saw

    def logits(handle):
        rows = []
        for tokens in short:
            context = open_context(handle)
            lib.begin(context, tokens, max_tokens=0)
            rows.append(lib.logits(context))
            lib.free(context)
        return np.array(rows)

    own = logits(model)
    if kernels.available():
        # Activations are rounded at other places: no more is lost than without kernels.
        exact_model = lib.load(wide)
        plain = np.array(without_kernels.logits(path, short))
        assert_as_exact(own, plain, plain - logits(exact_model))
        lib.free_model(exact_model)
    else:
        exact = logits(tiny(name))[0]
        assert 0 < np.abs(own[0] - exact).sum() < 0.1 * np.abs(exact).sum()
    with opened(lib, model) as context:
        assert len(greedy(lib, context, PROMPT, 4)) == 4
    lib.free_model(model)


@names
def test_tokens_in_a_batch_are_those_alone(lib, tiny, oracle, open_context, name):
    """Each network proves by itself that it can be batched."""
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 30, 17))]
    alone = [oracle(name).after(tokens, 16) for tokens in prompts]
    for _ in range(50):  # on a busy machine one may end before the next begins
        contexts = [open_context(tiny(name)) for _ in prompts]
        given = [[] for _ in prompts]

        def work(index, contexts=contexts, given=given):
            given[index] = greedy(lib, contexts[index], prompts[index], 16)

        at_once(len(prompts), work)
        assert given == alone
        assert lib.info(contexts[0])["alone"] is None
        if any(lib.info(context)["batched"] for context in contexts):
            return
    pytest.fail("never in a batch")


@pytest.mark.parametrize("name", ["xlstm", *MAD])
def test_vectors_of_texts_side_by_side_are_those_alone(lib, tiny, name):
    """Hidden states before the head: as wide as it is, and the same beside longer texts."""
    texts = ["a red fox", "x", "The quick brown fox jumps over the lazy dog. " * 3]
    together = lib.embed(tiny(name), texts, normalize=False)
    alone = [lib.embed(tiny(name), [text], normalize=False)[0] for text in texts]
    assert [len(vector) for vector in together] == [64] * 3
    for one, other in zip(together, alone, strict=True):
        assert max(abs(a - b) for a, b in zip(one, other, strict=True)) < 1e-3


@pytest.mark.parametrize("name", ["mad-hybrid", "mad-parallel"])
def test_an_adapter_adds_its_product_to_the_weights(lib, folder, expected, tmp_path, name):
    keys = ["out_proj", "ffn.proj_down", "if_preact", "q_proj"]
    path = tiny_adapters.make(tmp_path / "adapter", folder(name), keys)
    merged = tiny_adapters.merged(tmp_path / "merged", folder(name), path, 1.0)
    model = lib.load(folder(name))
    with opened(lib, model) as context:
        lib.set_adapter(context, lib.load_adapter(model, path))
        given = greedy(lib, context, PROMPT, COUNT)
    lib.free_model(model)
    assert given == expected(merged) != expected(folder(name))


def test_what_model_info_says(lib, tiny):
    info = lib.info(tiny("mad-hybrid"))
    assert info["architecture"] == "mad"
    assert info["route"] == "light"
    assert info["parameters"] > 0


def test_keys_of_attention_among_recurrences_can_be_quantized_or_say_why_not(lib, tiny):
    assert lib.info(tiny("mad-xlstm"))["cache"]["quantise"] == "no"


def test_a_wiring_may_leave_out_input_output_and_parameters(lib, folder, tmp_path):
    path = tiny_models.make(tmp_path, "mad-parallel")
    config = json.loads((path / "config.json").read_text())
    del config["wiring"]["input"], config["wiring"]["output"]
    (path / "config.json").write_text(json.dumps(config))
    assert greedy_of(lib, path) == greedy_of(lib, folder("mad-parallel"))
