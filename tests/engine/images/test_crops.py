"""Crops of long images beside the whole of them (pan and scan), as transformers has them."""

from __future__ import annotations

import json
from ctypes import byref, c_int32

import numpy as np
import pytest
from seeing import RECORDED, begun, refused, said
from support import tiny_vision_models
from support.signatures import EINVAL
from support.vision_families import gemma3

CASES = json.loads((RECORDED / "gemma3_crops.json").read_text())
STRIDE = 7  # tokens of the vocabulary whose logits are recorded


@pytest.fixture
def settled(lib, tmp_path):
    """Loads the tiny Gemma 3 with other settings of its preprocessing."""
    models = []

    def settled(settings):
        folder = tiny_vision_models.make(tmp_path / f"seer{len(models)}", "gemma3")
        path = folder / "preprocessor_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        models.append(lib.load(folder))
        return models[-1]

    yield settled
    for model in models:
        lib.free_model(model)


def drawn(case):
    size = case["height"], case["width"], 3
    return np.random.default_rng(case["seed"]).integers(0, 256, size, dtype=np.uint8)


@pytest.mark.parametrize("number", range(len(CASES)))
def test_crops_are_those_of_transformers(lib, settled, media, open_context, number):
    """The text around them, their tokens and what the network makes of them."""
    case = CASES[number]
    model = settled(case["settings"])
    image = drawn(case)
    tokens = lib.chat_prompt(model, said("What is ", media(image), ", then?"))
    first = lib.info(model)["vocabulary_size"] - len(gemma3.MARKS)
    soft = first + gemma3.MARKS.index(gemma3.FAMILY.soft)
    assert [soft if token < 0 else token for token in tokens] == case["tokens"]
    found = begun(lib, open_context(model), tokens)
    np.testing.assert_allclose(found[::STRIDE], case["last"], rtol=2e-3, atol=2e-3)
    out = c_int32()
    call = lib.c.cow_mlx_model_media_tokens
    lib.check(call(model, case["width"], case["height"], 0, byref(out)))
    without = len(lib.chat_prompt(model, said("What is ", ", then?")))
    assert len(tokens) - without == pytest.approx(out.value, abs=3)  # merges of text
    assert out.value <= lib.info(model)["images"]["tokens"]


def test_crops_of_other_pixels_are_others(lib, settled, media, open_context):
    """And a context that has them is saved and continued as one without."""
    model = settled(CASES[0]["settings"])
    image = drawn(CASES[0])
    tokens = lib.chat_prompt(model, said(media(image)))
    image[0, -1, 0] ^= 1  # in the last crop alone
    assert not {each for each in tokens if each < 0} & set(
        lib.chat_prompt(model, said(media(image)))
    )
    context, other = open_context(model), open_context(model, share_prefix=False)
    lib.begin(context, tokens, max_tokens=0)
    ends = [at for at in range(len(tokens)) if tokens[at] < 0 <= tokens[at + 1]]
    lib.trim_end(context, len(tokens) - ends[2])  # into the third part
    held = lib.tokens(context)
    assert held == tokens[: len(held)]
    assert held[-1] >= 0
    np.testing.assert_allclose(
        begun(lib, context, tokens), begun(lib, other, tokens), rtol=1e-3, atol=1e-3
    )


def test_a_context_with_crops_is_saved(lib, settled, media, open_context, tmp_path):
    model = settled(CASES[0]["settings"])
    tokens = lib.chat_prompt(model, said(media(drawn(CASES[0]))))
    context = open_context(model)
    lib.begin(context, tokens, max_tokens=0)
    lib.save(context, tmp_path / "file")
    loaded = open_context(model)
    lib.restore(loaded, tmp_path / "file")
    assert lib.tokens(loaded) == tokens
    again = begun(lib, loaded, [*tokens, 9])
    np.testing.assert_allclose(again, begun(lib, context, [*tokens, 9]), rtol=1e-4, atol=1e-4)


def test_settings_out_of_range_are_refused_by_name(lib, settled, media):
    own = CASES[0]["settings"]
    for name, value in (
        ("pan_and_scan_min_crop_size", 0),
        ("pan_and_scan_max_num_crops", 65),
        ("pan_and_scan_max_num_crops", True),
        ("pan_and_scan_min_ratio_to_activate", "1.2"),
    ):
        why = lib.info(settled({**own, name: value}))["images"]["why_not"]
        assert f"{name} is {value!r}" in why


def test_a_template_that_drops_images_with_crops_says_so(lib, settled, media, tmp_path):
    model = settled(CASES[0]["settings"])
    image = media(drawn(CASES[0]))
    folder = tmp_path / "seer0"
    path = folder / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings["chat_template"] = settings["chat_template"].replace("<start_of_image>", "x")
    path.write_text(json.dumps(settings))
    other = lib.load(folder)
    message = refused(EINVAL, lib.chat_prompt, other, said(image))
    assert "1 images of 6 parts, but the chat template writes 0" in message
    lib.free_model(other)
    assert lib.chat_prompt(model, said(image))
