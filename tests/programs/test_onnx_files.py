"""What an ONNX file has beside its nodes: functions, weights that several nodes read, few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import info, model, program_of, run, turns, weight

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs import bounds
from cowmlx.programs.importing import onnx_file

node = helper.make_node
RNG = np.random.default_rng(7)
OWN = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def with_functions(made: Any, *functions: Any) -> Any:
    made.functions.extend(functions)
    made.opset_import.append(OWN[1])
    return made


def parameters(program: Any) -> list[str]:
    return [each.name for each in program.inputs if each.parameter]


def test_functions_of_one_name_have_overloads():
    made = model([node("F", ["x"], ["y"], domain="own")], [info("x", [2])], [info("y", [2])])
    made.graph.node[0].overload = "first"
    functions = [
        helper.make_function("own", "F", ["a"], ["b"], [node(op, ["a"], ["b"])], OWN[:1])
        for op in ("Neg", "Abs")
    ]
    for function, name in zip(functions, ("first", "second"), strict=True):
        function.overload = name
    x = np.float32([-1, 2])
    assert run(program_of(with_functions(made, *functions)), x=x)[0].tolist() == [1, -2]


def test_an_input_that_is_left_out_is_left_out_in_branches():
    """Of a function: its branch clips by a bound that the caller has not."""
    parts = {
        "then_branch": helper.make_graph(
            [node("Clip", ["a", "low", "high"], ["o"])], "then", [], [info("o", [2])]
        ),
        "else_branch": helper.make_graph([node("Neg", ["a"], ["n"])], "e", [], [info("n", [2])]),
    }
    function = helper.make_function(
        "own", "G", ["a", "on", "low", "high"], ["r"], [node("If", ["on"], ["r"], **parts)], OWN[:1]
    )
    made = model(
        [node("G", ["x", "on", "", "high"], ["y"], domain="own")],
        [info("x", [2]), info("on", [], TensorProto.BOOL)],
        [info("y", [2])],
        [weight("high", np.float32(1))],
    )
    program = program_of(with_functions(made, function))
    x = np.float32([-3, 2])
    assert run(program, x=x, on=np.array(True))[0].tolist() == [-3, 1]
    assert run(program, x=x, on=np.array(False))[0].tolist() == [3, -2]


def test_a_weight_of_a_function_is_one_parameter():
    """Which reads it in two layouts."""
    nodes = [
        node("Transpose", ["w"], ["t"]),
        node("MatMul", ["a", "t"], ["b"]),
        node("MatMul", ["b", "w"], ["c"]),
    ]
    function = helper.make_function("own", "F", ["a", "w"], ["c"], nodes, OWN[:1])
    w, x = floats(4, 3), floats(2, 3)
    made = model(
        [node("F", ["x", "w"], ["y"], domain="own")],
        [info("x", [2, 3])],
        [info("y", [2, 3])],
        [weight("w", w)],
    )
    program = program_of(with_functions(made, function))
    assert parameters(program) == ["w"]
    np.testing.assert_allclose(run(program, x=x)[0], x @ w.T @ w, rtol=1e-4)


def test_a_weight_of_a_loop_is_one_parameter():
    """Whose rounds are unrolled."""
    body = helper.make_graph(
        [
            node("Transpose", ["w"], ["t"]),
            node("MatMul", ["a", "t"], ["b"]),
            node("Identity", ["more"], ["go"]),
        ],
        "round",
        [info("at", [], TensorProto.INT64), info("more", [], TensorProto.BOOL), info("a", [2, 3])],
        [info("go", [], TensorProto.BOOL), info("b", [2, 3])],
    )
    w, x = floats(3, 3), floats(2, 3)
    made = model(
        [node("Loop", ["n", "on", "x"], ["y"], body=body)],
        [info("x", [2, 3])],
        [info("y", [2, 3])],
        [weight("w", w), weight("n", np.array(3)), weight("on", np.array(True))],
    )
    program = program_of(made)
    assert parameters(program) == ["w"]
    np.testing.assert_allclose(run(program, x=x)[0], x @ w.T @ w.T @ w.T, rtol=1e-3)


FOUR = {
    "Squeeze": [node("Squeeze", ["z"], ["p"])],
    "Unsqueeze": [node("Unsqueeze", ["z", "zero"], ["q"]), node("Squeeze", ["q"], ["p"])],
    "Reshape": [node("Reshape", ["z", "none"], ["p"])],
    "Transpose": [node("Transpose", ["z"], ["q"]), node("Squeeze", ["q"], ["p"])],
}


@pytest.mark.parametrize("op", FOUR)
def test_four_bits_of_a_zero_point_in_another_shape(op: str):
    nodes = [*FOUR[op], node("QuantizeLinear", ["x", "s", "p"], ["y"])]
    weights = [
        helper.make_tensor("z", TensorProto.INT4, [1, 1], [0]),
        weight("s", np.float32(1)),
        weight("zero", np.array([0])),
        weight("none", np.zeros(0, "int64")),
    ]
    made = model(nodes, [info("x", [2])], [info("y", [2], TensorProto.INT8)], weights)
    assert run(program_of(made), x=np.float32([100, -100]))[0].tolist() == [7, -8]


@pytest.mark.parametrize("like", ["z", "q"])
def test_no_value_is_cast_to_four_bits(like: str):
    """As the zero point of a quantization has them, and its result."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("CastLike", ["x", like], ["y"]),
    ]
    zero = helper.make_tensor("z", TensorProto.INT4, [], [0])
    weights = [zero, weight("s", np.float32(1))]
    with pytest.raises(Unsupported, match=r"\(CastLike\): its result is of int4"):
        program_of(model(nodes, [info("x", [2])], [info("y", [2])], weights))


def test_nodes_that_are_too_many_are_counted_first(monkeypatch):
    """Before their inputs are gone through."""
    monkeypatch.setattr(bounds, "TURN", 0)
    made = model([], [info("x", [2])], [info("y", [2])])
    made.graph.node.extend([node("Neg", ["x"], ["y"])] * (bounds.MAX_NODES + 1))
    with pytest.raises(Unsupported, match="more than 50000 nodes"):
        next(onnx_file.model_steps(made, "/nowhere", {}))


@pytest.mark.parametrize("kind", ["nodes", "sparse"])
def test_what_a_file_lists_is_read_in_turns(kind: str, monkeypatch):
    monkeypatch.setattr(bounds, "TURN", 0)

    def listing(many: int) -> Any:
        body = [node("Neg", ["x"], [f"o{at}"]) for at in range(many)]
        part = helper.make_graph(body, "part", [], [info("o0", [2])])
        nodes = [node("If", ["on"], ["y"], then_branch=part, else_branch=part)]
        if kind == "sparse":
            nodes = [node("Neg", ["x"], ["y"])]
        made = model(nodes, [info("x", [2])], [info("y", [2])], [weight("on", np.array(True))])
        for at in range(many if kind == "sparse" else 0):
            made.graph.sparse_initializer.append(sparse(f"s{at}"))
        return made

    few, many = turns(listing(100)), turns(listing(300))
    # Two graphs of the nodes are counted, and one is converted.
    assert many - few >= (600 if kind == "nodes" else 200)


def sparse(name: str) -> Any:
    values = helper.make_tensor(name, TensorProto.FLOAT, [1], [1.0])
    places = helper.make_tensor("i", TensorProto.INT64, [1], [0])
    return helper.make_sparse_tensor(values, places, [2])


def test_sparse_tensors_are_declared():
    made = model([node("Neg", ["x"], ["y"])], [info("x", [2])], [info("y", [2])])
    made.graph.sparse_initializer.extend([sparse("s")] * bounds.MAX_DECLARED)
    with pytest.raises(BadFormat, match="declares more than 10000 values"):
        turns(made)
