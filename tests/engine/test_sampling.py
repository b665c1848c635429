"""Draws: reproducible, and from the distribution that mlx-lm's filters make."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from driver import KINDS, delivered, greedy, opened, prompt
from tasks import BEYOND_WINDOWS, COUNT, PENALTIES, TASKS

START = prompt(BEYOND_WINDOWS)
WARM = {"max_tokens": 20, "temperature": 1.5}
DRAWS = 1500


def drawn(lib, context, tokens=START, **params):
    lib.begin(context, tokens, **{**WARM, **params})
    return delivered(lib.drain(context))


# ------------------------------------------------------------- Seeds


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_tokens_again(lib, tiny, open_context, kind):
    first = drawn(lib, open_context(tiny(kind)), seed=7)
    context = open_context(tiny(kind))
    assert drawn(lib, context, seed=7) == first
    assert drawn(lib, context, seed=7) == first, "after other draws"


def test_seeds_differ(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    seeds = [0, 1, 2, 3, 2**32, 2**32 + 1, 2**63, 2**64 - 1]
    assert len({tuple(drawn(lib, context, seed=seed)) for seed in seeds}) == len(seeds)


def test_the_draws_of_one_generation_differ(lib, tiny, open_context):
    """The n-th draw of a seed is not the first of the next."""
    context = open_context(tiny("llama"))
    settings = {"temperature": 1000.0, "max_tokens": 40}  # all but uniform
    rows = [drawn(lib, context, seed=seed, **settings) for seed in range(6)]
    assert len(set(rows[0])) > 30
    for a in rows:
        for b in rows:
            shifted = [x == y for x, y in zip(a[1:], b, strict=False)]
            assert sum(shifted) < 6


def test_a_seed_is_the_same_whatever_else_runs(lib, tiny, open_context):
    alone = drawn(lib, open_context(tiny("llama")), seed=3)
    together = {}

    def work(number):
        context = open_context(tiny("llama"))
        together[number] = drawn(lib, context, seed=3 if number % 2 else number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[number] for number in (1, 3, 5)] == [alone] * 3


def test_a_seed_is_the_same_however_the_host_takes_the_tokens(lib, tiny, open_context):
    context = open_context(tiny("llama"))
    tokens = drawn(lib, context, seed=11)
    assert lib.generate(context, START, seed=11, **WARM).text == lib.detokenize(
        tiny("llama"), tokens
    )


def test_the_hosts_own_random_state_is_left_alone(lib, tiny, open_context):
    """The library shares mlx with a host that runs Python."""
    import mlx.core as mx

    mx.random.seed(5)
    expected = [mx.random.uniform().item() for _ in range(3)]
    mx.random.seed(5)
    context = open_context(tiny("llama"))
    got = []
    for seed in range(3):
        got.append(mx.random.uniform().item())
        drawn(lib, context, seed=seed)
    assert got == expected


# ------------------------------------------------------------ Greedy


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0, "seed": 9},
        {"temperature": 0.0, "top_p": 0.3, "min_p": 0.2, "top_k": 5},
        {"temperature": 5.0, "top_k": 1},
        {"temperature": 5.0, "min_p": 1.0},
        {"temperature": 5.0, "top_p": 1e-6},
        {"temperature": 1e-4},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", KINDS)
def test_these_are_greedy(lib, tiny, open_context, oracle, kind, settings):
    got = drawn(lib, open_context(tiny(kind)), max_tokens=16, **settings)
    assert got == oracle(kind).after(START)


# ------------------------------------------------- Distributions


def probabilities(logprobs, *, temperature, top_p=1.0, min_p=0.0, top_k=0):
    """What mlx-lm's sampler draws from, in numpy."""
    logprobs = np.array(logprobs, np.float64)
    kept = np.ones(len(logprobs), bool)
    if top_p < 1:
        order = np.argsort(-logprobs)
        mass = np.cumsum(np.exp(logprobs[order]))
        kept[order[1:][mass[:-1] >= top_p]] = False
    if min_p > 0:
        kept &= logprobs >= logprobs.max() + np.log(min_p)
    if top_k:
        ranks = np.argsort(np.argsort(-np.where(kept, logprobs, -np.inf), kind="stable"))
        kept &= ranks < top_k
    weights = np.where(kept, np.exp(logprobs / temperature - logprobs.max() / temperature), 0)
    return weights / weights.sum()


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 1.0},
        {"temperature": 0.5},
        {"temperature": 4.0},
        {"temperature": 3.0, "top_k": 6},
        {"temperature": 2.0, "top_p": 0.9},
        {"temperature": 2.0, "top_p": 0.5},
        {"temperature": 4.0, "min_p": 0.02},
        {"temperature": 3.0, "top_p": 0.97, "min_p": 0.005, "top_k": 4},
    ],
    ids=str,
)
def test_first_tokens_are_drawn_from_these_probabilities(lib, tiny, mlx_lm, open_context, settings):
    """Chi-square over fixed seeds: the same result on every run."""
    expected = probabilities(mlx_lm("spread")["logprobs"], **settings)
    context = open_context(tiny("soft"))
    counts = np.zeros(len(expected))
    for seed in range(DRAWS):
        lib.begin(context, TASKS["spread"]["prompt"], max_tokens=1, seed=seed, **settings)
        counts[lib.next(context, capacity=16).token] += 1
    assert counts[expected == 0].sum() == 0, "a token that the filters drop was drawn"

    # Rare tokens go together, so that every class is expected at least 5 times.
    common = expected * DRAWS >= 5
    classes = [*expected[common], expected[~common].sum()]
    seen = [*counts[common], counts[~common].sum()]
    pairs = [(c * DRAWS, s) for c, s in zip(classes, seen, strict=True) if c * DRAWS >= 1]
    assert len(pairs) > 1, "one possible token shows nothing"
    chi_square = sum((s - c) ** 2 / c for c, s in pairs)
    freedom = len(pairs) - 1
    # The 99.99 % quantile, as Wilson and Hilferty approximate it.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.719 * (2 / (9 * freedom)) ** 0.5) ** 3
    assert chi_square < limit

    # A wrong temperature shows first in how probable the drawn tokens are.
    possible = expected > 0
    surprise = np.log(expected[possible])
    mean = (expected[possible] * surprise).sum()
    deviation = ((expected[possible] * (surprise - mean) ** 2).sum() / DRAWS) ** 0.5
    drawn_mean = (counts[possible] * surprise).sum() / DRAWS
    assert abs(drawn_mean - mean) < 3.719 * deviation


def test_later_tokens_are_drawn_too(lib, tiny, open_context):
    """All seeds begin with the same greedy-like token and then part."""
    context = open_context(tiny("soft"))
    second = {
        drawn(lib, context, seed=seed, temperature=2.0, max_tokens=2)[1] for seed in range(40)
    }
    assert len(second) > 5


# --------------------------------------------------------- Penalty


@pytest.mark.parametrize(("penalty", "window"), PENALTIES)
def test_the_repetition_penalty_is_that_of_mlx_lm(lib, tiny, mlx_lm, open_context, penalty, window):
    expected = mlx_lm(f"penalty {penalty} {window}")["tokens"]
    context = open_context(tiny("soft"))
    settings = {"repetition_penalty": penalty, "repetition_window": window}
    got = drawn(lib, context, temperature=0.0, max_tokens=COUNT, **settings)
    assert got == expected
    assert got != greedy(lib, context, START, COUNT), "the penalty has changed nothing"


def test_the_penalty_looks_back_on_reused_tokens_too(lib, tiny, open_context):
    settings = {"repetition_penalty": 1.5, "repetition_window": 30, "temperature": 0.0}
    fresh = drawn(lib, open_context(tiny("soft")), [*START, 50, 51], **settings)
    context = open_context(tiny("soft"))
    lib.begin(context, START, max_tokens=0)
    assert drawn(lib, context, [*START, 50, 51], **settings) == fresh
    assert lib.stats(context).reused_tokens == len(START)


def test_a_window_longer_than_the_sequence(lib, tiny, open_context):
    context = open_context(tiny("soft"))
    settings = {"repetition_penalty": 1.5, "temperature": 0.0}
    assert drawn(lib, context, repetition_window=2**64 - 1, **settings) == drawn(
        lib, context, repetition_window=200, **settings
    )


def test_a_penalty_of_one_is_none(lib, tiny, open_context, oracle):
    context = open_context(tiny("soft"))
    with opened(lib, tiny("soft")) as other:
        expected = greedy(lib, other, START, 20)
    assert drawn(lib, context, temperature=0.0, repetition_penalty=1.0) == expected
