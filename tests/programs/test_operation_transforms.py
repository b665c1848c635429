"""Gradients against central differences, vectorized rows against a loop."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of, spec_of
from cowmlx.programs.operations.row import OperationError, Spec
from cowmlx.programs.operations.rules import name_of
from cowmlx.programs.running.tracing import laid_out

FLOATS = (mx.float32, mx.float64)
STEP = 2e-3
# The root of a variance of 0 has no slope.
NO_SLOPE = {("std", ("float32[]",))}


def arrays(row, example, dtype, seed=0):
    inputs = [
        None
        if text is None
        else array_of(text, 10 * seed + at, dtype if spec_of(text).dtype == "float32" else None)
        for at, text in enumerate(example.inputs)
    ]
    return row.arranged(inputs)


def accepts(row, inputs, attributes):
    specs = [
        each if each is None else Spec(tuple(each.shape), name_of(each.dtype)) for each in inputs
    ]
    try:
        row.infer(specs, attributes)
    except OperationError:
        return False
    return True


def total(row, inputs, attributes, place):
    """A weighted sum of all finite results, as a function of one input."""

    def function(x):
        given = [x if at == place else each for at, each in enumerate(inputs)]
        found = mx.array(0.0, dtype=x.dtype)
        outs = row.compute(given, attributes)
        parts = [
            part
            for out in outs
            for part in ((mx.real(out), mx.imag(out)) if out.dtype == mx.complex64 else (out,))
        ]
        for out in parts:
            if out.dtype in FLOATS:
                weights = mx.cos(mx.arange(out.size).reshape(out.shape)).astype(out.dtype)
                found = found + mx.sum(mx.where(mx.isfinite(out), out, 0) * weights).astype(x.dtype)
        return found

    return function


def slope(function, x, place):
    values = x.reshape(-1).tolist()

    def at(step):
        moved = [*values[:place], values[place] + step, *values[place + 1 :]]
        return function(mx.array(moved, dtype=mx.float64).astype(x.dtype).reshape(x.shape)).item()

    # float32 is for rows that are linear, so a long step is exact.
    step = STEP if x.dtype == mx.float64 else 0.5
    return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.differentiable], ids=lambda row: row.name
)
def test_gradients_are_slopes(row):
    seen = set()
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        inputs = arrays(row, example, "float64")
        if not accepts(row, inputs, attributes):
            inputs = arrays(row, example, "float32")
        for place, x in enumerate(inputs):
            name = row.inputs[min(place, len(row.inputs) - 1)].name
            if x is None or x.dtype not in FLOATS or name not in row.differentiable:
                continue
            function = total(row, inputs, attributes, place)
            gradient = mx.grad(function)(x)
            mx.eval(gradient)
            assert gradient.shape == x.shape and gradient.dtype == x.dtype
            seen.add(name)
            if (row.name, example.inputs) in NO_SLOPE:
                continue
            size = abs(function(x).item())
            for at in range(0, x.size, max(x.size // 3, 1)):
                wanted, found = slope(function, x, at), gradient.reshape(-1)[at].item()
                assert abs(wanted - found) <= 2e-3 * (1 + abs(wanted)) + 2e-4 * size
    assert seen == set(row.differentiable)


@pytest.mark.parametrize(
    "name", ["conv1d", "conv2d", "conv3d", "conv_transpose2d", "conv_general", "layer_norm", "inv"]
)
def test_gradients_in_float32_are_those_in_float64(name):
    """Where float64 takes another road than float32."""
    row = find(name)
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        found = []
        for dtype in ("float32", "float64"):
            inputs = arrays(row, example, dtype)
            for place, x in enumerate(inputs):
                if x is not None:
                    found.append(np.array(mx.grad(total(row, inputs, attributes, place))(x)))
        half = len(found) // 2
        for one, other in zip(found[:half], found[half:], strict=True):
            np.testing.assert_allclose(
                one, other, atol=1e-3 * max(1, np.max(np.abs(other), initial=0))
            )


@pytest.mark.parametrize(
    "name",
    ["inv", "det", "slogdet", "solve", "exp", "multiply", "cholesky", "eigh", "eigvalsh"],
)
def test_second_derivatives_are_slopes_of_the_first(name):
    row = find(name)
    example = row.examples[0]
    attributes = attributes_of(row, example.attributes)
    inputs = arrays(row, example, "float64")
    first = mx.grad(total(row, inputs, attributes, 0))

    def function(x):
        return mx.sum(first(x) * mx.sin(mx.arange(x.size).reshape(x.shape)).astype(x.dtype))

    second = mx.grad(function)(inputs[0]).reshape(-1)
    for at in range(0, second.size, 4):
        wanted = slope(function, inputs[0], at)
        assert abs(wanted - second[at].item()) <= 5e-3 * (1 + abs(wanted))


def test_vectors_of_equal_eigenvalues_have_no_gradient():
    """Their values have one."""
    row, a = find("eigh"), mx.eye(3)

    def function(part, a):
        return mx.sum(row.compute([a], {"UPLO": "L"})[part] * mx.arange(3.0))

    values, vectors = (mx.grad(lambda a, part=part: function(part, a))(a) for part in (0, 1))
    assert mx.all(mx.isfinite(values)).item()
    assert mx.array_equal(mx.isnan(vectors), mx.tril(mx.ones((3, 3))) == 1).item()


BY_VMAP = [row for row in ROWS if row.stacks is None and row.inputs]


@pytest.mark.parametrize("row", BY_VMAP, ids=lambda row: row.name)
def test_vectorized_rows_are_a_loop(row):
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        many = [arrays(row, example, None, seed) for seed in range(3)]
        there = [at for at, each in enumerate(many[0]) if each is not None]

        def function(*live, there=there, many=many, attributes=attributes):
            given = list(many[0])
            for at, each in zip(there, live, strict=True):
                given[at] = laid_out(each)  # as programs do
            checks = row.checks(given, attributes) if row.checks else []
            return [*row.compute(given, attributes), *(check.found for check in checks)]

        together = mx.vmap(function)(*(mx.stack([inputs[at] for inputs in many]) for at in there))
        for seed, inputs in enumerate(many):
            alone = function(*(inputs[at] for at in there))
            assert len(alone) == len(together)
            for one, other in zip(together, alone, strict=True):
                assert one.shape[1:] == other.shape and one.dtype == other.dtype
                kind = mx.complex64 if one.dtype == mx.complex64 else mx.float32
                a, b = (np.array(each.astype(kind)) for each in (one[seed], other))
                np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("name", ["cholesky_inv", "tri_inv", "solve_triangular"])
def test_rows_of_triangular_matrices_read_one_triangle(name, upper):
    row = find(name)
    rest = [mx.ones((3, 2))] if len(row.inputs) == 2 else []
    many = array_of("float32[4,3,3] regular")

    def function(a):
        return row.compute([a, *rest], {"upper": upper})[0]

    triangle = mx.triu(many) if upper else mx.tril(many)
    for axis in (0, 2):
        rows = mx.vmap(function, in_axes=axis)(mx.moveaxis(many, 0, axis))
        np.testing.assert_allclose(rows, [function(each) for each in triangle], atol=1e-5)


BITS = ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"]


@pytest.mark.parametrize("name", BITS)
def test_bits_of_a_constant_and_of_every_row_are_a_loop(name):
    rows, constant = mx.array([[1, 2], [0, 3], [4, 1]]), mx.array([5, 6])
    for place in (0, 1):

        def function(x, place=place):
            inputs = [constant, constant]
            inputs[place] = x
            return find(name).compute(inputs, {})[0]

        for vary in (function, lambda x, function=function: function(x.sum())):
            assert mx.array_equal(mx.vmap(vary)(rows), mx.stack([vary(row) for row in rows]))


@pytest.mark.parametrize("shape", [[], [1], [2, 3], [0]])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64"])
def test_rows_of_random_integers_are_a_loop(shape, dtype):
    row = find("random_randint")
    attributes = attributes_of(row, {"shape": shape, "low": 0, "high": 200, "dtype": dtype})
    keys = mx.array([[0, 1], [1, 0], [0, 0]], mx.uint32)

    def function(key):
        return row.compute([key], attributes)[0]

    wanted = mx.stack([function(key) for key in keys])
    assert mx.array_equal(mx.vmap(function)(keys), wanted)
    assert mx.array_equal(mx.vmap(function, in_axes=1)(keys.transpose()), wanted)


def complex_numbers(seed, shape, low=-1.0, high=1.0):
    """Complex numbers near the real ones of a range, so that roots and logarithms are smooth."""
    source = np.random.default_rng(seed)
    turned = np.exp(1j * source.uniform(-0.7, 0.7, shape))
    return mx.array((source.uniform(low, high, shape) * turned).astype(np.complex64))


def of_complex_numbers(row, example):
    """The inputs of an example with complex numbers for floats, or None if the row takes none."""
    inputs = []
    for at, text in enumerate(example.inputs):
        array = None if text is None else array_of(text, at)
        if array is not None and array.dtype == mx.float32:
            low, high = mx.min(array).item() if array.size else 0, 1
            array = complex_numbers(at, tuple(array.shape), max(low, -1) if low < 0 else 0.5, high)
        inputs.append(array)
    found = row.arranged(inputs)
    taken = any(each is not None and each.dtype == mx.complex64 for each in found)
    return found if taken and accepts(row, found, attributes_of(row, example.attributes)) else None


def real_part(row, inputs, attributes):
    """A weighted sum of real parts, as a function of how far the complex inputs are moved."""
    ways = [
        complex_numbers(50 + at, tuple(each.shape))
        if each is not None and each.dtype == mx.complex64
        else None
        for at, each in enumerate(inputs)
    ]

    def function(t):
        moved = [
            each if way is None else each + t * way for each, way in zip(inputs, ways, strict=True)
        ]
        found = mx.array(0.0)
        for out in row.compute(moved, attributes):
            weights = mx.cos(mx.arange(out.size).reshape(out.shape))
            if out.dtype in (mx.float32, mx.complex64):
                part = mx.real(out)
                found = found + mx.sum(mx.where(mx.isfinite(part), part, 0) * weights)
        return found

    return function


COMPLEX = [
    row
    for row in ROWS
    if row.differentiable
    and not row.name.startswith("random")
    and any(of_complex_numbers(row, example) is not None for example in row.examples)
]


def central(function, step):
    sides = [function(mx.array(each * step)).item() for each in (1, -1, 2, -2)]
    return (8 * (sides[0] - sides[1]) - (sides[2] - sides[3])) / (12 * step)


@pytest.mark.parametrize("row", COMPLEX, ids=lambda row: row.name)
def test_gradients_through_complex_numbers_are_slopes(row):
    for example in row.examples:
        inputs = of_complex_numbers(row, example)
        if inputs is None:
            continue
        function = real_part(row, inputs, attributes_of(row, example.attributes))
        wanted = central(function, 2e-3)
        found = mx.grad(function)(mx.array(0.0)).item()
        assert abs(found - wanted) <= 2e-2 * (1 + abs(wanted))


@pytest.mark.parametrize("name", ["logaddexp", "power", "cumprod"])
def test_complex_gradients_have_rows_and_slopes(name):
    row = find(name)
    example = row.examples[0]
    attributes = attributes_of(row, example.attributes)
    inputs = of_complex_numbers(row, example)
    first = mx.grad(real_part(row, inputs, attributes))
    wanted = central(first, 1e-2)
    assert abs(mx.grad(first)(mx.array(0.0)).item() - wanted) <= 3e-2 * (1 + abs(wanted))

    def slopes(*given):
        return mx.grad(lambda *arrays: mx.sum(mx.real(row.compute(list(arrays), attributes)[0])))(
            *given
        )

    more = [mx.stack([each, 2 * each, each - 0.25], axis=1) for each in inputs]
    together = mx.vmap(slopes, 1, 1)(*more)
    for at in range(3):
        alone = slopes(*(each[:, at] for each in more))
        assert np.allclose(np.array(together[:, at]), np.array(alone), atol=1e-5)


def test_powers_of_a_complex_zero():
    zero, one = mx.array([0j]), mx.array([1 + 0j])
    row = find("power")
    assert row.compute([zero, zero], {})[0].item() == 1
    slope = mx.grad(lambda a: mx.sum(mx.real(row.compute([a, one], {})[0])))(zero)
    assert slope.item() == 1


FINITE = {
    "a hit": (
        "binary_cross_entropy",
        ([1.0, 0.0, 0.5], [1.0, 0.0, 1.0], None),
        {"with_logits": False, "reduction": "sum"},
        [-1.0, 1.0, -2.0],
    ),
    "a miss": (
        "binary_cross_entropy",
        ([1.0, 0.0], [0.0, 1.0], None),
        {"with_logits": False, "reduction": "sum"},
        [0.0, 0.0],
    ),
    "a polynomial": ("power", ([[0.0], [2.0]], [0.0, 1.0, 2.0]), {}, [[1.0], [5.0]]),
    "powers of 0": ("power", ([0.0, 0.0, -2.0], [2.0, 0.0, 3.0]), {}, [0.0, 0.0, 12.0]),
    "a norm": ("norm", ([[0.0, 0.0], [3.0, 4.0]],), {"axis": 1}, [[0.0, 0.0], [0.6, 0.8]]),
    "a norm of ord 2": ("norm", ([0.0, 0.0],), {"ord": 2}, [0.0, 0.0]),
    "an angle": (
        "cosine_similarity_loss",
        ([[0.0, 0.0]], [[0.0, 1.0]]),
        {},
        [[0.0, 1e8]],
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("name", "given", "attributes", "wanted"), FINITE.values(), ids=FINITE)
def test_gradients_are_finite_where_a_function_is_flat(name, given, attributes, wanted, dtype):
    row = find(name)
    first, *others = (None if each is None else mx.array(each, dtype) for each in given)
    attributes = attributes_of(row, attributes)

    def total(x):
        return mx.sum(row.compute([x, *others], attributes)[0])

    np.testing.assert_allclose(mx.grad(total)(first), wanted, rtol=1e-6)
    rows = mx.stack([first, first])
    together = mx.grad(lambda x: mx.sum(mx.vmap(total)(x)))(rows)
    np.testing.assert_allclose(together, [wanted, wanted], rtol=1e-6)


def test_exponents_of_0_have_no_slope():
    row = find("power")
    slopes = mx.grad(lambda b: mx.sum(row.compute([mx.zeros(2), b], {})[0]))(mx.array([0.0, 2.0]))
    assert slopes.tolist() == [0.0, 0.0]
