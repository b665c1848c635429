"""Gradients that kernels compute, against float64, mlx's gradients, and each other."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from support.kernel_module import needed

from cowmlx.accelerate import trained

MODULE = needed()
WIDTHS = [1, 7, 16, 33, 64, 300]
SCALE = 0.3


@pytest.fixture(autouse=True)
def on_the_cpu():
    with mx.stream(mx.cpu):
        yield


def normal(*shape, seed=0, scale=1.0):
    return scale * np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gradients(function, arrays, by):
    """Return those of all arrays for the gradient `by` of the result."""
    given = [mx.array(one) for one in arrays]
    return [np.array(one) for one in mx.vjp(function, given, [mx.array(by)])[1]]


def assert_close(found, wanted, tolerance=2e-6):
    for one, other in zip(found, wanted, strict=True):
        most = max(np.abs(other).max(initial=0), 1e-3)
        assert one.shape == other.shape and np.abs(one - other).max(initial=0) <= tolerance * most


# ---- norms ----


def norm_in_float64(centred, x, weight, by, eps=1e-5):
    x, weight, by = (one.astype(np.float64) for one in (x, weight, by))
    middle = x - x.mean(-1, keepdims=True) if centred else x
    factor = 1 / np.sqrt((middle**2).mean(-1, keepdims=True) + eps)
    normed, own = middle * factor, by * weight
    level = own.mean(-1, keepdims=True) if centred else 0
    of_x = factor * (own - level - normed * (own * normed).mean(-1, keepdims=True))
    rows = tuple(range(x.ndim - 1))
    return [of_x, (by * normed).sum(rows), by.sum(rows)]


@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_of_layer_norm(instruction_set, width):
    x, by = normal(9, 31, width), normal(9, 31, width, seed=1)
    weight, bias = normal(width, seed=2), normal(width, seed=3)
    x += 3
    found = gradients(lambda *a: trained.layer_norm(*a, 1e-5), [x, weight, bias], by)
    assert_close(found, norm_in_float64(True, x, weight, by), 2e-5 if width > 1 else 1)


@pytest.mark.parametrize("width", WIDTHS)
def test_gradients_of_rms_norm(instruction_set, width):
    x, by, weight = normal(279, width), normal(279, width, seed=1), normal(width, seed=2)
    found = gradients(lambda *a: trained.rms_norm(*a, 1e-5), [x, weight], by)
    assert_close(found, norm_in_float64(False, x, weight, by)[:2], 2e-5)


def test_norms_without_weight_or_bias():
    x, by, vector = normal(5, 24), normal(5, 24, seed=1), normal(24, seed=2)
    ones = np.ones(24, np.float32)
    wanted = norm_in_float64(True, x, ones, by)
    for weight, bias, places in ((None, None, [0]), (None, vector, [0, 2]), (vector, None, [0, 1])):
        known = [one for one in (weight, bias) if one is not None]

        def norm(x, *rest, weight=weight, bias=bias):
            rest = list(rest)
            first = rest.pop(0) if weight is not None else None
            return trained.layer_norm(x, first, rest.pop() if bias is not None else None, 1e-5)

        all_wanted = wanted if weight is None else norm_in_float64(True, x, weight, by)
        found = gradients(norm, [x, *known], by)
        assert_close(found, [all_wanted[place] for place in places], 2e-5)
    found = gradients(lambda x: trained.rms_norm(x, None, 1e-5), [x], by)
    assert_close(found, norm_in_float64(False, x, ones, by)[:1], 2e-5)


@pytest.mark.parametrize("rows", [1, 2049, 300_000])
def test_sums_over_rows_do_not_depend_on_threads(rows):
    x, by, weight = normal(rows, 3), normal(rows, 3, seed=1), normal(3, seed=2)
    found = []
    for threads in (1, 2, 5):
        MODULE.set_threads(threads)
        found.append(gradients(lambda *a: trained.layer_norm(*a, 1e-5), [x, weight, weight], by))
        MODULE.set_threads(0)
    for other in found[1:]:
        assert all(map(np.array_equal, found[0], other))
    assert_close(found[0], norm_in_float64(True, x, weight, by), 1e-4)


def test_norms_of_views_and_numbers_that_are_not_finite():
    x, by, weight = normal(16, 12), normal(12, 16, seed=1), normal(16, seed=2)
    found = gradients(lambda x, w: trained.rms_norm(x.T, w, 1e-5), [x, weight], by)
    wanted = norm_in_float64(False, x.T, weight, by)
    assert_close(found, [wanted[0].T, wanted[1]], 2e-5)
    x[3, 4] = math.nan
    of_x, of_weight = gradients(lambda x, w: trained.rms_norm(x.T, w, 1e-5), [x, weight], by)
    assert np.isnan(of_x[:, 4]).all() and not np.isnan(np.delete(of_x, 4, 1)).any()
    assert np.isnan(of_weight).all()


# ---- gelu ----


def test_the_slope_of_gelu(instruction_set):
    x = np.concatenate([np.linspace(-12, 12, 5001), [0.0, -0.0, 80, -80]]).astype(np.float32)
    by = normal(x.size, seed=1)
    wide = x.astype(np.float64)
    lower = np.array([0.5 * math.erfc(-one / math.sqrt(2)) for one in wide])
    slope = lower + wide * np.exp(-0.5 * wide**2) / math.sqrt(2 * math.pi)
    (found,) = gradients(trained.gelu, [x], by)
    assert np.abs(found - by * slope).max() <= 3e-7 * max(1, np.abs(by).max())
    assert np.isnan(gradients(trained.gelu, [np.float32([math.nan])], np.float32([1]))[0]).all()


# ---- attention ----


def attention_in_float64(q, k, v, by, keeps=None, added=None):
    """The result, and gradients of q, k and v."""
    rows, heads = q.shape[:2]
    shared = heads // k.shape[1]
    q, k, v, by = (one.astype(np.float64) for one in (q, k, v, by))
    wide_k, wide_v = (np.repeat(one, shared, axis=1) for one in (k, v))
    scores = SCALE * q @ wide_k.swapaxes(-1, -2) + (0 if added is None else added)
    if keeps is not None:
        scores = np.where(keeps, scores, -1e38)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    of_weights = by @ wide_v.swapaxes(-1, -2)
    of_scores = weights * (of_weights - (weights * of_weights).sum(-1, keepdims=True))
    if keeps is not None:
        of_scores = np.where(keeps, of_scores, 0)

    def joined(one):
        return one.reshape(rows, -1, shared, *one.shape[2:]).sum(2)

    of_k = joined(SCALE * of_scores.swapaxes(-1, -2) @ q)
    of_v = joined(weights.swapaxes(-1, -2) @ by)
    return [weights @ wide_v, SCALE * of_scores @ wide_k, of_k, of_v]


def attend(q, k, v, by, mask):
    """The result, and gradients of q, k and v."""

    def function(*arrays):
        return trained.attention(*arrays, SCALE, mask)

    made = np.array(function(*map(mx.array, (q, k, v))))
    return [made, *gradients(function, [q, k, v], by)]


def operands(rows=2, heads=4, groups=2, length=9, keys=21, size=8, width=5):
    return (
        normal(rows, heads, length, size),
        normal(rows, groups, keys, size, seed=1),
        normal(rows, groups, keys, width, seed=2),
        normal(rows, heads, length, width, seed=3),
    )


SHAPES = [
    {"length": 32, "keys": 32, "size": 16, "width": 16, "groups": 4},
    {"rows": 1, "heads": 1, "groups": 1, "length": 1, "keys": 1, "size": 1, "width": 1},
    {"length": 70, "keys": 67, "size": 33, "width": 40, "heads": 6},
    {"length": 3, "keys": 130, "size": 64, "width": 64, "groups": 1},
]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_of_attention(instruction_set, shape):
    given = operands(**shape)
    assert_close(attend(*given, None), attention_in_float64(*given), 1e-5)


def test_masks_of_attention(instruction_set):
    given = operands()
    bools = np.random.default_rng(5).random((2, 4, 9, 21)) < 0.7
    bools[0, 1, 3] = False  # sees nothing
    last = np.arange(9)[:, None] + 12 >= np.arange(21)
    for keeps in (bools, bools[:1, :1], bools[0, 0, 0]):
        assert_close(attend(*given, mx.array(keeps)), attention_in_float64(*given, keeps), 1e-5)
    assert_close(attend(*given, "causal"), attention_in_float64(*given, last), 1e-5)
    added = normal(9, 21, seed=6)
    added[2, 5:] = -math.inf
    wanted = attention_in_float64(*given, added=added)
    assert_close(attend(*given, mx.array(added)), wanted, 1e-5)
    more = operands(length=21, keys=9)  # the first queries see nothing
    last = np.arange(21)[:, None] - 12 >= np.arange(9)
    assert_close(attend(*more, "causal"), attention_in_float64(*more, last), 1e-5)


def test_a_query_whose_scores_are_all_minus_infinity_is_not_a_number():
    q, k, v, by = operands()
    added = np.zeros((9, 21), np.float32)
    added[4] = -math.inf
    made, of_q, _, _ = attend(q, k, v, by, mx.array(added))
    for one in (made, of_q):
        assert np.isnan(one[:, :, 4]).all() and not np.isnan(np.delete(one, 4, 2)).any()


def test_attention_with_long_sequences_is_the_same():
    given = operands(rows=1, heads=2, groups=1, length=514, keys=513)
    assert_close(attend(*given, "causal"), attend_by_kernels(*given), 1e-5)


def attend_by_kernels(q, k, v, by):
    def function(*arrays):
        return MODULE.trained_attention(*arrays, scale=SCALE, causal=True)

    return [np.array(function(*map(mx.array, (q, k, v)))), *gradients(function, [q, k, v], by)]


def test_attention_does_not_depend_on_threads_or_on_how_heads_lie():
    given = operands(rows=3, length=32, keys=40)
    wanted = attend(*given, None)
    for threads in (1, 5):
        MODULE.set_threads(threads)
        assert all(map(np.array_equal, attend(*given, None), wanted))
        MODULE.set_threads(0)
    *arrays, by = given

    def turned(q, k, v):
        made = trained.attention(
            q.swapaxes(1, 2), k.transpose(0, 1, 3, 2), v.swapaxes(1, 2), SCALE, None
        )
        return made.swapaxes(1, 2)

    q, k, v = arrays
    lying = [q.swapaxes(1, 2), k.transpose(0, 1, 3, 2), v.swapaxes(1, 2)]
    of_q, of_k, of_v = gradients(turned, lying, np.ascontiguousarray(by.swapaxes(1, 2)))
    assert np.array_equal(of_q.swapaxes(1, 2), wanted[1])
    assert np.array_equal(of_k.transpose(0, 1, 3, 2), wanted[2])
    assert np.array_equal(of_v.swapaxes(1, 2), wanted[3])


def test_a_mask_has_a_gradient():
    q, k, v, by = operands()
    added = normal(9, 21, seed=6)

    def own(mask):
        return trained.attention(*map(mx.array, (q, k, v)), SCALE, mask)

    def of_mlx(mask):
        return mx.fast.scaled_dot_product_attention(
            *map(mx.array, (q, k, v)), scale=SCALE, mask=mask
        )

    assert_close(gradients(own, [added], by), gradients(of_mlx, [added], by), 1e-5)


def test_operands_of_attention_are_checked():
    q, k, v, _ = map(mx.array, operands())
    for bad in ((q[0], k, v), (q, k[:1], v), (q, k[..., :4], v), (q, k, v[:, :, :4])):
        with pytest.raises(ValueError, match=r"keys|four axes|rows"):
            MODULE.trained_attention(*bad, scale=1.0)
    with pytest.raises(ValueError, match="at least one number"):
        MODULE.trained_attention(q[:, :, :0], k, v, scale=1.0)
    with pytest.raises(ValueError, match="divide"):
        MODULE.trained_attention(q[:, :3], k, v, scale=1.0)
    with pytest.raises(ValueError, match="mask"):
        MODULE.trained_attention(q, k, v, scale=1.0, mask=mx.zeros((9, 21), mx.float16))


# ---- gradients of gradients, and many at once ----

FUNCTIONS = {
    "gelu": (trained.gelu, lambda x: x * (1 + mx.erf(x / math.sqrt(2))) / 2, [normal(6, 8)]),
    "layer_norm": (
        lambda *a: trained.layer_norm(*a, 1e-5),
        lambda *a: mx.fast.layer_norm(*a, 1e-5),
        [normal(6, 8), normal(8, seed=1), normal(8, seed=2)],
    ),
    "rms_norm": (
        lambda *a: trained.rms_norm(*a, 1e-5),
        lambda *a: mx.fast.rms_norm(*a, 1e-5),
        [normal(6, 8), normal(8, seed=1)],
    ),
    "attention": (
        lambda *a: trained.attention(*a, SCALE, "causal"),
        lambda *a: mx.fast.scaled_dot_product_attention(*a, scale=SCALE, mask="causal"),
        list(operands()[:3]),
    ),
}


def total_of(function):
    return lambda *arrays: (function(*arrays) ** 2).sum()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_second_derivatives_are_mlx_s(name):
    own, of_mlx, arrays = FUNCTIONS[name]
    arrays = [mx.array(one) for one in arrays]
    places = list(range(len(arrays)))

    def squares(function):
        slopes = mx.grad(total_of(function), argnums=places)
        return mx.grad(lambda *a: sum((one**2).sum() for one in slopes(*a)), argnums=places)

    found, wanted = (squares(function)(*arrays) for function in (own, of_mlx))
    assert_close(map(np.array, found), list(map(np.array, wanted)), 1e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gradients_of_many_are_those_of_each(name):
    own, _, arrays = FUNCTIONS[name]
    arrays = [mx.array(one) for one in arrays]
    places = list(range(len(arrays)))

    def slopes(*arrays):
        made = mx.grad(total_of(own), argnums=places)(*arrays)
        return [made] if isinstance(made, mx.array) else made

    first = mx.stack([arrays[0], arrays[0] * 0.5, arrays[0] + 1])
    axes = (0, *(None for _ in arrays[1:]))
    found = mx.vmap(slopes, in_axes=axes)(first, *arrays[1:])
    for at in range(3):
        wanted = slopes(first[at], *arrays[1:])
        assert_close([np.array(one[at]) for one in found], list(map(np.array, wanted)), 1e-4)


# ---- rows that are added up at places ----


@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64"])
@pytest.mark.parametrize("shape", [(40, 5), (7, 64), (3, 2, 4), (9,)], ids=str)
def test_recorded_sums_at_places_have_the_bits_of_mlx(dtype, shape):
    rng = np.random.default_rng(0)
    places = mx.array(rng.integers(0, shape[0], (300, 4)), getattr(mx, dtype))
    rows = mx.array(normal(300, 4, *shape[1:]))
    base = mx.array(normal(*shape, seed=1))

    def function(base, places, rows):
        return [base.at[places].add(rows), mx.zeros_like(base).at[places].add(2 * rows)]

    wanted = function(base, places, rows)
    recording = MODULE.Recording(function, [base, places, rows])
    for threads in (1, 3):
        MODULE.set_threads(threads)
        for found in (
            recording.replay([base, places, rows]),
            recording.compute([base, places, rows]),
        ):
            assert all(map(mx.array_equal, found, wanted))
        MODULE.set_threads(0)


def test_recorded_sums_at_places_from_the_end_and_of_views():
    places = mx.array([[-1, 2], [0, -3], [2, 2]], mx.int32)
    rows, base = mx.array(normal(3, 3, 2)), mx.array(normal(4, 3))

    def function(base, places, rows):
        return [base.at[places.T].add(rows.transpose(2, 1, 0))]

    recording = MODULE.Recording(function, [base, places, rows])
    (found,) = recording.replay([base, places, rows])
    assert mx.array_equal(found, function(base, places, rows)[0])


# ---- products with small matrices that change ----


def test_recorded_products_of_many_rows_with_a_matrix_and_a_bias():
    x, w, bias = normal(2, 150, 20), normal(20, 37, seed=1), normal(37, seed=2)
    by = normal(2, 150, 37, seed=3)

    def function(x, w, bias, by):
        made, slopes = mx.vjp(lambda *a: mx.maximum(a[0] @ a[1] + a[2], 0), [x, w, bias], [by])
        return [*made, *slopes]

    given = [mx.array(one) for one in (x, w, bias, by)]
    recording = MODULE.Recording(function, given)
    plainly = x.astype(np.float64) @ w + bias
    of_sum = np.where(plainly > 0, by, 0).astype(np.float64)
    wanted = [
        np.maximum(plainly, 0),
        of_sum @ w.T,
        np.einsum("rik,rin->kn", x, of_sum),
        of_sum.sum((0, 1)),
    ]
    found = []
    for threads in (1, 3):
        MODULE.set_threads(threads)
        found.append([np.array(one) for one in recording.replay(given)])
        MODULE.set_threads(0)
    assert_close(found[0], wanted, 1e-5)
    assert all(map(np.array_equal, *found))
    given[1] = given[1] * 2  # another matrix: it is laid in blocks again
    assert_close([np.array(recording.replay(given)[0])], [np.maximum(2 * x @ w + bias, 0)], 1e-5)
