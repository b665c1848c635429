"""Short texts behind images, processed as one batch with those of other contexts."""

from __future__ import annotations

import numpy as np
import pytest
from support import in_process, tiny_vision_models
from support.in_process import Call

from cowmlx.generated.defaults import CONTEXT, GENERATION
from cowmlx.steps import finished
from cowmlx.vision.pixels import pixels_steps

COUNT = 8
MORE = [7, 9, 11]


class Ended(Call):
    """A call that ends."""

    ended = False

    def succeed(self, value=None):
        self.result, self.ended = value, True
        return True

    def done(self, value):
        self.result, self.ended = value, True

    def fail(self, error):
        raise error


@pytest.fixture
def engine():
    with in_process.started() as engine:
        yield engine


@pytest.fixture(params=[name for name in tiny_vision_models.FAMILIES if "qwen" in name])
def seer(engine, request, tmp_path):
    return in_process.loaded(engine, tiny_vision_models.make(tmp_path, request.param))


def image(engine, seer, height, width, seed):
    """The ids of an image's positions."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 256, (height, width, 3), dtype=np.uint8)
    made = finished(pixels_steps(pixels, memoryview(pixels), (height, width, 3)))
    images = engine.models.get(seer).images
    own = images.image_of(made)
    images.keep([own])
    return list(range(own.first, own.first - own.count, -1))


def begin(engine, contexts, prompts):
    """Begin on all contexts before any has a turn."""
    calls = [Ended() for _ in contexts]
    for call, context, tokens in zip(calls, contexts, prompts, strict=True):
        engine.context_begin(call, context, tokens, {**GENERATION, "max_tokens": COUNT})
    while not all(call.ended for call in calls):
        assert engine.step()


def read(engine, contexts, count=COUNT):
    """The tokens that follow, of all contexts at the same time."""
    given = [[] for _ in contexts]
    for _ in range(count):
        calls = [Ended() for _ in contexts]
        for call, context in zip(calls, contexts, strict=True):
            engine.context_next(call, context)
        while not all(call.ended for call in calls):
            assert engine.step()
        for call, tokens in zip(calls, given, strict=True):
            tokens.append(call.result[1].token)
    return given


def opened(engine, seer):
    return engine.context_create(seer, {**CONTEXT, "share_prefix": False})


def test_short_texts_behind_images_are_processed_together(engine, seer):
    """And behind a text that an image is dropped from, in its row of the batch."""
    first, second = image(engine, seer, 40, 24, 1), image(engine, seer, 16, 48, 2)
    prompts = [[5, *first, 6, 7], [5, 6, 7, 8], [*second, 5, *first, 6]]
    contexts = [opened(engine, seer) for _ in prompts]
    begin(engine, contexts, prompts)
    read(engine, contexts, 3)  # they keep their rows
    ends = len(prompts[0]), len(prompts[1]), len(second) + 1
    longer = [[*own[:end], *MORE] for own, end in zip(prompts, ends, strict=True)]
    begin(engine, contexts, longer)
    found = read(engine, contexts)
    for tokens, expected in zip(longer, found, strict=True):
        alone = opened(engine, seer)
        begin(engine, [alone], [tokens])
        assert read(engine, [alone]) == [expected]
        engine.context_free(alone)
