"""The kernel samples what mlx's operations sample, with every instruction set of the machine."""

from __future__ import annotations

import math
from random import Random

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed
from support.sample_inputs import Model, parameters, sample_input

from cowmlx.generation.sampling import batch
from cowmlx.generation.sampling.filters import SAMPLERS
from cowmlx.generation.sampling.sampler import RowSampler, SampleInput, Sampler
from cowmlx.generation.sampling.samples import Sample, SampledRows

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
TYPES = [mx.float32, mx.float16, mx.bfloat16]
WIDE = 128_003


def plain(logits: mx.array, each: SampleInput) -> int:
    (token,) = RowSampler([each.sampler])(logits, [each])[0].tolist()
    return token


def sampled(logits: mx.array, inputs: list[SampleInput], rows=None) -> list[int]:
    rows = range(len(inputs)) if rows is None else rows
    return batch.sample_by_kernel(inputs, logits, rows)[0].tolist()


def sampler(size: int, **options) -> Sampler:
    return Sampler(parameters(**options), Model(size))


@pytest.mark.parametrize("size", [3, 16, 17, 33, 250, 1500, 5001])
def test_it_samples_what_mlx_samples(size):
    """Whatever the options, the type and the order of the rows."""
    for seed in range(12):
        random = Random(f"{size} {seed}")
        dtype = random.choice(TYPES)
        logits = mx.random.normal((7, size), key=mx.random.key(seed)) * random.choice([0.5, 3, 9])
        logits = logits.astype(dtype)
        inputs = [sample_input(random, size) for _ in range(5)]
        rows = random.sample(range(7), 5)
        expected = [
            plain(logits[row : row + 1], each) for row, each in zip(rows, inputs, strict=True)
        ]
        assert sampled(logits, inputs, rows) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0.0},
        {"temperature": 0.8},
        {"temperature": 0.8, "top_p": 0.9},
        {"temperature": 0.8, "top_p": 1 - 1e-6},
        {"temperature": 0.8, "top_p": 1e-45},
        {"temperature": 0.8, "top_k": 40},
        {"temperature": 0.8, "top_k": 100_000},
        {"temperature": 0.8, "min_p": 0.05},
        {"temperature": 0.8, "typical_p": 0.9},
        {"temperature": 1e-45},
        {"temperature": 3e38},
        {"temperature": 0.8, "xtc_probability": 1.0, "xtc_threshold": 1e-5},
        {"temperature": 0.8, "top_n_sigma": 1.0},
        {"temperature": 0.8, "dynatemp_range": 0.7},
        {"temperature": 0.8, "top_k": 50, "dynatemp_range": 3.0, "dynatemp_exponent": 0.5},
        {"temperature": 0.8, "mirostat": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0, 30.0])
def test_it_samples_from_wide_vocabularies(options, spread):
    """Flat, spread and peaked ones; all alike where the spread is 0."""
    logits = mx.random.normal((1, WIDE), key=mx.random.key(9)) * spread
    own = sampler(WIDE, **options, seed=5)
    for number in range(2):
        each = SampleInput(own, [], 0, number, surprise=9.0)
        assert sampled(logits, [each]) == [plain(logits, each)]


@pytest.mark.parametrize("bits", [-1.0, 0.5, 3.0, 9.0, 40.0])
def test_it_tells_the_same_surprise(bits):
    logits = mx.random.normal((4, 1201), key=mx.random.key(6)) * 3
    own = sampler(1201, temperature=0.7, mirostat=2, seed=3)
    inputs = [SampleInput(own, [], 0, number, surprise=bits) for number in range(4)]
    _, surprises = batch.sample_by_kernel(inputs, logits, range(4))
    _, expected = RowSampler([own] * 4)(logits, inputs)
    np.testing.assert_allclose(surprises, expected, atol=1e-5)


def test_among_equals_top_k_keeps_the_first():
    """Numbers of 16 bits are often equal."""
    logits = mx.round(mx.random.normal((1, 4000), key=mx.random.key(2)) * 2).astype(mx.bfloat16)
    for top_k in (1, 7, 300, 2500):
        for number in range(4):
            own = sampler(4000, temperature=50.0, top_k=top_k)
            each = SampleInput(own, [], 0, number)
            assert sampled(logits, [each]) == [plain(logits, each)]


def test_rows_may_lie_apart_and_last_tokens_be_computing():
    logits = mx.random.normal((4, 3, 900), key=mx.random.key(3))[:, 1, :]
    lasts = SampledRows(mx.array([5, 6, 7, 8], mx.uint32) * 2, {})
    own = sampler(900, temperature=1.0, presence_penalty=-9.0, presence_window=2)
    inputs = [SampleInput(own, [row], Sample(lasts, row, logits), row) for row in range(4)]
    known = [SampleInput(own, [row], 10 + 2 * row, row) for row in range(4)]
    expected = [plain(logits[row : row + 1], known[row]) for row in range(4)]
    assert sampled(logits, inputs) == sampled(logits, known) == expected


def test_a_row_does_not_depend_on_the_others():
    random = Random(1)
    logits = mx.random.normal((9, 3000), key=mx.random.key(4)) * 3
    inputs = [sample_input(random, 3000) for _ in range(9)]
    alone = [sampled(logits, [each], [row]) for row, each in enumerate(inputs)]
    assert [[token] for token in sampled(logits, inputs)] == alone


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("part", [0.01, 1.0])
def test_logits_that_are_no_numbers_give_some_token(value, part):
    values = np.random.default_rng(3).normal(size=(1, 2000)).astype(np.float32)
    values[np.random.default_rng(4).random(values.shape) < part] = value
    random = Random(2)
    for _ in range(60):
        (token,) = sampled(mx.array(values), [sample_input(random, 2000)])
        assert 0 <= token < 2000


def test_a_filter_that_would_keep_nothing_changes_nothing():
    """Infinite logits, which min_p has left, have distances that are no numbers."""
    logits = mx.array([[0, math.inf, 1, math.inf, 2, math.inf, 0]])
    alone, both = (
        SampleInput(sampler(7, temperature=1.0, min_p=0.5, **more), [], 0, 0)
        for more in ({}, {"typical_p": 0.9})
    )
    assert sampled(logits, [alone]) == sampled(logits, [both]) == [1]


@pytest.mark.parametrize(
    "options", [{"top_p": 0.9}, {"typical_p": 0.9}, {"top_k": 5}, {"min_p": 0.1}]
)
@pytest.mark.parametrize("place", [0, 15, 17, 80, 255])
def test_a_logit_far_above_beside_one_that_is_no_number(options, place):
    """The highest may be lost then, so that distances from it are below 0."""
    values = np.zeros((1, 256), np.float32)
    values[0, 16] = 1e6
    values[0, place] = math.nan
    own = sampler(256, temperature=1.0, **options)
    (token,) = sampled(mx.array(values), [SampleInput(own, [], 0, 0)])
    assert 0 <= token < 256


@pytest.mark.parametrize(
    ("logits", "given", "last", "named"),
    [
        (mx.zeros((4,)), [], None, "logits"),
        (mx.zeros((2, 4), mx.int32), [], None, "logits"),
        (mx.zeros((2, 4)), [(2, None)], None, "row"),
        (mx.zeros((2, 4)), [(0, None)], mx.zeros((2,), mx.uint32), "last"),
        (mx.zeros((2, 4)), [(0, mx.zeros((3,), mx.bool_))], None, "allowed"),
        (mx.zeros((2, 4)), [(0, mx.zeros((4,)))], None, "allowed"),
    ],
)
def test_what_does_not_fit_is_refused(logits, given, last, named):
    own = batch.kernel_options(sampler(4))
    with pytest.raises(ValueError, match=named):
        given = [(row, own, 0, [], [], 0.0, mask) for row, mask in given]
        MODULE.sample(logits, given, last)


def test_the_kernel_knows_every_sampler():
    """By the name and with the numbers of the table; no other, and none with fewer numbers."""
    more = {"temperature": 1.0, "xtc_threshold": 0.1, "dynatemp_range": 0.5}
    params = parameters(**more, top_p=0.5, min_p=0.5, typical_p=0.5, xtc_probability=0.5)

    def make(name: str, numbers: list[float]) -> None:
        MODULE.sample_options(
            seed=0, samplers=[(name, numbers)], bias=[], forbids=False, penalties=[]
        )

    for row in SAMPLERS:
        numbers = row.numbers_of(params, Model(40))
        make(row.name, numbers)
        for name, wrong in ((f"{row.name}s", numbers), (row.name, numbers[:1][:-1])):
            if (name, wrong) != (row.name, numbers):
                with pytest.raises(ValueError, match=f'there is no sampler "{name}" with'):
                    make(name, wrong)
