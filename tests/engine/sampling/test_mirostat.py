"""Mirostat 2: a bound of surprise that follows the samples of one generation."""

from __future__ import annotations

import numpy as np
import pytest
from driver import delivered, generate_at_once, opened, prompt
from support import draws
from support.library import StatusError
from support.signatures import EUNSUPPORTED, OVERFLOW_ROLL
from support.threads import at_once

START = prompt(12)
ON = {"mirostat": 2, "temperature": 1.0, "mirostat_tau": 4.0, "mirostat_eta": 0.3}


def generated(lib, context, tokens=START, count=40, **options):
    lib.begin(context, tokens, max_tokens=count, **options)
    return delivered(lib.drain(context))


def surprises(lib, model, tokens, **options):
    """How surprising each token was when it was drawn, and the bound: from logits, in float64."""
    bound = 2 * options["mirostat_tau"]
    found = []
    with opened(lib, model) as context:
        for end, token in enumerate(tokens):
            lib.begin(context, START + tokens[:end], max_tokens=0)
            all_of_them = draws.probabilities(
                lib.logits(context), temperature=options["temperature"]
            )
            left = draws.unsurprising(all_of_them, bound)
            assert left[token] > 0
            surprise = -np.log2(left[token])
            found.append((surprise, bound))
            bound -= options["mirostat_eta"] * (surprise - options["mirostat_tau"])
    return found


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("change", [{}, {"temperature": 2.0, "mirostat_eta": 1.0}], ids=str)
def test_no_token_is_more_surprising_than_the_bound(lib, tiny, open_context, change, seed):
    """The bound moves with earlier samples, as in algorithm 2."""
    model, options = tiny("soft"), {**ON, **change}
    tokens = generated(lib, open_context(model), seed=seed, **options)
    found = surprises(lib, model, tokens, **options)
    bounds = [bound for _, bound in found]
    assert bounds[0] == 8.0
    assert max(bounds) - min(bounds) > 0.5
    # Without it some tokens are more surprising than that.
    without = generated(lib, open_context(model), seed=seed, temperature=options["temperature"])
    assert without != tokens


@pytest.mark.parametrize("tau", [2.0, 5.0])
def test_the_mean_surprise_comes_to_be_what_is_aimed_at(lib, tiny, open_context, tau):
    model, options = tiny("soft"), {**ON, "mirostat_tau": tau, "temperature": 1.5}
    tokens = generated(lib, open_context(model), count=120, seed=3, **options)
    later = surprises(lib, model, tokens, **options)[30:]
    assert np.mean([surprise for surprise, _ in later]) == pytest.approx(tau, abs=0.5)


def test_a_generation_is_the_same_in_a_batch_and_begins_anew(lib, tiny, open_context):
    model = tiny("soft")
    prompts = [prompt(length, seed) for seed, length in enumerate((3, 40, 17))]
    alone = [generated(lib, open_context(model), each, 24, seed=6, **ON) for each in prompts]
    contexts = [open_context(model) for _ in prompts]
    for _ in range(2):  # the second has nothing of the first
        given = generate_at_once(lib, contexts, prompts, max_tokens=24, seed=6, **ON)
        assert given == alone
    assert lib.info(contexts[0])["batched"] > 0


def test_rows_with_and_without_it_are_drawn_together(lib, tiny, open_context):
    model = tiny("soft")
    options = [ON, {"temperature": 0.0}, {"temperature": 1.0, "top_k": 9}, {**ON, "seed": 3}]
    contexts = [open_context(model) for _ in options]

    def work(number):
        return generated(lib, contexts[number], prompt(9, number), 24, **options[number])

    alone = [work(number) for number in range(len(options))]

    def work_again(number):
        assert work(number) == alone[number]

    at_once(len(options), work_again)


def test_it_goes_on_in_a_window_that_rolls(lib, tiny, open_context):
    room = {"max_tokens": 32, "overflow": OVERFLOW_ROLL, "keep_tokens": 4}
    contexts = [open_context(tiny("soft"), **room) for _ in range(2)]
    rows = [generated(lib, context, count=60, seed=2, **ON) for context in contexts]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 60


@pytest.mark.parametrize(
    "other",
    [
        {"top_p": 0.9},
        {"top_k": 3},
        {"min_p": 0.1},
        {"typical_p": 0.9},
        {"top_n_sigma": 1.0},
        {"xtc_probability": 0.5, "xtc_threshold": 0.1},
        {"dynatemp_range": 0.5},
        {"draft_tokens": 2},
    ],
    ids=str,
)
def test_what_does_not_go_with_it_is_named(lib, tiny, open_context, other):
    context = open_context(tiny("soft"))
    with pytest.raises(StatusError) as refused:
        lib.begin(context, START, **ON, **other)
    assert refused.value.status == EUNSUPPORTED
    assert all(word in str(refused.value) for word in ("mirostat", *list(other)[:1]))
