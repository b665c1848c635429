"""What the tower of a model takes of memory, and when."""

from __future__ import annotations

import base64
import io
import threading

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from driver import delivered
from PIL import Image
from seeing import images_of, refused, said
from support import async_calls, tiny_vision_models
from support.loaded import drain
from support.signatures import ECANCELED, ECONTEXT, EIO, ENOMEM, OVERFLOW_ROLL

from cowmlx.errors import OutOfMemory
from cowmlx.generation.prompt import Prompt
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services.sleeping import Sleep
from cowmlx.vision import decoding, towers, turns
from cowmlx.vision.gemma3 import Gemma3ImageEncoder

TOWER = 50_000  # bytes, at least


@pytest.fixture
def folder(tmp_path):
    return tiny_vision_models.make(tmp_path / "vision", "gemma3")


@pytest.fixture
def seer(lib, folder):
    model = lib.load(folder)
    yield model
    lib.free_model(model)


@pytest.fixture
def seen(lib, seer, media):
    """The prompt of an image of one color."""

    def seen(color):
        return lib.chat_prompt(seer, said(media(np.full((20, 20, 3), color, np.uint8)), "a"))

    return seen


def active(lib):
    return lib.info()["memory"]["active"]


def sleep(lib, model):
    lib.check(lib.c.cow_mlx_model_sleep(model))


def test_images_that_are_seen_together_read_one_tower(lib, seen, seer, open_context, monkeypatch):
    made, own = [], Gemma3ImageEncoder._new_tower
    monkeypatch.setattr(Gemma3ImageEncoder, "_new_tower", lambda self: made.append(1) or own(self))
    monkeypatch.setattr(towers, "_GROUP_BYTES", 1)
    monkeypatch.setattr(turns, "_SECONDS", 0)
    contexts = [open_context(seer, share_prefix=False) for _ in range(2)]
    prompts = [seen(color) for color in (3, 90)]
    with async_calls.held(lib):
        for context, tokens in zip(contexts, prompts, strict=True):
            async_calls.begin(lib, context, tokens, max_tokens=2)
    found = [delivered(lib.drain(context)) for context in contexts]
    assert made == [1]
    for context, tokens, expected in zip(contexts, prompts, found, strict=True):
        lib.reset(context)
        lib.begin(context, tokens, max_tokens=2)
        assert delivered(lib.drain(context)) == expected


def test_a_tower_without_room_is_read_later(lib, seen, seer, open_context, monkeypatch):
    asked = []

    def require_room(self, size, what):
        asked.append(size)
        raise OutOfMemory(f"there is no room for {what}")

    context, tokens = open_context(seer), seen(3)
    with monkeypatch.context() as patched:
        patched.setattr(Sleep, "require_room", require_room)
        message = refused(ENOMEM, lib.begin, context, tokens, max_tokens=0)
    assert "no room for the model's weights for images" in message
    assert asked[0] > TOWER
    lib.begin(context, tokens, max_tokens=0)


def test_a_cancelled_image_takes_no_memory(lib, seen, seer, open_context, monkeypatch):
    """Unless another prompt has the image, too."""
    started, waits, prompts = threading.Event(), threading.Event(), set()

    def steps(self, pixels):
        activations = mx.zeros((1 << 24,), mx.uint8)
        mx.eval(activations)
        while not waits.is_set():
            yield
        rows = yield from own(self, pixels)
        assert activations.size
        return rows

    def next_chunk(self, size):
        chunk = own_next_chunk(self, size)
        prompts.add(id(self))
        if len(prompts) == 2:
            started.set()
        return chunk

    own, own_next_chunk = Gemma3ImageEncoder.steps, Prompt.next_chunk
    monkeypatch.setattr(Gemma3ImageEncoder, "steps", steps)
    monkeypatch.setattr(Prompt, "next_chunk", next_chunk)
    contexts, tokens = [open_context(seer, share_prefix=False) for _ in range(2)], seen(3)
    before = active(lib)
    for context in contexts:
        async_calls.begin(lib, context, tokens, max_tokens=1)
    assert started.wait(60)
    assert active(lib) >= before + (1 << 24)
    for at, context in enumerate(contexts):
        lib.cancel(context)
        refused(ECANCELED, lib.next, context)
        assert (active(lib) >= before + (1 << 24)) is (at == 0)
    waits.set()
    lib.begin(contexts[0], tokens, max_tokens=0)


def test_a_model_asleep_has_no_tower(lib, seen, seer, open_context):
    tokens, context = seen(3), open_context(seer)
    sleep(lib, seer)
    before = active(lib)
    lib.begin(context, tokens, max_tokens=0)
    logits = lib.logits(context)
    lib.free(context)
    assert active(lib) > before + TOWER
    sleep(lib, seer)
    assert active(lib) < before + TOWER // 4  # the embeddings of an image
    again = open_context(seer)
    lib.begin(again, seen(90), max_tokens=0)
    lib.begin(again, tokens, max_tokens=0)
    np.testing.assert_allclose(lib.logits(again), logits, rtol=1e-4, atol=1e-4)


def test_another_tower_is_refused_after_a_sleep(lib, seen, seer, folder, open_context):
    context = open_context(seer)
    lib.begin(context, seen(3), max_tokens=0)
    stored = mx.load(str(folder / "model.safetensors"))
    name = next(name for name in stored if "patch_embedding" in name)
    changed = {**stored, name: stored[name] + 1}
    mx.save_safetensors(str(folder / "other.safetensors"), changed, {"format": "pt"})
    (folder / "other.safetensors").replace(folder / "model.safetensors")
    sleep(lib, seer)
    lib.begin(context, [5, 6, 7], max_tokens=0)
    message = refused(EIO, lib.begin, context, seen(90), max_tokens=0)
    assert "another model than it was" in message


def test_weights_of_a_tower_are_hashed_in_groups():
    """One at a time would be hundreds of turns before the first image."""
    tower = nn.Sequential(*(nn.Linear(2, 2) for _ in range(20)))
    (first, steps), (again, _) = (drain(towers.hash_steps(tower)) for _ in range(2))
    assert (len(steps), first) == (3, again)
    tower.layers[-1].bias += 1
    assert drain(towers.hash_steps(tower))[0] != first


def test_a_tower_counts_for_the_bound_of_all_models(lib, seer, seen, open_context, monkeypatch):
    sizes = []
    monkeypatch.setattr(Sleep, "_keep_bound", lambda self, size, _: sizes.append(size) or iter(()))
    lib.begin(open_context(seer), seen(3), max_tokens=0)
    assert sizes[-1] > lib.info(seer)["bytes"] + TOWER


def test_files_in_messages_stay_within_the_memory_limit(lib, seer, open_context):
    parts = []
    for at in range(4):
        out, image = io.BytesIO(), Image.new("1", (8192, 8192))
        image.putpixel((at, 0), 1)
        image.save(out, "PNG")
        url = "data:image/png;base64," + base64.b64encode(out.getvalue()).decode()
        parts.append({"type": "image_url", "image_url": {"url": url}})
    messages, limit = [{"role": "user", "content": parts}], mx.get_memory_limit()
    context = open_context(seer)
    try:
        mx.set_memory_limit(active(lib) + (300 << 20))
        message = refused(ENOMEM, lib.chat_prompt, seer, messages)
        assert "messages[0].content[2].image_url.url" in message
        refused(ENOMEM, lib.chat, context, messages, max_tokens=1)
    finally:
        mx.set_memory_limit(limit)


def test_other_calls_run_between_the_files_of_a_message(lib, seer, monkeypatch):
    decoded, own = [], decoding.decode

    def decode(*arguments):
        decoded.append(1)
        return own(*arguments)

    monkeypatch.setattr(decoding, "decode", decode)
    at_turn, own_turn = [], SteppedCall.turn
    monkeypatch.setattr(
        SteppedCall, "turn", lambda self: at_turn.append(len(decoded)) or own_turn(self)
    )
    out = io.BytesIO()
    Image.new("RGB", (8, 8)).save(out, "PNG")
    url = "data:;base64," + base64.b64encode(out.getvalue()).decode()
    part = {"type": "image_url", "image_url": {"url": url}}
    assert lib.chat_prompt(seer, [{"role": "user", "content": [part] * 3}])
    assert {1, 2, 3} <= set(at_turn)


def test_an_image_at_the_end_does_not_roll_out_of_the_window(lib, seer, seen, open_context):
    image = images_of(seen(3))[0]
    for keep in (0, 1):
        size = len(image) + 2 + keep
        context = open_context(seer, max_tokens=size, overflow=OVERFLOW_ROLL, keep_tokens=keep)
        lib.begin(context, [5, 6, 7], max_tokens=0)
        message = refused(ECONTEXT, lib.begin, context, [*range(5, 8 + keep), *image], max_tokens=0)
        assert f"ends with an image of {len(image)} tokens" in message
        assert lib.tokens(context) == [5, 6, 7]
        lib.begin(context, [*range(5, 8 + keep), *image, 9], max_tokens=0)
        assert lib.tokens(context) == [*range(5, 5 + keep), 9]
