"""Bad programs and bad runs: one clear error each, nothing changed, and the runtime goes on."""

from __future__ import annotations

import json
from ctypes import byref, c_int32, pointer

import numpy as np
import pytest
from support import signatures
from support.arrays import tensor
from support.callbacks import StatusError
from support.programs import graph, node, value
from support.signatures import EHANDLE, EINVAL

X = value("x", [2, 3])
GOOD = graph([X], [node("y", "exp", "x")], ["y"])


def with_nodes(*nodes, outputs=("y",), inputs=(X,), **more):
    return graph(list(inputs), list(nodes), list(outputs), **more)


NESTED = graph(
    [X],
    [node("y", "call", "x", function="f0")],
    ["y"],
    functions=[
        graph(
            [X],
            [node("y", "call", "x", function=f"f{number + 1}")]
            if number < 99
            else [node("y", "exp", "x")],
            ["y"],
            name=f"f{number}",
        )
        for number in range(100)
    ],
)
PROGRAMS = {
    "an unknown operation": (with_nodes(node("y", "expp", "x")), ["y", "expp", "exp"]),
    "a name used twice": (with_nodes(node("y", "exp", "x"), node("y", "sin", "x")), ["'y'"]),
    "a cycle": (with_nodes(node("y", "exp", "z"), node("z", "exp", "y")), ["cycle", "'y'"]),
    "a missing input": (with_nodes(node("y", "exp", "w")), ["'w'", "exp"]),
    "wrong arity": (with_nodes(node("y", "add", "x")), ["add", "1", "2"]),
    "an attribute of the wrong type": (
        with_nodes(node("y", "sum", "x", axis="first")),
        ["sum", "axis", "first"],
    ),
    "an unknown attribute": (with_nodes(node("y", "sum", "x", axes=0)), ["sum", "axes"]),
    "shapes that cannot meet": (
        with_nodes(node("y", "add", "x", "w"), inputs=(X, value("w", [4]))),
        ["add", "3", "4"],
    ),
    "rank 9": (with_nodes(inputs=(value("y", [1] * 9),)), ["9", "8"]),
    "a negative dimension": (with_nodes(inputs=(value("y", [-1]),)), ["-1"]),
    "a dimension above int32": (with_nodes(inputs=(value("y", [2**31]),)), ["2147483648"]),
    "an unknown dtype": (with_nodes(inputs=(value("y", [1], "float31"),)), ["float31"]),
    "no such output": (with_nodes(node("z", "exp", "x")), ["'y'"]),
    "functions in each other without end": (NESTED, ["32"]),
    "a list": ([1, 2], ["list", "object"]),
    "an unknown key": ({**GOOD, "edges": []}, ["edges"]),
    "a maximum of nothing": (
        with_nodes(node("y", "max", "x"), inputs=(value("x", [0]),)),
        ["max"],
    ),
}
TEXTS = {
    "no JSON": b"{",
    "nothing": b"",
    "text that is no UTF-8": b'{"inputs": "\xff"}',
    "1e400": json.dumps(GOOD).replace("[2, 3]", "[1e400]").encode(),
    "100,000 nested objects": b'{"inputs":' * 100_000,
    "100 MB": b'{"inputs": "' + b"a" * 100_000_000 + b'"}',
    "100,000 functions": (
        b'{"functions": ['
        + b",".join(
            b'{"name":"%d","nodes":[{"name":"y","op":"call","attributes":{"function":"%d"}}],'
            b'"outputs":["y"]}' % (at, at + 1)
            for at in range(100_000)
        )
        + b'], "outputs": ["y"]}'
    ),
    "a key twice": b'{"inputs": [], "inputs": [], "nodes": [], "outputs": []}',
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_bad_programs(programs, what):
    program, words = PROGRAMS[what]
    with pytest.raises(StatusError) as error:
        programs.create(program)
    assert error.value.status == EINVAL
    for word in words:
        assert word in error.value.message
    check_that_all_goes_on(programs)


@pytest.mark.parametrize("what", TEXTS)
def test_bad_texts(programs, what):
    with pytest.raises(StatusError) as error:
        programs.create(TEXTS[what])
    assert error.value.status == EINVAL
    check_that_all_goes_on(programs)


@pytest.fixture
def program(programs):
    """Two inputs that share a dimension, and an operation with indices."""
    made = programs.create(
        graph(
            [value("x", ["n"]), value("i", ["n"], "int32")],
            [node("y", "take", "x", "i"), node("l", "log", "y")],
            ["y", "l"],
        )
    )
    yield made
    programs.free(made)


X3, I3 = np.ones(3, np.float32), np.zeros(3, np.int32)
RUNS = {
    "too few inputs": ([X3], 2, ["1 inputs", "must have 2"]),
    "too many inputs": ([X3, I3, I3], 2, ["3 inputs"]),
    "no inputs": ([], 2, ["0 inputs"]),
    "too few outputs": ([X3, I3], 1, ["1 outputs", "must have 2"]),
    "too many outputs": ([X3, I3], 3, ["3 outputs"]),
    "another dtype": ([I3, I3], 2, ["'x'", "int32", "float32"]),
    "another rank": ([X3.reshape(3, 1), I3], 2, ["'x'"]),
    "dimensions that disagree": ([X3, np.zeros(4, np.int32)], 2, ["n is 3", "(4)"]),
    "an index out of range": ([X3, I3 + 70000], 2, ["take", "70000", "position 0"]),
    "an index below the range": ([X3, I3 - 4], 2, ["-4"]),
    "memory of another shape": (
        [X3, I3],
        [np.zeros(4, np.float32), None],
        ["outputs[0].host", "[4]", "[3]"],
    ),
    "memory of another dtype": (
        [X3, I3],
        [None, np.zeros(3, np.float64)],
        ["outputs[1].host", "float64", "float32"],
    ),
}


@pytest.mark.parametrize("what", RUNS)
def test_bad_runs(programs, program, what):
    inputs, outputs, words = RUNS[what]
    with pytest.raises(StatusError) as error:
        programs.run(program, inputs, outputs)
    assert error.value.status == EINVAL
    for word in words:
        assert word in error.value.message
    check_that_all_goes_on(programs)


def test_numbers_that_are_not_finite(programs, program):
    zeros = np.zeros(3, np.float32)
    (y, low) = (np.ones(3, np.float32), np.ones(3, np.float32))
    with pytest.raises(StatusError, match="log") as error:
        programs.run(program, [zeros, I3], [y, low], check_finite=True)
    assert (error.value.status, error.value.details["node"]) == (EINVAL, "l")
    programs.run(program, [zeros, I3], [y, low])
    assert np.isneginf(low).all()


@pytest.mark.parametrize(
    "members",
    [
        {"bytes": 11},
        {"offset": 1},
        {"offset": 2**64 - 1},
        {"shape": [2**62]},
        {"strides": [2**62]},
        {"strides": [-1]},
        {"shape": [-3]},
        {"rank": 9},
        {"rank": -1},
        {"dtype": 0},
        {"dtype": 99},
        {"struct_size": 3},
        {"data": None},
    ],
    ids=str,
)
@pytest.mark.parametrize("role", ["inputs", "outputs"])
def test_tensors_that_are_wrong(programs, program, role, members):
    for name in ("shape", "strides"):
        if name in members:
            members = {**members, name: (signatures.c_int64 * 1)(*members[name])}
    own = np.ones(3, np.float32)
    bad, good = tensor(own, **members), [tensor(own), tensor(I3)]
    inputs, outputs = (signatures.cow_mlx_value * 2)(), (signatures.cow_mlx_value * 2)()
    inputs[0].host, inputs[1].host = pointer(good[0]), pointer(good[1])
    (inputs if role == "inputs" else outputs)[0].host = pointer(bad)
    status = programs.c.cow_mlx_program_run(program, inputs, 2, outputs, 2, None)
    assert status == EINVAL
    assert f"{role}[0].host" in programs.lib.message()
    assert not outputs[0].array and not outputs[1].array
    assert (own == 1).all()
    check_that_all_goes_on(programs)


def test_values_that_are_neither_or_both(programs, program, arrays):
    handle = arrays.create(X3)
    host = tensor(X3)
    inputs, outputs = (signatures.cow_mlx_value * 2)(), (signatures.cow_mlx_value * 2)()
    for array, memory in ((0, None), (handle, pointer(host))):
        inputs[0].array, inputs[0].host = array, memory
        assert programs.c.cow_mlx_program_run(program, inputs, 2, outputs, 2, None) == EINVAL
        assert "inputs[0]" in programs.lib.message()
    inputs[0].host = None
    inputs[1].host = pointer(tensor(I3))
    outputs[1].array = handle
    assert programs.c.cow_mlx_program_run(program, inputs, 2, outputs, 2, None) == EINVAL
    assert "outputs[1]" in programs.lib.message()
    assert outputs[1].array == handle
    with pytest.raises(StatusError, match="submit"):
        programs.run(program, [handle, I3], [np.zeros(3, np.float32), None], submit=True)
    arrays.free(handle)


def test_counts_that_are_mistakes(programs, program):
    inputs = (signatures.cow_mlx_value * 2)()
    for counts in ((2**64 - 1, 2), (2, 2**64 - 1), (65537, 2)):
        status = programs.c.cow_mlx_program_run(program, inputs, counts[0], inputs, counts[1], None)
        assert status == EINVAL


def test_handles_of_other_kinds(programs, program, arrays, lib, calf):
    array = arrays.create(X3)
    for wrong in (array, calf, 0, -1, program + 1):
        with pytest.raises(StatusError) as error:
            programs.run(wrong & 0x7FFFFFFF, [X3, I3], 2)
        assert error.value.status == EHANDLE
    for wrong in (program, array + 1, 1, -1, 2**53):
        with pytest.raises(StatusError) as error:
            programs.run(program, [wrong, I3], 2)
        assert error.value.status == EHANDLE
    freed = programs.create(GOOD)
    programs.free(freed)
    out = c_int32()
    assert programs.c.cow_mlx_program_free(freed) == EHANDLE
    assert programs.c.cow_mlx_program_derive(freed, b"{}", 2, byref(out)) == EHANDLE
    assert programs.cancel(freed) == EHANDLE
    assert programs.cancel(calf) == EHANDLE
    arrays.free(array)


SPECS = {
    "no object": "[]",
    "nothing": "{}",
    "two at once": '{"vectorize": {"x": 0}, "gradient": {}}',
    "an unknown output": '{"gradient": {"of": "z", "with_respect_to": ["x"]}}',
    "an unknown input": '{"gradient": {"of": "s", "with_respect_to": ["z"]}}',
    "a gradient of integers": '{"gradient": {"of": "s", "with_respect_to": ["i"]}}',
    "what it does not depend on": '{"gradient": {"of": "s", "with_respect_to": ["u"]}}',
    "no scalar": '{"gradient": {"of": "y", "with_respect_to": ["x"]}}',
    "an axis out of range": '{"vectorize": {"x": 2}}',
    "no handle": '{"bind": {"x": "y"}}',
    "a truth value": '{"bind": {"x": true}}',
}


@pytest.fixture
def loss(programs):
    made = programs.create(
        graph(
            [value("x", [3]), value("i", [3], "int32"), value("u", [3])],
            [node("y", "take", "x", "i"), node("s", "sum", "y"), node("z2", "exp", "u")],
            ["s", "y", "z2"],
        )
    )
    yield made
    programs.free(made)


@pytest.mark.parametrize("what", SPECS)
def test_bad_derivations(programs, loss, what):
    with pytest.raises(StatusError) as error:
        programs.derive(loss, SPECS[what])
    assert error.value.status == EINVAL
    check_that_all_goes_on(programs)


def test_derivations_that_bind_other_arrays(programs, loss, arrays):
    with pytest.raises(StatusError) as error:
        programs.derive(loss, bind={"x": 7})
    assert error.value.status == EHANDLE
    array = arrays.create(np.zeros(4, np.float32))
    with pytest.raises(StatusError, match="'x'") as error:
        programs.derive(loss, bind={"x": array})
    assert error.value.status == EINVAL
    arrays.free(array)


def check_that_all_goes_on(programs):
    """Programs are made and run as ever."""
    program = programs.create(GOOD)
    out = np.zeros((2, 3), np.float32)
    programs.run(program, [np.zeros((2, 3), np.float32)], [out])
    assert (out == 1).all()
    programs.free(program)
