"""Dimensions of ONNX networks: their names, arithmetic on them, and shapes that they decide."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import info, model, program_of, run, weight

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported

node = helper.make_node
INT32, INT64 = TensorProto.INT32, TensorProto.INT64


def whole(name: str, *numbers: int) -> Any:
    return weight(name, np.array(numbers, np.int64))


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize("ones", [0, 1, 2])
def test_more_ones_than_axes_stay(ones: int):
    """In the sum of a transpose and an array of one element."""
    nodes = [node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Add", ["t", "c"], ["y"])]
    added = np.full((1, 1, *[1] * ones), 2, "float32")
    made = model(nodes, [info("x", [2, 3])], [info("y", [])], [weight("c", added)])
    x = np.arange(6, dtype="float32").reshape(2, 3)
    (found,) = run(program_of(made), x=x)
    assert found.tolist() == (x.T + added).tolist()


def expansion(own: Any, *wanted: int) -> Any:
    return model(
        [node("Expand", ["x", "s"], ["y"])],
        [info("x", [own])],
        [info("y", [])],
        [whole("s", *wanted)],
    )


def test_an_axis_that_may_be_1_is_not_expanded():
    with pytest.raises(Unsupported, match="whether its axis of n is 1 or 5 is not known"):
        program_of(expansion("n", 5))
    assert run(program_of(expansion("n", 5), n=1), x=zeros(1))[0].shape == (5,)
    assert run(program_of(expansion("n", 2, 1)), x=zeros(3))[0].shape == (2, 3)
    with pytest.raises(BadFormat, match="expands an axis of 3 to 5"):
        program_of(expansion(3, 5))


def test_expanding_to_a_dimension_of_its_own():
    nodes = [node("Shape", ["x"], ["s"]), node("Expand", ["x", "s"], ["y"])]
    made = model(nodes, [info("x", ["n", 2])], [info("y", [])])
    assert run(program_of(made), x=zeros(3, 2))[0].shape == (3, 2)


def arithmetic(steps: list[Any], weights: list[Any], kind: int = INT64) -> Any:
    """Return a network whose result is y, of s, the sides of x."""
    nodes = [node("Shape", ["x"], ["s"]), *steps]
    return model(nodes, [info("x", ["n", "m"])], [info("y", [2], kind)], weights)


@pytest.mark.parametrize("n", [0, 2, 9])
def test_quotients_of_dimensions_are_cut(n: int):
    """(n - 5) / 2 is rounded towards 0, also where it is below 0."""
    steps = [node("Sub", ["s", "five"], ["d"]), node("Div", ["d", "two"], ["y"])]
    made = arithmetic(steps, [whole("five", 5), whole("two", 2)])
    found = run(program_of(made), x=zeros(n, 4))[0]
    assert found.tolist() == [int((n - 5) / 2), 0]


def test_dimensions_are_numbers_that_may_be_below_0():
    """Half of each, squared, less 9."""
    steps = [
        node("Div", ["s", "two"], ["d"]),
        node("Mul", ["d", "d"], ["q"]),
        node("Sub", ["q", "nine"], ["y"]),
    ]
    made = arithmetic(steps, [whole("nine", 9), whole("two", 2)])
    assert run(program_of(made), x=zeros(5, 9))[0].tolist() == [-5, 7]


def test_quotients_of_sides_that_are_numbers_are_cut():
    steps = [node("Sub", ["s", "five"], ["d"]), node("Div", ["d", "two"], ["y"])]
    nodes = [node("Shape", ["x"], ["s"]), *steps]
    made = model(
        nodes, [info("x", ["n", 2])], [info("y", [2], INT64)], [whole("five", 5), whole("two", 2)]
    )
    assert run(program_of(made), x=zeros(9, 2))[0].tolist() == [2, -1]


def test_numbers_over_dimensions_are_computed_in_a_run():
    made = arithmetic([node("Div", ["seven", "s"], ["y"])], [whole("seven", 7, -7)])
    assert run(program_of(made), x=zeros(2, 2))[0].tolist() == [3, -3]


@pytest.mark.parametrize("op", ["Max", "Min"])
def test_the_greater_of_two_dimensions_is_computed_in_a_run(op: str):
    made = arithmetic([node(op, ["s", "five"], ["y"])], [whole("five", 5)])
    wanted = [9, 5] if op == "Max" else [5, 2]
    assert run(program_of(made), x=zeros(9, 2))[0].tolist() == wanted


def test_quotients_that_are_exact_stay_dimensions():
    """Half of the elements of x is a shape."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Mul", ["s", "four"], ["t"]),
        node("Div", ["t", "two"], ["u"]),
        node("Tile", ["x", "pair"], ["z"]),
        node("Reshape", ["z", "u"], ["y"]),
    ]
    weights = [whole("four", 4), whole("two", 2), whole("pair", 2, 2)]
    made = model(nodes, [info("x", ["n", 3])], [info("y", [])], weights)
    assert run(program_of(made), x=zeros(2, 3))[0].shape == (4, 6)


STEPS: dict[str, list[Any]] = {
    "Mul": [node("Mul", ["c", "three"], ["y"])],
    "Gather": [node("Gather", ["c", "at"], ["y"])],
    "Slice": [node("Slice", ["c", "zero", "two"], ["y"])],
    "Concat": [
        node("Concat", ["c", "three"], ["d"], axis=0),
        node("Slice", ["d", "zero", "two"], ["y"]),
    ],
    "Reshape": [node("Reshape", ["c", "pair"], ["d"]), node("Squeeze", ["d", "zero"], ["y"])],
    "Expand": [
        node("Expand", ["c", "pair"], ["d"]),
        node("ReduceMax", ["d", "zero"], ["y"], keepdims=0),
    ],
    "Where": [node("Where", ["on", "c", "three"], ["y"])],
    "a result": [node("Identity", ["c"], ["y"])],
    "an operand": [node("Add", ["c", "z"], ["y"])],
}


@pytest.mark.parametrize("op", STEPS)
def test_dimensions_keep_their_type(op: str):
    """Sides as int32, beside other values of int32."""
    steps = [node("Cast", ["s"], ["c"], to=INT32), *STEPS[op]]
    weights = [
        weight("three", np.int32([3])),
        whole("at", 1, 0),
        whole("zero", 0),
        whole("two", 2),
        whole("pair", 1, 2),
        weight("on", np.array([True, True])),
    ]
    nodes = [node("Shape", ["x"], ["s"]), *steps]
    inputs = [info("x", ["n", "m"]), info("z", [2], INT32)]
    made = model(nodes, inputs, [info("y", [2], INT32)], weights)
    given = {"x": zeros(4, 5), "z": np.int32([1, 2])}
    found = run(program_of(made), **given)[0]
    assert found.dtype == np.int32
    wanted = {"Mul": [12, 15], "Gather": [5, 4], "an operand": [5, 7]}.get(op, [4, 5])
    assert found.tolist() == wanted


def from_the_end(*side: str) -> Any:
    """Return a network that takes as many of x as other has, from its end."""
    nodes = [
        node("Shape", ["other"], ["s"]),
        node("Mul", ["s", "less"], ["start"]),
        node("Slice", ["x", "start", "end"], ["y"]),
    ]
    inputs = [info("other", ["m"]), info("x", side)]
    return model(nodes, inputs, [info("y", [])], [whole("less", -1), whole("end", 2**31 - 1)])


def test_a_slice_from_the_end():
    x = np.arange(5, dtype="float32")
    assert run(program_of(from_the_end("2*m+1")), x=x, other=zeros(2))[0].tolist() == [3, 4]
    with pytest.raises(Unsupported, match="whether -m is within an axis of n is not known"):
        program_of(from_the_end("n"))


def test_a_slice_from_the_end_by_a_dimension_of_0_is_empty():
    """Its shape is that of a dimension, though ONNX would take all of it."""
    program = program_of(from_the_end("2*m+1"))
    assert program.outputs[0].spec.shape == program.inputs[0].spec.shape
    assert run(program, x=zeros(1), other=zeros(0))[0].tolist() == []


def test_what_ends_before_it_begins_is_empty():
    """A slice from m to 0, and a range to -m."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Slice", ["x", "s", "zero"], ["y"]),
        node("Mul", ["s", "less"], ["t"]),
        node("Squeeze", ["t"], ["end"]),
        node("Range", ["start", "end", "one"], ["z"]),
    ]
    numbers = [weight("start", np.array(0)), weight("one", np.array(1))]
    made = model(
        nodes,
        [info("x", ["m"])],
        [info("y", []), info("z", [], INT64)],
        [whole("zero", 0), whole("less", -1), *numbers],
    )
    assert [len(each) for each in run(program_of(made), x=zeros(3))] == [0, 0]


def test_texts_of_dimensions_that_are_alike():
    """They are different dimensions, though programs have no points in their names."""
    inputs = [info("a", ["b.c"]), info("x", ["b_c"]), info("y", [None]), info("z", ["y_0"])]
    nodes = [node("Neg", [name], [f"of_{name}"]) for name in "axyz"]
    made = model(nodes, inputs, [info(f"of_{name}", []) for name in "axyz"])
    program = program_of(made)
    shapes = [str(each.spec.shape[0]) for each in program.inputs]
    assert len(set(shapes)) == 4
    assert (shapes[1], shapes[3]) == ("b_c", "y_0")
    lengths = dict(zip("axyz", range(1, 5), strict=True))
    results = run(program, **{name: zeros(length) for name, length in lengths.items()})
    assert [len(result) for result in results] == [1, 2, 3, 4]
    fixed = program_of(made, **{"b.c": 7, "b_c": 8, shapes[2]: 9})
    assert [each.spec.shape[0] for each in fixed.inputs][:3] == [7, 8, 9]


def test_a_value_has_the_shape_that_is_declared():
    inputs = [info("x", ["n", 2]), info("z", ["n"])]
    nodes = [node("ReduceSum", ["x", "one"], ["s"], keepdims=0), node("Add", ["s", "z"], ["y"])]
    made = model(nodes, inputs, [info("y", ["n"])], [whole("one", 1)])
    with pytest.raises(InvalidArgument, match="for the input 'x', must be numbers for float32"):
        program_of(made, x=[[1, 2, 3]])
    program = program_of(made, x=[[1, 2], [3, 4], [5, 6]])
    assert program.inputs[0].spec.shape == (3,)
    assert run(program, z=np.ones(3, "float32"))[0].tolist() == [4, 8, 12]
    with pytest.raises(InvalidArgument, match="for the input 'z'"):
        program_of(made, x=[[1, 2]], z=[1, 2])
