"""What rows compute, against numpy."""

from __future__ import annotations

import math

import mlx.core as mx
import numpy as np
import pytest
from support.operation_references import reference_of
from support.operation_runs import BY_PROPERTY, expected, numpy_of, plain, run

from cowmlx.programs.importing.values import to_mlx
from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of, arrays_of, spec_of
from cowmlx.programs.operations.row import OperationError, Spec
from cowmlx.programs.operations.rules import name_of
from cowmlx.quantized_formats import FORMATS

# Integers by 0 are tested below; views and steps of 16 bits are not those of the reference.
NOT_COMPARED = {
    *((name, "int32") for name in ("power", "cummax", "cummin", "argsort")),
    *(
        (name, dtype)
        for name in ("view", "floor_divide", "remainder", "divmod")
        for dtype in ("float64", "float16", "bfloat16", "int32")
    ),
}
CASES = [
    pytest.param(row, example, id=f"{row.name}-{at}")
    for row in ROWS
    if row.name not in BY_PROPERTY
    for at, example in enumerate(row.examples)
]
TOLERANCE = {
    "float16": 2e-2,
    "bfloat16": 0.15,
    "float32": 2e-5,
    "float64": 1e-14,
    "complex64": 1e-4,
}


@pytest.mark.parametrize("name", ["fftfreq", "rfftfreq"])
@pytest.mark.parametrize("d", [1e-45, -1e-45, 1e-40, 1e308, math.inf])
def test_frequencies_of_very_short_and_long_times(name, d):
    """The first is 0, also where the others are infinite in float32."""
    with np.errstate(over="ignore"):
        wanted = reference_of(name)(5, d).astype(np.float32)
    found = find(name).compute([], {"n": 5, "d": d})[0]
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-6)


@pytest.mark.parametrize(("name", "most"), [("fftfreq", 2**31 - 2), ("rfftfreq", 2**31 - 1)])
def test_the_largest_transforms_have_frequencies(name, most):
    row = find(name)
    accepted = attributes_of(row, {"n": most})
    assert row.compute([], accepted)[0].shape == row.infer([], accepted)[0].shape


def test_more_frequencies_than_mlx_returns_are_refused():
    with pytest.raises(OperationError, match=f"n is {2**31 - 1}"):
        attributes_of(find("fftfreq"), {"n": 2**31 - 1})


def test_every_row_is_tested_against_something():
    assert [
        row.name for row in ROWS if not reference_of(row.name) and row.name not in BY_PROPERTY
    ] == []


@pytest.mark.parametrize("row, example", CASES)
def test_values_are_numpys(row, example):
    attributes = attributes_of(row, example.attributes)
    for dtype in ("float32", "float64", "float16", "bfloat16", "int32"):
        texts = [None if text is None else spec_of(text).dtype for text in example.inputs]
        floats = "float32" in texts
        if dtype != "float32" and (not floats or (row.name, dtype) in NOT_COMPARED):
            continue
        inputs = [
            None if text is None else array_of(text, at, dtype if kind == "float32" else None)
            for at, (text, kind) in enumerate(zip(example.inputs, texts, strict=True))
        ]
        try:
            found = run(row, inputs, attributes)
        except OperationError as error:
            assert dtype != "float32", error
            continue
        wanted = expected(row, inputs, plain(example.attributes))
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert one.shape == np.shape(other), dtype
            kind = str(one.dtype).split(".")[-1]
            close = TOLERANCE.get(kind, 0)
            if dtype in ("float16", "bfloat16"):
                close = max(close, TOLERANCE[dtype])
            scale = np.max(np.abs(other), initial=1, where=np.isfinite(other))
            if kind in ("float16", "bfloat16", "float32", "float64", "complex64"):
                np.testing.assert_allclose(numpy_of(one), other, rtol=close, atol=close * scale)
            elif dtype in ("float16", "bfloat16") and kind != "bool":
                assert np.sum(numpy_of(one) != other) <= 0.2 * one.size + 1
            else:
                np.testing.assert_array_equal(
                    numpy_of(one), np.asarray(other).astype(numpy_of(one).dtype)
                )


def first(name, at=0, **given):
    row = find(name)
    example = row.examples[at]
    inputs = arrays_of(example)
    return inputs, run(row, inputs, attributes_of(row, {**example.attributes, **given}))


@pytest.mark.parametrize("at", range(3))
def test_decompositions_give_their_matrices_back(at):
    (a,), (q, r) = first("qr", at)
    np.testing.assert_allclose(q @ r, a, atol=1e-5)
    np.testing.assert_allclose(
        mx.swapaxes(q, -1, -2) @ q,
        np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:-2], q.shape[-1], q.shape[-1])),
        atol=1e-5,
    )
    (a,), (u, s, vt) = first("svd", at)
    least = s.shape[-1]
    np.testing.assert_allclose(
        (u[..., :least] * s[..., None, :]) @ vt[..., :least, :], a, atol=1e-5
    )
    (a,), (p, lower, upper) = first("lu", at)
    rows = mx.take_along_axis(lower, p[..., None].astype(mx.int32), axis=-2)
    np.testing.assert_allclose(rows @ upper, a, atol=1e-5)
    (a,), (packed, pivots) = first("lu_factor", at)
    size = min(a.shape[-2:])
    np.testing.assert_allclose(mx.triu(packed)[..., :size, :], upper, atol=1e-5)
    assert pivots.shape[-1] == size


def test_eigenvectors_are_that():
    (a,), (values, vectors) = first("eigh")
    np.testing.assert_allclose(a @ vectors, vectors * values[..., None, :], atol=1e-4)
    (a,), (values, vectors) = first("eig")
    np.testing.assert_allclose(
        np.array(a) @ np.array(vectors), np.array(vectors) * np.array(values), atol=1e-4
    )
    _, (again,) = first("eigvals")
    np.testing.assert_allclose(
        sorted(np.array(again).real), sorted(np.array(values).real), atol=1e-4
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_a_nan_stays_the_extreme_of_all_behind_it(name, dtype):
    a = mx.array([[1.0, math.nan, 3.0], [2.0, 5.0, math.nan]]).astype(getattr(mx, dtype))
    (found,) = run(find(name), [a], attributes_of(find(name), {"axis": 1}))
    assert found.dtype == a.dtype
    assert np.isnan(np.array(found.astype(mx.float32))).tolist() == [
        [False, True, True],
        [False, False, True],
    ]


def not_finite(row, example, dtype, special):
    """Where results are no numbers if one element of each float input is special."""
    inputs = []
    for at, text in enumerate(example.inputs):
        array = None if text is None else array_of(text, at)
        if array is not None and array.dtype == mx.float32:
            flat = array.astype(mx.bfloat16).reshape(-1)
            if flat.size:
                flat[(at + flat.size // 2) % flat.size] = special
            array = flat.reshape(array.shape).astype(getattr(mx, dtype))
        inputs.append(array)
    try:
        given, attributes = row.arranged(inputs), attributes_of(row, example.attributes)
        row.infer(
            [None if each is None else Spec(each.shape, name_of(each.dtype)) for each in given],
            attributes,
        )
        found = row.compute(given, attributes)
    except OperationError:
        return None
    return [np.isnan(numpy_of(each)).tolist() for each in found]


@pytest.mark.parametrize("row, example", CASES)
def test_16_bits_lose_no_nan(row, example):
    if "float32" not in str(example.inputs) or row.name == "view":
        return
    wide = not_finite(row, example, "float32", math.nan)
    for dtype in ("float16", "bfloat16"):
        assert not_finite(row, example, dtype, math.nan) in (wide, None)


def test_partitions_have_smaller_elements_before_the_kth():
    (a,), (found,) = first("partition")
    assert np.all(np.array(found)[:, :1] <= np.array(found)[:, 1:2])
    np.testing.assert_array_equal(np.sort(found, -1), np.sort(a, -1))
    (a,), (places,) = first("argpartition")
    np.testing.assert_array_equal(
        np.take_along_axis(np.array(a), np.array(places).astype(int), -1)[:, 1],
        np.sort(a, -1)[:, 1],
    )


def test_hadamard_transforms_are_their_own_inverses():
    (a,), (found,) = first("hadamard_transform")
    matrix = np.array([[1.0]])
    while len(matrix) < 8:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    np.testing.assert_allclose(found, np.array(a) @ matrix / math.sqrt(8), atol=1e-5)


@pytest.mark.parametrize("at", range(4))
def test_quantized_weights_are_near_their_own(at):
    row = find("quantize")
    inputs, found = first("quantize", at)
    options = row.examples[at].attributes
    back = find("dequantize")
    (again,) = run(back, found, attributes_of(back, {**options, "dtype": "float32"}))
    near = {0: 0.3, 1: 0.02, 2: 1.1, 3: 0.8}[at]
    assert np.max(np.abs(np.array(again) - np.array(inputs[0]))) < near


@pytest.mark.parametrize(
    "mode, group", [(mode, known.groups[0]) for mode, known in FORMATS.items()]
)
def test_quantized_weights_without_elements(mode, group):
    weights = run(find("quantize"), [mx.ones((2, 4, group))], of("quantize", mode=mode))
    none = [weight[:, :0] for weight in weights]
    full = mx.ones((3, group))
    (found,) = run(find("dequantize"), none, of("dequantize", mode=mode, dtype="float32"))
    assert (found.shape, found.dtype) == ((2, 0, group), mx.float32)
    for x, w, transpose, shape in (
        (full[:0], [each[0] for each in weights], True, (0, 4)),
        (full, [each[0] for each in none], True, (3, 0)),
        (mx.ones((2, 0, group)), [each[0] for each in weights], True, (2, 0, 4)),
        (full[:0, :4], [each[0] for each in weights], False, (0, group)),
        (full[:, :0], [each[0] for each in none], False, (3, group)),
    ):
        attributes = of("quantized_matmul", mode=mode, transpose=transpose)
        (found,) = run(find("quantized_matmul"), [x, *w], attributes)
        assert found.tolist() == np.zeros(shape).tolist()
    attributes = of("gather_qmm", mode=mode)
    biases = [None] * (3 - len(weights))
    first = mx.zeros(3, mx.int32)
    for x, w, left, right, shape in (
        (mx.ones((2, 0, group)), weights, None, None, (2, 0, 4)),
        (full, none, None, first, (3, 3, 0)),
        (full, weights, None, first[:0], (0, 3, 4)),
    ):
        (found,) = run(find("gather_qmm"), [x, *w, *biases, left, right], attributes)
        assert found.tolist() == np.zeros(shape).tolist()


@pytest.mark.parametrize("shape", [(1, 16), (3, 48), (3, 5, 16)])
def test_an_odd_number_of_groups_of_16(shape):
    w = array_of(f"float32[{','.join(map(str, shape))}]")
    found = run(find("quantize"), [w], of("quantize", mode="nvfp4"))
    whole = mx.quantize(mx.concatenate([w, w]), mode="nvfp4")
    for one, other in zip(found, whole, strict=True):
        assert mx.array_equal(one, other[: shape[0]])
    (back,) = run(find("dequantize"), [*found, None], of("dequantize", mode="nvfp4"))
    assert back.shape == w.shape
    assert mx.array_equal(back, mx.dequantize(*whole, mode="nvfp4")[: shape[0]])


def of(name, **given):
    return attributes_of(find(name), given)


def draw(name, **attributes):
    row = find(name)
    return np.array(run(row, [mx.random.key(3)], attributes_of(row, attributes))[0])


def test_random_numbers_have_their_distribution():
    many = {"shape": [20000]}
    uniform = draw("random_uniform", low=-1.0, high=3.0, **many)
    assert -1 <= uniform.min() < uniform.max() < 3 and abs(uniform.mean() - 1) < 0.05
    normal = draw("random_normal", loc=2.0, scale=0.5, **many)
    assert abs(normal.mean() - 2) < 0.02 and abs(normal.std() - 0.5) < 0.02
    bounded = draw("random_truncated_normal", lower=-0.5, upper=1.0, **many)
    assert -0.5 <= bounded.min() < bounded.max() <= 1
    assert abs(draw("random_gumbel", **many).mean() - 0.5772) < 0.05
    laplace = draw("random_laplace", loc=1.0, scale=2.0, **many)
    assert abs(np.abs(laplace - 1).mean() - 2) < 0.1
    assert abs(draw("random_bernoulli", p=0.25, **many).mean() - 0.25) < 0.02
    dice = draw("random_randint", low=-2, high=4, **many)
    assert sorted(set(dice.tolist())) == [-2, -1, 0, 1, 2, 3]
    wide = draw("random_randint", low=-(2**63), high=2**63 - 1, dtype="int64", **many)
    assert wide.min() < -(2**62) and wide.max() > 2**62 and len(set(wide.tolist())) == 20000


def test_the_same_key_gives_the_same_numbers():
    one, other = (draw("random_normal", shape=[4]) for _ in range(2))
    np.testing.assert_array_equal(one, other)
    split = find("random_split")
    keys = run(split, [mx.random.key(3)], attributes_of(split, {"num": 3}))[0]
    assert len({tuple(key) for key in keys.tolist()}) == 3


def test_classes_are_drawn_with_their_probabilities():
    row = find("random_categorical")
    logits = mx.log(mx.array([[0.1, 0.2, 0.7]]))
    (found,) = run(row, [logits, mx.random.key(1)], attributes_of(row, {"num_samples": 20000}))
    np.testing.assert_allclose(np.bincount(np.array(found)[0]) / 20000, [0.1, 0.2, 0.7], atol=0.02)


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16])
def test_equal_classes_of_16_bits_are_drawn_as_often(dtype):
    logits, many = mx.full((2,), 1000.0, dtype), of("random_categorical", num_samples=20000)
    (found,) = run(find("random_categorical"), [logits, mx.random.key(1)], many)
    assert abs(float(mx.mean(found)) - 0.5) < 0.02


@pytest.mark.parametrize(
    ("dtype", "low", "high"),
    [
        ("float32", 1e6, 1e6 + 1),
        ("float32", 1.0, 1.0 + 2.0**-23),
        ("float32", -1e-20, 0.0),
        ("float32", -3e38, 3e38),
        ("float64", -1.5e308, 1.5e308),
        ("bfloat16", 1.0, 2.0),
        ("bfloat16", -(2.0**127), 2.0**127),
        ("float16", -2.0, -1.0),
        ("float16", -6e4, 6e4),
        ("float16", 9.0, 7e4),
    ],
)
def test_uniform_numbers_are_below_their_end(dtype, low, high):
    row = find("random_uniform")
    attributes = attributes_of(row, {"low": low, "high": high, "shape": [20000], "dtype": dtype})
    found = np.array(run(row, [mx.random.key(1)], attributes)[0].astype(mx.float64))
    assert low <= found.min() and found.max() < high
    quarter, width = 0.75 * low + 0.25 * high, high / 4 - low / 4
    assert abs(np.quantile(found, 0.25) - quarter) <= width  # it may be one number alone


@pytest.mark.parametrize("dtype", [mx.float32, mx.float64, mx.float16])
@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0, 3.0])
def test_norms_have_no_slope_at_zero(power, dtype):
    row, attributes = find("norm"), of("norm", ord=power, axis=-1)

    def norms(a):
        return row.compute([a], attributes)[0].sum()

    a = mx.array([[0.0, 0.0], [0.0, 2.0]], dtype)
    assert row.compute([a], attributes)[0].tolist() == pytest.approx([0, 2], rel=1e-3)
    found = mx.grad(norms)(a)
    np.testing.assert_allclose(np.array(found), [[0, 0], [0, 1]], rtol=1e-3)


@pytest.mark.parametrize("start", [-1, -4, -5, -9, 3, 9])
@pytest.mark.parametrize("stop", [-1, -5, -20, -(2**31), 0, 2])
@pytest.mark.parametrize("stride", [-1, -3])
def test_reverse_slices_have_numpy_s_elements(start, stop, stride):
    row = find("slice")
    attributes = attributes_of(row, {"start": [start], "stop": [stop], "strides": [stride]})
    (found,) = run(row, [mx.arange(4)], attributes)
    end = None if stop == -(2**31) else stop
    assert found.tolist() == list(range(4))[start:end:stride]


def test_permutations_keep_all_elements():
    row = find("random_permutation")
    (found,) = run(row, [mx.arange(100), mx.random.key(1)], attributes_of(row, {}))
    assert sorted(found.tolist()) == list(range(100)) != found.tolist()


def test_vectors_have_their_covariance():
    row = find("random_multivariate_normal")
    cov = mx.array([[2.0, 0.6], [0.6, 1.0]])
    inputs = [mx.array([1.0, -1.0]), cov, mx.random.key(2)]
    (found,) = run(row, inputs, attributes_of(row, {"shape": [20000]}))
    np.testing.assert_allclose(np.cov(np.array(found).T), cov, atol=0.1)


def test_dropout_keeps_the_mean():
    row = find("dropout")
    (found,) = run(row, [mx.ones((20000,)), mx.random.key(2)], attributes_of(row, {"p": 0.25}))
    np.testing.assert_allclose(np.unique(found), [0, 4 / 3], rtol=1e-6)
    assert abs(float(mx.mean(found)) - 1) < 0.02


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64"])
def test_integer_divisions_never_end_the_process(dtype):
    kind = getattr(mx, dtype)
    least = -(2 ** (8 * kind.size - 1))
    a = mx.array([least, least, 7, -7, 7, -7, 5], dtype=mx.int64).astype(kind)
    b = mx.array([-1, 0, -2, 2, 2, -2, 0], dtype=kind)
    quotient = run(find("floor_divide"), [a, b], {})[0].tolist()
    rest = run(find("remainder"), [a, b], {})[0].tolist()
    assert quotient[0] == least and quotient[2:6] == [-4, -4, 3, 3]
    assert rest[0] == 0 and rest[2:6] == [-1, 1, 1, -1]
    assert [each.tolist() for each in run(find("divmod"), [a, b], {})] == [quotient, rest]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32, mx.float64])
def test_a_quotient_of_floats_and_what_it_leaves_fit_together(dtype):
    a, b = (mx.random.normal((400,), key=mx.random.key(at)).astype(dtype) for at in (1, 2))
    a = mx.concatenate([a, 9 * b, -b, a * 0])
    b = mx.concatenate([b] * 4)
    quotient, rest = run(find("divmod"), [a, b], {})
    wide = [np.array(each.astype(mx.float64)) for each in (a, b)]
    exact = np.floor_divide(*wide)
    few = np.abs(exact) < 128  # those that the type holds
    np.testing.assert_array_equal(np.array(quotient.astype(mx.float32))[few], exact[few])
    assert bool(mx.all(mx.abs(rest) <= mx.abs(b)))
    odd = mx.array([1.0, -1.0, 0.0, float("inf"), float("nan"), 5.0], dtype=dtype)
    found = run(find("floor_divide"), [odd, mx.array([0, 0, 0, 2, 1, float("inf")], dtype)], {})
    assert str(found[0].tolist()) == "[inf, -inf, nan, inf, nan, 0.0]"


def test_shifts_by_more_than_the_bits_leave_nothing():
    a, b = mx.array([1, -1, 1, -8]), mx.array([32, 40, -1, 1])
    assert run(find("left_shift"), [a, b], {})[0].tolist() == [0, 0, 0, -16]
    assert run(find("right_shift"), [a, b], {})[0].tolist() == [0, -1, 0, -4]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32, mx.float64])
def test_vectors_of_zeros_have_no_angle(dtype):
    row = find("cosine_similarity_loss")
    attributes = attributes_of(row, {})
    (found,) = row.compute([mx.zeros((2, 3), dtype), mx.ones((2, 3), dtype)], attributes)
    assert found.dtype == dtype and found.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("delta", [0.5, 1e6, 1e30])
def test_a_small_error_has_its_slope_below_any_delta(delta):
    row = find("huber_loss")
    attributes = attributes_of(row, {"delta": delta, "reduction": "sum"})
    targets = mx.zeros(3)

    def loss(inputs):
        return row.compute([inputs, targets], attributes)[0]

    value, slopes = mx.value_and_grad(loss)(mx.array([0.25, -0.4, 0.0]))
    assert value.item() == pytest.approx(0.11125)
    assert slopes.tolist() == pytest.approx([0.25, -0.4, 0.0])


@pytest.mark.parametrize(
    ("dtype", "decimals", "given", "wanted"),
    [
        (mx.float64, 1, [1.25, 0.3, -2.75], [1.2, 0.3, -2.8]),
        (mx.float64, -2, [123456789012345.0, 1e300], [123456789012300.0, 1e300]),
        (mx.float32, -1, [123456792.0, 3.4e38, math.inf], [123456790.0, 3.4e38, math.inf]),
        (mx.int32, -1, [123456789, -25, -35, -26], [123456790, -20, -40, -30]),
        (mx.int32, -1, [2**31 - 1, -(2**31)], [2**31 - 1, -(2**31)]),
        (mx.int64, -2, [2**53 + 1, 50, 150], [9007199254741000, 0, 200]),
        (mx.int64, -1, [2**63 - 1, -(2**63)], [2**63 - 1, -(2**63)]),
        (mx.uint64, -1, [2**64 - 1, 2**64 - 14, 5], [2**64 - 1, 2**64 - 16, 0]),
        (mx.uint8, -1, [255, 254, 15, 25], [255, 250, 20, 20]),
        (mx.uint16, -5, [65535, 50000, 3], [65535, 0, 0]),
        (mx.int8, -3, [127, -128], [0, 0]),
        (mx.bool_, -1, [True, False], [False, False]),
    ],
)
def test_rounding_keeps_all_digits(dtype, decimals, given, wanted):
    kind = name_of(dtype)
    (found,) = run(find("round"), [to_mlx(np.array(given, kind))], {"decimals": decimals})
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.array(found), np.array(wanted, kind))


@pytest.mark.parametrize(
    ("dtype", "a", "b", "wanted"),
    [
        ("uint32", [5, 7, 9], [6, 6, 6], [True, True, False]),
        ("uint8", [0, 255, 2], [255, 0, 0], [False, False, True]),
        ("int8", [127, -128, -127], [-128, 127, -128], [False, False, True]),
        ("int64", [2**63 - 1, 2**62 + 1], [-(2**63), 2**62], [False, True]),
        ("uint64", [2**64 - 1, 2**63 + 3], [0, 2**63], [False, False]),
        ("bool", [True, False], [False, False], [True, True]),
    ],
)
def test_integers_are_close_by_their_distance(dtype, a, b, wanted):
    arrays = [to_mlx(np.array(each, dtype)) for each in (a, b)]
    attributes = {"rtol": 0.0, "atol": 2.0, "equal_nan": False}
    assert run(find("isclose"), arrays, attributes)[0].tolist() == wanted
    assert run(find("allclose"), arrays, attributes)[0].item() == all(wanted)
