"""Folders of models that see: settings in other files, odd ones, and damaged towers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from seeing import begun, prompt_of, refused, said
from support.library import StatusError
from support.signatures import ECONTEXT, EFORMAT, EINVAL, EUNSUPPORTED

REFUSED = EFORMAT, EUNSUPPORTED
LONG = pytest.mark.long
ODD = (0, -1, 3, 1 << 40, 2.5, True, None, "x", [], {"longest_edge": 1}, [1, "x", None])


def test_preprocessing_is_read_from_either_file(lib, folder, open_context, media, recorded):
    """In folders of transformers 5, ``processor_config.json`` has it."""
    whole = json.loads((folder / "preprocessor_config.json").read_text())
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": whole}))
    (folder / "preprocessor_config.json").write_text(json.dumps({"resample": 17}))
    model = lib.load(folder)
    found = begun(lib, open_context(model), prompt_of(lib, model, media, recorded))
    np.testing.assert_allclose(found, recorded["last"], rtol=2e-3, atol=2e-3)
    lib.free_model(model)


def test_null_is_a_default(lib, folder, open_context, media, recorded):
    """As in folders that transformers 4 wrote, which has null for what nobody gave."""
    path = folder / "preprocessor_config.json"
    given = ("do_resize", "do_rescale", "do_normalize", "rescale_factor", "do_image_splitting")
    others = ("crop_size", "do_center_crop", "device", "data_format", "use_thumbnail")
    settings = json.loads(path.read_text()) | dict.fromkeys((*given, *others))
    path.write_text(json.dumps(settings))
    model = lib.load(folder)
    found = begun(lib, open_context(model), prompt_of(lib, model, media, recorded))
    np.testing.assert_allclose(found, recorded["last"], rtol=2e-3, atol=2e-3)
    lib.free_model(model)


def test_folders_that_do_not_fit_are_text_models(lib, folder, family):
    config = json.loads((folder / "config.json").read_text())
    part, key, value = family.odd
    config[part][key] = value
    (folder / "config.json").write_text(json.dumps(config))
    model = lib.load(folder)
    info = lib.info(model)["images"]
    assert part in info["why_not"]
    message = refused(EUNSUPPORTED, lib.chat_prompt, model, said(1))
    assert "text only" in message
    lib.free_model(model)


@pytest.mark.parametrize("share", [0, *(pytest.param(n, marks=LONG) for n in (1, 2, 3))])
def test_odd_settings_are_errors_with_names(lib, folder, open_context, media, recorded, share):
    """Any value of a setting: images are refused, by name, or are seen; nothing else happens."""
    image = media(recorded["first"])
    files = {name: folder / f"{name}.json" for name in ("config", "preprocessor_config")}
    texts = {name: json.loads(path.read_text()) for name, path in files.items()}
    own = [key for key in texts["config"] if isinstance(texts["config"][key], int | float)]
    texts_own = "vocab_size", "max_position_embeddings"  # too small, and prompts have no place
    places = [("config", key) for key in own if key not in texts_own]
    places += [("preprocessor_config", key) for key in texts["preprocessor_config"]]
    places += [("vision_config", key) for key in texts["config"]["vision_config"]]
    for at, (place, key) in enumerate(places):
        for odd in ODD[(at + share) % 4 :: 4]:
            name = "config" if place == "vision_config" else place
            changed = json.loads(json.dumps(texts[name]))
            (changed[place] if place == "vision_config" else changed)[key] = odd
            files[name].write_text(json.dumps(changed))
            try:
                model = lib.load(folder)
            except StatusError as error:
                assert error.status in REFUSED, (place, key, odd, error.message)
                continue
            finally:
                files[name].write_text(json.dumps(texts[name]))
            why = lib.info(model)["images"]["why_not"]
            if why is None:
                try:
                    tokens = lib.chat_prompt(model, said(image))
                    lib.begin(open_context(model), tokens, max_tokens=0)
                except StatusError as error:
                    other = error.status == EINVAL and "chat template" in error.message
                    known = error.status in (*REFUSED, ECONTEXT) or other  # many tiles
                    assert known, (place, key, odd, error.message)
            lib.free_model(model)


def test_towers_of_too_many_layers_are_refused(lib, folder):
    """A config makes them, before any weight is read."""
    config = json.loads((folder / "config.json").read_text())
    [name] = config["vision_config"].keys() & {"num_hidden_layers", "depth"}
    config["vision_config"][name] = 257
    (folder / "config.json").write_text(json.dumps(config))
    model = lib.load(folder)
    why = lib.info(model)["images"]["why_not"]
    assert name in why
    assert "257" in why
    lib.free_model(model)


def test_damaged_towers_are_errors_of_the_call(lib, folder, family, open_context, media, recorded):
    from safetensors.numpy import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    tensors[family.damaged] = tensors[family.damaged][:-1]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    model = lib.load(folder)
    context = open_context(model)
    tokens = lib.chat_prompt(model, said(media(recorded["first"])))
    with pytest.raises(StatusError) as error:
        lib.begin(context, tokens)
    assert family.damaged.split(".")[-2] in error.value.message
    lib.begin(context, [1, 2, 3], max_tokens=1)
    lib.free_model(model)
