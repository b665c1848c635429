"""Rows that are sampled together: each gets, to the last bit, the token that it gets alone."""

from __future__ import annotations

import math
from random import Random

import mlx.core as mx
import pytest
from support.sample_inputs import Model, parameters, sample_input

from cowmlx.accelerate import kernels
from cowmlx.generation.sampling import batch, sampler
from cowmlx.generation.sampling.batch import BatchSampler
from cowmlx.generation.sampling.filters import keep_top_k
from cowmlx.generation.sampling.penalties import Penalties, RowPenalties
from cowmlx.generation.sampling.sampler import SampleInput
from cowmlx.generation.sampling.samples import Sample, SampledRows, stacked

SIZE = 600  # of the vocabulary


@pytest.fixture(autouse=True, params=["kernel", "mlx"])
def way(request, monkeypatch):
    """With the kernel for processors, where it can be used, and with mlx's own operations."""
    if request.param == "mlx":
        monkeypatch.setattr(batch, "kernel_usable", lambda logits: False)
    elif not kernels.available():
        pytest.skip(f"there are no kernels: {kernels.reason()}")


@pytest.mark.parametrize("dtype", [mx.float32, mx.bfloat16], ids=str)
@pytest.mark.parametrize("seed", range(12))
def test_rows_together_are_rows_alone(seed, dtype):
    """Options of one kind or of many, with rows between that are not sampled."""
    random = Random(seed)
    count = random.choice([2, 5, 9])
    logits = (mx.random.normal((count + 2, SIZE), key=mx.random.key(seed)) * 3).astype(dtype)
    rows = random.sample(range(count + 2), count)
    lasts = [random.randrange(SIZE) for _ in rows]
    inputs = [sample_input(random, SIZE, last) for last in lasts]
    if seed % 2:  # as many of the same options, with other numbers
        inputs = [
            SampleInput(inputs[0].sampler, each.history, each.last, each.number, None, 3)
            for each in inputs
        ]
    together = BatchSampler().sample(inputs, logits, rows)
    for each, row, draw in zip(inputs, rows, together, strict=True):
        (alone,) = BatchSampler().sample([each], logits[row : row + 1])
        assert (draw.value(), draw.logprobs()) == (alone.value(), alone.logprobs())
        assert mx.array_equal(draw.logits.array(), logits[row : row + 1])


@pytest.mark.parametrize("seed", range(6))
def test_tokens_before_may_still_be_computing(seed):
    """Penalties look back on them too."""
    random = Random(seed)
    lasts = [random.randrange(SIZE) for _ in range(5)]
    computing = SampledRows(mx.array(lasts, mx.uint32), {})
    logits = mx.random.normal((5, SIZE), key=mx.random.key(seed)) * 3
    inputs = [sample_input(random, SIZE, last) for last in lasts]
    known = [draw.value() for draw in BatchSampler().sample(inputs, logits)]
    for place, each in enumerate(inputs):
        each.last = Sample(computing, place, logits)
    assert [draw.value() for draw in BatchSampler().sample(inputs, logits)] == known


def test_penalties_of_rows_are_penalties_alone():
    """To the last bit, with windows and histories of different length."""
    logits = mx.random.normal((4, 50), key=mx.random.key(3)) * 4
    settings = [
        {"repetition_window": 3, "frequency_window": 30, "bias": {4: 1.0}},
        {"repetition_window": 50, "frequency_window": 2, "bias": {4: -1.0, 7: 2.0, 9: -math.inf}},
        {"repetition_window": 1, "frequency_window": 1, "bias": {9: 3.0}},
        {"repetition_window": 2**64 - 1, "frequency_window": 9, "bias": {1: 3.0, 2: 1.0}},
    ]
    values = {"repetition_penalty": 1.4, "presence_penalty": 0.5, "frequency_penalty": 0.3}
    penalties = [Penalties(parameters(**values, **own), Model(50)) for own in settings]
    histories = [[4, 4, 5, 6, 4], [7] * 20, [], [1, 2, 3] * 9]
    inputs = [SampleInput(None, history, 4, 0) for history in histories]
    together = RowPenalties(penalties)(logits, inputs)
    for row in range(4):
        alone = RowPenalties(penalties[row : row + 1])(logits[row : row + 1], inputs[row : row + 1])
        assert mx.array_equal(together[row : row + 1], alone)


def test_the_table_decides_which_samplers_run_and_in_what_order(monkeypatch):
    """Top-p of 0.55 keeps one token behind a top-k of 2, and two tokens before it."""
    logits = mx.log(mx.array([[0.4, 0.3, 0.2, 0.1]]))
    rows = {row.name: row for row in sampler.SAMPLERS}

    def tokens(*names: str) -> set[int]:
        monkeypatch.setattr(sampler, "SAMPLERS", [rows[name] for name in names])
        own = sampler.Sampler(parameters(temperature=1.0, top_p=0.55, top_k=2), Model(4))
        assert [row.name for row, _ in own.steps] == list(names)
        inputs = [SampleInput(own, [], 0, number) for number in range(200)]
        return {
            draw.value() for draw in BatchSampler().sample(inputs, mx.repeat(logits, 200, axis=0))
        }

    assert tokens("top_p", "top_k", "temperature") == {0, 1}
    assert tokens("top_k", "top_p", "temperature") == {0}
    assert tokens("temperature") == {0, 1, 2, 3}
    assert tokens() == {0}


def test_rows_are_grouped_by_the_samplers_that_are_active():
    options = [{}, {"top_p": 0.5}, {"top_p": 0.9}, {"min_p": 0.1}, {"dynatemp_range": 0.1}]
    own = [sampler.Sampler(parameters(temperature=1.0, **option), Model(9)) for option in options]
    assert own[1].kind == own[2].kind
    assert len({each.kind for each in own}) == 4
    greedy = [
        sampler.Sampler(parameters(temperature=0.0, **each), Model(9)) for each in options[:4]
    ]
    assert {each.steps == [] for each in greedy} == {True}
    assert len({each.kind for each in greedy}) == 1


def test_among_equals_top_k_keeps_the_first():
    logits = mx.array([[1.0, 3, 2, 3, 2, 2], [5, 5, 5, 5, 5, 5], [-math.inf, 1, 0, 1, 1, 1]])
    kept = keep_top_k(logits, [3, 2, 9]) > -math.inf
    expected = [[0, 1, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0], [0, 1, 1, 1, 1, 1]]
    assert kept.tolist() == [[bool(each) for each in row] for row in expected]


def test_tokens_are_stacked_from_wherever_they_are():
    logits = mx.zeros((1, 4))
    some, other = (
        SampledRows(mx.array([7, 8, 9], mx.uint32), {}),
        SampledRows(mx.array([5], mx.uint32), {}),
    )
    in_place = [Sample(some, row, logits) for row in range(3)]
    assert stacked(in_place) is some.tokens
    assert stacked([in_place[2], None, in_place[0]]).tolist()[::2] == [9, 7]
    assert stacked([None, Sample(other, 0, logits), in_place[1]]).tolist()[1:] == [5, 8]
    assert stacked([None, None, None, in_place[2]]).tolist()[3] == 9
