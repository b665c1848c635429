"""Settings of preprocessing: images as transformers makes them, and those that are refused."""

from __future__ import annotations

import json

import mlx.core as mx
import numpy as np
import pytest
from PIL import Image
from support import tiny_vision_models
from support.paths import ROOT

from cowmlx import resources
from cowmlx.errors import BadFormat, InvalidArgument, OutOfMemory, Unsupported
from cowmlx.steps import finished
from cowmlx.text import tokenizer_files
from cowmlx.vision import preprocessing
from cowmlx.vision.image_encoders import open_encoder
from cowmlx.vision.pixels import MAX_PIXELS, pixels_steps

VALUES = 12  # of a part, about
CASES = json.loads((ROOT / "tests/fixtures/images/preprocessed.json").read_text())


@pytest.fixture
def opened(tmp_path):
    """Opens the encoder of a family with other settings, in either file, or another tower."""

    def opened(name, settings, processor=None, config=None):
        folder = tiny_vision_models.make(tmp_path, name)
        path = tmp_path / "preprocessor_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **settings}))
        (tmp_path / "processor_config.json").write_text(json.dumps(processor or {}))
        eyes, config = config or {}, json.loads((tmp_path / "config.json").read_text())
        config["vision_config"].update(eyes)
        own = tokenizer_files.read_config(str(folder))
        return open_encoder(str(folder), config, tokenizer_files.load(str(folder), own, config))

    return opened


def seen(encoder, name, array):
    """What the tower is given of an image, (H, W, 3) each."""
    made = []
    pixels = finished(pixels_steps(array, memoryview(array), array.shape))
    own = encoder._preprocessing
    for part in encoder.parts(pixels):
        if hasattr(encoder, "_tiles"):
            made += [own.normalized(tile) for tile in finished(encoder._tiles(part))]
            continue
        if name == "gemma3":
            high = wide = encoder._options.image
        elif name in ("llava", "mistral3"):
            high, wide = (side * encoder._block for side in encoder._grid(part.width, part.height))
        else:
            wide, high = encoder._resized(part.width, part.height)
        made.append(finished(own.steps(part, high, wide, encoder.turns)))
    return [np.array(each) for each in made]


@pytest.mark.parametrize("number", range(len(CASES)))
def test_images_are_those_of_transformers(opened, number):
    case = CASES[number]
    size = (*case["size"], 3)
    array = np.random.default_rng(case["seed"]).integers(0, 256, size, dtype=np.uint8)
    found = seen(opened(case["family"], case["settings"]), case["family"], array)
    assert [list(each.shape) for each in found] == [part["shape"] for part in case["parts"]]
    for own, part in zip(found, case["parts"], strict=True):
        values = own.reshape(-1)[:: own.size // VALUES]
        near = 0.1 if case["family"] == "lfm2_vl" else 1e-3  # torchvision rounds otherwise
        np.testing.assert_allclose(values, part["values"], rtol=1e-4, atol=near)


def test_transparent_images_are_seen_on_white():
    """As transformers' convert_to_rgb puts them, by Pillow, for each color and alpha."""
    colors, alphas = np.meshgrid(np.arange(256), np.arange(256))
    array = np.stack([colors, 255 - colors, colors[::-1], alphas], axis=-1).astype(np.uint8)
    image = Image.fromarray(array, "RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    expected = np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    for lines in (256, 100):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(preprocessing, "_PART", 256 * lines)
            pixels = finished(pixels_steps(array, memoryview(array), array.shape))
            found = finished(preprocessing.plain_steps(pixels))
        np.testing.assert_array_equal(np.array(found), expected)


@pytest.mark.parametrize("name", ["gemma3", "idefics3", "llava", "lfm2_vl", "qwen2_vl"])
def test_towers_get_transparent_images_on_white(opened, name):
    array = np.random.default_rng(5).integers(0, 256, (40, 50, 4), dtype=np.uint8)
    image = Image.fromarray(array, "RGBA")
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    plain = np.asarray(Image.alpha_composite(white, image).convert("RGB"))
    encoder = opened(name, {})
    for own, other in zip(*(seen(encoder, name, each) for each in (array, plain)), strict=True):
        np.testing.assert_array_equal(own, other)


REFUSED = [
    ("llava", {"size": {"shortest_edge": 9}}, Unsupported, "size is {'shortest_edge': 9}"),
    ("llava", {"size": {"height": 9, "width": 0}}, Unsupported, "height,width of 1 to 65535"),
    ("llava", {"size": {"height": 9, "width": 2.5}}, Unsupported, "size is"),
    ("llava", {"size": {"height": 9, "width": 1 << 31}}, Unsupported, "size is"),
    ("llava", {"size": [1, 2, 3]}, Unsupported, "size is [1, 2, 3]"),
    ("llava", {"size": True}, Unsupported, "size is True"),
    ("llava", {"size": 9, "default_to_square": False}, Unsupported, "size is 9"),
    ("llava", {"patch_size": 4}, Unsupported, "patch_size is [4, 4], not 8"),
    ("llava", {"patch_size": {"height": 8, "width": 4}}, Unsupported, "patch_size is [8, 4]"),
    ("llava", {"do_center_crop": True}, Unsupported, "do_center_crop is true"),
    ("gemma3", {"size": 33}, Unsupported, "size is [33, 33], not 32 x 32"),
    ("gemma3", {"size": {"longest_edge": 32}}, Unsupported, "size is {'longest_edge': 32}"),
    ("gemma3", {"image_seq_length": 17}, Unsupported, "image_seq_length is 17, but 16"),
    ("gemma3", {"do_image_splitting": True}, Unsupported, "do_image_splitting is true"),
    ("gemma3", {"do_pan_and_scan": 1}, BadFormat, "do_pan_and_scan is 1; it must be true or"),
    ("gemma3", {"do_anything": "x"}, BadFormat, "do_anything is 'x'; it must be true or false"),
    ("gemma3", {"do_resize": False}, Unsupported, "do_resize is false"),
    ("gemma3", {"do_rescale": "false"}, BadFormat, "do_rescale is 'false'"),
    ("gemma3", {"resample": 0}, Unsupported, "resample is 0; it can be 1, 2, 3"),
    ("gemma3", {"resample": 4}, Unsupported, "resample is 4"),
    ("gemma3", {"resample": True}, Unsupported, "resample is True"),
    ("gemma3", {"resample": 2.0}, Unsupported, "resample is 2.0"),
    ("gemma3", {"image_mean": [0.5]}, BadFormat, "image_mean is [0.5]; it must be a number, or"),
    ("gemma3", {"image_mean": [0.5] * 4}, BadFormat, "image_mean is [0.5, 0.5, 0.5, 0.5]"),
    ("gemma3", {"image_std": [0.5, 0, 0.5]}, BadFormat, "image_std is [0.5, 0, 0.5]"),
    ("gemma3", {"image_std": 0}, BadFormat, "image_std is 0; it must be numbers other than 0"),
    ("gemma3", {"image_std": True}, BadFormat, "image_std is True"),
    ("gemma3", {"rescale_factor": 0}, BadFormat, "rescale_factor is 0; it must be a number"),
    ("gemma3", {"rescale_factor": "1"}, BadFormat, "rescale_factor is '1'"),
    ("idefics3", {"max_image_size": {"height": 9, "width": 9}}, Unsupported, "max_image_size"),
    ("idefics3", {"size": {"shortest_edge": 9}}, Unsupported, "size is {'shortest_edge': 9}"),
    ("idefics3", {"do_image_splitting": 1}, BadFormat, "do_image_splitting is 1"),
    ("smolvlm", {"do_resize": False}, Unsupported, "do_resize is false"),
    ("lfm2_vl", {"use_thumbnail": 1}, BadFormat, "use_thumbnail is 1; it must be true or false"),
    ("lfm2_vl", {"encoder_patch_size": 8}, Unsupported, "encoder_patch_size is 8, but 4"),
    ("lfm2_vl", {"downsample_factor": 2.0}, Unsupported, "downsample_factor is 2.0, but 2"),
    ("qwen2_vl", {"merge_size": 4}, Unsupported, "merge_size is 4, but 2 by config.json"),
    ("qwen2_vl", {"temporal_patch_size": 1}, Unsupported, "temporal_patch_size is 1, but 2"),
    ("qwen2_vl", {"do_resize": False}, Unsupported, "do_resize is false"),
]


def _patches(size):
    """A part of a config about a tower with patches of a size."""
    return {"patch_size": size, "image_size": size}


LARGE = [  # of 2^26 pixels at most, as images are
    ("gemma3", {"image_size": 8193}, {"size": None}, "image_size of vision_config makes"),
    ("gemma3", {"image_size": 1 << 16, "patch_size": 1 << 12}, {"size": None}, "image_size of"),
    ("idefics3", {}, {"size": {"height": 65535, "width": 65535}}, ": size makes images of"),
    ("idefics3", {}, {"size": {"height": 1025, "width": 65535}}, ": size makes images of"),
    ("smolvlm", _patches(4096), {"max_image_size": {"longest_edge": 1 << 14}}, "max_image_size"),
    ("llava", {"patch_size": 1 << 14}, {}, "size in patches of 16384 makes images of"),
    ("mistral3", {"patch_size": 5000}, {"patch_size": 5000}, "size in patches of 5000 makes"),
    ("lfm2_vl", _patches(512), {"max_image_tokens": 128, "tile_size": 1024}, "max_image_tokens"),
    ("lfm2_vl", _patches(64), {"tile_size": 4096, "max_tiles": 32}, "tile_size makes images of"),
]


@pytest.mark.parametrize(("name", "config", "settings", "text"), LARGE)
def test_settings_do_not_make_images_of_gigabytes(opened, name, config, settings, text):
    if name in ("idefics3", "smolvlm"):
        settings = {**settings, "do_image_splitting": False}
    if name == "lfm2_vl":
        settings = {**settings, "encoder_patch_size": config["patch_size"]}
    with pytest.raises(Unsupported) as error:
        opened(name, settings, config=config)
    assert text in str(error.value)
    assert str(MAX_PIXELS) in str(error.value)


def test_tiles_are_counted_in_whole_ones(opened):
    """The last one of a line is filled up."""
    sizes = {"size": {"height": 8000, "width": 8000}, "max_image_size": {"longest_edge": 5000}}
    with pytest.raises(Unsupported) as error:
        opened("idefics3", sizes, config=_patches(1250))
    assert f"size in tiles of 5000 makes images of {10000**2} pixels" in str(error.value)


def test_resized_images_are_bounded(opened, monkeypatch):
    """Whatever a family's settings let through, and by the memory that there is."""
    own = opened("gemma3", {})._preprocessing
    image = mx.zeros((1, 1, 3), mx.uint8)
    with pytest.raises(InvalidArgument) as error:
        next(own.resized_steps(image, 1025, 65535))
    assert f"1 x 1 would be resized to 65535 x 1025: {1025 * 65535} pixels" in str(error.value)
    monkeypatch.setattr(resources, "_can_map", lambda size: size < 1 << 30)
    with pytest.raises(OutOfMemory):
        next(own.resized_steps(image, 8192, 8192))
    assert finished(own.resized_steps(image, 8, 8)).shape == (8, 8, 3)


@pytest.mark.parametrize(("name", "settings", "kind", "text"), REFUSED)
def test_settings_that_are_not_followed_are_refused(opened, name, settings, kind, text):
    with pytest.raises(kind) as error:
        opened(name, settings)
    assert text in str(error.value)
    assert "preprocessor_config.json: " in str(error.value)


@pytest.mark.parametrize(
    ("name", "processor", "text"),
    [
        ("gemma3", {"image_seq_length": 256}, "image_seq_length is 256, but 16 by config.json"),
        ("idefics3", {"image_seq_len": 169}, "image_seq_len is 169, but 16 by config.json"),
        ("mistral3", {"spatial_merge_size": 1}, "spatial_merge_size is 1, but 2"),
        ("llava", {"image_break_token": "[ROW]"}, "[ROW] and [IMG_END] are no tokens"),
    ],
)
def test_what_processors_say_is_checked(opened, name, processor, text):
    with pytest.raises(Unsupported) as error:
        opened(name, {}, processor)
    assert text in str(error.value)


@pytest.mark.parametrize("name", list(tiny_vision_models.FAMILIES))
def test_settings_without_effect_on_an_image_are_taken(opened, name):
    settings = dict.fromkeys(("do_convert_rgb", "do_pad", "do_sample_frames"), True)
    settings |= dict.fromkeys(("do_center_crop", "do_anything"), False)
    assert opened(name, {**settings, "pad_size": None, "crop_size": {"height": 3, "width": 3}})


def test_a_processors_tokens_are_those_of_pixtral(opened):
    names = {"image_break_token": "[IMG_END]", "image_end_token": "[IMG_BREAK]"}
    usual, other = opened("llava", {}).layout(40, 40), opened("llava", {}, names).layout(40, 40)
    assert usual != other
    assert sorted(set(usual)) == sorted(set(other))
