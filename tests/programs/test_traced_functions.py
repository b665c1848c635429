"""Functions of Python become programs that compute what mlx computes."""

from __future__ import annotations

import json
import operator
from concurrent.futures import ThreadPoolExecutor

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from support.mlxfn_files import load, name_of

from cowmlx import program
from cowmlx.errors import InputOutput, InvalidArgument
from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import arrays_of
from cowmlx.programs.operations.row import OperationError


def declared(array: mx.array) -> tuple[str, list[int]]:
    return name_of(array), list(array.shape)


def numbers(*shape: int) -> mx.array:
    return mx.random.normal(shape, key=mx.random.key(sum(shape)))


def same(got: mx.array, wanted: mx.array, error: float = 1e-6) -> bool:
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return False
    if mx.issubdtype(got.dtype, mx.inexact):
        return mx.allclose(got, wanted, rtol=error, atol=error, equal_nan=True).item()
    return mx.array_equal(got, wanted).item()


def results_of(made: program.TracedProgram, *inputs: mx.array) -> list[mx.array]:
    names = [each.name for each in made.program.inputs]
    found = made.run(**dict(zip(names, inputs, strict=True)))
    return list(found.values()) if isinstance(found, dict) else [found]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_example_of_an_operation(row):
    for at, example in enumerate(row.examples):
        arrays = arrays_of(example)
        given = {f"i{place}": each for place, each in enumerate(arrays) if each is not None}

        def function(arrays=arrays, example=example, **inputs):
            values = [inputs.get(f"i{place}") for place in range(len(arrays))]
            found = program.apply(row.name, *values, **example.attributes)
            return found if isinstance(found, tuple) else [found]

        made = program.trace(function, {name: declared(each) for name, each in given.items()})
        wanted = row.compute(row.arranged(arrays), attributes_of(row, example.attributes))
        got = results_of(made, *given.values())
        assert len(got) == len(wanted)
        assert all(map(same, got, wanted)), f"example {at}"


OPERATORS = [
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"),
    *("lt", "le", "gt", "ge", "eq", "ne"),
]


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "int32", "uint8", "complex64"])
def test_operators_with_values_arrays_and_numbers(name, dtype):
    """Types are mlx's, also beside a number on either side."""
    function, kind = getattr(operator, name), getattr(mx, dtype)
    x = mx.array([1, 2, 3]).astype(kind)
    others = [mx.array([2, 1, 3]).astype(kind), np.array([2.0, 1.0, 3.0], "float32")]
    others += [] if name == "matmul" else [2, 0.5, True]
    for other in others:
        for turned in (False, True):

            def called(x, other=other, turned=turned):
                if isinstance(x, mx.array) and isinstance(other, np.ndarray):
                    other = mx.array(other)
                if isinstance(x, program.Value) and isinstance(other, mx.array):
                    other = program.constant(other)
                return function(other, x) if turned else function(x, other)

            try:
                with mx.stream(mx.cpu):
                    wanted = called(x)
                    mx.eval(wanted)
            except (ValueError, TypeError):
                continue  # mlx has none
            if not isinstance(wanted, mx.array):
                continue
            try:
                made = program.trace(lambda x, called=called: called(x), {"x": (dtype, [3])})
            except OperationError as error:  # the table has fewer types than mlx
                assert "cannot" in str(error) or "must be" in str(error), error
                continue
            assert same(made.run(x=x), wanted), (other, turned)


def test_signs_and_methods():
    x = mx.array([[1.5, -2.0], [-0.5, 4.0]])
    made = program.trace(
        lambda x, n: [-x, abs(x), ~n, x.T, x.sum(axis=1), x.reshape(shape=[-1]), program.exp(x)],
        {"x": declared(x), "n": ("int32", [2])},
    )
    n = mx.array([3, -4])
    wanted = [-x, mx.abs(x), mx.bitwise_invert(n), x.T, x.sum(1), x.reshape(-1), mx.exp(x)]
    assert all(map(same, made.run(x=x, n=n).values(), wanted))


def test_a_change_in_place_is_one_of_all_names():
    """In mlx ``y += 1`` changes the array that ``y`` names, and so whatever names it, too."""

    def function(x, n):
        y, m = x, n
        y += 1
        m <<= 2
        y *= n
        return [x, +y, m >> 1, n << m]

    made = program.trace(function, {"x": ("float32", [3]), "n": ("int32", [3])})
    got = made.run(x=[1.0, 2.0, 3.0], n=[1, 2, 3])
    wanted = function(mx.array([1.0, 2.0, 3.0]), mx.array([1, 2, 3]))
    assert all(map(same, got.values(), wanted))


def test_numbers_that_a_dtype_does_not_hold_are_refused():
    for dtype, number in [("uint8", 300), ("uint8", -1), ("int8", 2**40), ("float32", 10**400)]:
        with pytest.raises(InvalidArgument, match=f"a number of {dtype} is .*, must be"):
            program.trace(lambda x, number=number: x + number, {"x": (dtype, [3])})
    made = program.trace(lambda x: [x + 2**63, program.constant(0)], {"x": ("uint64", [1])})
    assert made.run(x=mx.array([1], mx.uint64))["output_0"].tolist() == [2**63 + 1]
    made = program.trace(
        lambda n: program.while_loop(lambda i: i < n, lambda i: i + 1, [2**40]),
        {"n": ("int64", [])},
    )
    assert made.run(n=mx.array(2**40 + 2)).tolist() == 2**40 + 2


@pytest.mark.filterwarnings("error")
def test_numbers_beyond_a_float_are_infinite(tmp_path):
    """As in mlx, and without a word of numpy."""
    given = [1e39, -1e39, complex("inf-2j")]
    for dtype in ("float16", "bfloat16", "float32", "complex64"):
        made = program.trace(lambda x: [x + each for each in given], {"x": (dtype, [1])})
        made.save(str(tmp_path / f"{dtype}.json"))
        x = mx.ones((1,), getattr(mx, dtype))
        got = load(tmp_path / f"{dtype}.json").run([x]).finish()
        wanted = [x + each for each in given]
        assert [str(each) for each in got] == [str(each) for each in wanted]


INDICES = [
    np.int64(-1), slice(np.int64(1), None, np.int32(2)),
    0, -1, slice(1, 3), slice(None, None, -1), slice(-1, 0, -2), slice(3, None), Ellipsis, None,
    (0, 1), (slice(None), 2), (..., -1), (None, 0, None), (1, ..., None), (slice(None), None, -3),
    (slice(1, None, 2), slice(None, None, -2), 0), (..., slice(0, 1), 2), [2, 0],
    np.array([[1], [3]]),
]  # fmt: skip


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_an_index_chooses_what_numpy_s_chooses(index):
    x = np.arange(60, dtype="float32").reshape(4, 3, 5)
    made = program.trace(lambda x: x[index], {"x": ("float32", [4, 3, 5])})
    assert np.array_equal(np.array(made.run(x=x)), x[index])


@pytest.mark.parametrize("index", [0, -2, (slice(None), 1), (..., None), (2, 0), [0, 2]], ids=str)
def test_an_index_into_rows_that_a_run_counts(index):
    x = np.arange(12, dtype="float32").reshape(4, 3)
    made = program.trace(lambda x: x[index], {"x": ("float32", ["rows", 3])})
    assert np.array_equal(np.array(made.run(x=x)), x[index])


def test_a_network_its_gradient_and_its_files(tmp_path):
    """Weights are parameters; the file is what the library loads."""
    mx.random.seed(1)
    first, last = nn.Linear(4, 8), nn.Linear(8, 3)
    weights = {"w1": first.weight, "b1": first.bias, "w2": last.weight, "b2": last.bias}

    def loss(x, y, w1, b1, w2, b2):
        logits = program.gelu(x @ w1.T + b1) @ w2.T + b2
        return {"loss": program.cross_entropy(logits, y).mean(), "logits": logits}

    made = program.trace(loss, {"x": ("float32", ["rows", 4]), "y": ("int32", ["rows"])}, weights)
    x, y = numbers(5, 4), mx.array([0, 2, 1, 1, 0])
    logits = last(nn.gelu(first(x)))
    wanted = nn.losses.cross_entropy(logits, y, reduction="mean")
    found = made.run(x=x, y=y)
    assert same(found["loss"], wanted, 1e-5) and same(found["logits"], logits, 1e-5)
    with pytest.raises(InvalidArgument, match=r"must end with \.json"):
        made.save(str(tmp_path / "network.txt"))
    made.save(str(tmp_path / "network.json"))
    loaded = load(tmp_path / "network.json")
    assert [each.name for each in loaded.inputs] == ["x", "y", *weights]
    gradient = loaded.derive(
        json.dumps({"gradient": {"of": "loss", "with_respect_to": ["w1", "b2"], "value": False}})
    )
    slopes = gradient.run([x, y, *weights.values()]).finish()

    def of_mlx(w1, b2):
        hidden = nn.gelu(x @ w1.T + first.bias)
        return nn.losses.cross_entropy(hidden @ last.weight.T + b2, y, reduction="mean")

    assert all(map(same, slopes, mx.grad(of_mlx, (0, 1))(first.weight, last.bias), [1e-5] * 2))


def test_control_flow_reads_values_around_it():
    def function(n, x):
        twice = x * 2
        grown = program.while_loop(lambda at, t: at < n, lambda at, t: [at + 1, t * twice], [0, x])
        chosen = program.cond(n > 2, lambda: [x + twice, n], lambda: [x - twice, n * 0])
        nested = program.scan(
            lambda total, row: [
                total + program.cond(row > 0, lambda: row * twice, lambda: -row),
                total * n.astype(dtype="float32"),
            ],
            [program.zeros(shape=[], dtype="float32")],
            [program.stack(x, -x, x)],
        )
        return [*grown, *chosen, *nested]

    made = program.trace(function, {"n": ("int32", []), "x": ("float32", [])})
    found = [each.tolist() for each in made.run(n=3, x=mx.array(1.5)).values()]
    assert found == [3, 40.5, 4.5, 3, 10.5, [0.0, 13.5, 18.0]]
    assert [each.tolist() for each in made.run(n=1, x=mx.array(1.5)).values()][2:4] == [-1.5, 0]


def test_arrays_that_are_captured_are_constants():
    table = mx.array([[1.0, 2.0], [3.0, 4.0]]).astype(mx.bfloat16)
    made = program.trace(
        lambda x: x @ table.astype(mx.float32) + np.array([1, 2], "float32"),
        {"x": ("float32", [2])},
    )
    assert made.run(x=[1.0, 1.0]).tolist() == [5.0, 8.0]
    assert program.trace(lambda x: x + table, {"x": ("bfloat16", [2])}).run(
        x=mx.array([1.0, 1.0], mx.bfloat16)
    ).tolist() == [[2.0, 3.0], [4.0, 5.0]]


def test_arrays_and_lists_have_mlx_s_dtypes():
    given = [np.ones(3), np.ones(3, "float16"), [1, 2, 3], [0.5, 1, 2], [True, False, True]]
    made = program.trace(lambda x: [x + each for each in given], {"x": ("bfloat16", [3])})
    x = mx.array([1, 2, 3], mx.bfloat16)
    wanted = [x + mx.array(each) for each in given]
    assert all(map(same, made.run(x=x).values(), wanted))
    made = program.trace(lambda x: [x.take([2, 0]), program.stack([x, x])], {"x": ("int32", [3])})
    assert made.run(x=[5, 6, 7])["output_0"].tolist() == [7, 5]


def test_results_may_have_the_names_of_operations():
    """Values of these names get others, also where control flow reads them."""

    def function(x, y):
        total = x + y
        chosen = program.cond(x[0] > 0, lambda: total * 2, lambda: total)
        parts = program.split(chosen, indices_or_sections=3)
        return {"add": x * y, "multiply": total, "cond": parts[1], "constant": chosen, "split": x}

    made = program.trace(function, {"x": ("float32", [3]), "y": ("float32", [3])})
    x, y = mx.array([1.0, 2.0, 3.0]), mx.array([4.0, 5.0, 6.0])
    found = {name: each.tolist() for name, each in made.run(x=x, y=y).items()}
    assert found == {
        "add": [4, 10, 18],
        "multiply": [5, 7, 9],
        "cond": [14],
        "constant": [10, 14, 18],
        "split": [1, 2, 3],
    }


X = {"x": ("float32", [3])}


def test_a_value_is_known_in_its_function_alone():
    kept = []
    program.trace(lambda x: kept.append(x + 1) or x, X)

    def leaves(x):
        program.cond(x[0] > 0, lambda: kept.append(x * 2) or x, lambda: x)
        return kept[-1] + 1

    for function in (lambda x: x + kept[0], leaves):
        with pytest.raises(InvalidArgument, match="outside of the function that computes it"):
            program.trace(function, X)


@pytest.mark.parametrize(
    ("function", "parameters", "said"),
    [
        (lambda x, w: x, {"w": mx.zeros((3,))}, "does not use the parameter 'w'"),
        (lambda x: x, {"x": mx.zeros((3,))}, "have one name"),
        (lambda x: x + np.zeros((600, 600), "float32"), {}, "make larger arrays parameters"),
        (lambda x: x + np.array(["a"]), {}, "is no value, array or number"),
        (lambda x: x + None, {}, "add"),
        (lambda x: {"y": x, "x": x * 2}, {}, "the result 'x' has the name of an input"),
        (lambda x: [x, "text"], {}, "'text' is no value, array or number"),
        (lambda x: [], {}, "outputs is empty"),
        (lambda x: program.scan(lambda c: c, [x], []), {}, "scan needs one sequence at least"),
        (lambda x: program.scan(lambda c, e: c, [x], [x[0]]), {}, "each with an axis"),
        (lambda x: program.scan(lambda c, e: c + x, [x[0]], [x]), {}, "scan: a function returns"),
        (
            lambda x: program.while_loop(lambda: True, lambda: [], []),
            {},
            "needs one carry at least",
        ),
        (lambda x: program.while_loop(lambda t: t, lambda t: t, [x]), {}, r"must be bool\(\)"),
        (lambda x: program.cond(x > 0, lambda: x, lambda: x), {}, r"must be bool\(\)"),
        (lambda x: x[3], {}, "an index has 3 for axis 0 of 3"),
        (lambda x: x[0, 0], {}, "an index has 2 axes, the value has 1"),
        (lambda x: x["a"], {}, "an index has 'a'"),
        (lambda x: x[x.argmax() :], {}, "a slice has Value.*dynamic_slice"),
        (lambda x: x[0.5:], {}, "a slice has 0.5"),
        (lambda x: program.cond(x[0] > 0, lambda: [], list), {}, "returns nothing"),
        (lambda x: program.scan(lambda e: (), [], [x]), {}, "returns nothing"),
        (lambda x, w: x * w, {"w": np.ones(3)}, "'w' is ndarray, must be an array of mlx"),
        (lambda x: x.reshape(shape=[2]), {}, "reshape"),
        (lambda x: x.softmax(axes=0), {}, "has no attribute 'axes'"),
        (lambda x: program.cond(x[0] > 0, lambda: x, lambda: x[0]), {}, "cond: a function returns"),
        (
            lambda x: program.while_loop(lambda t: t[0] < 3, lambda t: t > 0, [x]),
            {},
            "while_loop: a function returns bool",
        ),
    ],
)
def test_what_cannot_be_traced_is_refused(function, parameters, said):
    with pytest.raises(InvalidArgument, match=said):
        program.trace(function, X, parameters)
    for outside in (lambda: program.add(1, 2), lambda: program.cond(True, lambda: 1, lambda: 2)):
        with pytest.raises(InvalidArgument, match=r"in a function that trace\(\) calls"):
            outside()


@pytest.mark.parametrize(
    ("dtype", "shape", "said"),
    [
        ("float", [3], "must be one of bool"),
        ("float32", ["2 rows"], "is no dimension"),
        ("float32", [2.5], "must be a dtype and a list"),
        ("float32", None, "must be a dtype and a list"),
    ],
)
def test_wrong_declarations_are_refused(dtype, shape, said):
    with pytest.raises(InvalidArgument, match=said):
        program.trace(lambda x: x, {"x": (dtype, shape)})


def test_values_have_no_elements():
    def branches(x):
        return x if x[0] > 0 else -x

    def takes_apart(x):
        a, _, _ = x
        return a

    for function in (branches, takes_apart):
        with pytest.raises(TypeError, match="has no elements before a run"):
            program.trace(function, X)
    with pytest.raises(AttributeError, match="frobnicate"):
        program.trace(lambda x: x.frobnicate(), X)
    with pytest.raises(AttributeError, match="frobnicate"):
        program.frobnicate  # noqa: B018


def test_runs_name_what_they_lack():
    made = program.trace(lambda x: x, X)
    with pytest.raises(InvalidArgument, match="lacks the input x"):
        made.run()
    with pytest.raises(InvalidArgument, match="run has 'y', which is no input; inputs are x"):
        made.run(x=[1.0, 2.0, 3.0], y=1)


def test_an_input_may_have_any_name():
    made = program.trace(lambda self: self + 1, inputs={"self": ("float32", [2])})
    assert made.run(self=mx.array([1.0, 2.0])).tolist() == [2, 3]


def test_files_are_written_together_or_not_at_all(tmp_path):
    """A failure leaves the earlier program with its values."""
    path = tmp_path / "made.json"
    program.trace(lambda x, w: x * w, X, {"w": mx.ones((3,))}).save(str(path))
    earlier = {each.name: each.read_bytes() for each in tmp_path.iterdir()}
    with pytest.raises(InvalidArgument, match=r"made.safetensors would be read as values"):
        program.trace(lambda x: x * 2, X).save(str(path))
    (tmp_path / "made.json.partial").mkdir()  # so that the second file cannot be written
    with pytest.raises(InputOutput, match="cannot write"):
        program.trace(lambda x, w: x * w, X, {"w": mx.zeros((3,))}).save(str(path))
    (tmp_path / "made.json.partial").rmdir()
    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == earlier


def test_any_thread_may_run_what_another_has_traced():
    """Also with parameters that were not computed yet."""
    weights = {"w": mx.random.normal((3, 2))}
    made = program.trace(lambda x, w: program.exp(x) @ w, {"x": ("float32", ["rows", 3])}, weights)

    def run(count):
        x = mx.ones((count, 3))
        return same(made.run(x=x), mx.exp(x) @ weights["w"], 1e-5)

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(run, range(16)))
