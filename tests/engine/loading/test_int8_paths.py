"""With activations of eight bits, every road to the same tokens gives the same."""

from __future__ import annotations

import pytest
from driver import XLSTM, delivered, generate_at_once, greedy, opened, prompt
from support import tiny_models
from support.signatures import ACTIVATIONS_INT8

from cowmlx.accelerate import kernels

pytestmark = pytest.mark.skipif(
    not kernels.available(), reason=kernels.reason() or "there are kernels"
)
FAMILIES = [*tiny_models.FAMILIES, XLSTM, "mad-hybrid"]
START, COUNT = prompt(20), 12
SAMPLED = {"temperature": 0.9, "top_p": 0.95, "seed": 7, "max_tokens": COUNT}


@pytest.fixture(params=FAMILIES)
def model(lib, once, request):
    """A tiny model with quantized weights, which is freed afterwards."""
    packed = {"group_size": 32, "bits": 4}
    name = f"packed-{request.param}"
    place = once(name, lambda path: tiny_models.make(path, request.param, quantize=packed))
    handle = lib.load(place, activations=ACTIVATIONS_INT8)
    assert lib.info(handle)["activations"] == "int8"
    yield handle
    lib.free_model(handle)


def sampled(lib, context, tokens, **options):
    lib.begin(context, tokens, **{**SAMPLED, **options})
    return delivered(lib.drain(context))


def continued(lib, context):
    """Tokens behind the start, and the logits behind these."""
    return greedy(lib, context, START, COUNT), lib.logits(context)


def test_every_road_gives_the_same(lib, model, tmp_path):
    with opened(lib, model) as fresh:
        expected = continued(lib, fresh)
    with opened(lib, model) as fresh:
        drawn = sampled(lib, fresh, START)
    with opened(lib, model) as context:
        assert sampled(lib, context, START) == drawn, "a seed gives its tokens again"
        lib.reset(context)
        lib.begin(context, START, max_tokens=0)
        checkpoint, fork = lib.checkpoint(context), lib.fork(context)
        lib.save(context, tmp_path / "saved")
        assert continued(lib, context) == expected
        assert continued(lib, fork) == expected
        lib.free(fork)
        lib.rewind(context, checkpoint)
        lib.free_checkpoint(checkpoint)
        assert continued(lib, context) == expected
        lib.restore(context, tmp_path / "saved")
        assert continued(lib, context) == expected

        lib.trim_end(context, len(lib.tokens(context)) - len(START) + 3)
        assert greedy(lib, context, START, COUNT) == expected[0]
        if lib.info(model)["cache"]["draft"] == "in_place":
            lib.reset(context)
            assert sampled(lib, context, START, draft_tokens=4) == drawn


def test_rows_of_a_batch_do_not_know_of_each_other(lib, model):
    prompts = [START, prompt(7), prompt(33), prompt(5, 1)]
    alone = []
    for tokens in prompts:
        with opened(lib, model) as context:
            alone.append(greedy(lib, context, tokens, COUNT))
    contexts = [lib.context(model) for _ in prompts]
    assert generate_at_once(lib, contexts, prompts, max_tokens=COUNT) == alone
    for context in contexts:
        lib.free(context)
