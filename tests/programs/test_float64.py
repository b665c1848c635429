"""The accuracy of operations with float64: as the table says, in values and gradients."""

from __future__ import annotations

import math
import random

import mlx.core as mx
import numpy as np
import pytest
from support.operation_references import reference_of
from support.operation_runs import BY_PROPERTY, expected, plain, run

from cowmlx.programs.operations import ROWS, elementary, find, table
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of, float64_error, spec_of
from cowmlx.programs.operations.row import FLOAT64_ERROR, OperationError

# Near a jump, which the points may lie on both sides of.
JUMPS = {"remainder"}
WITH = [row for row in ROWS if float64_error(row) is not None]
STEP = 1e-3
# Of a derivative by five points: h^4 f'''''/30, and roundings of f by h.
BY_POINTS = 1e-8


def inputs_of(example):
    return [
        None
        if text is None
        else array_of(text, at, "float64" if spec_of(text).dtype == "float32" else None)
        for at, text in enumerate(example.inputs)
    ]


def cases(row):
    """The inputs, attributes and results of each example that float64 fits."""
    for example in row.examples:
        given = dict(example.attributes)
        given |= {
            attribute.name: "float64" for attribute in row.attributes if attribute.kind == "dtype"
        }
        inputs = inputs_of(example)
        try:
            attributes = attributes_of(row, given)
            found = run(row, inputs, attributes)
        except OperationError:
            continue
        if any(each is not None and each.dtype == mx.float64 for each in [*inputs, *found]):
            yield inputs, attributes, found, plain(given)


def error_of(found, wanted):
    """The largest error, relative to the largest number."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert found.shape == wanted.shape
    finite = np.isfinite(wanted)
    np.testing.assert_array_equal(np.isfinite(found), finite)
    if not finite.any():
        return 0.0
    size = np.max(np.abs(wanted[finite]))
    return np.max(np.abs(found[finite] - wanted[finite])) / (size or 1.0)


def test_few_operations_are_less_accurate_than_float64():
    less = {row["name"]: row["float64_error"] for row in table() if row["float64_error"]}
    assert {name for name, error in less.items() if error > FLOAT64_ERROR} == {"eig", "eigvals"}
    without = {row["name"] for row in table() if row["float64_error"] is None}
    assert {"fft", "rope", "bitwise_and", "quantize"} <= without
    assert not without & {"exp", "zeros", "linspace", "random_normal", "matmul", "sum"}


@pytest.mark.parametrize("row", WITH, ids=lambda row: row.name)
def test_values_are_as_accurate_as_the_table_says(row):
    if row.name in BY_PROPERTY or row.name == "view":
        return  # other bits, or several results are right
    count = 0
    for inputs, _, found, given in cases(row):
        wanted = expected(row, inputs, given)
        for one, other in zip(found, wanted, strict=True):
            if one.dtype in (mx.float64, mx.complex64):
                assert error_of(one, other) <= row.float64_error
        count += 1
    assert count


@pytest.mark.parametrize(
    "row",
    [row for row in WITH if row.differentiable and row.name not in JUMPS],
    ids=lambda row: row.name,
)
def test_gradients_are_as_accurate_as_the_values(row):
    """Along a random direction, against five points of the function itself."""
    for number, (inputs, attributes, found, _) in enumerate(cases(row)):
        rng = np.random.default_rng(number)
        weights = [mx.array(rng.normal(size=each.shape), mx.float64) for each in found]
        floats = [at for at, each in enumerate(found) if each.dtype == mx.float64]
        for at, place in enumerate(row.inputs[: len(inputs)]):
            given = inputs[at]
            if place.name not in row.differentiable or given is None or given.dtype != mx.float64:
                continue
            if not given.size or not floats or (row.name == "std" and given.size == 1):
                continue

            def total(x, at=at, given=(inputs, attributes, weights, floats)):
                inputs, attributes, weights, floats = given
                changed = [*inputs[:at], x, *inputs[at + 1 :]]
                results = row.compute(row.arranged(changed), attributes)
                held = [mx.where(mx.isfinite(result), result, 0) for result in results]
                return sum(mx.sum(held[each] * weights[each]) for each in floats)

            towards = mx.array(rng.normal(size=given.shape), mx.float64)
            slope = mx.sum(mx.grad(total)(given) * towards).item()
            far, near = (
                (total(given + step * towards) - total(given - step * towards)).item()
                for step in (2 * STEP, STEP)
            )
            by_points = (8 * near - far) / (12 * STEP)
            scale = max(abs(by_points), abs(total(given).item()), 1.0)
            assert abs(slope - by_points) <= BY_POINTS * scale


@pytest.mark.parametrize(
    "row",
    [row for row in WITH if row.differentiable and row.stacks is None],
    ids=lambda row: row.name,
)
def test_gradients_of_rows_are_as_accurate_as_those_of_each(row):
    for inputs, attributes, found, _ in cases(row):
        floats = [at for at, each in enumerate(found) if each.dtype == mx.float64]
        for at, place in enumerate(row.inputs[: len(inputs)]):
            given = inputs[at]
            if place.name not in row.differentiable or given is None or given.dtype != mx.float64:
                continue
            if not given.size or not sum(found[each].size for each in floats):
                continue

            def total(x, at=at, given=(inputs, attributes, floats)):
                inputs, attributes, floats = given
                changed = [*inputs[:at], x, *inputs[at + 1 :]]
                results = row.compute(row.arranged(changed), attributes)
                return sum(mx.sum(mx.square(results[each])) for each in floats)

            rows = mx.stack([given, 0.875 * given])
            together = mx.grad(lambda x, total=total: mx.sum(mx.vmap(total)(x)))(rows)
            alone = mx.stack([mx.grad(total)(each) for each in rows])
            assert error_of(together, alone) <= row.float64_error


@pytest.mark.parametrize("name", ["qr", "svd", "eigh", "lu", "lu_factor"])
def test_decompositions_give_their_matrices_back_in_float64(name):
    for (a,), _, found, _ in cases(find(name)):
        if name == "qr":
            again = found[0] @ found[1]
        elif name == "svd":
            if len(found) == 1:
                continue
            u, s, vt = found
            again = (u[..., : s.shape[-1]] * s[..., None, :]) @ vt[..., : s.shape[-1], :]
        elif name == "eigh":
            values, vectors = found
            again = (vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2)
        elif name == "lu":
            p, lower, upper = found
            again = mx.take_along_axis(lower, p[..., None].astype(mx.int32), axis=-2) @ upper
        else:
            packed, wanted = found[0], run(find("lu"), [a], {})[2]
            least = min(a.shape[-2:])
            assert error_of(mx.triu(packed)[..., :least, :], wanted) <= FLOAT64_ERROR
            continue
        assert error_of(again, a) <= FLOAT64_ERROR


def test_complex_eigenvalues_are_as_accurate_as_the_table_says():
    row = find("eig")
    for (a,), _, found, _ in cases(row):
        matrix, values, vectors = (np.array(each).astype(complex) for each in (a, *found))
        (alone,) = run(find("eigvals"), [a], {})
        left, right = matrix @ vectors, vectors * values[..., None, :]
        assert FLOAT64_ERROR < error_of(left, right) <= row.float64_error
        assert error_of(np.array(alone), values) <= row.float64_error


def cos_near_its_zeros():
    return [(at + 0.5) * math.pi for at in range(-5, 5)]


ANY = [*np.random.default_rng(1).uniform(-5, 5, 200), 0.0, 1e-9, -1e-300]
FUNCTIONS = {
    "exp": (math.exp, [*ANY, *np.linspace(-700, 700, 101)]),
    "exp2": (lambda x: 2.0**x, [*ANY, *np.linspace(-1000, 1000, 101)]),
    "sin": (math.sin, [*ANY, math.pi, -math.pi, 1e6, 1e15]),
    "cos": (math.cos, [*ANY, *cos_near_its_zeros(), 1e6, 1e15]),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), [*ANY, *np.linspace(-700, 700, 101)]),
    "erf": (math.erf, [*ANY, *np.linspace(-1.1, 1.1, 101), 7.0, -30.0]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_elementary_functions_have_the_last_digits_everywhere(name):
    exact, places = FUNCTIONS[name]
    (found,) = run(find(name), [mx.array(places, mx.float64)], {})
    wanted = [exact(place) for place in places]
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-15, atol=1e-308)


def test_erfinv_has_the_last_digits_near_its_ends():
    near = [-(10.0**-at) for at in range(1, 16)]
    ends = [1 - 10.0**-at for at in range(1, 16)]
    rest = np.random.default_rng(2).uniform(-1, 1, 200)
    for places in (near, ends, rest):
        (found,) = run(find("erfinv"), [mx.array(places, mx.float64)], {})
        for place, out in zip(places, found.tolist(), strict=True):
            # What is off, over the derivative.
            off = math.erf(out) - place if place < 0.5 else (1 - place) - math.erfc(out)
            slope = 2 / math.sqrt(math.pi) * math.exp(-out * out)
            assert abs(off) / slope <= 1e-15 * abs(out) + 2e-16 / slope * (place < 0.5)


@pytest.mark.parametrize("name", ["exp", "sin", "cos", "erf", "erfinv", "sigmoid", "exp2", "tan"])
def test_edges_are_those_of_float32(name):
    edges = [0.0, -0.0, math.inf, -math.inf, math.nan, 800.0, -800.0, 1.0, -1.0, 2.0]
    (found,) = run(find(name), [mx.array(edges, mx.float64)], {})
    (wanted,) = run(find(name), [mx.array(edges)], {})
    with np.errstate(over="ignore"):
        narrow = np.array(found).astype(np.float32)
    np.testing.assert_allclose(narrow, np.array(wanted), rtol=1e-5, atol=1e-38)


EDGES = [-math.inf, -math.inf, 1.0, 2.0, -800.0, 800.0]


@pytest.mark.parametrize(
    "name, attributes",
    [
        ("logsumexp", {}),
        ("softmax", {"axis": 0}),
        ("logcumsumexp", {}),
        ("logcumsumexp", {"reverse": True, "inclusive": False}),
    ],
)
@pytest.mark.parametrize("values", [EDGES, [-math.inf] * 2, [math.inf, 1.0], [1e3, -1e3, math.nan]])
def test_sums_of_exponentials_have_the_edges_of_float32(name, attributes, values):
    row = find(name)
    given = attributes_of(row, attributes)
    (found,) = run(row, [mx.array(values, mx.float64)], given)
    (wanted,) = run(row, [mx.array(values)], given)
    np.testing.assert_allclose(np.array(found), np.array(wanted), rtol=1e-5)


def test_logaddexp_of_infinities():
    infinite = mx.array([math.inf, -math.inf, -math.inf, 1.0], mx.float64)
    other = mx.array([math.inf, -math.inf, math.inf, -math.inf], mx.float64)
    (found,) = run(find("logaddexp"), [infinite, other], {})
    assert found.tolist() == [math.inf, -math.inf, math.inf, 1.0]


@pytest.mark.parametrize("shape, causal, mask", [
    ((2, 4, 3, 8), True, None),
    ((2, 4, 7, 8), True, None),
    ((1, 2, 3, 8), False, "bool"),
    ((2, 4, 1, 8), False, "float64"),
])  # fmt: skip
def test_attention_is_that_of_float32(shape, causal, mask):
    """Groups of heads, more queries than keys, and queries that see no key at all."""
    row = find("scaled_dot_product_attention")
    rng = np.random.default_rng(0)
    q = rng.normal(size=shape)
    k, v = (rng.normal(size=(shape[0], 2, 5, size)) for size in (8, 6))
    given = None if mask is None else rng.normal(size=(shape[2], 5))
    if mask == "bool":
        given = given > 0
        given[0] = False
    found = []
    for dtype in (mx.float64, mx.float32):
        kind = mx.bool_ if mask == "bool" else dtype
        arrays = [mx.array(each, dtype) for each in (q, k, v)]
        arrays.append(None if given is None else mx.array(given, kind))
        found += run(row, arrays, attributes_of(row, {"causal": causal}))
    np.testing.assert_allclose(np.array(found[0]), np.array(found[1]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["exp", "cos", "erf", "erfinv", "sigmoid", "log_softmax", "gelu"])
def test_rows_and_second_derivatives_are_accurate(name):
    row = find(name)
    attributes = attributes_of(row, {"axis": -1} if name == "log_softmax" else {})

    def total(x):
        return mx.sum(row.compute([x], attributes)[0] * mx.arange(1.0, 4.0).astype(mx.float64))

    def slope(x):
        return mx.sum(mx.square(mx.grad(total)(x)))

    drawn = random.Random(1)
    x = mx.array([[drawn.uniform(-0.9, 0.9) for _ in range(3)] for _ in range(4)], mx.float64)
    rows = mx.vmap(mx.grad(slope))(x)
    alone = mx.stack([mx.grad(slope)(line) for line in x])
    assert error_of(rows, alone) <= FLOAT64_ERROR
    towards = mx.array([1.0, -0.5, 0.25], mx.float64)
    for line, second in zip(x, alone, strict=True):
        far, near = (
            (slope(line + step * towards) - slope(line - step * towards)).item()
            for step in (2 * STEP, STEP)
        )
        by_points = (8 * near - far) / (12 * STEP)
        assert abs(mx.sum(second * towards).item() - by_points) <= 1e-7 * max(1, abs(by_points))


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.name.startswith("random_")])
def test_random_numbers_have_the_digits_of_float64(name):
    row = find(name)
    if "dtype" not in {attribute.name for attribute in row.attributes} or name == "random_randint":
        return
    given = attributes_of(row, {"shape": [4000], "dtype": "float64"})
    (wide,) = row.compute([mx.random.key(3)], given)
    assert wide.dtype == mx.float64
    numbers = np.array(wide)
    assert np.mean(numbers == numbers.astype(np.float32)) < 0.01
    narrow = np.array(row.compute([mx.random.key(3)], {**given, "dtype": "float32"})[0])
    for part in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert abs(np.mean(numbers <= np.quantile(narrow, part)) - part) < 0.05


@pytest.mark.parametrize("name", [row.name for row in ROWS if row.name.startswith("random_")])
def test_random_numbers_of_many_keys_are_those_of_each(name):
    """With mlx 0.32.4, rows of shifts by one number are wrong where they lie in another order."""
    row = find(name)
    if "dtype" not in {attribute.name for attribute in row.attributes} or name == "random_randint":
        return
    given = attributes_of(row, {"shape": [], "dtype": "float64"})

    def drawn(key):
        return row.compute([key], given)[0]

    keys = mx.random.split(mx.random.key(3), 15).reshape(3, 5, 2)
    alone = mx.stack([mx.stack([drawn(key) for key in line]) for line in keys])
    assert mx.array_equal(mx.vmap(mx.vmap(drawn))(keys), alone)
    assert mx.array_equal(mx.vmap(mx.vmap(drawn), in_axes=1, out_axes=1)(keys), alone)


def test_other_dtypes_are_mlx_s():
    """Bit for bit, so that nothing else gets slower or changes."""
    a = mx.random.normal((64,), key=mx.random.key(0))
    for dtype in (mx.float32, mx.float16, mx.bfloat16):
        given = a.astype(dtype)
        for name in ("exp", "sin", "cos", "erf", "sigmoid", "logsumexp", "logcumsumexp"):
            own, theirs = getattr(elementary, name)(given), getattr(mx, name)(given)
            assert own.dtype == theirs.dtype and mx.array_equal(own, theirs)


def test_every_operation_with_float64_has_a_reference():
    assert [
        row.name for row in WITH if not reference_of(row.name) and row.name not in BY_PROPERTY
    ] == []
