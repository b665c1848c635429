"""xLSTM through the C ABI: the tokens that transformers gives, in every way to get them."""

from __future__ import annotations

import json
import shutil
from functools import cache
from pathlib import Path

import pytest
from driver import KV, delivered, greedy, next_ok, prompt
from support.signatures import FINISH_LENGTH
from support.threads import at_once
from support.xlstm_fixtures import FIXTURES, LOGITS, MODELS, golden

models = pytest.mark.parametrize("name", MODELS)


@cache
def arrays(name):
    return golden(name)


@pytest.fixture(scope="module")
def loaded(lib):
    """The reference models, by name."""
    handles = {name: lib.load(FIXTURES / name) for name in MODELS}
    yield handles
    for handle in handles.values():
        lib.free_model(handle)


def start_of(name):
    return [int(token) for token in arrays(name)["greedy_prompt"][0]]


def tokens_of(name):
    return [int(token) for token in arrays(name)["greedy_tokens"][0]]


# --------------------------------------------------------------------- What it says


@models
def test_greedy_tokens_are_those_of_transformers(lib, loaded, open_context, name):
    context = open_context(loaded[name])
    lib.begin(context, start_of(name), max_tokens=32)
    pieces = lib.drain(context)
    assert delivered(pieces) == tokens_of(name)
    assert pieces[-1].finish == FINISH_LENGTH
    assert lib.tokens(context) == start_of(name) + tokens_of(name)[:-1]


@models
@pytest.mark.parametrize("length", [1, 17, 64, 200])
def test_logits_are_those_of_transformers(lib, loaded, open_context, name, length):
    context = open_context(loaded[name])
    lib.begin(context, arrays(name)[f"ids_{length}"][0].tolist(), max_tokens=0)
    expected = arrays(name)[f"logits_{length}"][0, -1]
    got = lib.logits(context)
    assert max(abs(a - b) for a, b in zip(got, expected, strict=True)) <= LOGITS


@models
def test_what_model_info_says(lib, loaded, name):
    info = lib.info(loaded[name])
    assert info["architecture"] == "xlstm"
    assert info["parameters"] == {"tiny-single-c16": 502_672, "tiny-fused-c64": 251_468}[name]
    assert info["vocabulary_size"] == {"tiny-single-c16": 288, "tiny-fused-c64": 320}[name]
    assert info["route"] == "light"


# ---------------------------------------------------------------------- At the same time


@models
def test_greedy_tokens_in_a_batch_with_prompts_of_other_lengths(lib, loaded, open_context, name):
    ids = arrays(name)["ids_200"][0].tolist()
    prompts = [start_of(name), ids[:3], start_of(name), ids[:77], ids[:1]]
    alone = [greedy(lib, open_context(loaded[name]), tokens, 32) for tokens in prompts]
    contexts = [open_context(loaded[name]) for _ in prompts]
    given = [[] for _ in prompts]

    def work(index):
        given[index] = greedy(lib, contexts[index], prompts[index], 32)

    at_once(len(prompts), work)
    assert given == alone
    assert given[0] == given[2] == tokens_of(name)
    assert sum(lib.info(context)["batched"] for context in contexts) > 0


def test_contexts_of_other_models_generate_meanwhile(lib, loaded, tiny, oracle, open_context):
    contexts = {name: open_context(loaded[name]) for name in MODELS}
    other = open_context(tiny(KV))
    for name, context in contexts.items():
        lib.begin(context, start_of(name), max_tokens=32)
    lib.begin(other, prompt(9), max_tokens=32)
    expected = {contexts[name]: tokens_of(name) for name in MODELS}
    expected[other] = oracle(KV).after(prompt(9), 32)
    given = {context: [] for context in expected}
    for _ in range(32):
        for context, tokens in given.items():
            tokens += delivered(next_ok(lib, context, 1))
    assert given == expected


# ------------------------------------------------------------- States kept and given back


@models
def test_a_fork_goes_on_as_transformers_does(lib, loaded, open_context, name):
    context = open_context(loaded[name])
    lib.begin(context, start_of(name), max_tokens=10)
    held = start_of(name) + delivered(lib.drain(context))
    copy = lib.fork(context)
    try:
        greedy(lib, context, [*lib.tokens(context), 7], 5)
        assert greedy(lib, copy, held, 22) == tokens_of(name)[10:]
        assert lib.info(copy)["reused"] == len(held) - 1
    finally:
        lib.free(copy)


@models
def test_a_rewind_goes_on_as_transformers_does(lib, loaded, open_context, name):
    context = open_context(loaded[name])
    lib.begin(context, start_of(name)[:-1], max_tokens=0)
    checkpoint = lib.checkpoint(context)
    for _ in range(2):
        assert greedy(lib, context, start_of(name), 32) == tokens_of(name)
        lib.rewind(context, checkpoint)
        assert lib.tokens(context) == start_of(name)[:-1]


@models
def test_a_saved_state_goes_on_in_another_context(lib, loaded, open_context, tmp_path, name):
    one, two = open_context(loaded[name]), open_context(loaded[name])
    lib.begin(one, start_of(name)[:13], max_tokens=0)
    lib.save(one, tmp_path / "state")
    lib.restore(two, tmp_path / "state")
    assert greedy(lib, two, start_of(name), 32) == tokens_of(name)
    assert lib.info(two)["reused"] == 13


@models
def test_a_prompt_that_goes_on_reuses_what_is_held(lib, loaded, open_context, name):
    """One that turns off begins again: a recurrence forgets nothing."""
    context = open_context(loaded[name])
    lib.begin(context, start_of(name)[:12], max_tokens=0)
    given = lib.generate(context, start_of(name), max_tokens=32)
    assert given.stats.reused_tokens == 12
    assert lib.tokens(context)[20:] == tokens_of(name)[:-1]
    given = lib.generate(context, [*start_of(name)[:12], 5, 6], max_tokens=4)
    assert given.stats.reused_tokens == 0


@models
@pytest.mark.parametrize("count", [1, 8])
def test_trimmed_at_the_end_the_rest_is_processed_again(lib, loaded, open_context, name, count):
    context = open_context(loaded[name])
    longer = start_of(name) + tokens_of(name)[:16]
    lib.begin(context, longer, max_tokens=0)
    assert lib.info(loaded[name])["cache"]["trim_end"] == "recomputed"
    assert lib.trim_end(context, count) == count
    assert lib.tokens(context) == longer[:-count]
    assert greedy(lib, context, longer[:-count], 4) == tokens_of(name)[16 - count : 20 - count]


@models
def test_a_prompt_that_contexts_share_is_processed_once(lib, loaded, open_context, name):
    one, other = (open_context(loaded[name], share_prefix=True) for _ in range(2))
    ids = arrays(name)["ids_200"][0].tolist()
    lib.begin(one, ids[:150], max_tokens=0)
    lib.begin(other, ids, max_tokens=0)
    assert lib.stats(other).reused_tokens == 149
    expected = arrays(name)["logits_200"][0, -1]
    far = max(abs(a - b) for a, b in zip(lib.logits(other), expected, strict=True))
    assert far <= LOGITS


# ------------------------------------------------------------------ Folders that differ


@pytest.fixture
def copied(tmp_path):
    """A reference model's folder, to be changed; and its weights."""
    import mlx.core as mx

    def copied(name):
        folder = Path(shutil.copytree(FIXTURES / name, tmp_path / "model"))
        weights = mx.load(str(folder / "model.safetensors"))
        return folder, {key: mx.array(array) for key, array in weights.items()}

    return copied


def write(folder, weights, config=None, shards=1):
    """Replace a folder's weights, perhaps in shards, and keys of its config."""
    import mlx.core as mx

    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for number in range(shards):
        file = "model.safetensors" if shards == 1 else f"model_{number + 1}.safetensors"
        part = {name: weights[name] for name in names[number::shards]}
        mx.save_safetensors(str(folder / file), part, metadata={"format": "pt"})
        index |= dict.fromkeys(part, file)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **(config or {})}))


def greedy_of(lib, folder, name, count=32):
    model = lib.load(folder)
    context = lib.context(model)
    given = greedy(lib, context, start_of(name), count)
    lib.free(context)
    lib.free_model(model)
    return given


@models
def test_weights_in_shards(lib, copied, name):
    folder, weights = copied(name)
    write(folder, weights, shards=3)
    assert greedy_of(lib, folder, name) == tokens_of(name)


@models
def test_the_embedding_by_its_other_name(lib, copied, name):
    folder, weights = copied(name)
    weights["embedding.weight"] = weights.pop("backbone.embeddings.weight")
    write(folder, weights)
    assert greedy_of(lib, folder, name) == tokens_of(name)


@models
def test_norms_of_heads_stored_head_by_head(lib, copied, name):
    folder, weights = copied(name)
    heads = {"tiny-single-c16": 4, "tiny-fused-c64": 2}[name]
    found = [key for key in weights if key.endswith("multihead_norm.weight")]
    assert found
    for key in found:
        weights[key] = weights[key].reshape(heads, -1)
    write(folder, weights)
    assert greedy_of(lib, folder, name) == tokens_of(name)


def test_single_matrices_are_the_fused_ones_apart(lib, copied):
    """The other weight_mode of the same network, and so the same tokens."""
    import mlx.core as mx

    name = "tiny-fused-c64"
    folder, weights = copied(name)
    for block in range(3):
        prefix = f"backbone.blocks.{block}"
        layer = f"{prefix}.mlstm_layer"
        rows = mx.split(weights.pop(f"{layer}.qkv_opreact.weight"), [64, 128, 256])
        for part, array in zip(("q", "k", "v", "ogate_preact"), rows, strict=True):
            weights[f"{layer}.{part}.weight"] = array
        for leaf in ("weight", "bias"):
            i, f = mx.split(weights.pop(f"{layer}.ifgate_preact.{leaf}"), 2)
            weights[f"{layer}.igate_preact.{leaf}"] = i
            weights[f"{layer}.fgate_preact.{leaf}"] = f
        gate, up = mx.split(weights.pop(f"{prefix}.ffn.proj_up_gate_z.weight"), 2)
        weights[f"{prefix}.ffn.proj_up_gate.weight"] = gate
        weights[f"{prefix}.ffn.proj_up.weight"] = up
    write(folder, weights, {"weight_mode": "single"})
    assert greedy_of(lib, folder, name) == tokens_of(name)


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "left out"])
def test_a_head_that_is_tied_to_the_embedding(lib, copied, stored):
    """The same as a head with a copy of the embedding; a stored one is not used."""
    name = "tiny-single-c16"
    folder, weights = copied(name)
    weights["lm_head.weight"] = weights["backbone.embeddings.weight"] * 1
    write(folder, weights)
    expected = greedy_of(lib, folder, name, 16)
    if not stored:
        del weights["lm_head.weight"]
    write(folder, weights, {"tie_word_embeddings": True})
    assert greedy_of(lib, folder, name, 16) == expected


@models
def test_chunks_of_another_size_give_the_same_tokens(lib, copied, name):
    folder, weights = copied(name)
    write(folder, weights, {"chunk_size": 7})
    assert greedy_of(lib, folder, name) == tokens_of(name)


@models
def test_bfloat16(lib, copied, name):
    """Its tokens are nobody's reference, but those of one pass over what it said."""
    import mlx.core as mx

    folder, weights = copied(name)
    write(folder, {key: array.astype(mx.bfloat16) for key, array in weights.items()})
    model = lib.load(folder)
    context = lib.context(model)
    begin = arrays(name)["ids_17"][0].tolist()
    lib.begin(context, begin, max_tokens=0)
    expected = arrays(name)["logits_17"][0, -1]
    far = [abs(a - b) for a, b in zip(lib.logits(context), expected, strict=True)]
    assert sum(far) / len(far) < 0.5
    assert max(far) > LOGITS, "the weights are not those that were stored"
    lib.free(context)
    lib.free_model(model)
