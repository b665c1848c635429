"""Keys and values of quantized models have the type of the scales, unless activations are exact."""

from __future__ import annotations

from ctypes import c_int32

import mlx.core as mx
import numpy as np
import pytest
from driver import delivered, generate_at_once, greedy, opened, prompt
from support import tiny_models
from support.arrays import Arrays
from support.callbacks import Callbacks, StatusError
from support.signatures import ACTIVATIONS_DEFAULT, ACTIVATIONS_EXACT
from support.threads import at_once

from cowmlx.accelerate import kernels

# Whole networks are fused, with and without windows, and the attention of one with experts.
FAMILIES = ("llama", "gemma3_text", "qwen3_moe")
TYPES = ("float16", "bfloat16")
PACKED = {"group_size": 64, "bits": 4}
START = prompt(40)
COUNT = 12

pytestmark = pytest.mark.skipif(
    not kernels.available(), reason=kernels.reason() or "there are kernels"
)
each_type = pytest.mark.parametrize("dtype", TYPES)
each_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def load(lib, tmp_path_factory):
    """Loads quantized models, which are freed behind the last test."""
    loaded: dict[object, int] = {}

    def load(family, dtype, activations=ACTIVATIONS_DEFAULT):
        key = family, dtype, activations
        if key not in loaded:
            folder = tmp_path_factory.mktemp("packed")
            tiny_models.make(folder, family, quantize=PACKED, dtype=dtype)
            loaded[key] = lib.load(folder, activations=activations)
        return loaded[key]

    yield load
    for model in loaded.values():
        lib.free_model(model)


def held(lib, context):
    return lib.info(context)["bytes"]


def bytes_behind(lib, model):
    with opened(lib, model) as context:
        lib.begin(context, START, max_tokens=0)
        return held(lib, context)


@each_family
@each_type
def test_they_take_half_the_memory_of_exact_ones(lib, load, family, dtype):
    rounded, exact = (
        bytes_behind(lib, load(family, dtype, how))
        for how in (ACTIVATIONS_DEFAULT, ACTIVATIONS_EXACT)
    )
    assert 2 * rounded == exact
    assert bytes_behind(lib, load(family, "float32")) == exact


@each_type
def test_float32_norms_make_them_float32(lib, load, tmp_path, dtype):
    """As in mlx-lm, whose activations are float32 behind one."""
    tiny_models.make(tmp_path, "llama", quantize=PACKED, dtype=dtype)
    file = tmp_path / "model.safetensors"
    arrays = mx.load(str(file))
    wide = {
        name: array.astype(mx.float32) if name.endswith("norm.weight") else array
        for name, array in arrays.items()
    }
    mx.save_safetensors(str(file), wide, {"format": "mlx"})
    model = lib.load(tmp_path, activations=ACTIVATIONS_DEFAULT)
    assert bytes_behind(lib, model) == bytes_behind(lib, load("llama", "float32"))
    lib.free_model(model)


@each_family
@each_type
def test_rows_of_a_batch_forks_and_trims_give_the_same_tokens(
    lib, load, open_context, family, dtype
):
    model = load(family, dtype)
    prompts = [prompt(length, seed) for seed, length in enumerate((40, 7, 23))]
    expected = [greedy(lib, open_context(model), each, COUNT) for each in prompts]
    contexts = [open_context(model) for _ in prompts]
    assert generate_at_once(lib, contexts, prompts, max_tokens=COUNT) == expected
    assert [lib.info(context)["alone"] for context in contexts] == [None] * len(prompts)
    context = open_context(model)
    lib.begin(context, prompts[0][:30], max_tokens=0)
    fork = lib.fork(context)
    assert greedy(lib, fork, prompts[0], COUNT) == expected[0]
    lib.free(fork)
    lib.trim_end(context, 20)
    assert greedy(lib, context, prompts[0], COUNT) == expected[0]


@each_family
@each_type
def test_contexts_move_between_exact_and_rounded_models(
    lib, load, open_context, tmp_path, family, dtype
):
    """In a file; they get the type of the model that they come to."""
    models = [load(family, dtype, how) for how in (ACTIVATIONS_DEFAULT, ACTIVATIONS_EXACT)]
    sizes = [bytes_behind(lib, model) for model in models]
    for source, target, size in zip(models, models[::-1], sizes[::-1], strict=True):
        context, other = open_context(source), open_context(target)
        lib.begin(context, START, max_tokens=0)
        lib.save(context, tmp_path / "context")
        lib.restore(other, tmp_path / "context")
        contexts = [other, open_context(target)]
        assert lib.tokens(other) == START
        assert held(lib, other) == size
        given = generate_at_once(lib, contexts, [[*START, 11]] * 2, max_tokens=COUNT)
        assert [len(each) for each in given] == [COUNT, COUNT]
        assert [lib.info(each)["alone"] for each in contexts] == [None, None]


@each_type
def test_a_load_needs_room_for_the_file_and_for_what_it_converts(
    lib, load, open_context, device, tmp_path, dtype
):
    exact, rounded = (
        open_context(load("llama", dtype, how)) for how in (ACTIVATIONS_EXACT, ACTIVATIONS_DEFAULT)
    )
    lib.begin(exact, START, max_tokens=0)
    lib.save(exact, tmp_path / "context")
    needed = []
    device(1)
    for context in (exact, rounded):
        with pytest.raises(StatusError) as failed:
            lib.restore(context, tmp_path / "context")
        needed.append(failed.value.details["needed"])
    assert needed[1] - needed[0] == held(lib, exact) // 2


@each_type
def test_they_have_the_type_where_the_network_s_code_computes(lib, load, open_context, dtype):
    """As behind rows of embeddings, which kernels do not take; so a batch takes all contexts."""
    model, arrays = load("llama", dtype), Arrays(lib)
    width = lib.info(model)["embedding_width"]
    rows = arrays.create(np.ones((len(START), width), np.float32))
    places = (c_int32 * len(START))(*[-1] * len(START)), len(START)
    both = [open_context(model), open_context(model)]

    def begin(count):
        params = lib.params("generation", Callbacks(), max_tokens=count)
        lib.check(lib.c.cow_mlx_context_begin_embeddings(both[0], *places, rows, params))

    begin(0)
    assert held(lib, both[0]) == bytes_behind(lib, model)
    given: list[list[int]] = [[], []]

    def work(index):
        if index == 0:
            begin(COUNT)
        else:
            lib.begin(both[1], START, max_tokens=COUNT)
        given[index] = delivered(lib.drain(both[index]))

    at_once(2, work)
    assert [len(each) for each in given] == [COUNT, COUNT]
    assert [lib.info(each)["alone"] for each in both] == [None, None]
