"""Indices out of range and matrices that cannot be taken: told about, and never followed."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.programs.operations import ROWS, find
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import arrays_of, spec_of
from cowmlx.programs.operations.rules import INTEGERS, mlx_dtype

INDEXED = [row for row in ROWS if any(attribute.name == "indices" for attribute in row.attributes)]


def run(name, inputs, **given):
    row = find(name)
    attributes = attributes_of(row, given)
    inputs = row.arranged(inputs)
    found = row.compute(inputs, attributes)
    mx.eval(found)
    errors = [check.look() for check in row.checks(inputs, attributes)]
    return found, [error for error in errors if error is not None]


def test_every_row_that_takes_indices_has_the_attribute():
    """Rows whose examples have integers as inputs, but for those of numbers."""
    numbers = {"comparison and logic", "arithmetic"}
    from cowmlx.programs.operations import FAMILIES

    for family, rows in FAMILIES.items():
        for row in rows:
            takes = {"indices", "targets", "start_indices", "lhs_indices", "rhs_indices"}
            named = takes & {place.name for place in row.inputs}
            kinds = [
                spec_of(text).dtype for example in row.examples for text in example.inputs if text
            ]
            if named and family not in numbers and any(kind in INTEGERS for kind in kinds):
                assert row in INDEXED, row.name


@pytest.mark.parametrize("row", INDEXED, ids=lambda row: row.name)
@pytest.mark.parametrize("dtype", ["int32", "uint8", "int64", "uint64"])
def test_no_index_reads_foreign_memory(row, dtype):
    """Whatever indices say, results are made of the inputs' values, which are 1 to 2."""
    for example in row.examples:
        attributes = attributes_of(row, example.attributes)
        inputs = arrays_of(example)
        far = {"uint8": 255, "int32": 2**31 - 1, "int64": -(2**63), "uint64": 2**63 - 1}[dtype]
        spoilt = False
        for at, text in enumerate(example.inputs):
            spec = text and spec_of(text)
            if spec and spec.dtype in INTEGERS and "bits" not in text:
                full = mx.full(spec.shape, far, dtype=mlx_dtype(dtype))
                inputs[at], spoilt = full, spoilt or full.size > 0
        given = row.arranged(inputs)
        found = row.compute(given, attributes)
        mx.eval(found)
        for each in found:
            assert each.size == 0 or np.max(np.abs(np.array(each))) < 1e4
        errors = [check.look() for check in row.checks(given, attributes)]
        if spoilt:
            shown = [str(error) for error in errors if error is not None]
            assert shown and str(far) in shown[0] and row.name in shown[0]
        clamped = attributes_of(row, {**example.attributes, "indices": "clamp"})
        assert row.checks(given, clamped) == []


def test_the_index_is_named():
    _, errors = run("take", [mx.arange(3), mx.array([[0, -3], [70000, 5]])])
    (error,) = errors
    assert str(error) == ("take: indices has 70000 at position 2 (2 such values), must be -3 to 2")
    assert error.reason == "out_of_range"
    assert error.details == {
        "op": "take",
        "argument": "indices",
        "value": 70000,
        "position": 2,
        "accepted": "-3 to 2",
    }


def test_clamped_indices_are_the_nearest():
    (found,), errors = run(
        "take", [mx.arange(3), mx.array([70000, -70000, -1, 1])], indices="clamp"
    )
    assert found.tolist() == [2, 0, 2, 1] and errors == []


def test_class_ids_do_not_count_from_the_end():
    _, errors = run("cross_entropy", [mx.zeros((2, 3)), mx.array([0, -1])])
    assert "-1 at position 1" in str(errors[0]) and "0 to 2" in str(errors[0])


def test_one_hot_of_a_clamped_index_has_no_one():
    (found,), errors = run("one_hot", [mx.array([1, 9, -1])], num_classes=2, indices="clamp")
    assert found.tolist() == [[0, 1], [0, 0], [0, 0]] and errors == []


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "uint64"])
def test_one_hot_has_classes_up_to_the_greatest_index(dtype):
    kind = mlx_dtype(dtype)
    indices = mx.arange(128 if dtype == "int8" else 256).astype(kind)
    (found,), errors = run("one_hot", [indices], num_classes=300)
    assert mx.array_equal(found, mx.eye(300)[: indices.size]) and errors == []


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(
    ("name", "bound"), [("scatter_max", np.maximum), ("scatter_min", np.minimum)]
)
def test_no_nan_is_lost_where_updates_are_compared(name, bound, dtype):
    nan, kind = float("nan"), mlx_dtype(dtype)
    given, indices = [nan, 1.0, 2.0, 3.0, 4.0], [0, 1, 2, 2, 3, 3]
    updates = [1.0, 9.0, nan, 5.0, 0.0, nan]
    (found,), errors = run(
        name, [mx.array(given, kind), mx.array(indices), mx.array(updates, kind)]
    )
    wanted = np.array(given)
    with np.errstate(invalid="ignore"):
        bound.at(wanted, indices, updates)
    np.testing.assert_array_equal(np.array(found.astype(mx.float32)), wanted)
    assert found.dtype == kind and errors == []


def test_windows_are_moved_inside():
    (found,), errors = run(
        "dynamic_slice", [mx.arange(5), mx.array([4])], slice_size=[3], indices="clamp"
    )
    assert found.tolist() == [2, 3, 4] and errors == []
    _, (error,) = run("dynamic_slice", [mx.arange(5), mx.array([4])], slice_size=[3])
    assert "start_indices[0] has 4" in str(error) and "0 to 2" in str(error)


def test_checks_survive_vmap_and_gradients():
    row = find("take")
    attributes = attributes_of(row, {})

    def function(a, indices):
        given = [a, indices]
        return mx.sum(row.compute(given, attributes)[0]), [
            check.found for check in row.checks(given, attributes)
        ]

    indices = mx.array([[0, 1], [2, 7]])
    a = mx.array([1.0, 2.0, 3.0])
    (template,) = row.checks([a, indices[0]], attributes)
    _, (found,) = mx.vmap(function, in_axes=(None, 0))(a, indices)
    assert "7 at position 1" in str(template.look(found))
    (_, (found,)), gradient = mx.value_and_grad(function)(a, indices[1])
    assert "7 at position 1" in str(template.look(found))
    assert gradient.tolist() == [0, 0, 2]


SAME = {
    "scatter": (
        {"axis": 1},
        mx.array([1, 3, 1, -1, 1]),
        lambda a, i, v: a.__setitem__((slice(None), i), v),
    ),
    "put_along_axis": (
        {"axis": 1},
        mx.array([[1, 3, 1, -1, 1], [0, 0, 0, 0, 0], [4, 3, 2, -1, 3]]),
        lambda a, i, v: np.put_along_axis(a, i, v, 1),
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_of_equal_indices_the_last_counts_and_alone_has_a_gradient(name):
    attributes, indices, put = SAME[name]
    row = find(name)
    whole = attributes_of(row, attributes)
    a, values = mx.random.normal((2, 3, 5), key=mx.random.key(3))
    scale = mx.arange(1.0, 16.0).reshape(3, 5)

    def function(a, values):
        return (row.compute([a, indices, values], whole)[0] * scale).sum()

    wanted = np.array(a)
    put(wanted, np.array(indices), np.array(values))
    (found,), _ = run(name, [a, indices, values], **attributes)
    assert (np.array(found) == wanted).all()
    origins = np.arange(15.0).reshape(3, 5)
    put(origins, np.array(indices), 15 + np.arange(15.0).reshape(3, 5))
    slopes = np.zeros(30)
    slopes[origins.astype(int).reshape(-1)] = np.array(scale).reshape(-1)
    gradients = mx.grad(function, argnums=(0, 1))(a, values)
    assert (np.array(mx.stack(gradients)).reshape(-1) == slopes).all()
    rows = mx.vmap(mx.grad(function, argnums=(0, 1)))(mx.stack([a] * 2), mx.stack([values] * 2))
    for row_wise, alone in zip(rows, gradients, strict=True):
        assert mx.array_equal(row_wise, mx.stack([alone] * 2))


@pytest.mark.parametrize(
    "subscripts, shapes",
    [
        ("ii", [(0, 0)]),
        ("ii->i", [(0, 0)]),
        ("iji,k->k", [(0, 2, 0), (3,)]),
        ("ij,j", [(0, 2), (2,)]),
    ],
)
def test_gradients_of_einsum_of_nothing(subscripts, shapes):
    row = find("einsum")
    attributes = attributes_of(row, {"subscripts": subscripts})
    given = [mx.ones(shape) for shape in shapes]
    _, found = mx.vjp(
        lambda *arrays: [row.compute(list(arrays), attributes)[0].sum()], given, [mx.array(1.0)]
    )
    for gradient, array in zip(found, given, strict=True):
        assert gradient.shape == array.shape
        assert not mx.any(gradient)


@pytest.mark.parametrize(
    "name, value, problem",
    [
        ("inv", [[1.0, 2.0], [2.0, 4.0]], "is not regular"),
        ("inv", [[1.0, float("nan")], [2.0, 4.0]], "is not regular"),
        ("tri_inv", [[0.0, 0.0], [1.0, 1.0]], "is not regular"),
        ("cholesky", [[-1.0, 0.0], [0.0, 1.0]], "is not positive definite"),
        ("cholesky", [[1.0, 2.0], [2.0, 1.0]], "is not positive definite"),
        ("svd", [[1.0, float("inf")], [0.0, 1.0]], "is not finite"),
        ("eig", [[1.0, float("nan")], [0.0, 1.0]], "is not finite"),
        ("eigh", [[1.0, float("nan")], [float("nan"), 1.0]], "is not finite"),
        ("pinv", [[1.0, float("nan")], [0.0, 1.0]], "is not finite"),
        ("qr", [[float("nan")]], "is not finite"),
    ],
)
def test_matrices_that_cannot_be_taken_are_told(name, value, problem, capfd):
    good = mx.eye(len(value))
    _, (error,) = run(name, [mx.stack([good, mx.array(value)])])
    assert str(error) == f"{name}: a {problem} (matrix 1)"
    assert error.details["position"] == 1
    assert run(name, [good])[1] == []
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("name", ["solve", "solve_triangular"])
def test_equations_without_a_solution_are_told(name):
    _, (error,) = run(name, [mx.zeros((2, 2)), mx.ones((2,))])
    assert "is not regular" in str(error)
