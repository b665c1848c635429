"""Models that see, on several machines: texts as on one machine, and no images."""

from __future__ import annotations

from ctypes import byref, c_int32

import numpy as np
import pytest
from support import tiny_vision_models
from support.library import StatusError
from support.signatures import EINVAL, EUNSUPPORTED, SPLIT_PIPELINE
from support.workers import SECRET, Worker, on


@pytest.fixture
def seen_by_two(lib, tmp_path):
    """A family's model on this machine, and on two ranks."""
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    loaded, workers = [], []

    def seen_by_two(name):
        folder = tiny_vision_models.make(tmp_path / f"models/{name}", name)
        workers.append(Worker(tmp_path / "models", tmp_path / "secret"))
        options = on(workers[-1:], tmp_path / "secret", split=SPLIT_PIPELINE)
        loaded[:] = lib.load(folder), lib.load(folder, **options)
        return loaded

    yield seen_by_two
    for model in loaded:
        lib.free_model(model)
    for worker in workers:
        worker.end()


# The others' networks cannot be split.
@pytest.mark.parametrize("name", ["qwen2_vl", "qwen2_5_vl", "qwen3_5"])
def test_texts_are_those_of_one_machine_and_images_are_refused(lib, seen_by_two, name):
    whole, split = seen_by_two(name)
    why = lib.info(split)["images"]
    assert set(why) == {"why_not"}
    assert "several machines" in why["why_not"]
    messages = [{"role": "user", "content": "What is it?"}]
    answers = []
    for model in (whole, split):
        context = lib.context(model)
        answers.append(lib.chat(context, messages, max_tokens=6).said())
        lib.free(context)
    assert answers[0] == answers[1]

    pixels, out = np.zeros((8, 8, 3), np.uint8), c_int32()
    lib.check(lib.c.cow_mlx_media_from_pixels(pixels.ctypes.data, 8, 8, 3, 24, byref(out)))
    tokens = lib.chat_prompt(
        whole, [{"role": "user", "content": [{"type": "image", "media": out.value}]}]
    )
    calls = [
        lambda: lib.chat_prompt(
            split, [{"role": "user", "content": [{"type": "image", "media": out.value}]}]
        ),
        lambda: lib.check(lib.c.cow_mlx_model_media_tokens(split, 8, 8, 0, byref(out))),
    ]
    for call in calls:
        with pytest.raises(StatusError) as caught:
            call()
        assert caught.value.status == EUNSUPPORTED
        assert "several machines" in caught.value.message
    context = lib.context(split)
    with pytest.raises(StatusError) as caught:
        lib.begin(context, tokens)
    assert caught.value.status == EINVAL
    lib.free(context)
    lib.check(lib.c.cow_mlx_media_free(out.value))
