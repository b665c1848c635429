"""Bias and penalties: mlx-lm's arithmetic, on the whole real sequence, for greedy tokens too."""

from __future__ import annotations

import math
from collections.abc import Callable

import mlx.core as mx
import numpy as np
import pytest
from driver import KINDS, delivered, generation_params, opened, prompt
from support import draws
from support.sample_inputs import Model

from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.penalties import Penalties, RowPenalties
from cowmlx.generation.sampling.sampler import SampleInput, Sampler
from cowmlx.networks import light_route

HISTORY, LAST = [3, 5, 3, 39, 0, 12, 5], 20
PENALTIES = ["repetition", "presence", "frequency"]
START = [*prompt(20), *prompt(20)]  # every token occurs twice


def penalize(logits: mx.array, history=HISTORY, **params) -> mx.array:
    inputs = [SampleInput(None, history, LAST, 0)]
    return RowPenalties([Penalties(generation_params(**params), Model(logits.shape[-1]))])(
        logits, inputs
    )


@pytest.mark.parametrize("window", [1, 3, 50, 2**64 - 1])
@pytest.mark.parametrize("value", [0.5, 1.3, 2.0, -0.75])
@pytest.mark.parametrize("name", PENALTIES)
def test_the_arithmetic_is_that_of_mlx_lm(name, value, window):
    """On logits of both signs, with tokens that occur twice in the window."""
    value = abs(value) if name == "repetition" else value
    utils = light_route.import_module("sample_utils")
    reference = getattr(utils, f"make_{name}_penalty")(value, min(window, 50))
    logits = mx.random.normal((1, 40), key=mx.random.key(7)) * 4
    ours = penalize(logits, **{f"{name}_penalty": value, f"{name}_window": window})
    theirs = reference(mx.array([*HISTORY, LAST]), mx.array(logits))
    assert mx.allclose(ours, theirs, rtol=1e-6, atol=1e-6)
    assert not mx.array_equal(ours, logits)


def test_each_penalty_has_a_window_of_its_own():
    """Bias, then repetition, presence, frequency; each logit as numpy computes it."""
    options = {
        "bias": {3: 2.0, 7: -1.5, 20: -math.inf},
        "repetition_penalty": 1.7,
        "repetition_window": 4,
        "presence_penalty": 0.6,
        "presence_window": 2,
        "frequency_penalty": 0.4,
        "frequency_window": 7,
    }
    logits = mx.random.normal((1, 40), key=mx.random.key(8)) * 4
    expected = draws.adjusted(logits[0].tolist(), [*HISTORY, LAST], **options)
    np.testing.assert_allclose(np.array(penalize(logits, **options))[0], expected, rtol=1e-5)


def test_a_sequence_of_one_token_is_a_window():
    logits = penalize(mx.zeros((1, 40)), [], presence_penalty=1.0, frequency_penalty=0.5)
    assert logits[0, LAST].item() == -1.5
    assert logits.sum().item() == -1.5


@pytest.mark.parametrize("name", PENALTIES)
def test_a_row_without_tokens_stays_as_it_is(name):
    """Beside a row with tokens: a prompt of embeddings alone has none."""
    own = Penalties(generation_params(**{f"{name}_penalty": 1.5}), Model(40))
    inputs = [SampleInput(None, HISTORY, LAST, 0), SampleInput(None, [], -1, 0)]
    logits = mx.ones((2, 40))
    penalized = RowPenalties([own, own])(logits, inputs)
    assert mx.array_equal(penalized[1], logits[1])
    assert penalized[0, LAST].item() < 1


# ------------------------------------------------------------------- Greedy tokens

EVERY = [
    {"bias": {31: 40.0}},
    {"bias": dict.fromkeys(range(0, 250, 2), -30.0)},
    {"bias": dict.fromkeys(range(0, 250, 2), -math.inf)},
    {"repetition_penalty": 1.6, "repetition_window": 100},
    {"repetition_penalty": 0.6, "repetition_window": 3},
    {"presence_penalty": 3.0},
    {"presence_penalty": -5.0, "presence_window": 2},
    {"frequency_penalty": 1.5, "frequency_window": 45},
    {"frequency_penalty": -2.5, "frequency_window": 4},
    {
        "bias": {33: 4.0, 34: 4.0},
        "repetition_penalty": 1.2,
        "presence_penalty": 1.0,
        "presence_window": 5,
        "frequency_penalty": 0.5,
        "frequency_window": 2**64 - 1,
    },
]


def greedy(lib, context, tokens=START, count=12, **options) -> list[int]:
    lib.begin(context, tokens, max_tokens=count, **options)
    return delivered(lib.drain(context))


@pytest.mark.parametrize("options", EVERY, ids=lambda options: " ".join(options))
def test_every_token_is_the_best_after_bias_and_penalties(lib, tiny, open_context, options):
    """Step by step, from the model's logits as the library gives them."""
    context = open_context(tiny("soft"))
    lib.begin(context, START, max_tokens=12, **options)
    plain = 0
    for _ in range(12):
        logits, held = lib.logits(context), lib.tokens(context)
        best = int(draws.adjusted(logits, held, **options).argmax())
        assert lib.next(context).token == best
        plain += best == int(np.argmax(logits))
    assert plain < 12, "the options have changed nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_no_token_comes_twice_where_presence_weighs_most(lib, tiny, open_context, kind):
    options = {"presence_penalty": 3e38, "presence_window": 2**64 - 1}
    got = greedy(lib, open_context(tiny(kind)), **options)
    assert len({*START, *got}) == len({*START}) + len(got)


def test_a_forbidden_token_is_never_given_at_any_temperature(lib, tiny, open_context):
    context = open_context(tiny("soft"))
    kept = {21, 22, 23}
    bias = dict.fromkeys(range(lib.info(tiny("soft"))["vocabulary_size"]), -math.inf)
    bias = {token: value for token, value in bias.items() if token not in kept}
    drawn = greedy(lib, context, count=60, bias=bias, temperature=3e38)
    assert set(drawn) == kept


# --------------------------------------------- The sequence, whatever it came from

SEEN = {
    "repetition_penalty": 2.0,
    "presence_penalty": 4.0,
    "frequency_penalty": 5.0,
    "repetition_window": 50,
    "presence_window": 60,
    "frequency_window": 70,
    "bias": {40: 1.0},
}
LONGER = [*START, 50, 51, 50]


def by_begin(lib, model) -> int:
    context = lib.context(model)
    lib.begin(context, [*START, 77], max_tokens=0)
    return context


def by_generation(lib, model) -> int:
    context = lib.context(model)
    lib.generate(context, START[:9], max_tokens=5)
    lib.begin(context, START, max_tokens=4)
    lib.next(context)
    return context


def by_fork(lib, model) -> int:
    with opened(lib, model) as first:
        lib.begin(first, START, max_tokens=0)
        return lib.fork(first)


def by_checkpoint(lib, model) -> int:
    context = lib.context(model)
    lib.begin(context, START, max_tokens=0)
    checkpoint = lib.checkpoint(context)
    lib.generate(context, LONGER, max_tokens=5)
    lib.rewind(context, checkpoint)
    return context


def by_trim(lib, model) -> int:
    context = lib.context(model)
    lib.begin(context, [*START, 60, 61], max_tokens=0)
    lib.trim_end(context, 2)
    return context


def by_sharing(lib, model) -> int:
    with opened(lib, model, share_prefix=True) as first:
        lib.begin(first, [*START, 60], max_tokens=0)
    return lib.context(model, share_prefix=True)


@pytest.mark.parametrize(
    "prepared", [by_begin, by_generation, by_fork, by_checkpoint, by_trim, by_sharing]
)
@pytest.mark.parametrize("temperature", [0.0, 2.5])
def test_penalties_look_back_on_what_was_in_the_cache_too(
    lib, tiny, open_context, prepared: Callable[..., int], temperature
):
    model = tiny("llama")
    options = {**SEEN, "temperature": temperature, "seed": 4}
    fresh = greedy(lib, open_context(model), LONGER, **options)
    context = prepared(lib, model)
    assert greedy(lib, context, LONGER, **options) == fresh
    assert lib.stats(context).reused_tokens >= len(START) - 1
    lib.free(context)
    assert greedy(lib, open_context(model), LONGER, temperature=temperature, seed=4) != fresh


@pytest.mark.parametrize("dtype", [mx.bfloat16, mx.float16], ids=str)
def test_penalties_smaller_than_the_steps_of_a_type_count(dtype):
    """Two logits alike, one of them penalised by less than the model's type can tell."""
    logits = mx.full((1, 40), -9.0, dtype)
    logits[0, 12] = logits[0, 30] = 30.0
    for options in (
        {"presence_penalty": 0.003},
        {"frequency_penalty": 0.003},
        {"repetition_penalty": 1.0001},
        {"bias": {30: 0.003}},
    ):
        sampler = Sampler(generation_params(**options), None)
        (draw,) = BatchSampler().sample([SampleInput(sampler, HISTORY, LAST, 0)], logits)
        assert draw.value() == 30
