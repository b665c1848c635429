"""Tiny models that see, of each family: beside transformers with torch, and beside themselves."""

from __future__ import annotations

import base64
import io
import json
import math
import shutil
from ctypes import byref, c_int32

import numpy as np
import pytest
from driver import delivered
from PIL import Image
from seeing import begun, images_of, refused, said
from support.async_calls import begin
from support.library import StatusError
from support.scoring import hidden_states, prompt_logprobs
from support.signatures import (
    ECANCELED,
    EFORMAT,
    EHANDLE,
    EINVAL,
    ESTATE,
    EUNSUPPORTED,
    OVERFLOW_ROLL,
)

COUNT = 8
STRIDE = 7  # tokens of the vocabulary whose logits are recorded


def test_logits_are_those_of_transformers(lib, seer, open_context, prompt, recorded):
    """At each position that is not inside an image."""
    for count in range(1, len(prompt) + 1):
        if count < len(prompt) and prompt[count] == prompt[count - 1] - 1 < 0:
            continue
        context = open_context(seer, share_prefix=False)
        found = begun(lib, context, prompt[:count])
        expected = recorded["logits"][count - 1]
        np.testing.assert_allclose(found[::STRIDE], expected, rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(found, recorded["last"], rtol=2e-3, atol=2e-3)


def test_each_decoded_token_is_that_of_the_whole_prompt(lib, seer, open_context, prompt):
    context = open_context(seer)
    lib.begin(context, prompt, max_tokens=COUNT)
    tokens = delivered(lib.drain(context))
    assert len(tokens) == COUNT
    for count in range(1, COUNT):
        fresh = open_context(seer, share_prefix=False)
        found = begun(lib, fresh, [*prompt, *tokens[:count]])
        assert int(found.argmax()) == tokens[count]


def test_media_tokens_are_those_of_a_prompt(lib, seer, media, calf, recorded):
    """Of images of any size, as transformers has them; model_info tells the most."""
    info = lib.info(seer)["images"]
    assert info["why_not"] is None
    out = c_int32(-7)
    call = lib.c.cow_mlx_model_media_tokens
    without = lib.chat_prompt(seer, said("a", "b"))
    lib.check(call(seer, 8192, 8192, 0, byref(out)))
    assert out.value <= info["tokens"]
    for width, height, count in recorded["counts"].tolist():
        lib.check(call(seer, width, height, 0, byref(out)))
        is_thin = max(width, height) > 16 * min(width, height)
        assert out.value <= info["tokens"] or is_thin
        black = media(np.zeros((height, width, 3), np.uint8))
        tokens = lib.chat_prompt(seer, said("a", black, "b"))
        [image] = images_of(tokens)
        assert image == list(range(image[0], image[0] - (count or len(image)), -1))
        assert len(tokens) - len(without) == pytest.approx(out.value, abs=2)  # merges of text
    for width, height, detail in ((0, 1, 0), (1, -1, 0), (1, 1, 1), (2**31 - 1, 2**31 - 1, 0)):
        refused(
            EINVAL, lambda *given: lib.check(call(*given)), seer, width, height, detail, byref(out)
        )
    refused(EUNSUPPORTED, lambda *given: lib.check(call(*given)), calf, 1, 1, 0, byref(out))


def test_equal_pixels_have_equal_ids_and_others_do_not(lib, seer, media, recorded):
    one, other = recorded["first"], recorded["first"].copy()
    other[0, 0, 0] ^= 1
    tokens = lib.chat_prompt(seer, said(media(one), "b", media(other), "b", media(one)))
    first, second, third = images_of(tokens)
    assert first == third
    assert not set(first) & set(second)
    assert images_of(lib.chat_prompt(seer, said(media(one)))) == [first]


def test_a_data_url_is_the_image_that_it_encodes(lib, seer, media, recorded):
    out = io.BytesIO()
    Image.fromarray(recorded["first"]).save(out, "PNG")
    url = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
    part = {"type": "image_url", "image_url": {"url": url, "detail": "auto"}}
    tokens = lib.chat_prompt(seer, [{"role": "user", "content": [part]}])
    assert tokens == lib.chat_prompt(seer, said(media(recorded["first"])))
    for bad in ("https://example.com/a.png", "file:///etc/passwd", "a.png", "data:image/png,abc"):
        part = {"type": "image_url", "image_url": {"url": bad}}
        message = refused(EINVAL, lib.chat_prompt, seer, [{"role": "user", "content": [part]}])
        assert bad in message
        assert "messages[0].content[0].image_url.url" in message
    cut = base64.b64encode(out.getvalue()[: len(out.getvalue()) // 2]).decode()
    for data in ("AAAA", cut):
        part = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
        message = refused(EFORMAT, lib.chat_prompt, seer, [{"role": "user", "content": [part]}])
        assert "messages[0].content[0].image_url.url is" in message


def test_bad_parts_are_refused_by_name(lib, seer, media, recorded, calf):
    handle = media(recorded["first"])
    cases = [
        ({"type": "image"}, EINVAL, "messages[0].content[0].media is missing"),
        ({"type": "image", "media": "7"}, EINVAL, "messages[0].content[0].media"),
        ({"type": "image", "media": True}, EINVAL, "messages[0].content[0].media"),
        ({"type": "image", "media": 0}, EHANDLE, "0 is not an open media"),
        ({"type": "image", "media": 2**70}, EHANDLE, "is not an open media"),
        ({"type": "image", "media": seer}, EHANDLE, "is not an open media"),
        ({"type": "image_url", "image_url": {"url": 7}}, EINVAL, "image_url.url"),
        ({"type": "image", "media": handle, "max_pixels": 9}, EINVAL, "content[0].max_pixels is"),
        ({"type": "image_url", "image_url": "a", "media": 7}, EINVAL, "content[0].media is no"),
        ({"type": "image_url", "image_url": {"url": "a", "size": 9}}, EINVAL, "image_url.size is"),
        ({"type": "image_url", "image_url": {"detail": "low"}}, EINVAL, "detail is 'low'"),
        ({"type": "image_url", "image_url": {"detail": 7}}, EINVAL, "image_url.detail"),
        ({"type": "video", "media": handle}, EUNSUPPORTED, "takes text, and images"),
    ]
    for part, status, text in cases:
        message = refused(status, lib.chat_prompt, seer, [{"role": "user", "content": [part]}])
        assert text in message
    message = refused(
        EUNSUPPORTED, lib.chat_prompt, seer, [{"role": "user", "content": "a", "images": ["x"]}]
    )
    assert "image_url" in message
    message = refused(EUNSUPPORTED, lib.chat_prompt, calf, said(handle))
    assert "takes text only" in message
    assert lib.info(calf)["images"] is None


def test_ids_of_no_image_are_refused(lib, seer, open_context, prompt):
    context = open_context(seer)
    at = next(at for at, token in enumerate(prompt) if token < 0)
    broken = prompt[:at] + prompt[at + 1 :]
    assert "follow each other" in refused(EINVAL, lib.begin, context, broken)
    for token in (-2000000, -(2**31)):
        message = refused(EINVAL, lib.begin, context, [1, token, 2])
        assert f"tokens[1] is {token}" in message
    assert "tokens[1] is -1" in refused(EINVAL, lib.begin, context, [1, -1])
    message = refused(EUNSUPPORTED, lib.begin, context, prompt, draft_tokens=2)
    assert "images" in message


def test_texts_of_marks_stay_text(lib, seer, media, recorded, family):
    handle = media(recorded["first"])
    for role in ("user", "assistant"):
        halves = [{"type": "text", "text": text} for text in (family.soft[:3], family.soft[3:])]
        for content in (" ".join(family.marks), halves):
            tokens = lib.chat_prompt(seer, [{"role": role, "content": content}, *said(handle)])
            assert len(images_of(tokens)) == 1
            first = lib.info(seer)["vocabulary_size"] - len(family.marks)
            assert first + family.marks.index(family.soft) not in tokens


def test_chunks_contexts_and_batches_agree(lib, seer, open_context, prompt):
    """A prompt behind a shared beginning, a fork, a checkpoint, and beside texts: as alone."""
    alone = open_context(seer, share_prefix=False)
    lib.begin(alone, prompt, max_tokens=COUNT)
    expected = delivered(lib.drain(alone))
    first = open_context(seer, share_prefix=True)
    lib.begin(first, prompt[:-3], max_tokens=0)
    checkpoint = lib.checkpoint(first)
    fork = lib.fork(first)
    shared, text = open_context(seer, share_prefix=True), open_context(seer)
    for context in (first, fork, shared):
        lib.begin(context, prompt, max_tokens=COUNT)
        assert delivered(lib.drain(context)) == expected
        assert lib.info(context)["reused"] >= len(prompt) - 4
    lib.free(fork)
    lib.rewind(first, checkpoint)
    assert lib.tokens(first) == prompt[:-3]
    lib.begin(first, prompt, max_tokens=COUNT)
    lib.begin(text, [5, 6, 7], max_tokens=COUNT)
    found = []
    for _ in range(COUNT):
        found.append(lib.next(first).token)
        lib.next(text)
    assert found == expected


def test_other_pixels_share_no_more_than_the_text_before(lib, seer, open_context, prompt, media):
    context = open_context(seer)
    lib.begin(context, prompt, max_tokens=0)
    black = images_of(lib.chat_prompt(seer, said(media(np.zeros((4, 4, 3), np.uint8)))))[0]
    at = next(at for at, token in enumerate(prompt) if token < 0)
    other = prompt[:at] + black + prompt[at + len(images_of(prompt)[0]) :]
    found = begun(lib, context, other)
    assert lib.info(context)["first_difference"] == at
    assert lib.info(context)["reused"] <= at
    np.testing.assert_allclose(
        found, begun(lib, open_context(seer, share_prefix=False), other), rtol=1e-4, atol=1e-4
    )


def test_trims_drop_whole_images(lib, seer, open_context, prompt):
    context = open_context(seer)
    lib.begin(context, prompt, max_tokens=0)
    starts = [at for at in range(len(prompt)) if prompt[at] < 0 <= prompt[at - 1]]
    assert lib.trim_end(context, len(prompt) - starts[1] - 3) == len(prompt) - starts[1]
    assert lib.tokens(context) == prompt[: starts[1]]
    np.testing.assert_allclose(
        begun(lib, context, [*prompt[: starts[1]], 9]),
        begun(lib, open_context(seer, share_prefix=False), [*prompt[: starts[1]], 9]),
        rtol=1e-4,
        atol=1e-4,
    )
    lib.begin(context, prompt, max_tokens=0)
    lib.trim_front(context, starts[0] + 3)
    assert lib.tokens(context) == prompt[starts[0] + len(images_of(prompt)[0]) :]


def test_images_stand_anywhere(lib, seer, open_context, prompt, media):
    """First, last, alone; of one pixel, and long and thin."""
    sizes = ((1, 1), (30, 400))
    rng = np.random.default_rng(3)
    arrays = [rng.integers(0, 256, (*size, 3), dtype=np.uint8) for size in sizes]
    ids = [images_of(lib.chat_prompt(seer, said(media(array))))[0] for array in arrays]
    for tokens in (ids[0], [*ids[1], 5], [5, *ids[0]], [*ids[0], *ids[1]], [*ids[0], *ids[0]]):
        context = open_context(seer)
        whole = begun(lib, context, tokens)
        assert np.isfinite(whole).all()
        again = begun(lib, open_context(seer, share_prefix=False), tokens)
        np.testing.assert_allclose(whole, again, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(begun(lib, context, tokens), whole, rtol=1e-3, atol=1e-3)


def test_long_images_are_seen_up_to_a_limit(lib, seer, open_context, media):
    tokens, call = c_int32(), lib.c.cow_mlx_model_media_tokens
    for height, width in ((1, 1 << 16), (1 << 16, 1)):
        image = media(np.zeros((height, width, 3), np.uint8))
        assert "65535" in refused(EINVAL, lib.chat_prompt, seer, said(image))
        found = call(seer, width, height, 0, byref(tokens))
        assert "65535" in refused(EINVAL, lib.check, found)
        image = media(np.ones((max(height - 1, 1), max(width - 1, 1), 3), np.uint8))
        try:
            prompt = lib.chat_prompt(seer, said(image))
        except StatusError as error:
            assert error.status == EINVAL  # too thin for some models
        else:
            assert np.isfinite(begun(lib, open_context(seer), prompt)).all()


def test_chats_see_images(lib, seer, open_context, media, recorded):
    messages = said("What is it?", media(recorded["first"]))
    context = open_context(seer)
    answer = lib.chat(context, messages, max_tokens=COUNT)
    assert answer.stats.prompt_tokens == len(lib.chat_prompt(seer, messages))
    other = lib.chat(context, said("What is it?", media(recorded["second"])), max_tokens=COUNT)
    image = images_of(lib.chat_prompt(seer, messages))[0]
    assert other.stats.reused_tokens <= answer.stats.prompt_tokens - len(image)


def test_a_cancel_ends_a_tower(lib, seer, open_context, media):
    pixels = np.random.default_rng(4).integers(0, 256, (1500, 1500, 3), dtype=np.uint8)
    tokens = lib.chat_prompt(seer, said(media(pixels), "a"))
    context = open_context(seer)
    begin(lib, context, tokens, max_tokens=1)
    lib.cancel(context)
    refused(ECANCELED, lib.next, context)
    assert lib.tokens(context) == tokens[: len(lib.tokens(context))]
    found = begun(lib, context, tokens)
    fresh = open_context(seer, share_prefix=False)
    np.testing.assert_allclose(found, begun(lib, fresh, tokens), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cached", [0, 1 << 20])
def test_a_model_keeps_images_within_its_cache(lib, seer, open_context, media, recorded, cached):
    model = lib.load(lib.info(seer)["path"], media_cache=cached)
    first = lib.chat_prompt(model, said(media(recorded["first"]), "a"))
    second = lib.chat_prompt(model, said(media(recorded["second"]), "a"))
    context = open_context(model)
    lib.begin(context, second, max_tokens=0)
    if cached:
        lib.begin(context, first, max_tokens=0)
    else:
        assert "model_chat_prompt" in refused(EINVAL, lib.begin, context, first)
        assert lib.tokens(context) == second
    lib.free_model(model)


def test_all_images_of_a_prompt_are_there_whatever_they_take(lib, seer, open_context, media):
    model = lib.load(lib.info(seer)["path"], media_cache=1)
    images = [media(np.full((20, 20, 3), at, np.uint8)) for at in range(5)]
    tokens = lib.chat_prompt(model, said(*images, "a"))
    context = open_context(model)
    lib.begin(context, tokens, max_tokens=0)
    assert lib.tokens(context) == tokens
    assert lib.chat(context, said(*images[::-1], "a"), max_tokens=1).stats.prompt_tokens
    lib.free_model(model)


def test_the_hosts_function_of_logits_gets_the_ids_of_images(lib, seer, open_context, prompt):
    given = []
    context = open_context(seer)

    def note(tokens, count, logits, vocabulary):
        given.append(tokens[:count])

    lib.begin(context, prompt, max_tokens=3, logits_fn=note)
    tokens = delivered(lib.drain(context))
    assert given == [[*prompt, *tokens[:count]] for count in range(3)]


def test_text_behind_images_is_scored_and_images_are_not(lib, seer, open_context, prompt):
    end = max(at for at, token in enumerate(prompt) if token < 0) + 1
    context = open_context(seer, share_prefix=False)
    lib.begin(context, prompt[:end], max_tokens=0)
    before = np.array(lib.logits(context))
    [[(_, found)], *_] = prompt_logprobs(lib, context, [*prompt[end:], 5])
    expected = before - np.logaddexp.reduce(before)
    assert found == pytest.approx(expected[[*prompt[end:], 5][0]], abs=1e-3)
    message = refused(EINVAL, prompt_logprobs, lib, context, [5, *prompt])
    at = 1 + next(at for at, token in enumerate(prompt) if token < 0)
    assert f"tokens[{at}] is {prompt[at - 1]}" in message
    assert "image" in message


def test_text_behind_images_is_scored_alike_after_a_sleep(lib, seer, open_context, prompt):
    """All tokens are processed again, each image as in the prompt."""
    context = open_context(seer, share_prefix=False)
    lib.begin(context, prompt, max_tokens=0)
    expected = [value for [(_, value)] in prompt_logprobs(lib, context, [5, 6, 7])]
    states = hidden_states(lib, context, [5, 6, 7])
    lib.check(lib.c.cow_mlx_model_sleep(seer))
    found = [value for [(_, value)] in prompt_logprobs(lib, context, [5, 6, 7])]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-3)
    lib.check(lib.c.cow_mlx_model_sleep(seer))
    np.testing.assert_allclose(hidden_states(lib, context, [5, 6, 7]), states, rtol=1e-3, atol=1e-3)


def test_a_saved_context_needs_no_image(lib, tmp_path, open_context, recorded, media, folder):
    """Another model of the folder, as in another process, continues without the pixels."""
    first, second = lib.load(folder), lib.load(folder)
    messages = said("a", media(recorded["first"]), "b", media(recorded["second"]))
    tokens = lib.chat_prompt(first, messages)
    context = open_context(first)
    lib.begin(context, tokens, max_tokens=0)
    lib.save(context, tmp_path / "file")
    loaded = open_context(second)
    lib.restore(loaded, tmp_path / "file")
    held = lib.tokens(loaded)
    assert [max(token, -1) for token in held] == [max(token, -1) for token in tokens]
    np.testing.assert_allclose(
        begun(lib, loaded, [*held, 9]), begun(lib, context, [*tokens, 9]), rtol=1e-4, atol=1e-4
    )
    assert lib.info(loaded)["reused"] == len(held)
    message = refused(ESTATE, lib.begin, open_context(second, share_prefix=False), held)
    assert "hash" in message
    assert lib.chat_prompt(second, messages) == held  # and now it has the pixels
    found = begun(lib, open_context(second, share_prefix=False), held)
    expected = begun(lib, open_context(first, share_prefix=False), tokens)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
    settings = json.loads((folder / "preprocessor_config.json").read_text())
    settings["resample"] = 5 - settings["resample"]
    (folder / "preprocessor_config.json").write_text(json.dumps(settings))
    other = lib.load(folder)
    message = refused(EFORMAT, lib.restore, open_context(other), tmp_path / "file")
    assert "images" in message
    for model in (first, second, other):
        lib.free_model(model)


def test_a_context_cancelled_inside_an_image_is_saved(
    lib, tmp_path, folder, open_context, media, recorded
):
    config = json.loads((folder / "config.json").read_text())
    config.get("text_config", config)["max_position_embeddings"] = 4096
    (folder / "config.json").write_text(json.dumps(config))
    model = lib.load(folder)
    image = images_of(lib.chat_prompt(model, said(media(recorded["first"]), "a")))[0]
    # No power of two is 3 and whole images, so a chunk ends inside one.
    tokens = [5, 6, 7, *image * (2100 // len(image)), 8]
    context, loaded = (open_context(model, share_prefix=False) for _ in range(2))
    refused(ECANCELED, lib.begin, context, tokens, prompt_progress=lambda done, total: not done)
    held = lib.tokens(context)
    assert held == tokens[: len(held)]
    lib.save(context, tmp_path / "file")
    lib.restore(loaded, tmp_path / "file")
    assert lib.tokens(loaded) == held
    found = begun(lib, loaded, tokens)
    assert lib.info(loaded)["reused"] == min(len(held), len(tokens) - 1)
    fresh = open_context(model, share_prefix=False)
    np.testing.assert_allclose(found, begun(lib, fresh, tokens), rtol=1e-3, atol=1e-3)
    lib.free_model(model)


def test_quantized_weights_see_what_they_are(lib, tmp_path, folder, open_context, recorded, media):
    """Tables of positions, too, and layers of other bits than most; as dequantized ones."""
    import mlx.core as mx

    stored = mx.load(str(folder / "model.safetensors"))
    packed, plain, settings = {}, {}, {"group_size": 32, "bits": 8}
    for name, array in stored.items():
        own, found, _ = name.rpartition(".weight")
        if not found or array.ndim != 2 or array.shape[1] % 32:
            packed[name] = plain[name] = array
            continue
        bits = 6 if "q_proj" in name or "qkv" in name else 8
        if bits != settings["bits"]:
            settings[own] = {"group_size": 32, "bits": bits}
        parts = mx.quantize(array, 32, bits)
        plain[name] = mx.dequantize(*parts, 32, bits)
        names = (f"{own}.{part}" for part in ("weight", "scales", "biases"))
        packed |= zip(names, parts, strict=True)
    shutil.copytree(folder, tmp_path / "plain")
    mx.save_safetensors(str(tmp_path / "plain/model.safetensors"), plain, {"format": "pt"})
    mx.save_safetensors(str(folder / "model.safetensors"), packed, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization"] = settings
    (folder / "config.json").write_text(json.dumps(config))
    messages = said("a", media(recorded["first"]))
    results = []
    for each in (folder, tmp_path / "plain"):
        model = lib.load(each)
        results.append(begun(lib, open_context(model), lib.chat_prompt(model, messages)))
        lib.free_model(model)
    np.testing.assert_allclose(*results, rtol=2e-3, atol=2e-3)


def test_a_window_rolls_over_images(lib, seer, open_context, prompt):
    size = len(prompt) + 10
    context = open_context(seer, max_tokens=size, overflow=OVERFLOW_ROLL, keep_tokens=2)
    tokens = range(lib.info(seer)["vocabulary_size"])
    endless = {token: -math.inf for token in tokens if lib.is_end(seer, token)}
    lib.begin(context, prompt, max_tokens=40, bias=endless)
    assert len(delivered(lib.drain(context))) == 40
    for image in images_of(lib.tokens(context)):
        assert image in images_of(prompt)


def test_a_freed_image_lives_as_long_as_its_prompt(lib, seer, open_context, recorded):
    array = np.ascontiguousarray(recorded["second"])
    out = c_int32()
    height, width, channels = array.shape
    call = lib.c.cow_mlx_media_from_pixels
    lib.check(call(array.ctypes.data, width, height, channels, width * channels, byref(out)))
    tokens = lib.chat_prompt(seer, said(out.value, "a"))
    lib.check(lib.c.cow_mlx_media_free(out.value))
    context = open_context(seer)
    lib.begin(context, tokens, max_tokens=0)
    assert lib.tokens(context) == tokens
