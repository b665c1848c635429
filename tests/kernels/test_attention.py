"""Attention against float64, over invented shapes, on every instruction set at hand."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numbers_of_kernels import PRECISION, exact, random, types, viewed, views
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
SCALE = 0.3


def attend(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    *,
    mask: str | np.ndarray | None = None,
    sinks: np.ndarray | None = None,
    soft_cap: float = 0,
    window: int = 0,
) -> np.ndarray:
    """The definition; a query that sees nothing gives 0."""
    repeats = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeats, 1), np.repeat(v, repeats, 1)
    scores = q @ k.swapaxes(-1, -2) * SCALE
    if soft_cap:
        scores = soft_cap * np.tanh(scores / soft_cap)
    queries, positions = scores.shape[-2:]
    if isinstance(mask, str):
        places, own = np.arange(positions), np.arange(queries)[:, None] + positions - queries
        seen = (places <= own) & (places > own - (window or positions + queries))
        scores = np.where(seen, scores, -np.inf)
    elif mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    sink = np.full((q.shape[1], 1, 1), -np.inf) if sinks is None else sinks[:, None, None]
    largest = np.maximum(np.max(scores, -1, keepdims=True, initial=-1e300), sink)
    powers = np.exp(scores - largest)
    total = powers.sum(-1, keepdims=True) + np.exp(sink - largest)
    return np.where(total > 0, powers / np.where(total > 0, total, 1), 0) @ v


def is_close(found: mx.array, wanted: np.ndarray) -> bool:
    """Whether results are right up to rounding of scores and sums."""
    precision = PRECISION[str(found.dtype).removeprefix("mlx.core.")]
    assert found.shape == wanted.shape
    largest = np.abs(wanted).max(initial=1)
    return np.allclose(exact(found), wanted, rtol=precision, atol=1e-5 * largest)


masks = st.sampled_from(["", "causal", "bool", "added", "row"])


def mask_of(kind: str, scores: tuple[int, ...], seed: int) -> str | mx.array | None:
    chance = mx.random.uniform(shape=scores, key=mx.random.key(seed))
    if kind == "bool":
        return chance < 0.7
    if kind == "row":  # what batches have: a row's padding, the same for all heads and queries
        return chance[:, :1, :1] < 0.7
    if kind == "added":
        return chance[:1, :, :, :] * 3
    return kind or None


def plain_mask(mask: str | mx.array | None) -> str | np.ndarray | None:
    return np.array(mask) if isinstance(mask, mx.array) else mask


@settings(max_examples=120, deadline=None)
@given(
    rows=st.integers(0, 2),
    groups=st.sampled_from([1, 2, 3]),
    heads=st.sampled_from([1, 2, 4, 7, 17]),
    queries=st.sampled_from([1, 2, 7, 8, 9, 16, 33, 70]),
    before=st.sampled_from([0, 1, 30, 64, 127, 150]),
    dims=st.tuples(
        st.sampled_from([1, 8, 17, 64, 80, 128]), st.sampled_from([1, 3, 16, 64, 72, 128])
    ),
    type_=types,
    cached=types,
    view=views,
    mask=masks,
    with_sinks=st.booleans(),
    soft_cap=st.sampled_from([0, 0, 3.0, 50.0]),
    window=st.sampled_from([0, 0, 1, 5, 64, 100]),
    seed=st.integers(0, 99),
)
def test_attention(
    rows, groups, heads, queries, before, dims, type_, cached, view, mask, with_sinks, soft_cap,
    window, seed,
):  # fmt: skip
    positions = queries + before
    q = viewed(random((rows, groups * heads, queries, dims[0]), type_, seed), view)
    k = viewed(random((rows, groups, positions, dims[0]), cached, seed + 1), view)
    v = viewed(random((rows, groups, positions, dims[1]), cached, seed + 2), view)
    sinks = random((groups * heads,), type_, seed + 3) if with_sinks else None
    if mask != "causal":
        window = 0
    what = mask_of(mask, (max(rows, 1), groups * heads, queries, positions), seed)
    found = MODULE.attention(
        q, k, v, scale=SCALE, mask=what, sinks=sinks, soft_cap=soft_cap, window=window
    )
    wanted = attend(
        exact(q), exact(k), exact(v), mask=plain_mask(what), soft_cap=soft_cap, window=window,
        sinks=None if sinks is None else exact(sinks),
    )  # fmt: skip
    assert found.dtype == (type_same(type_, cached))
    assert is_close(found, wanted)


def type_same(*names: str) -> mx.Dtype:
    arrays = [mx.zeros(1, dtype=getattr(mx, name)) for name in names]
    return (arrays[0] + arrays[1]).dtype


@settings(max_examples=60, deadline=None)
@given(
    groups=st.sampled_from([1, 2]),
    heads=st.sampled_from([1, 3, 17]),
    queries=st.sampled_from([1, 5, 40]),
    before=st.sampled_from([0, 30, 64, 150]),
    dims=st.sampled_from([(64, 64), (128, 64), (192, 128)]),
    bits=st.sampled_from([4, 8]),
    group=st.sampled_from([32, 64]),
    type_=types,
    mask=masks,
    seed=st.integers(0, 99),
)
def test_packed_caches(groups, heads, queries, before, dims, bits, group, type_, mask, seed):
    positions = queries + before
    q = random((2, groups * heads, queries, dims[0]), type_, seed)
    packed, plain = [], []
    for place, width in enumerate(dims):
        numbers = random((2, groups, positions, width), type_, seed + place)
        packed.append(mx.quantize(numbers, group_size=group, bits=bits))
        parts = (packed[-1][0], *(part.astype(mx.float32) for part in packed[-1][1:]))
        plain.append(exact(mx.dequantize(*parts, group_size=group, bits=bits)))
    what = mask_of(mask, (2, groups * heads, queries, positions), seed)
    found = MODULE.attention_quantized(q, *packed, scale=SCALE, bits=bits, group=group, mask=what)
    assert found.dtype == q.dtype
    assert is_close(found, attend(exact(q), *plain, mask=plain_mask(what)))


def test_caches_that_are_parts_of_larger_arrays():
    """As layer caches give them: some steps of what was allocated, with numbers behind them."""
    k, v = random((2, 3, 256, 64), "float32", 1), random((2, 3, 256, 64), "float32", 2)
    k[:, :, 77:], v[:, :, 77:] = mx.nan, mx.nan
    mx.eval(k, v)
    for queries in (1, 40):
        q = random((2, 6, queries, 64), "float32")
        found = MODULE.attention(q, k[:, :, :77], v[:, :, :77], scale=SCALE, mask="causal")
        wanted = attend(exact(q), exact(k[:, :, :77]), exact(v[:, :, :77]), mask="causal")
        assert is_close(found, wanted)


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("heads", [2, 34])
def test_a_query_that_sees_nothing_gives_zero(queries, heads):
    q, k = random((1, heads, queries, 16), "float32"), random((1, 2, 90, 16), "float32", 1)
    mask = mx.ones((1, heads, queries, 90), dtype=mx.bool_)
    mask[:, 0, 0] = False
    found = MODULE.attention(q, k, k, scale=SCALE, mask=mask)
    assert is_close(found, attend(exact(q), exact(k), exact(k), mask=np.array(mask)))
    assert not found[0, 0, 0].any()
    assert MODULE.attention(q, k[:, :, :0], k[:, :, :0], scale=SCALE).abs().max() == 0


@pytest.mark.parametrize("queries", [1, 5, 30])
def test_no_number_spreads_to_queries_that_do_not_see_it(queries):
    q, k = random((1, 2, queries, 16), "float32"), random((1, 1, 90, 16), "float32", 1)
    v = random((1, 1, 90, 16), "float32", 2)
    k[:, :, 80] = mx.nan
    found = MODULE.attention(q, k, v, scale=SCALE, mask="causal")
    sees = np.arange(queries) + 90 - queries >= 80
    assert np.isnan(np.array(found)).all(-1)[0, 0].tolist() == sees.tolist()


def test_results_are_the_same_alone_and_beside_others():
    """Of rows of a batch, whatever number of threads; of few queries, and of many."""
    q, k = random((3, 6, 70, 64), "float32"), random((3, 2, 200, 64), "float32", 1)
    v = random((3, 2, 200, 64), "float32", 2)

    def run(q: mx.array, k: mx.array, v: mx.array) -> mx.array:
        found = MODULE.attention(q, k, v, scale=SCALE, mask="causal")
        mx.eval(found)
        return found

    together = run(q, k, v)
    assert mx.array_equal(run(q[1:2], k[1:2], v[1:2]), together[1:2])
    MODULE.set_threads(1)
    alone = run(q, k, v)
    MODULE.set_threads(0)
    assert mx.array_equal(alone, together)
    for length in (40, 69):  # what comes later is not seen
        first = run(q[:, :, :length], k[:, :, : 130 + length], v[:, :, : 130 + length])
        assert mx.array_equal(first, together[:, :, :length])
    few = run(q[:, :, :8], k, v)
    assert mx.array_equal(run(q[:, :, 7:8], k, v), few[:, :, 7:])
    assert mx.array_equal(run(q[:, :, 3:8], k, v), few[:, :, 3:])


@pytest.mark.parametrize("type_", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("dims", [(64, 64), (16, 48), (40, 24), (256, 96)])
@pytest.mark.parametrize("heads", [1, 2, 3, 4, 5])
def test_one_query_has_the_bits_of_a_query_among_few(heads, dims, type_):
    for positions in (2, 3, 16, 64, 67, 200):
        q = random((1, 2 * heads, 2, dims[0]), "float32")
        k, v = (random((1, 2, positions, dim), type_, dim) for dim in dims)
        for options in ({"mask": "causal"}, {"soft_cap": 3.0}, {"sinks": mx.arange(2.0 * heads)}):
            few = MODULE.attention(q, k, v, scale=SCALE, **options)
            one = MODULE.attention(q[:, :, 1:], k, v, scale=SCALE, **options)
            assert mx.array_equal(one, few[:, :, 1:])


@pytest.mark.parametrize("queries", [1, 20])
def test_padding_on_the_left_changes_no_bit(queries):
    """A mask of what a row lacks leaves the bits of the row alone, by steps of whole tiles."""
    q, k = random((1, 2, queries, 64), "float32"), random((1, 2, 100, 64), "float32", 1)
    alone = MODULE.attention(q, k, k, scale=SCALE)
    padded = mx.concatenate([random((1, 2, 64, 64), "float32", 3), k], axis=2)
    mask = mx.arange(164) >= 64
    assert mx.array_equal(MODULE.attention(q, padded, padded, scale=SCALE, mask=mask), alone)


def test_it_is_what_mlx_means():
    q, k = random((2, 6, 9, 64), "float32"), random((2, 2, 30, 64), "float32", 1)
    v, sinks = random((2, 2, 30, 64), "float32", 2), random((6,), "float32", 3)
    for mask in (None, "causal", random((9, 30), "float32", 4)):
        wanted = mx.fast.scaled_dot_product_attention(q, k, v, scale=SCALE, mask=mask, sinks=sinks)
        found = MODULE.attention(q, k, v, scale=SCALE, mask=mask, sinks=sinks)
        assert mx.allclose(found, wanted, atol=1e-5)


Q, K = mx.zeros((1, 4, 3, 64)), mx.zeros((1, 2, 5, 64))
WORDS, SCALES = mx.zeros((1, 2, 5, 8), dtype=mx.uint32), mx.zeros((1, 2, 5, 1))
PACKED = (WORDS, SCALES, SCALES)


@pytest.mark.parametrize("window", [pytest.param(0, marks=pytest.mark.long), 5])
def test_queries_see_exactly_their_positions_in_long_caches(window):
    """float32 does not tell neighbours behind 2^24 apart."""
    queries, positions = 17, 2**24 + 40  # two vectors of queries where kernels take them
    k = mx.broadcast_to(mx.zeros((1, 1, 1, 1)), (1, 1, positions, 1))
    values = np.zeros(positions, np.float32)
    values[-64:] = np.arange(1, 65)
    v = mx.array(values).reshape(1, 1, positions, 1)
    q = mx.zeros((1, 1, queries, 1))
    found = MODULE.attention(q, k, v, scale=1.0, mask="causal", window=window)
    ends = positions - queries + 1 + np.arange(queries)
    begins = ends - window if window else np.zeros_like(ends)
    wanted = [values[a:b].mean(dtype=np.float64) for a, b in zip(begins, ends, strict=True)]
    np.testing.assert_allclose(np.array(found).reshape(-1), wanted, rtol=1e-4)


@pytest.mark.parametrize(
    ("arguments", "options", "why"),
    [
        ((Q[0], K, K), {}, r"q has the shape \(4, 3, 64\); it has four axes"),
        ((Q, K[0], K), {}, r"k has the shape \(2, 5, 64\); it must be"),
        ((Q, K, mx.zeros((2, 2, 5, 64))), {}, "v has 2 rows, the queries 1"),
        ((Q, K, K[:, :, :4]), {}, "heads or positions differ"),
        ((Q[:, :3], K, K), {}, "3 heads of queries are no multiple of 2 heads of keys"),
        ((Q[..., :32], K, K), {}, "queries have 32 numbers, keys 64"),
        ((Q, K, K.astype(mx.int32)), {}, "v is int32; it can be float32"),
        ((Q, K, K), {"mask": "left"}, 'mask is "left"; it can be None, "causal" or an array'),
        ((Q, K, K), {"mask": mx.zeros((3, 5), dtype=mx.int32)}, "mask is int32"),
        ((Q, K, K), {"mask": mx.zeros((3, 4))}, "broadcast"),
        ((Q, K, K), {"sinks": mx.zeros(3)}, "there are 4 heads of queries"),
        ((Q, K, K), {"window": -1}, "window is below 0"),
        ((Q, K, K), {"window": 2}, 'a window needs the mask "causal"'),
    ],
)
def test_what_does_not_fit_is_refused(arguments, options, why):
    with pytest.raises(ValueError, match=why):
        MODULE.attention(*arguments, scale=1.0, **options)


@pytest.mark.parametrize(
    ("arguments", "bits", "group", "why"),
    [
        ((Q, PACKED, PACKED), 3, 64, "no kernel reads caches of 3 bits in groups of 64"),
        ((Q, PACKED, PACKED), 4, 48, "no kernel reads caches of 4 bits in groups of 48"),
        ((Q, PACKED, PACKED), 8, 64, "keys of 32 numbers are no whole number of groups of 64"),
        ((Q, PACKED, PACKED), 4, 32, "scales and biases of keys do not fit its groups"),
        ((Q[..., :32], PACKED, PACKED), 4, 64, "queries have 32 numbers, keys 64"),
        ((Q, (SCALES, *PACKED[1:]), PACKED), 4, 64, "keys are not quantized"),
    ],
)
def test_packed_caches_that_do_not_fit_are_refused(arguments, bits, group, why):
    with pytest.raises(ValueError, match=why):
        MODULE.attention_quantized(*arguments, scale=1.0, bits=bits, group=group)


@pytest.mark.parametrize("type_", [mx.float16, mx.bfloat16])
def test_gradients_of_16_bits_with_a_mask_of_numbers(type_):
    q, k, v = (mx.random.normal((1, 2, 5, 32), key=mx.random.key(at)) for at in range(3))
    mask = mx.random.normal((5, 5), key=mx.random.key(3))

    def total(*given):
        made = MODULE.attention(*given, scale=SCALE, mask=mask.astype(given[0].dtype))
        return made.astype(mx.float32).sum()

    found = mx.grad(total, [0, 1, 2])(*(one.astype(type_) for one in (q, k, v)))
    for one, wanted in zip(found, mx.grad(total, [0, 1, 2])(q, k, v), strict=True):
        assert one.dtype == type_
        assert mx.allclose(one, wanted, rtol=0.05, atol=0.05)
