"""Draws: reproducible, and from the distribution that mlx-lm's filters make."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from driver import KINDS, delivered, greedy, opened, prompt
from support import draws
from tasks import BEYOND_WINDOWS, COUNT, PENALTIES, TASKS

START = prompt(BEYOND_WINDOWS)
WARM = {"max_tokens": 20, "temperature": 1.5}
# Something of everything that decides about a draw.
ALL = {
    "temperature": 4.0,
    "top_p": 0.99,
    "min_p": 1e-4,
    "typical_p": 0.98,
    "top_k": 100,
    "xtc_probability": 0.5,
    "xtc_threshold": 0.02,
    "repetition_penalty": 1.1,
    "presence_penalty": 0.2,
    "frequency_penalty": 0.1,
    "bias": {40: 1.0},
}
DRAWS = 1000


def drawn(lib, context, tokens=START, **params):
    lib.begin(context, tokens, **{**WARM, **params})
    return delivered(lib.drain(context))


# ------------------------------------------------------------- Seeds


@pytest.mark.parametrize("options", [{}, ALL], ids=["temperature", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_gives_the_same_tokens_again(lib, tiny, open_context, kind, options):
    first = drawn(lib, open_context(tiny(kind)), seed=7, **options)
    context = open_context(tiny(kind))
    assert drawn(lib, context, seed=7, **options) == first
    assert drawn(lib, context, seed=7, **options) == first, "after other draws"
    assert drawn(lib, context, seed=8, **options) != first


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
    alone = drawn(lib, open_context(tiny("llama")), seed=3, **ALL)
    together = {}

    def work(number):
        context = open_context(tiny("llama"))
        together[number] = drawn(lib, context, seed=3 if number % 2 else number, **ALL)

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


@pytest.mark.parametrize("options", [{}, ALL], ids=["temperature", "all"])
def test_the_hosts_own_random_state_is_left_alone(lib, tiny, open_context, options):
    """The library shares mlx with a host that runs Python."""
    import mlx.core as mx

    mx.random.seed(5)
    expected = [mx.random.uniform().item() for _ in range(3)]
    mx.random.seed(5)
    state = mx.random.state[0].tolist()
    context = open_context(tiny("llama"))
    drawn(lib, context, seed=1, **options)
    assert mx.random.state[0].tolist() == state
    got = []
    for seed in range(3):
        got.append(mx.random.uniform().item())
        drawn(lib, context, seed=seed, **options)
    assert got == expected


# ------------------------------------------------------------ Greedy


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.0, "seed": 9},
        {"temperature": 0.0, "top_p": 0.3, "min_p": 0.2, "top_k": 5},
        {"temperature": 0.0, "presence_window": 3, "frequency_window": 0, "repetition_window": 0},
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


@pytest.mark.parametrize(
    "settings",
    [
        {"temperature": 0.5},
        {"temperature": 4.0},
        {"temperature": 2.0, "typical_p": 0.6},
        {"temperature": 3.0, "xtc_probability": 0.5, "xtc_threshold": 0.04},
        {"temperature": 3.0, "top_n_sigma": 1.2, "dynatemp_range": 1.5, "dynatemp_exponent": 0.7},
        {"temperature": 3.0, "top_p": 0.97, "min_p": 0.005, "top_k": 4, "bias": {40: 2.0}},
    ],
    ids=str,
)
def test_first_tokens_are_drawn_from_these_probabilities(lib, tiny, mlx_lm, open_context, settings):
    """Chi-square over fixed seeds: the same result on every run."""
    model = tiny("soft")
    spared = [token["id"] for token in lib.info(model)["end_tokens"]] + lib.tokenize(model, "\n")
    logprobs = mlx_lm("spread")["logprobs"]
    expected = draws.probabilities(logprobs, spared=spared, **settings)
    context = open_context(model)
    counts = np.zeros(len(expected))
    for seed in range(DRAWS):
        lib.begin(context, TASKS["spread"]["prompt"], max_tokens=1, seed=seed, **settings)
        counts[lib.next(context, capacity=16).token] += 1
    draws.check(counts, expected)


def test_later_tokens_are_drawn_too(lib, tiny, open_context):
    context = open_context(tiny("soft"))
    seconds = [
        drawn(lib, context, seed=seed, temperature=2.0, max_tokens=2)[1:] for seed in range(40)
    ]
    assert len({second[0] for second in seconds if second}) > 5


# --------------------------------------------------------- XTC and typical_p


def firsts(lib, context, count=40, **options):
    """The first tokens that seeds give."""
    return {drawn(lib, context, seed=seed, max_tokens=1, **options)[0] for seed in range(count)}


def raised(lib, context, logits):
    """The bias that gives the first tokens after START these logits."""
    lib.begin(context, START, max_tokens=0)
    plain = lib.logits(context)
    return {token: value - plain[token] for token, value in logits.items()}


def test_xtc_removes_the_best_tokens(lib, tiny, open_context):
    """A bias makes two tokens likely: above the threshold, the less likely one alone is left."""
    context = open_context(tiny("soft"))
    options = {"bias": raised(lib, context, {40: 61.0, 41: 60.0}), "temperature": 1.0}
    assert firsts(lib, context, **options) == {40, 41}
    always = {"xtc_probability": 1.0, "xtc_threshold": 0.01}
    assert firsts(lib, context, **options, **always) == {41}
    assert firsts(lib, context, **options, **{**always, "xtc_probability": 0.5}) == {40, 41}
    assert firsts(lib, context, **options, **{**always, "xtc_threshold": 0.5}) == {40, 41}


@pytest.mark.parametrize("which", ["end", "line break"])
def test_xtc_spares_the_end_and_line_breaks(lib, tiny, open_context, which):
    model = tiny("soft")
    end = lib.info(model)["end_tokens"][0]["id"]
    token = end if which == "end" else lib.tokenize(model, "\n")[0]
    context = open_context(model)
    bias = raised(lib, context, {token: 61.0, 41: 60.0})
    options = {"bias": bias, "temperature": 1.0, "max_tokens": 1}
    seen = set()
    for seed in range(40):
        lib.begin(context, START, seed=seed, xtc_probability=1.0, xtc_threshold=0.01, **options)
        seen.add(lib.next(context).token)
    assert seen == {token, 41}


def test_typical_p_drops_a_token_that_is_too_probable(lib, tiny, open_context):
    """One of half the mass, among sixteen others: they are the typical ones (arXiv 2202.00666)."""
    context = open_context(tiny("soft"))
    others = dict.fromkeys(range(100, 116), 60.0)
    bias = raised(lib, context, {**others, 40: 60.0 + np.log(16)})
    assert 40 in firsts(lib, context, bias=bias, temperature=1.0)
    typical = firsts(lib, context, bias=bias, temperature=1.0, typical_p=0.4)
    assert typical <= set(others)
    assert len(typical) > 5


# --------------------------------------------------------- Penalty


@pytest.mark.parametrize(("penalty", "window"), PENALTIES)
def test_the_repetition_penalty_is_that_of_mlx_lm(lib, tiny, mlx_lm, open_context, penalty, window):
    expected = mlx_lm(f"penalty {penalty} {window}")["tokens"]
    context = open_context(tiny("soft"))
    settings = {"repetition_penalty": penalty, "repetition_window": window}
    got = drawn(lib, context, temperature=0.0, max_tokens=COUNT, **settings)
    assert got == expected
    assert got != greedy(lib, context, START, COUNT), "the penalty has changed nothing"


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
