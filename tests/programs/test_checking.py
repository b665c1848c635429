"""Errors of a program when it is made: the node, its operation, and an accepted form."""

from __future__ import annotations

import json
from typing import Any

import mlx.core as mx
import pytest
from support.programs import graph, node, parse, value

from cowmlx.programs import bounds
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.information import draw_dot, draw_text
from cowmlx.programs.program import Program

X = value("x", ["n", 3])
SUM = node("s", "sum", "x")


def program(**changes: Any) -> dict[str, Any]:
    return {**graph([X], [SUM], ["s"]), **changes}


def nodes(*given: Any, **changes: Any) -> dict[str, Any]:
    return program(nodes=[SUM, *given], **changes)


def function(name: str, *uses: str) -> dict[str, Any]:
    calls = [node(f"v{at}", "call", "x", function=used) for at, used in enumerate(uses)]
    return graph([value("x", [3])], calls, ["x"], name=name)


BRANCH = graph([value("x", [3])], [node("y", "sin", "x")], ["y"], name="f")
WRONG = {
    "no outputs": ({"nodes": []}, "missing", "needs 'outputs'"),
    "empty outputs": (program(outputs=[]), "missing", "outputs is empty"),
    "unknown key": (program(node=[]), "unknown_option", "the key 'node', must be one of inputs"),
    "inputs no list": (program(inputs={}), "wrong_type", "inputs is an object, must be a list"),
    "an input of another type": (program(inputs=[7]), "wrong_type", r"inputs\[0\] is 7"),
    "input without dtype": (
        program(inputs=[{"name": "x", "shape": []}]),
        "missing",
        r"inputs\[0\] needs 'dtype'",
    ),
    "unknown dtype": (
        program(inputs=[value("x", [3], "float8")]),
        "out_of_range",
        "dtype of input 'x' is 'float8', must be one of bool, ",
    ),
    "rank 9": (program(inputs=[value("x", [1] * 9)]), "limit_exceeded", "9 elements.*at most 8"),
    "negative dimension": (program(inputs=[value("x", [-1])]), "out_of_range", "dimension of -1"),
    "dimension above int32": (program(inputs=[value("x", [2**31])]), "out_of_range", "2147483648"),
    "overflowing size": (
        program(inputs=[value("x", [2**31 - 1] * 4)]),
        "limit_exceeded",
        "at most 1099511627776",
    ),
    "no dimension": (
        program(inputs=[value("x", ["2 n"])]),
        "out_of_range",
        "'2 n' is no dimension",
    ),
    "half a dimension": (program(inputs=[value("x", [2.5])]), "wrong_type", "shape of .* has 2.5"),
    "a dimension nobody tells": (
        program(inputs=[value("x", ["2*n"])]),
        "missing",
        "input 'x' has the dimension 'n', which is a dimension of no input",
    ),
    "empty name": (program(inputs=[value("", [])]), "out_of_range", "1 to 256 characters"),
    "long name": (program(inputs=[value("x" * 257, [])]), "out_of_range", "1 to 256 characters"),
    "name that cannot be printed": (program(inputs=[value("a\0", [])]), "out_of_range", "printed"),
    "name used twice": (
        program(inputs=[X, X]),
        "conflict",
        "the name 'x' of an input is also that of an input",
    ),
    "node named as an input": (
        nodes(node("x", "sin", "s")),
        "conflict",
        r"node 'x' \(sin\): the name 'x' .* an input",
    ),
    "no such constant": (program(constants=[{}]), "missing", r"constants\[0\] needs 'name'"),
    "ragged constant": (
        program(constants=[{"name": "c", "dtype": "float32", "value": [[1], [1, 2]]}]),
        "conflict",
        "constant 'c' has lists of different lengths",
    ),
    "constant out of range": (
        program(constants=[{"name": "c", "dtype": "uint8", "value": [0, 256]}]),
        "out_of_range",
        "constant 'c' of uint8 has 256, must be an integer from 0 to 255",
    ),
    "constant of the wrong type": (
        program(constants=[{"name": "c", "dtype": "int32", "value": 1.5}]),
        "wrong_type",
        "has 1.5, must be an integer",
    ),
    "true is no number": (
        program(constants=[{"name": "c", "dtype": "float32", "value": True}]),
        "wrong_type",
        "has True, must be a number",
    ),
    "unknown init": (
        program(parameters=[{**value("w", [3]), "init": "xavier"}]),
        "out_of_range",
        "init of parameter 'w' is 'xavier', must be one of constant, zeros",
    ),
    "init that needs a matrix": (
        program(parameters=[{**value("w", [3]), "init": "he_normal"}]),
        "conflict",
        "he_normal, which needs 2 or more dimensions",
    ),
    "init with an argument it lacks": (
        program(parameters=[{**value("w", [3]), "init": {"name": "ones", "gain": 2}}]),
        "unknown_option",
        "'gain'",
    ),
    "unknown operation": (
        nodes(node("y", "multipl", "x", "x")),
        "unknown_option",
        r"node 'y' \(multipl\): there is no operation 'multipl', is it multiply",
    ),
    "op of another type": (
        nodes({"name": "y", "op": 3}),
        "wrong_type",
        "op of node 'y' is 3",
    ),
    "no name": (nodes({"op": "sin", "inputs": ["x"]}), "missing", 'either "name"'),
    "two names": (
        nodes({"name": "y", "outputs": ["z"], "op": "sin", "inputs": ["x"]}),
        "conflict",
        'either "name"',
    ),
    "missing input": (
        nodes(node("y", "sin", "xx")),
        "missing",
        r"node 'y' \(sin\): its input 'xx' is no input.* is it 'x'",
    ),
    "an input of another type in a node": (
        nodes(node("y", "sin", 3)),
        "wrong_type",
        r"node 'y' \(sin\): inputs has 3",
    ),
    "too few inputs": (nodes(node("y", "add", "x")), "missing", r"node 'y' \(add\): add has 1"),
    "too many inputs": (nodes(node("y", "sin", "x", "x")), "out_of_range", "sin has 2 inputs"),
    "null for a needed input": (nodes(node("y", "add", "x", None)), "missing", "needs its input"),
    "wrong number of outputs": (
        nodes(node(["a", "b"], "sin", "x")),
        "conflict",
        r"node 'a' \(sin\): sin has 1 results .*, but 2 are named",
    ),
    "unknown attribute": (
        nodes(node("y", "sum", "x", axes=1)),
        "unknown_option",
        r"node 'y' \(sum\): sum has no attribute 'axes', must be one of: axis, keepdims",
    ),
    "attribute of the wrong type": (
        nodes(node("y", "sum", "x", axis="first")),
        "wrong_type",
        r"node 'y' \(sum\): sum: axis is 'first', must be an axis",
    ),
    "attributes no object": (
        nodes({"name": "y", "op": "sin", "inputs": ["x"], "attributes": []}),
        "wrong_type",
        "attributes is a list",
    ),
    "axis out of range": (nodes(node("y", "sum", "x", axis=2)), "out_of_range", "axis is 2"),
    "shapes that cannot meet": (
        program(inputs=[X, value("w", [4, 2])], nodes=[SUM, node("y", "matmul", "x", "w")]),
        "conflict",
        r"node 'y' \(matmul\): matmul cannot take \(n, 3\) and \(4, 2\)",
    ),
    "dimensions that may differ": (
        program(inputs=[X, value("w", ["m", 3])], nodes=[SUM, node("y", "add", "x", "w")]),
        "conflict",
        "n and m are not known to be equal",
    ),
    "dtypes that lose values": (
        program(
            inputs=[X, value("a", [], "uint64"), value("b", [], "int64")],
            nodes=[SUM, node("y", "add", "a", "b")],
        ),
        "wrong_type",
        "would lose values of uint64 and int64",
    ),
    "a dimension in an attribute that nobody tells": (
        nodes(node("y", "zeros", shape=["m"])),
        "missing",
        r"node 'y' \(zeros\): an attribute has the dimension 'm'",
    ),
    "cycle": (
        nodes(node("a", "sin", "c"), node("b", "sin", "a"), node("c", "sin", "b")),
        "conflict",
        "in a cycle of 3 nodes.* 'a' → 'c' → 'b' → 'a'",
    ),
    "a node that needs itself": (nodes(node("a", "sin", "a")), "conflict", "a cycle of 1 nodes"),
    "output that is nowhere": (program(outputs=["t"]), "missing", "outputs has 't', which is no"),
    "no such function": (
        nodes(node("y", "call", "x", function="g")),
        "missing",
        r"node 'y' \(call\): there is no function 'g'",
    ),
    "two functions of a name": (
        program(functions=[BRANCH, BRANCH]),
        "conflict",
        "two functions are called 'f'",
    ),
    "functions that use themselves": (
        program(functions=[function("f", "g"), function("g", "f")]),
        "conflict",
        "functions use themselves.*'f' → 'g' → 'f'",
    ),
    "an error in a function": (
        program(functions=[graph([X], [node("y", "sin", "z")], ["y"], name="f")]),
        "missing",
        r"node 'y' \(sin\) in function 'f': its input 'z'",
    ),
    "call with other shapes": (
        nodes(node("y", "call", "x", function="f"), functions=[BRANCH]),
        "conflict",
        r"function 'f' is given float32\(n, 3\), must be as its inputs: float32\(3\)",
    ),
    "cond without a bool": (
        program(
            inputs=[value("p", []), value("x", [3])],
            nodes=[node("s", "cond", "p", "x", then="f", **{"else": "f"})],
            functions=[BRANCH],
        ),
        "wrong_type",
        r"cond: its first input is float32\(\), must be bool\(\)",
    ),
    "while without a bound": (
        program(nodes=[node("s", "while", "x", condition="f", body="f")], functions=[BRANCH]),
        "missing",
        "while needs the attribute 'max_iterations'",
    ),
    "while whose condition is no bool": (
        program(
            inputs=[value("x", [3])],
            nodes=[node("s", "while", "x", condition="f", body="f", max_iterations=3)],
            functions=[BRANCH],
        ),
        "wrong_type",
        r"while: the result of 'f' is float32\(3\), must be bool\(\)",
    ),
    "scan over a scalar": (
        program(
            inputs=[value("x", [])], nodes=[node("s", "scan", "x", body="f")], functions=[BRANCH]
        ),
        "conflict",
        r"scan: input 0 is float32\(\)",
    ),
    "scan whose carry changes": (
        program(
            inputs=[value("x", [3]), value("e", [4, 3])],
            nodes=[node(["s"], "scan", "x", "e", body="g", carries=1)],
            functions=[
                graph(
                    [value("x", [3]), value("e", [3])],
                    [node("t", "sum", "x")],
                    ["t"],
                    name="g",
                )
            ],
        ),
        "conflict",
        r"function 'g' gives float32\(\), must be as the carries: float32\(3\)",
    ),
}


@pytest.mark.parametrize(("wrong", "reason", "message"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(wrong, reason, message):
    with pytest.raises(ProgramError, match=message) as caught:
        parse(wrong)
    assert caught.value.reason == reason
    assert all(isinstance(detail, str | int | float) for detail in caught.value.details.values())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "no JSON"),
        (b"[]", "must be a JSON object"),
        (b'{"outputs": ["a"], "outputs": ["b"]}', "the key 'outputs' twice"),
        (b'{"outputs": "\xff"}', "byte"),
        (b'{"constants": [{"name": "c", "dtype": "float64", "value": 1e400}]}', "no float64 holds"),
        (b'{"constants": NaN}', "no float64 holds"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b'{"outputs": [' + b"9" * 100_000 + b"]}", "number"),
    ],
)
def test_a_text_that_is_no_program_is_refused(text, message):
    with pytest.raises(ProgramError, match=message):
        Program.parse(text)


def test_a_text_of_100_mb_is_refused_by_its_length():
    with pytest.raises(ProgramError, match="104857600 bytes") as caught:
        Program.parse(b" " * (100 << 20))
    assert caught.value.details == {"needed": 100 << 20, "limit": bounds.MAX_BYTES}


def test_100_000_functions_in_a_row_are_refused():
    many = [
        {
            "name": f"f{at}",
            "nodes": [{"name": "y", "op": "call", "attributes": {"function": f"f{at + 1}"}}],
            "outputs": ["y"],
        }
        for at in range(100_000)
    ]
    with pytest.raises(ProgramError, match="functions has 100000 elements") as caught:
        parse(program(functions=many))
    assert caught.value.reason == "limit_exceeded"


def test_functions_that_use_each_other_too_deeply_are_refused():
    deep = [function(f"f{at}", f"f{at + 1}") for at in range(bounds.MAX_CALL_DEPTH)]
    parse(program(functions=[*deep[1:], function(f"f{bounds.MAX_CALL_DEPTH}")]))
    with pytest.raises(ProgramError, match=r"function 'f0' .* more than 32 deep"):
        parse(program(functions=[*deep, function(f"f{bounds.MAX_CALL_DEPTH}")]))


def test_functions_that_double_are_looked_at_once_each():
    """2**31 calls, if they were unrolled: asking is quick, and a run lets others step."""
    twice = [function(f"f{at}", f"f{at + 1}", f"f{at + 1}") for at in range(31)]
    for each in twice:
        each["outputs"] = ["v1"]
        each["nodes"][1]["inputs"] = ["v0"]
    made = parse(
        graph(
            [value("x", [3])],
            [node("y", "call", "x", function="f0")],
            ["y"],
            functions=[*twice, function("f31")],
        )
    )
    assert made.info({})["run"]["multiplications"] == 0
    steps = made.run([mx.zeros(3)]).steps()
    for _ in range(5):  # it hears a cancellation
        next(steps)
    steps.close()


def test_too_many_nodes_are_refused():
    many = [node(f"v{at}", "sin", "x") for at in range(bounds.MAX_NODES + 1)]
    with pytest.raises(ProgramError, match="nodes has 50001 elements") as caught:
        parse(program(nodes=many))
    assert caught.value.reason == "limit_exceeded"


def test_one_error_tells_of_several_nodes():
    wrong = [node(f"v{at}", "matmul", "x", "x") for at in range(12)]
    depending = [node("w", "sin", "v3")]
    with pytest.raises(ProgramError) as caught:
        parse(program(nodes=[SUM, *wrong, *depending]))
    message = str(caught.value)
    assert "node 'v0'" in message and "node 'v7'" in message and message.endswith("and 4 more")
    assert "node 'w'" not in message
    assert caught.value.details["node"] == "v0"
    assert caught.value.details["problems"] == 12


def test_nodes_may_come_in_any_order():
    made = parse(program(nodes=[node("z", "sin", "y"), node("y", "cos", "s"), SUM], outputs=["z"]))
    assert [each["name"] for each in made.info()["nodes"]] == ["s", "y", "z"]


def test_names_that_are_alike_in_functions_are_different_values():
    made = parse(
        program(
            nodes=[node("s", "sum", "x"), node("y", "call", "row", function="f")],
            inputs=[X, value("row", [3])],
            outputs=["y", "s"],
            functions=[graph([value("x", [3])], [node("s", "sin", "x")], ["s"], name="f")],
        )
    )
    assert [str(output.spec) for output in made.outputs] == ["float32(3)", "float32()"]


def test_an_axis_of_no_elements_is_parted_into_nothing():
    """A node may have no results where their number depends on shapes."""
    x = value("x", [0, 3])
    nodes = [
        {"op": "unstack", "inputs": ["x"], "outputs": []},
        node(["a", "b", "c"], "unstack", "x", axis=1),
    ]
    program = parse(graph([x], nodes, ["x", "a"]))
    assert program.info()["nodes"][0]["outputs"] == []
    assert "unstack" in draw_dot(program.form) and "unstack" in draw_text(program.form)
    found = program.run([mx.zeros((0, 3))]).finish()
    assert [each.shape for each in found] == [(0, 3), (0,)]
    for wrong in ({"op": "add", "inputs": ["x", "x"], "outputs": []}, {**nodes[0], "op": "scan"}):
        with pytest.raises(ProgramError, match=r"outputs of nodes\[0\] is empty"):
            parse(graph([x], [wrong], ["x"]))


def test_a_gpu_has_no_float64():
    from cowmlx.errors import Unsupported

    text = json.dumps(graph([value("x", [3], "float64")], [SUM], ["s"]))
    Program.parse(text)
    with pytest.raises(Unsupported, match="'x' is float64, which a GPU does not have"):
        Program.parse(text, gpu=True)
