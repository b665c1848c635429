"""Short runs, which the engine computes without waiting for another thread."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.signatures import EHANDLE, EINVAL

X, W, B = value("x", ["rows", 6]), value("w", [6, 6]), value("b", [6])
MLP = [
    node("z", "matmul", "x", "w"),
    node("s", "add", "z", "b"),
    node("r", "relu", "s"),
    node("y", "matmul", "r", "w"),
]
NETWORKS: dict[str, list[dict[str, Any]]] = {
    "one operation": [node("y", "add", "x", "b")],
    "chain": [node("e", "exp", "x"), node("f", "sin", "e"), node("y", "multiply", "f", "b")],
    "mlp": MLP,
    "views": [
        node("d", "multiply", "x", "x"),
        node("t", "transpose", "d"),
        node("r", "reshape", "t", shape=[-1, 6]),
        node("y", "add", "r", "b"),
    ],
    "softmax": [*MLP[:-1], node("y", "softmax", "r", axis=[-1])],
    "a turned result": [node("d", "multiply", "x", "b"), node("y", "transpose", "d")],
    "an input": [node("n", "negative", "x"), node("y", "stop_gradient", "x")],
    "other operations": [node("c", "cumsum", "x", axis=0), node("y", "subtract", "c", "b")],
}


def program_of(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    return graph([X, W, B], [*nodes, node("total", "sum", "y")], ["y", "total"])


def short(nodes: list[dict[str, Any]]) -> dict[str, Any]:
    return graph([X, W, B], nodes, ["y"])


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def given(rows: int = 3, seed: int = 0) -> list[np.ndarray]:
    return [numbers(rows, 6, seed=seed), numbers(6, 6, seed=seed + 1), numbers(6, seed=seed + 2)]


def plainly(name: str, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The result by numpy."""
    relu = np.maximum(x @ w + b, 0)
    weights = np.exp(relu - relu.max(-1, keepdims=True))
    return {
        "one operation": x + b,
        "chain": np.sin(np.exp(x)) * b,
        "mlp": relu @ w,
        "views": (x * x).T.reshape(-1, 6) + b,
        "a turned result": (x * b).T,
        "an input": x,
        "softmax": weights / weights.sum(-1, keepdims=True),
        "other operations": np.cumsum(x, axis=0) - b,
    }[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_runs_give_numpys_results(programs, arrays, name):
    """Inputs are in host memory or arrays; the first and later runs are waited for or submitted."""
    program = programs.create(short(NETWORKS[name]))
    for rows in (3, 3, 3, 1, 3, 3):
        host = given(rows, seed=rows)
        wanted = plainly(name, *host)
        out = np.zeros(wanted.shape, np.float32)
        programs.run(program, host, [out])
        assert out == pytest.approx(wanted, rel=1e-4, abs=1e-5)
        handles = [arrays.create(one) for one in host]
        found = [programs.run(program, handles, 1, submit=submit)[0] for submit in (False, True)]
        for handle in found:
            arrays.wait(handle)
            assert arrays.read(handle).tobytes() == out.tobytes()
        for handle in (*handles, *found):
            arrays.free(handle)
    programs.free(program)


@pytest.mark.parametrize("name", ["chain", "mlp", "softmax"])
def test_gradients_and_rows_are_the_same_each_time(programs, name):
    program = programs.create(program_of(NETWORKS[name]))
    gradient = programs.derive(program, gradient={"of": "total", "with_respect_to": ["x", "b"]})
    batched = programs.derive(program, vectorize={"x": 0}, dimension="batch")
    host = given()
    stacked = [np.stack([host[0], host[0][::-1]]), *host[1:]]
    seen = set()
    for _ in range(4):
        found = [np.zeros((3, 6), np.float32), np.zeros(6, np.float32)]
        programs.run(gradient, host, found)
        both = np.zeros((2, 3, 6), np.float32)
        totals = np.zeros(2, np.float32)
        programs.run(batched, stacked, [both, totals])
        assert both[0] == pytest.approx(plainly(name, *host), rel=1e-4, abs=1e-5)
        assert both[1] == pytest.approx(both[0][::-1], rel=1e-5, abs=1e-6)
        seen.add(b"".join(one.tobytes() for one in (*found, both, totals)))
    assert len(seen) == 1
    for each in (program, gradient, batched):
        programs.free(each)


def test_a_number_that_is_not_finite_is_found_in_each_run(programs):
    program = programs.create(short(NETWORKS["chain"]))
    fine, wrong = given(), given()
    wrong[0][1, 2] = 1000
    out = np.zeros((3, 6), np.float32)
    for _ in range(3):
        programs.run(program, fine, [out], check_finite=True)
        with pytest.raises(StatusError) as error:
            programs.run(program, wrong, [out], check_finite=True)
        assert (error.value.status, error.value.details["node"]) == (EINVAL, "e")
        programs.run(program, wrong, [out])
        assert np.isnan(out[1, 2])
    programs.free(program)


def test_a_repeated_run_is_checked_as_the_first_was(programs, arrays):
    program = programs.create(short(NETWORKS["mlp"]))
    host, out = given(), np.zeros((3, 6), np.float32)
    handles = [arrays.create(one) for one in host]
    wrong = {
        "too few": (host[:2], [out], "inputs"),
        "too many": ([*host, host[0]], [out], "inputs"),
        "a dtype": ([host[0].astype(np.float64), *host[1:]], [out], "x"),
        "a shape": ([host[0], host[1][:5], host[2]], [out], "w"),
        "a rank": ([host[0][0], *host[1:]], [out], "x"),
        "an output's dtype": (host, [out.astype(np.int32)], "outputs[0].host"),
        "an output's shape": (host, [np.zeros((3, 5), np.float32)], "outputs[0].host"),
        "no output": (handles, [], "outputs"),
        "a handle": ([handles[0], handles[1], 1 << 40], 1, None),
    }
    for _ in range(3):
        programs.run(program, host, [out])
        (result,) = programs.run(program, handles, 1)
        assert arrays.read(result).tobytes() == out.tobytes()
        arrays.free(result)
        for what, (inputs, outputs, argument) in wrong.items():
            with pytest.raises(StatusError) as error:
                programs.run(program, inputs, outputs)
            status = EHANDLE if argument is None else EINVAL
            assert error.value.status == status, what
            assert error.value.details.get("argument") in (argument, None), what
    for handle in handles:
        arrays.free(handle)
    programs.free(program)


def test_a_donated_array_is_given_up_by_a_repeated_run_too(programs, arrays):
    program = programs.create(short(NETWORKS["one operation"]))
    x, w, b = given()
    rest = [arrays.create(one) for one in (w, b)]
    for number in range(4):
        for donate in ([], [0]):
            handle = arrays.create(x + number)
            (result,) = programs.run(program, [handle, *rest], 1, donate=donate)
            assert arrays.read(result).tobytes() == (x + number + b).tobytes()
            arrays.free(result)
            if donate:
                with pytest.raises(StatusError) as error:
                    arrays.read(handle)
                assert error.value.status == EHANDLE
            else:
                arrays.free(handle)
    for handle in rest:
        arrays.free(handle)
    programs.free(program)


@pytest.mark.parametrize("rows", [1, 2_000, 3_000, 60_000])
@pytest.mark.parametrize("strided", [False, True])
def test_the_memory_of_a_host_is_read_in_each_run(programs, rows, strided):
    """Short and long inputs, whose elements lie where the kernels read them or do not."""
    program = programs.create(short(NETWORKS["one operation"]))
    x = np.zeros((rows, 12), np.float32)[:, ::2] if strided else np.zeros((rows, 6), np.float32)
    rest, out = given()[1:], np.zeros((rows, 6), np.float32)
    for number in range(4):
        x[:] = np.arange(rows)[:, None] * number
        programs.run(program, [x, *rest], [out])
        assert out.tobytes() == (x + rest[1]).tobytes()
    programs.free(program)


@pytest.mark.parametrize("rows", [3, 3_000])
@pytest.mark.parametrize("op", ["stop_gradient", "transpose", "reshape", "slice", "contiguous"])
def test_results_have_no_memory_of_the_host(programs, arrays, rows, op):
    attributes = {"reshape": {"shape": [-1]}, "slice": {"start": [0, 1], "stop": [rows, 4]}}
    nodes = [node("s", "negative", "x"), node("y", op, "x", **attributes.get(op, {}))]
    program = programs.create(graph([value("x", [rows, 6])], nodes, ["y", "s"]))
    x = numbers(rows, 6)
    for _ in range(3):
        given = x.copy()
        found = programs.run(program, [given], 2)
        assert given.tobytes() == x.tobytes()
        given[:] = 0
        wanted = {"transpose": x.T, "slice": x[:, 1:4]}.get(op, x)
        assert arrays.read(found[0]).tobytes() == np.ascontiguousarray(wanted).tobytes()
        assert arrays.read(found[1]).tobytes() == (-x).tobytes()
        for handle in found:
            arrays.free(handle)
    programs.free(program)


@pytest.mark.parametrize("shape", [[1], [1, 1]])
@pytest.mark.parametrize("op", ["squeeze", "reshape"])
def test_a_result_without_axes_is_repeated(programs, arrays, op, shape):
    attributes = {"shape": []} if op == "reshape" else {}
    nodes = [node("y", op, "x", **attributes), node("z", "add", "y", "y")]
    program = programs.create(graph([value("x", shape)], nodes, ["y", "z"]))
    for number in range(4):
        x = np.full(shape, number, np.float32)
        found = programs.run(program, [x], 2)
        x[:] = -1
        assert [arrays.read(handle).item() for handle in found] == [number, 2 * number]
        for handle in found:
            arrays.free(handle)
    programs.free(program)


@pytest.mark.parametrize("count", [1_000, 2_000_000])
def test_memory_that_others_share_is_read_by_a_repeated_run(programs, arrays, count):
    """The engine copies it, in turns if it is long."""
    program = programs.create(graph([value("x", [count])], [node("y", "negative", "x")], ["y"]))
    x = np.arange(count, dtype=np.float32)
    for shared in (False, False, True, True, False):
        handle = arrays.create(x)
        exported = arrays.to_dlpack(handle) if shared else 0
        (result,) = programs.run(program, [handle], 1)
        assert arrays.read(result).tobytes() == (-x).tobytes()
        if shared:
            arrays.free(arrays.from_dlpack(exported))
        for each in (handle, result):
            arrays.free(each)
    programs.free(program)


def test_bound_arrays_and_many_types_are_repeated(programs, arrays):
    program = programs.create(short(MLP))
    host = given()
    bound = programs.derive(program, bind={"w": arrays.create(host[1])})
    for _ in range(3):
        for rows in range(1, 21):
            x = numbers(rows, 6, seed=rows)
            out = np.zeros((rows, 6), np.float32)
            programs.run(bound, [x, host[2]], [out])
            assert out == pytest.approx(plainly("mlp", x, *host[1:]), rel=1e-4, abs=1e-5)
    assert programs.info(bound)["longest_turn"] > 0
    for each in (program, bound):
        programs.free(each)


def test_arrays_above_the_bound_are_computed_as_before(programs):
    program = programs.create(short(NETWORKS["chain"]))
    host = given(rows=100_000)
    out = np.zeros((100_000, 6), np.float32)
    for _ in range(3):
        programs.run(program, host, [out])
        np.testing.assert_allclose(out, plainly("chain", *host), rtol=1e-4, atol=1e-5)
    programs.free(program)


def test_a_cancel_ends_no_later_run_and_a_free_all(programs):
    program = programs.create(short(MLP))
    host, out = given(), np.zeros((3, 6), np.float32)
    for _ in range(3):
        assert programs.cancel(program) == 0
        programs.run(program, host, [out])
        assert out == pytest.approx(plainly("mlp", *host), rel=1e-4, abs=1e-5)
    programs.free(program)
    with pytest.raises(StatusError) as error:
        programs.run(program, host, [out])
    assert error.value.status == EHANDLE


def test_threads_have_their_own_results(programs, lib, calf):
    """A context generates meanwhile, and its kernels use the same threads."""
    program = programs.create(short(MLP))
    failures: list[np.ndarray] = []
    barrier = threading.Barrier(5)

    def compute(number: int) -> None:
        host, out = given(number + 1, seed=number), np.zeros((number + 1, 6), np.float32)
        wanted = plainly("mlp", *host)
        barrier.wait()
        for _ in range(60):
            programs.run(program, host, [out])
            if not np.allclose(out, wanted, rtol=1e-4, atol=1e-5):
                failures.append(out.copy())
            out[:] = 0

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    context = lib.context(calf)
    barrier.wait()
    first = lib.generate(context, [1, 2, 3], max_tokens=16).text
    for thread in threads:
        thread.join()
    lib.reset(context)
    assert lib.generate(context, [1, 2, 3], max_tokens=16).text == first
    lib.free(context)
    assert failures == []
    programs.free(program)
