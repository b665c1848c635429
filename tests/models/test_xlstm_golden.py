"""xLSTM networks against what transformers gives for the same folders."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache

import mlx.core as mx
import numpy as np
import pytest
from loading import greedy
from mlx.nn import Module
from support.loaded import load
from support.paths import ROOT
from support.xlstm_fixtures import (
    FIXTURES,
    INNER,
    LOGITS,
    MODELS,
    STATES,
    far,
    golden,
    hidden_is_near,
)

from cowmlx.networks import light_route

LENGTHS = (1, 5, 15, 16, 17, 64, 130, 200)
ArraysCache = light_route.import_module("models.cache").ArraysCache
models = pytest.mark.parametrize("name", MODELS)


@cache
def model(name):
    return load(FIXTURES / name)


@cache
def arrays(name):
    return golden(name)


def run(name, layers, ids):
    """Logits of a pass over tokens, an array or (B, S) of another kind."""
    return model(name).network(mx.array(ids), cache=layers)


def check_state(layers, reference, prefix):
    for index, layer in enumerate(layers):
        for part, array in zip("Cnm", layer.cache, strict=True):
            assert far(array, reference[f"{prefix}_{part}_{index}"]) <= STATES


@models
@pytest.mark.parametrize("length", LENGTHS)
def test_logits_of_one_pass(name, length):
    reference = arrays(name)
    ids = reference[f"ids_{length}"]
    with_cache = run(name, model(name).make_cache(), ids)
    assert with_cache.dtype == mx.float32
    assert far(with_cache, reference[f"logits_{length}"]) <= LOGITS
    assert far(run(name, None, ids), reference[f"logits_{length}"]) <= LOGITS


@models
@pytest.mark.parametrize("length", [1, 17, 130])
def test_states_behind_one_pass(name, length):
    layers = model(name).make_cache()
    mx.eval(run(name, layers, arrays(name)[f"ids_{length}"]))
    check_state(layers, arrays(name), f"state_{length}")


@models
@pytest.mark.parametrize("length", [17, 130, 200])
def test_one_token_after_the_other_gives_the_same(name, length):
    reference = arrays(name)
    layers = model(name).make_cache()
    rows = []
    for token in reference[f"ids_{length}"][0]:
        rows.append(run(name, layers, [[int(token)]]))
        mx.eval(rows[-1], [layer.cache for layer in layers])
    assert far(mx.concatenate(rows, axis=1), reference[f"logits_{length}"]) <= LOGITS
    if length != 200:
        check_state(layers, reference, f"state_{length}")


@models
@pytest.mark.parametrize("size", [2, 3, 16, 33, 64, 70])
def test_prompts_in_pieces_of_any_size_give_the_same(name, size):
    """Of 70, for which there are states, and of sizes around those of the chunks."""
    reference = arrays(name)
    ids = reference["ids_200"]
    layers = model(name).make_cache()
    if size == 70:
        run(name, layers, ids[:, :70])
        last = run(name, layers, ids[:, 70:])[:, -1]
    else:
        for start in range(0, 200, size):
            last = run(name, layers, ids[:, start : start + size])[:, -1]
    assert far(last, reference["split_logits_last"]) <= LOGITS
    check_state(layers, reference, "split_final_state")


@models
def test_rows_of_a_batch(name):
    reference = arrays(name)
    got = run(name, model(name).make_cache(), reference["batch_ids"])
    assert far(got, reference["batch_logits"]) <= LOGITS


@models
def test_decoding_behind_a_prompt(name):
    reference = arrays(name)
    ids, layers = reference["dec_ids"], model(name).make_cache()
    prefill = run(name, layers, ids[:, :40])
    assert far(prefill, reference["dec_prefill_logits"]) <= LOGITS
    check_state(layers, reference, "dec_prefill_state")
    steps = [run(name, layers, ids[:, position : position + 1]) for position in range(40, 64)]
    assert far(mx.concatenate(steps, axis=1), reference["dec_step_logits"]) <= LOGITS
    check_state(layers, reference, "dec_final_state")


@models
def test_greedy_tokens(name):
    reference = arrays(name)
    prompt = [int(token) for token in reference["greedy_prompt"][0]]
    tokens, logits = greedy(model(name), prompt, 32)
    assert tokens == reference["greedy_tokens"][0].tolist()
    # The reference itself is half of this away from float64 at one of these positions.
    assert far(logits[None], reference["greedy_logits"]) <= 2 * LOGITS


# ------------------------------------------------------------------ What is in between


class Watched(Module):
    """A module that keeps what it returned."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner
        self.seen = []

    def __call__(self, *args):
        self.seen.append(self.inner(*args))
        return self.seen[-1]


@cache
def inner_values(name):
    """What the parts of a network give in the pass over ``ids_17``."""
    network = load(FIXTURES / name).network
    blocks, first = network.blocks, network.blocks["xlstm_0"]
    layer = type(first.mlstm_layer)
    places = {
        "embed_out": (blocks["embedding"], "table"),
        "block_0_norm_mlstm": (first, "norm_mlstm"),
        "block_0_multihead_norm": (first.mlstm_layer, "multihead_norm"),
        "block_0_mlstm_out": (first, "mlstm_layer"),
        "block_0_ffn_out": (first, "ffn"),
    }
    for owner, key in places.values():
        owner[key] = Watched(owner[key])
    cells = []
    original = layer._recur

    def watched(self, inputs, state):
        hidden, after = original(self, inputs, state)
        cells.append((inputs, hidden))
        return hidden, after

    outputs = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer, "_recur", watched)
        x = mx.array(arrays(name)["ids_17"])
        for spec in network.wiring.blocks[:-1]:
            x = blocks[spec.name](x)
            outputs[spec.name] = x
    found = {key: owner[part].seen[0] for key, (owner, part) in places.items()}
    found["out_norm_out"] = outputs["out_norm"]
    for index in range(len(cells)):
        found[f"block_{index}_out"] = outputs[f"xlstm_{index}"]
    inputs, found["cell0_h"] = cells[0]
    return found | {f"cell0_{part}": getattr(inputs, part) for part in "qkvif"}


@models
def test_inner_values(name):
    reference = {key[6:]: array for key, array in arrays(name).items() if key.startswith("act17_")}
    found = inner_values(name)
    assert reference.keys() == found.keys()
    assert hidden_is_near(found["cell0_h"], reference.pop("cell0_h"))
    for key, array in reference.items():
        assert far(found[key], array) <= INNER, key


# ------------------------------------------------------- Padding, and plain mlx-lm's batches


@models
@pytest.mark.parametrize("lengths", [(37, 20, 1), (16, 17, 15)])
def test_padding_on_the_left_changes_nothing(name, lengths):
    """As mlx-lm's batches have it: each row as it is alone, and continues as alone."""
    ids = arrays(name)["ids_200"][0]
    rows = [ids[7 * number :][:length] for number, length in enumerate(lengths)]
    longest = max(lengths)
    padding = [longest - length for length in lengths]
    padded = np.stack([np.pad(row, (pad, 0)) for row, pad in zip(rows, padding, strict=True)])
    layers = [ArraysCache(3, left_padding=padding) for _ in model(name).make_cache()]
    together = [run(name, layers, padded), run(name, layers, np.full((3, 1), 77))]
    for index, row in enumerate(rows):
        alone = model(name).make_cache()
        expected = run(name, alone, row[None])
        got = together[0][index : index + 1, padding[index] :]
        assert far(got, np.asarray(expected)) <= LOGITS
        after = np.asarray(run(name, alone, [[77]]))
        assert far(together[1][index : index + 1], after) <= LOGITS
        for batched, own in zip(layers, alone, strict=True):
            for part, single in zip(batched.cache, own.cache, strict=True):
                assert far(part[index : index + 1], np.asarray(single)) <= STATES


@models
def test_padding_on_the_right_leaves_states_alone(name):
    ids = arrays(name)["ids_200"][0]
    lengths = [23, 9, 40]
    rows = np.stack([ids[number : number + 40] for number in range(3)])
    layers = model(name).make_cache()
    for layer in layers:
        layer.prepare(lengths=lengths)
    run(name, layers, rows)
    for layer in layers:
        layer.finalize()
    for index, length in enumerate(lengths):
        alone = model(name).make_cache()
        run(name, alone, rows[index : index + 1, :length])
        for batched, own in zip(layers, alone, strict=True):
            for part, single in zip(batched.extract(index).cache, own.cache, strict=True):
                assert far(part, np.asarray(single)) <= STATES


@models
def test_sequences_join_and_leave_as_mlx_lm_has_it(name):
    """merge, extend, filter and extract of its caches, between steps."""
    ids = arrays(name)["ids_200"][0].tolist()
    prompts = [ids[:20], ids[30:35], ids[40:90]]
    alone = [greedy(model(name), prompt, 12)[0] for prompt in prompts]

    def start(prompt):
        layers = model(name).make_cache()
        return layers, int(run(name, layers, [prompt])[0, -1].argmax().item())

    started = [start(prompt) for prompt in prompts]
    tokens = [first for _, first in started]
    batch = [
        type(parts[0]).merge(parts) for parts in zip(started[0][0], started[1][0], strict=True)
    ]
    rows, given = [0, 1], [[token] for token in tokens]

    def advance(count):
        for _ in range(count):
            logits = run(name, batch, [[given[row][-1]] for row in rows])
            for row, token in zip(rows, logits[:, -1].argmax(axis=-1).tolist(), strict=True):
                given[row].append(token)

    advance(3)
    for layer, other in zip(batch, started[2][0], strict=True):
        layer.extend(other)
    rows = [0, 1, 2]
    advance(4)
    left = [layer.extract(1) for layer in batch]
    for layer in batch:
        layer.filter([0, 2])
    rows = [0, 2]
    advance(4)
    batch, rows = left, [1]
    advance(4)
    assert given[0] == alone[0] and given[1] == alone[1]
    assert given[2] == alone[2][: len(given[2])]


# A separate process: the whole of mlx-lm is a heavy import, which other tests do without.
BATCHES = """
import json, sys
from mlx_lm.generate import BatchGenerator
from support.loaded import load

path, prompts = json.load(sys.stdin)
generator = BatchGenerator(load(path).network, max_tokens=10)
given = {number: [] for number in generator.insert(prompts)}
while any(len(tokens) < 10 for tokens in given.values()):
    for response in generator.next_generated():
        given[response.uid].append(response.token)
generator.close()
print(json.dumps(list(given.values())))
"""


def test_mlx_lm_itself_generates_in_batches():
    """Its BatchGenerator, which knows nothing of us, with prompts of several lengths."""
    name = MODELS[0]
    ids = arrays(name)["ids_200"][0].tolist()
    prompts = [ids[:20], ids[30:35], ids[40:90]]
    done = subprocess.run(
        [sys.executable, "-c", BATCHES],
        input=json.dumps([str(FIXTURES / name), prompts]),
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}", "HF_HUB_OFFLINE": "1"},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout) == [greedy(model(name), prompt, 10)[0] for prompt in prompts]
