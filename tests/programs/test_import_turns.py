"""Networks are imported in turns, however their nodes lie within each other."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import info, model, program_of, run, turns, weight

from cowmlx.programs import bounds
from cowmlx.programs.importing import book
from cowmlx.programs.importing.operators import quantized
from cowmlx.programs.importing.values import Weight

INT64 = TensorProto.INT64
node = helper.make_node


def chain(first: str, last: str, length: int) -> list[Any]:
    names = [first, *(f"{last}_{at}" for at in range(1, length)), last]
    return [node("Neg", [a], [b]) for a, b in pairwise(names)]


def graph(nodes: list[Any], inputs: list[Any], outputs: list[str]) -> Any:
    shapes: dict[str, Any] = {"more": [], "at": []}
    return helper.make_graph(nodes, "part", inputs, [info(o, shapes.get(o, [1])) for o in outputs])


def wrapped(kind: str, length: int) -> Any:
    """Return a network with a chain of nodes within one node."""
    x, y = [info("x", [1])], [info("y", [1])]
    if kind == "function":
        own = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
        made = model([node("F", ["x"], ["y"], domain="d")], x, y)
        made.functions.append(
            helper.make_function("d", "F", ["a"], ["b"], chain("a", "b", length), own[:1])
        )
        made.opset_import.append(own[1])
        return made
    if kind == "If":
        parts = {
            f"{name}_branch": graph(chain("x", name, length), [], [name])
            for name in ("then", "else")
        }
        inputs = [*x, info("c", [], TensorProto.BOOL)]
        return model([node("If", ["c"], ["y"], **parts)], inputs, y)
    if kind == "Loop":
        inputs = [info("at", [], INT64), info("more", [], TensorProto.BOOL), info("a", [1])]
        part = graph(chain("a", "b", length), inputs, ["more", "b"])
        return model(
            [node("Loop", ["n", "", "x"], ["y"], body=part)], x, y, [weight("n", np.array(2))]
        )
    part = graph(chain("a", "b", length), [info("a", [1])], ["b"])
    return model(
        [node("Scan", ["rows"], ["y"], body=part, num_scan_inputs=1)], [info("rows", [3, 1])], y
    )


@pytest.mark.parametrize("kind", ["function", "If", "Loop", "Scan"])
def test_nodes_within_a_node_have_turns(kind, monkeypatch):
    monkeypatch.setattr(bounds, "TURN", 0)
    assert turns(wrapped(kind, 300)) >= turns(wrapped(kind, 100)) + 200


def test_each_output_has_a_turn(monkeypatch):
    """And the nodes are gone through once, not for each output."""
    monkeypatch.setattr(bounds, "TURN", 0)
    nodes = chain("x", "y", 400)
    few, many = (
        turns(
            model(nodes, [info("x", [1])], [info(each.output[0], [1]) for each in nodes[-number:]])
        )
        for number in (100, 200)
    )
    assert few + 100 <= many < few + 200


def test_renamed_outputs_of_one_value():
    """An output has its name alone: nodes that read it read the new name, others a copy."""
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Identity", ["a"], ["b"]),
        node("Neg", ["b"], ["c"]),
        node("Transpose", ["c"], ["d"]),
    ]
    outputs = [info(name, ["n", "m"]) for name in "abcdx"]
    x = np.float32([[1, 2], [3, 4]])
    results = run(program_of(model(nodes, [info("x", [2, 2])], outputs[:4])), x=x)
    for result, wanted in zip(results, (-x, -x, x, x.T), strict=True):
        np.testing.assert_array_equal(result, wanted)


def test_a_weight_in_thousands_of_layouts():
    """Each node changes what the one before has made; reading it is one loop, in turns."""
    w = np.arange(8, dtype="f").reshape(2, 4)
    nodes, last = [], "w"
    for at in range(3001):
        nodes.append(node("Transpose", [last], [f"t{at}"]))
        last = f"t{at}"
    nodes.append(node("MatMul", ["x", last], ["y"]))
    made = model(nodes, [info("x", [1, 4])], [info("y", [1, 2])], [weight("w", w)])
    (result,) = run(program_of(made), x=np.ones((1, 4), "f"))
    np.testing.assert_array_equal(result[0], w.sum(1))


@pytest.mark.parametrize("most", [0, 64, 1 << 25])
def test_what_is_too_much_to_be_computed_at_load_is_left_to_the_run(monkeypatch, most):
    """Tables that every layer makes anew, as exports with fixed shapes have them."""
    monkeypatch.setattr(book, "MAX_FOLDED", most)
    made, last = [], "x"
    for at in range(8):
        made += [
            node("Range", ["zero", "many", "one"], [f"r{at}"]),
            node("Div", [f"r{at}", "many"], [f"d{at}"]),
            node("Cos", [f"d{at}"], [f"c{at}"]),
            node("Mul", [last, f"c{at}"], [f"y{at}"]),
        ]
        last = f"y{at}"
    made.append(node("Identity", [last], ["y"]))
    numbers = [
        weight(name, np.array(n, np.float32)) for name, n in (("zero", 0), ("many", 6), ("one", 1))
    ]
    program = program_of(model(made, [info("x", [6])], [info("y", [6])], numbers))
    x = np.arange(1, 7, dtype=np.float32)
    (found,) = run(program, x=x)
    assert np.allclose(found, x * np.cos(np.arange(6) / 6) ** 8, rtol=1e-5)


@pytest.mark.parametrize("op", ["MatMulInteger", "ConvInteger"])
def test_weights_of_integers_are_added_in_turns_and_parts(monkeypatch, op):
    """To find out whether float32 holds all sums of their products."""
    monkeypatch.setattr(bounds, "TURN", 0)
    side = 1 << 10
    w = np.full((side, side) if op == "MatMulInteger" else (side, side, 1, 1), 127, np.int8)
    x = info("x", [1, side] if op == "MatMulInteger" else [1, side, 1, 1], TensorProto.UINT8)
    made = model([node(op, ["x", "w"], ["y"])], [x], [info("y", [])], [weight("w", w)])
    tracemalloc.start()
    try:
        assert turns(made) >= w.size // quantized._PART
        assert tracemalloc.get_traced_memory()[1] < 4 * w.nbytes
    finally:
        tracemalloc.stop()


def test_short_sums_read_no_weight(monkeypatch):
    def fail(weight):
        raise AssertionError("it decides nothing")

    monkeypatch.setattr(Weight, "read_steps", fail)
    monkeypatch.setattr(Weight, "read", fail)
    w = np.ones((256, 2048), np.int8)
    x = info("x", [1, 256], TensorProto.UINT8)
    turns(model([node("MatMulInteger", ["x", "w"], ["y"])], [x], [info("y", [])], [weight("w", w)]))
