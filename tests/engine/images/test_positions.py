"""Positions on three axes: text behind images follows these, in every way that it is held."""

from __future__ import annotations

import json
from ctypes import byref, c_int32

import mlx.core as mx
import numpy as np
import pytest
from driver import delivered
from support import tiny_vision_models, without_kernels
from support.callbacks import refused
from support.library import StatusError
from support.scoring import hidden_states, prompt_logits, prompt_logprobs
from support.seen import said
from support.signatures import EFORMAT, EINVAL, ESTATE

COUNT = 8
FAMILIES = [name for name in tiny_vision_models.FAMILIES if name.startswith("qwen")]
GROUP = 32


@pytest.fixture(scope="module", params=FAMILIES)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def seer(lib, tmp_path_factory, name):
    model = lib.load(tiny_vision_models.make(tmp_path_factory.mktemp("placed"), name))
    yield model
    lib.free_model(model)


def logits_of(lib, context, tokens):
    lib.begin(context, tokens, max_tokens=0)
    return np.array(lib.logits(context))


def prompts_of(lib, model):
    """Prompts whose texts have other positions than places, and one of text."""
    return [
        said(lib, model, "a", (40, 24, 1), "bc"),
        said(lib, model, "some words without a picture"),
        said(lib, model, (16, 48, 2), "x", (48, 48, 3), "yz"),
    ]


@pytest.mark.parametrize("bits", [0, 8])
def test_rows_with_and_without_images_are_as_alone(lib, seer, open_context, name, bits):
    prompts = prompts_of(lib, seer)
    expected = []
    for prompt in prompts:
        alone = open_context(seer, share_prefix=False, kv_bits=bits)
        lib.begin(alone, prompt, max_tokens=COUNT)
        expected.append(delivered(lib.drain(alone)))
    contexts = [open_context(seer, share_prefix=False, kv_bits=bits) for _ in prompts]
    for context, prompt in zip(contexts, prompts, strict=True):
        lib.begin(context, prompt, max_tokens=COUNT)
    found = [[] for _ in prompts]
    for _ in range(COUNT):
        for context, tokens in zip(contexts, found, strict=True):
            tokens.append(lib.next(context).token)
    assert found == expected
    if not name.startswith(
        "qwen3_5"
    ):  # its caches never run ahead of a host, and this one asks in turn
        assert any(lib.info(context)["batched"] for context in contexts)


@pytest.mark.parametrize("bits", [0, 8])
def test_text_behind_an_image_is_that_of_the_whole_prompt(lib, seer, open_context, bits):
    """Token by token, in a fork, behind a trim and from a file, the logits are the same."""
    prompt = said(lib, seer, "a", (40, 24, 1), "some text that follows it")
    whole = logits_of(lib, open_context(seer, share_prefix=False, kv_bits=bits), prompt)
    last = max(at for at, token in enumerate(prompt) if token < 0)
    context = open_context(seer, share_prefix=False, kv_bits=bits)
    for end in range(last + 1, len(prompt)):
        lib.begin(context, prompt[:end], max_tokens=0)
    fork = lib.fork(context)
    near = {"rtol": 2e-2, "atol": 2e-2} if bits else {"rtol": 1e-3, "atol": 1e-3}
    for each in (context, fork):
        np.testing.assert_allclose(logits_of(lib, each, prompt), whole, **near)
    lib.begin(fork, [*prompt, 5, 6, 7], max_tokens=COUNT)
    lib.drain(fork)
    lib.trim_end(fork, len(lib.tokens(fork)) - len(prompt) + 1)
    np.testing.assert_allclose(logits_of(lib, fork, prompt), whole, **near)
    lib.free(fork)


def test_a_dropped_image_moves_positions_back(lib, seer, open_context):
    prompt = said(lib, seer, "a", (40, 24, 1), "b")
    first = min(at for at, token in enumerate(prompt) if token < 0)
    text = [*prompt[:first], 5, 6, 7, 8]
    context = open_context(seer, share_prefix=False)
    lib.begin(context, prompt, max_tokens=COUNT)
    lib.drain(context)
    found = logits_of(lib, context, text)
    fresh = logits_of(lib, open_context(seer, share_prefix=False), text)
    np.testing.assert_allclose(found, fresh, rtol=1e-4, atol=1e-4)


@pytest.fixture
def large(lib, tmp_path, name):
    """A model of larger images, and the prompt of one with 300 positions."""
    folder = tiny_vision_models.make(tmp_path / "large", name)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    side = settings["patch_size"] * settings["merge_size"]
    for key in ("max_pixels", "size"):
        settings.pop(key, None)
    settings["max_pixels"] = 400 * side**2
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    model = lib.load(folder)
    prompt = said(lib, model, "a", (15 * side, 20 * side, 1), "b")
    assert sum(token < 0 for token in prompt) == 300
    yield model, prompt
    lib.free_model(model)


def test_an_image_in_several_chunks_is_as_one_in_one(lib, large, open_context):
    model, prompt = large
    whole = logits_of(lib, open_context(model, share_prefix=False), prompt)
    other = open_context(model)
    lib.begin(other, [1, 2, 3], max_tokens=100)
    lib.next(other)
    context = open_context(model, share_prefix=False)
    lib.begin(context, prompt, max_tokens=1)  # beside one that decodes: chunks of 128
    tokens = [lib.next(other).token for _ in range(3)]
    assert len(tokens) == 3
    lib.drain(context)
    np.testing.assert_allclose(logits_of(lib, context, prompt), whole, rtol=1e-3, atol=1e-3)


def test_nothing_is_scored_behind_a_part_of_an_image(lib, large, open_context):
    model, prompt = large
    other, context = open_context(model), open_context(model, share_prefix=False)
    lib.begin(other, [1, 2, 3], max_tokens=100)
    lib.next(other)
    with pytest.raises(StatusError):
        lib.begin(context, prompt, max_tokens=0, prompt_progress=lambda done, _: done < 20)
    assert 0 < sum(token < 0 for token in lib.tokens(context)) < 300
    for call in (
        lambda: prompt_logprobs(lib, context, [5, 6]),
        lambda: prompt_logits(lib, context, [5, 6], [1]),
        lambda: hidden_states(lib, context, [5, 6]),
    ):
        refused(ESTATE, "part of an image", call)
    lib.begin(context, prompt, max_tokens=0)
    assert prompt_logits(lib, context, [5, 6], [1])


def quantized(folder, bits=8):
    """Quantize all matrices of a folder whose rows have whole groups."""
    file = folder / "model.safetensors"
    made = {}
    for key, array in mx.load(str(file)).items():
        made[key] = array
        if array.ndim == 2 and array.shape[-1] % GROUP == 0:
            packed, scales, biases = mx.quantize(array, GROUP, bits)
            base = key.removesuffix(".weight")
            made |= {key: packed, f"{base}.scales": scales, f"{base}.biases": biases}
    mx.eval(made)
    mx.save_safetensors(str(file), made, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = {"group_size": GROUP, "bits": bits}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_quantized_weights_are_near_those_that_are_not(lib, seer, open_context, tmp_path, name):
    model = lib.load(quantized(tiny_vision_models.make(tmp_path / "packed", name)))
    shown = "a", (40, 24, 1), "bc"
    plain = logits_of(lib, open_context(seer), said(lib, seer, *shown))
    found = logits_of(lib, open_context(model), said(lib, model, *shown))
    assert np.corrcoef(plain, found)[0, 1] > 0.99
    lib.free_model(model)


def test_images_that_are_too_long_and_thin_are_refused(lib, seer):
    for shape in ((1, 201, 0), (402, 2, 0)):
        with pytest.raises(StatusError) as error:
            said(lib, seer, shape)
        assert error.value.status == EINVAL
        assert f"{shape[1]} x {shape[0]}" in error.value.message
        assert "200 times" in error.value.message
    assert said(lib, seer, (1, 200, 0))
    out = c_int32()
    with pytest.raises(StatusError) as error:
        lib.check(lib.c.cow_mlx_model_media_tokens(seer, 402, 2, 0, byref(out)))
    assert error.value.status == EINVAL


def test_files_with_images_that_do_not_fit_are_refused(lib, seer, open_context, tmp_path):
    context = open_context(seer)
    lib.begin(context, said(lib, seer, "a", (40, 24, 1), "b"), max_tokens=0)
    lib.save(context, tmp_path / "good")
    data = (tmp_path / "good").read_bytes()
    assert data.count(b" 5x3 ") == 1
    for sides in (b" 3x3 ", b" 5x0 ", b" 0x0 ", b" axb ", b" 5x4 "):
        (tmp_path / "bad").write_bytes(data.replace(b" 5x3 ", sides))
        with pytest.raises(StatusError) as error:
            lib.restore(open_context(seer), tmp_path / "bad")
        assert error.value.status == EFORMAT


def test_without_kernels_logits_are_the_same(lib, seer, open_context):
    """Layers that are not fused turn by the same positions."""
    parts = ["a", (40, 24, 1), "bc"]
    [plain] = without_kernels.logits(lib.info(seer)["path"], [parts], count=COUNT)
    context = open_context(seer)
    prompt = said(lib, seer, *parts)
    lib.begin(context, prompt, max_tokens=COUNT)
    tokens = delivered(lib.drain(context))
    found = logits_of(lib, context, [*prompt, *tokens])
    np.testing.assert_allclose(plain, found, rtol=1e-3, atol=1e-3)
