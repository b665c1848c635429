"""Programs are made, run, described and freed through C; results are plain mlx's.

Products agree within rounding, since kernels compute them.
"""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import endless, graph, node, value
from support.signatures import ECANCELED, EHANDLE, EINVAL

LINEAR = graph(
    [value("x", ["batch", 3]), value("w", [3, 2])],
    [node("z", "matmul", "x", "w"), node("s", "sum", "z", axis=0)],
    ["z", "s"],
)


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_host_memory_in_and_out(programs):
    program = programs.create(LINEAR)
    x, w = numbers(5, 3), numbers(3, 2, seed=1)
    z, s = np.zeros((5, 2), np.float32), np.zeros(2, np.float32)
    assert programs.run(program, [x, w], [z, s]) == [None, None]
    expected = mx.array(x) @ mx.array(w)
    assert z == pytest.approx(np.array(expected), rel=1e-5)
    assert s == pytest.approx(np.array(expected.sum(axis=0)), rel=1e-5)
    programs.free(program)


def test_strided_memory_in_and_out(programs):
    """Views with negative strides are read, and filled where they are."""
    program = programs.create(LINEAR)
    x, w = numbers(4, 6)[::-1, ::2], numbers(2, 3, seed=1).T
    z = np.zeros((4, 4), np.float32)[:, ::-2]
    s = np.zeros(2, np.float32)
    programs.run(program, [x, w], [z, s])
    expected = mx.array(x.copy()) @ mx.array(w.copy())
    assert z == pytest.approx(np.array(expected), rel=1e-5)
    assert not z.base[:, ::2].any()
    programs.free(program)


def test_handles_in_and_out(programs, arrays):
    program = programs.create(LINEAR)
    x, w = numbers(5, 3), numbers(3, 2, seed=1)
    handle = arrays.create(x)
    z, s = programs.run(program, [handle, w], 2)
    assert arrays.type(z) == ("float32", (5, 2))
    assert arrays.read(z) == pytest.approx(np.array(mx.array(x) @ mx.array(w)), rel=1e-5)
    for each in (handle, z, s):
        arrays.free(each)
    programs.free(program)


def test_every_dtype_passes(programs):
    """Also those that numpy has no type for, as their bits, and truth values that are not 1."""
    for dtype in ("uint8", "int64", "float16", "float64", "complex64", "bool"):
        program = programs.create(graph([value("x", [3], dtype)], [], ["x"]))
        x = np.array([1, 0, 3]).astype(dtype)
        out = np.zeros(3, dtype)
        programs.run(program, [x], [out])
        assert np.array_equal(out, x)
        programs.free(program)


def test_scalars_and_empty_arrays(programs):
    program = programs.create(
        graph([value("x", ["n"])], [node("s", "sum", "x"), node("d", "add", "x", "s")], ["s", "d"])
    )
    s, d = np.ones((), np.float32), np.ones(0, np.float32)
    programs.run(program, [np.zeros(0, np.float32)], [s, d])
    assert s == 0
    programs.free(program)


def test_info(programs):
    program = programs.create(LINEAR)
    told = programs.info(program)
    assert told["inputs"][0] == {"name": "x", "dtype": "float32", "shape": ["batch", 3]}
    assert told["dimensions"] == ["batch"]
    assert "run" not in told
    run = programs.info(program, batch=7)["run"]
    assert run["output_bytes"] == 4 * (7 * 2 + 2)
    assert run["multiplications"] >= 7 * 3 * 2
    programs.free(program)


@pytest.mark.parametrize("submit", [False, True])
def test_one_value_twice(programs, arrays, submit):
    """Both handles stand for it, also after one was given up and computed in."""
    program = programs.create(graph([value("x", [4])], [node("y", "exp", "x")], ["y", "y", "x"]))
    double = programs.create(graph([value("x", [4])], [node("y", "add", "x", "x")], ["y"]))
    x = numbers(4)
    one, other, same = programs.run(program, [x], 3, submit=submit)
    (twice,) = programs.run(double, [one], 1, donate=[0])
    for handle, wanted in ((other, np.exp(x)), (same, x), (twice, 2 * np.exp(x))):
        np.testing.assert_allclose(arrays.read(handle), wanted, rtol=1e-6)
        arrays.free(handle)
    first, second = np.zeros(4, np.float32), np.zeros(4, np.float32)
    (last,) = (each for each in programs.run(program, [x], [first, second, None]) if each)
    arrays.free(last)
    assert first.tolist() == second.tolist() != [0] * 4
    programs.free(program)
    programs.free(double)


# e = l - sum(p x)
ENTROPY = [node("m", "multiply", "p", "x"), node("s", "sum", "m"), node("e", "subtract", "l", "s")]


def test_operations_info(programs):
    names = {row["name"] for row in programs.operations()}
    assert {"add", "matmul", "softmax", "conv_general"} <= names
    assert len(names) >= 180
    errors = {row["name"]: row["float64_error"] for row in programs.operations()}
    assert (errors["exp"], errors["eig"], errors["fft"]) == (1e-14, 1e-6, None)


X3 = np.float32([1, 2, 3])
STEPS = np.float32([[1, 2], [3, 4], [5, 6]])
CONTROL_FLOW = {
    "call": ([X3], [2 * X3]),
    "cond": ([X3, np.array(False)], [-X3]),
    "while": ([X3, np.array(0, np.int32)], [X3 + 31.5, np.int32(21)]),
    "scan": (
        [np.float32([8, 16]), STEPS, np.array(0.5, np.float32)],
        [np.float32([7.75, 10.5]), np.float32([[5, 10], [5.5, 9], [7.75, 10.5]])],
    ),
}


def test_operations_info_has_programs_of_control_flow(programs):
    rows = {row["name"]: row for row in programs.operations() if "program" in row}
    assert set(rows) == set(CONTROL_FLOW)
    keys = {frozenset(row) - {"program"} for row in programs.operations()}
    assert len(keys) == 1
    for name, row in rows.items():
        node_of_it = row["program"]["nodes"][0]
        assert node_of_it["op"] == name
        known = {each["name"]: each for each in row["attributes"]}
        assert set(node_of_it["attributes"]) <= set(known)
        functions = {each["name"] for each in row["program"]["functions"]}
        for attribute, value_of_it in node_of_it["attributes"].items():
            assert (known[attribute]["kind"] == "function") == (value_of_it in functions)
        inputs, wanted = CONTROL_FLOW[name]
        program = programs.create(row["program"])
        found = [np.zeros_like(each) for each in wanted]
        programs.run(program, inputs, found)
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(one, other)
        programs.free(program)


def test_derived_programs_keep_the_digits_of_float64(programs):
    """A gradient, and a gradient for each of some rows, of a softmax's entropy."""
    program = programs.create(
        graph(
            [value("x", [4], "float64")],
            [node("p", "softmax", "x", axis=-1), node("l", "logsumexp", "x"), *ENTROPY],
            ["e"],
        )
    )
    gradient = programs.derive(program, gradient={"of": "e", "with_respect_to": ["x"]})
    rows = programs.derive(gradient, vectorize={"x": 0})
    x = np.random.default_rng(0).normal(size=(3, 4))
    found = np.zeros((3, 4))
    programs.run(rows, [x], [found])
    p = np.exp(x) / np.exp(x).sum(-1, keepdims=True)
    log = np.log(p)
    entropy = -(p * log).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, -p * (log + entropy), rtol=1e-13, atol=1e-15)
    one = np.zeros(4)
    programs.run(gradient, [x[1]], [one])
    np.testing.assert_allclose(one, found[1], rtol=1e-14)
    for each in (program, gradient, rows):
        programs.free(each)


def test_derived_programs(programs, arrays):
    program = programs.create(
        graph(
            [value("x", [4])],
            [node("e", "exp", "x"), node("p", "multiply", "e", "k"), node("l", "sum", "p")],
            ["l"],
            parameters=[value("k", [4])],
        )
    )
    x, k = numbers(4), numbers(4, seed=1)
    gradient = programs.derive(
        program, gradient={"of": "l", "with_respect_to": ["k", "x"], "value": True}
    )
    found = [np.zeros((), np.float32), np.zeros(4, np.float32), np.zeros(4, np.float32)]
    programs.run(gradient, [x, k], found)
    expected, (of_x, of_k) = mx.value_and_grad(lambda x, k: mx.sum(mx.exp(x) * k), argnums=[0, 1])(
        mx.array(x), mx.array(k)
    )
    for ours, theirs in zip(found, [expected, of_k, of_x], strict=True):
        assert np.array_equal(ours, np.array(theirs))
    handle = arrays.create(k)
    bound = programs.derive(gradient, bind={"k": handle})
    arrays.free(handle)
    programs.free(program)
    again = [np.zeros_like(each) for each in found]
    programs.run(bound, [x], again)
    assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True))
    programs.free(gradient)
    programs.free(bound)


def test_donated_arrays_are_freed(programs, arrays):
    program = programs.create(graph([value("x", [1000])], [node("y", "exp", "x")], ["y"]))
    x = numbers(1000)
    handle = arrays.create(x)
    (result,) = programs.run(program, [handle], donate=[0])
    assert np.array_equal(arrays.read(result), np.array(mx.exp(mx.array(x))))
    with pytest.raises(StatusError) as error:
        arrays.type(handle)
    assert error.value.status == EHANDLE
    arrays.free(result)
    programs.free(program)


def test_a_refused_donation_keeps_the_array(programs, arrays):
    program = programs.create(graph([value("x", [2])], [node("y", "exp", "x")], ["y"]))
    handle = arrays.create(numbers(3))
    for donate in ([0], [1], [-1]):
        with pytest.raises(StatusError) as error:
            programs.run(program, [handle], donate=donate)
        assert error.value.status == EINVAL
    with pytest.raises(StatusError, match=r"donate\[0\] is 0, but inputs\[0\] is host memory"):
        programs.run(program, [numbers(2)], donate=[0])
    assert arrays.type(handle) == ("float32", (3,))
    arrays.free(handle)
    programs.free(program)


def test_submitted_runs_chain(programs, arrays):
    """Runs take the results of others that are not there yet."""
    program = programs.create(graph([value("x", [8])], [node("y", "sin", "x")], ["y"]))
    x = numbers(8)
    handle = None
    chain = []
    for _ in range(20):
        given = x if handle is None else handle
        (handle,) = programs.run(program, [given], submit=True)
        chain.append(handle)
        assert arrays.type(handle) == ("float32", (8,))
    arrays.wait(handle)
    expected = mx.array(x)
    for each in chain:
        expected = mx.sin(expected)
        assert np.array_equal(arrays.read(each), np.array(expected))
        arrays.free(each)
    programs.free(program)


def test_an_error_passes_on_to_dependants(programs, arrays):
    take = programs.create(
        graph([value("x", [3]), value("i", [1], "int32")], [node("y", "take", "x", "i")], ["y"])
    )
    after = programs.create(graph([value("x", [1])], [node("y", "sin", "x")], ["y"]))
    x, far = numbers(3), np.array([70000], np.int32)
    (first,) = programs.run(take, [x, far], submit=True)
    (second,) = programs.run(after, [first], submit=True)
    for handle in (first, second):
        with pytest.raises(StatusError, match="70000") as error:
            arrays.wait(handle)
        assert error.value.status == EINVAL
        with pytest.raises(StatusError, match="70000"):
            arrays.read(handle)
    with pytest.raises(StatusError, match="70000"):
        programs.run(after, [second])
    for handle in (first, second):
        arrays.free(handle)
    programs.free(take)
    programs.free(after)


def test_cancel_of_a_submitted_loop(programs, arrays):
    program = programs.create(endless())
    (result,) = programs.run(program, [np.ones((), np.float32)], submit=True)
    with pytest.raises(StatusError) as error:
        arrays.wait(result, 1)
    assert error.value.name == "ETIMEDOUT"
    assert programs.cancel(program) == 0
    with pytest.raises(StatusError, match="cancelled") as error:
        arrays.wait(result)
    assert error.value.status == ECANCELED
    arrays.free(result)
    programs.free(program)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,) * 8, (4, 6)])
def test_every_layout_of_host_memory(programs, shape):
    """No dimensions, no elements, steps backwards, elements that repeat; in and out."""
    program = programs.create(graph([value("x", [*shape])], [node("y", "add", "x", "x")], ["y"]))
    count = int(np.prod(shape))
    plain = np.arange(count, dtype=np.float32).reshape(shape)
    backwards = plain[(..., *(slice(None, None, -1) for _ in shape))]
    repeated = np.broadcast_to(np.float32([7])[0:1].reshape((1,) * len(shape)), shape)
    for x in (plain, backwards, plain.T.copy().T, repeated):
        outputs = np.full([2 * side for side in shape], -1, np.float32)
        every_other = outputs[(..., *(slice(None, None, 2) for _ in shape))]
        programs.run(program, [x], [every_other])
        assert np.array_equal(every_other, x + x)
        every_other[...] = -1
        assert (outputs == -1).all()
    programs.free(program)
