"""Draws follow the probabilities that every filter, and all of them together, leave."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from driver import generation_params
from support import draws

from cowmlx.accelerate import kernels
from cowmlx.generation.sampling import batch
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.randomness import sample_coin
from cowmlx.generation.sampling.sampler import SampleInput, Sampler
from cowmlx.models import registry

DRAWS = 20_000
ROWS = 500
HISTORY, LAST = [13, 15, 13, 49, 10, 22, 15], 13


@pytest.fixture(autouse=True, params=["kernel", "mlx"])
def way(request, monkeypatch):
    """With the kernel for processors, where it can be used, and with mlx's own operations."""
    if request.param == "mlx":
        monkeypatch.setattr(batch, "kernel_usable", lambda logits: False)
    elif not kernels.available():
        pytest.skip(f"there are no kernels: {kernels.reason()}")


@pytest.fixture(scope="module")
def model(folder):
    loading = registry.load(
        str(folder("llama")), adapter_path=None, lazy=True, trust_remote_code=False
    )
    while True:
        try:
            next(loading)
        except StopIteration as stop:
            return stop.value


@pytest.fixture(scope="module")
def logits(model) -> mx.array:
    """A dozen tokens of some probability; three of them all but as probable as each other."""
    values = mx.random.normal((1, model.vocabulary_size), key=mx.random.key(4)) - 6
    values[0, 10:22] = mx.array([4.0, 3.99, 3.98, 3.5, 3.2, 3, 2.5, 2, 1.5, 1, 0, -1])
    return values


def sampler(model, **options) -> Sampler:
    return Sampler(generation_params(**options), model)


def take(sample, logits, count, *, allowed=None, rows=ROWS, surprise=0.0) -> list[int]:
    """Tokens of draws 0, 1, ..., so many rows at a time."""
    tokens: list[int] = []
    batch_sampler = BatchSampler()
    mask = None if allowed is None else mx.array(allowed)
    for first in range(0, count, rows):
        numbers = range(first, min(first + rows, count))
        inputs = [
            SampleInput(sample, HISTORY, LAST, number, mask, surprise=surprise)
            for number in numbers
        ]
        draws = batch_sampler.sample(inputs, mx.repeat(logits, len(inputs), axis=0))
        tokens += [draw.value() for draw in draws]
    return tokens


PENALTIES = {
    "bias": {11: 1.5, 12: -math.inf, 40: 8.0},
    "repetition_penalty": 1.3,
    "presence_penalty": 0.4,
    "frequency_penalty": 0.3,
    "frequency_window": 8,  # HISTORY and LAST, where 13 occurs thrice
}
XTC = {"xtc_probability": 1.0, "xtc_threshold": 0.1}
# Behind "15 13", and behind 13 alone.
DRY = {"dry_multiplier": 0.9, "dry_allowed_length": 1, "bias": {49: 8.0, 11: 1.0}}
CASES = [
    DRY,
    {**DRY, "dry_penalty_last_n": 7, "dry_base": 3.0},
    {"temperature": 1.0},
    {"temperature": 0.4},
    {"top_p": 0.8, "temperature": 1.5},
    {"min_p": 0.2, "temperature": 1.5},
    {"top_k": 5, "temperature": 2.0},
    {"typical_p": 0.3},
    {"typical_p": 0.8, "temperature": 0.7},
    XTC,
    {"xtc_probability": 1.0, "xtc_threshold": 0.3},
    {"typical_p": 0.7, "top_p": 0.9, "min_p": 0.02},
    {"typical_p": 0.9, "top_k": 3, **XTC},
    {"top_n_sigma": 1.5, "temperature": 1.5},
    {"dynatemp_range": 0.8, "temperature": 1.2},
    {"dynatemp_range": 2.0, "temperature": 0.5, "dynatemp_exponent": 2.0, "top_k": 6},
    PENALTIES,
    {
        **PENALTIES,
        **XTC,
        **DRY,
        "top_n_sigma": 9.0,
        "dynatemp_range": 0.3,
        "top_p": 0.95,
        "min_p": 0.01,
        "typical_p": 0.97,
        "top_k": 6,
        "temperature": 1.3,
        "seed": 2**63,
    },
]


def check(sample, logits, options, count=DRAWS, allowed=None, rows=ROWS):
    tokens = take(sample, logits, count, allowed=allowed, rows=rows)
    expected = draws.probabilities(logits[0].tolist(), [*HISTORY, LAST], allowed=allowed, **options)
    draws.check(np.bincount(tokens, minlength=logits.size), expected)


@pytest.mark.parametrize("options", CASES, ids=str)
def test_draws_follow_the_probabilities(model, logits, options):
    options = {"temperature": 1.0, "seed": 5, **options}
    check(sampler(model, **options), logits, options)


def test_draws_follow_the_probabilities_that_a_grammar_leaves(model, logits):
    options = {"temperature": 1.0, "top_p": 0.95, **PENALTIES, "bias": {11: 1.5, 41: 3}}
    allowed = [token % 2 == 1 for token in range(logits.size)]
    check(sampler(model, **options), logits, options, allowed=allowed)


def test_draws_of_different_numbers_follow_the_probabilities(model, logits):
    options = {"temperature": 2.0, "seed": 2**64 - 1}
    check(sampler(model, **options), logits, options, rows=1)


@pytest.mark.parametrize("bits", [0.0, 1.5, 2.8, 30.0])
def test_draws_follow_the_probabilities_that_mirostat_leaves(model, logits, bits):
    options = {"temperature": 1.3, "seed": 6}
    tokens = take(sampler(model, mirostat=2, **options), logits, 5000, surprise=bits)
    expected = draws.probabilities(logits[0].tolist(), **options)
    left = draws.unsurprising(expected, bits)
    if (left > 0).sum() == 1:
        assert set(tokens) == {int(left.argmax())}
    else:
        draws.check(np.bincount(tokens, minlength=logits.size), left)


def test_a_draw_tells_how_surprising_it_is(model, logits):
    sample = sampler(model, mirostat=2, temperature=1.3)
    left = draws.unsurprising(draws.probabilities(logits[0].tolist(), temperature=1.3), 3.0)
    for number in range(8):
        wanted = SampleInput(sample, [], 1, number, surprise=3.0)
        (draw,) = BatchSampler().sample([wanted], logits)
        assert draw.surprise() == pytest.approx(-np.log2(left[draw.value()]), abs=1e-4)


def test_xtc_happens_as_often_as_it_should(model, logits):
    """One coin for each sample, independent of the sampled tokens."""
    options = {"temperature": 1.0, "xtc_probability": 0.4, "xtc_threshold": 0.15}
    check(sampler(model, **options), logits, options, count=4000, rows=1)


def test_coins_are_uniform():
    for seed in (0, 1, 2**64 - 1):
        coins = [sample_coin(seed, draw) for draw in range(DRAWS)]
        draws.check(
            np.bincount((np.array(coins) * 20).astype(int), minlength=20), np.full(20, 1 / 20)
        )


# ------------------------------------------------------------ Draws and their numbers


def test_a_draw_depends_on_its_seed_and_number_alone(model, logits):
    """Not on earlier samples: speculative decoding samples in another order."""
    options = {"temperature": 2.0, "xtc_probability": 0.5, "xtc_threshold": 0.05, "seed": 3}
    tokens = take(sampler(model, **options), logits, 50)
    sample, batch_sampler = sampler(model, **options), BatchSampler()
    for number in (49, 7, 7, 0, 20):
        (draw,) = batch_sampler.sample([SampleInput(sample, HISTORY, LAST, number)], logits)
        assert draw.value() == tokens[number]


# ---------------------------------------------------------------- What XTC spares


@pytest.mark.parametrize("which", ["end", "newline", "plain"])
def test_xtc_never_removes_the_end_or_a_line_break(model, which):
    newline = model.tokenizer.encode("\n", add_special=False, parse_special=False)
    assert len(newline) == 1
    token = {"end": min(model.end_tokens), "newline": newline[0], "plain": 40}[which]
    values = mx.full((1, model.vocabulary_size), -50.0)
    values[0, token], values[0, 41] = 1.0, 0.5
    options = {"temperature": 1.0, "xtc_probability": 1.0, "xtc_threshold": 0.1}
    drawn = set(take(sampler(model, **options), values, 50))
    assert drawn == ({41} if which == "plain" else {token, 41})


# -------------------------------------------------------------- A token is always left


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_counts_for_more_than_a_bias(model, logits, temperature):
    """Where the bias forbids all that the grammar allows, the bias of those is left out."""
    allowed = np.zeros(logits.size, bool)
    allowed[[10, 20]] = True
    options = {"temperature": temperature, "presence_penalty": 1.0}
    sample = sampler(model, bias={10: -math.inf, 20: -math.inf, 11: 5.0}, **options)
    tokens = take(sample, logits, 500, allowed=allowed, rows=500)
    if temperature == 0:
        assert set(tokens) == {10}
    else:
        expected = draws.probabilities(logits[0].tolist(), allowed=allowed, temperature=1.0)
        draws.check(np.bincount(tokens, minlength=logits.size), expected)


def test_the_bias_holds_where_the_grammar_allows_another_token(model, logits):
    allowed = np.zeros(logits.size, bool)
    allowed[[10, 20]] = True
    sample = sampler(model, bias={10: -math.inf}, temperature=3e38)
    assert set(take(sample, logits, 50, allowed=allowed)) == {20}


EXTREMES = [
    {"top_p": 1e-45, "min_p": 1.0, "typical_p": 1e-45, "top_k": 1},
    {"typical_p": 0.99999994, "top_p": 0.99999994},
    {"xtc_probability": 1.0, "xtc_threshold": 1e-45},
    {"repetition_penalty": 3e38, "presence_penalty": 3e38, "frequency_penalty": 3e38},
    {"repetition_penalty": 1e-45, "presence_penalty": -3e38, "frequency_penalty": -3e38},
    {"repetition_penalty": 1e-45, "presence_penalty": 3e38, "top_p": 0.5, "typical_p": 0.5},
    {"bias": {13: 3e38, 15: -3e38}, "presence_penalty": -3e38, "min_p": 0.1},
]


@pytest.mark.parametrize("temperature", [0.0, 1e-45, 1.0, 3e38])
@pytest.mark.parametrize("options", EXTREMES, ids=str)
def test_extreme_options_leave_a_token_that_is_not_forbidden(model, logits, options, temperature):
    if temperature == 0:
        options = {
            name: value
            for name, value in options.items()
            if name != "typical_p" and not name.startswith("xtc")
        }
    forbidden = [token for token in range(logits.size) if token not in (13, 15, 22)]
    bias = {**dict.fromkeys(forbidden, -math.inf), **options.get("bias", {})}
    sample = sampler(model, **{**options, "bias": bias, "temperature": temperature})
    assert set(take(sample, logits, 20)) <= {13, 15, 22}


def test_tokens_all_alike_all_stay_typical(model):
    values = mx.zeros((1, model.vocabulary_size))
    sample = sampler(model, temperature=1.0, typical_p=0.1)
    assert len(set(take(sample, values, 4000, rows=500))) > values.size * 0.9
