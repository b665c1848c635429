"""Sliding windows of a config: those that mlx cannot count are refused at the load, by name."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from support import tiny_models, tiny_vision_models
from support.library import StatusError
from support.seen import said
from support.signatures import EFORMAT

MOST = 2**30
BEYOND = 2**31
TOKENS = list(range(1, 13))
FAMILIES = {
    "gemma3_text": "sliding_window",
    "gpt_oss": "sliding_window",
    "recurrent_gemma": "attention_window_size",
}


def refused(lib, folder):
    with pytest.raises(StatusError) as error:
        lib.load(folder)
    assert error.value.status == EFORMAT
    return error.value.message


def loaded_in_little_memory(lib, folder):
    mx.reset_peak_memory()
    model = lib.load(folder)
    assert mx.get_peak_memory() < 256 << 20
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_are_refused_at_the_load(lib, tmp_path, family, open_context):
    key = FAMILIES[family]
    folder = tiny_models.make(tmp_path / "model", family)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for size in (0, -1, MOST + 1, BEYOND - 1, BEYOND, 2**63):
        path.write_text(json.dumps({**config, key: size}))
        assert f"{key} is {size}, not within 1 to {MOST}" in refused(lib, folder)
    for size in (1, 100, MOST):
        path.write_text(json.dumps({**config, key: size}))
        model = loaded_in_little_memory(lib, folder)
        context = open_context(model)
        lib.begin(context, TOKENS, max_tokens=4)
        assert len(lib.drain(context)) >= 1
        lib.free_model(model)


def test_a_text_config_is_named(lib, tmp_path, open_context):
    """Windows that no prompt reaches; images need a mask all the same."""
    folder = tiny_vision_models.make(tmp_path / "model", "gemma3")
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for size in (0, MOST + 1, BEYOND - 1, BEYOND, 2**64):
        config["text_config"]["sliding_window"] = size
        path.write_text(json.dumps(config))
        assert f"text_config.sliding_window is {size}, not within" in refused(lib, folder)
    found = []
    for size in (1 << 20, MOST):
        config["text_config"]["sliding_window"] = size
        path.write_text(json.dumps(config))
        model = loaded_in_little_memory(lib, folder)
        context = open_context(model)
        lib.begin(context, said(lib, model, "a", (40, 24, 1), "bc"), max_tokens=0)
        found.append(np.array(lib.logits(context)))
        lib.free_model(model)
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", list(tiny_vision_models.FAMILIES))
def test_large_numbers_of_a_text_config_are_errors_of_the_load_alone(
    lib, tmp_path, family, open_context
):
    folder = tiny_vision_models.make(tmp_path / "model", family)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    part = config.get("text_config", config)
    own = [key for key in part if type(part[key]) is int and key != "eos_token_id"]
    for key in own:
        value, part[key] = part[key], BEYOND
        path.write_text(json.dumps(config))
        part[key] = value
        try:
            model = lib.load(folder)
        except StatusError as error:
            assert error.status == EFORMAT, (key, error.message)
            continue
        context = open_context(model)
        lib.begin(context, TOKENS, max_tokens=1)
        if lib.info(model)["images"]["why_not"] is None:
            lib.begin(context, said(lib, model, "a", (40, 24, 1), "bc"), max_tokens=1)
        lib.free_model(model)
