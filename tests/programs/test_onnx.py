"""ONNX networks become programs: layouts, folded shapes, weights, control flow, functions."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import info, model, program_of, run, weight

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing import load_steps
from cowmlx.steps import finished

RNG = np.random.default_rng(3)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def ops_of(program) -> list[str]:
    return [node["op"] for node in program.info()["nodes"]]


def test_a_chain_of_convolutions_has_two_transposes():
    """Images come and go with channels first, and are transposed at the two ends alone."""
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("BatchNormalization", ["c1", "s", "b1", "m", "v"], ["n1"]),
        helper.make_node("Relu", ["n1"], ["r1"]),
        helper.make_node("Add", ["r1", "bias"], ["a1"]),
        helper.make_node("Conv", ["a1", "w2"], ["c2"], strides=[2, 2]),
        helper.make_node("Sigmoid", ["c2"], ["s2"]),
        helper.make_node("Mul", ["c2", "s2"], ["m2"]),
        helper.make_node("MaxPool", ["m2"], ["y"], kernel_shape=[2, 2]),
    ]
    weights = [
        weight("w1", floats(4, 3, 3, 3)),
        weight("b1", floats(4)),
        weight("s", floats(4)),
        weight("m", floats(4)),
        weight("v", np.abs(floats(4)) + 1),
        weight("bias", floats(4, 1, 1)),
        weight("w2", floats(5, 4, 3, 3)),
    ]
    made = model(nodes, [info("x", ["n", 3, 9, 9])], [info("y", ["n", 5, 3, 3])], weights)
    program = program_of(made)
    images = [node for node in program.info()["nodes"] if node["op"] == "transpose"]
    assert len([each for each in images if len(each["outputs"][0]["shape"]) == 4]) == 2
    (result,) = run(program, x=floats(2, 3, 9, 9))
    assert result.shape == (2, 5, 3, 3)


def test_transposes_that_cancel_are_dropped():
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"], perm=[1, 2, 0]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("Transpose", ["b"], ["y"], perm=[2, 0, 1]),
    ]
    made = model(nodes, [info("x", [2, 3, 4])], [info("y", [2, 3, 4])])
    program = program_of(made)
    assert ops_of(program) == ["exp"]
    x = floats(2, 3, 4)
    np.testing.assert_allclose(run(program, x=x)[0], np.exp(x), rtol=1e-6)


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(scores: list) -> list:
    """Return the nodes of an attention; those of `scores` make "scores" of "product"."""
    return [
        helper.make_node("Transpose", ["k"], ["turned"], perm=[0, 2, 3, 1]),
        helper.make_node("MatMul", ["q", "turned"], ["product"]),
        *scores,
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]


SCALES = {
    "divided": ([("Div", "product", "eight")], 1 / 8),
    "times": ([("Mul", "third", "product")], 1 / 3),
    "both": ([("Div", "product", "eight"), ("Mul", "s0", "third")], 1 / 24),
    "plain": ([], 1.0),
}
# Which operand of the addition the mask is, and its shape.
MASKS = {
    "none": None,
    "of padding, first": (0, (2, 1, 1, 5)),
    "of all, second": (1, (2, 3, 4, 5)),
    "of keys, second": (1, (5,)),
}


@pytest.mark.parametrize("masked", MASKS)
@pytest.mark.parametrize("scaled", SCALES)
def test_an_attention_is_one_operation(scaled, masked):
    """Scores that are scaled and masked in any of the usual ways, for any batch."""
    (steps, scale), mask = SCALES[scaled], MASKS[masked]
    given = {"q": floats(2, 3, 4, 8), "k": floats(2, 5, 3, 8), "v": floats(2, 3, 5, 6)}
    nodes, last = [], "product"
    for at, (op, *inputs) in enumerate(steps):
        nodes.append(helper.make_node(op, inputs, [f"s{at}"]))
        last = f"s{at}"
    if mask is None:
        nodes.append(helper.make_node("Identity", [last], ["scores"]))
    else:
        operands = [last]
        operands.insert(mask[0], "mask")
        nodes.append(helper.make_node("Add", operands, ["scores"]))
        given["mask"] = floats(*mask[1])
    numbers = [weight("eight", np.float32([8])), weight("third", np.float32(1 / 3))]
    inputs = [
        info(name, ["batch", *value.shape[1:]] if value.ndim == 4 else list(value.shape))
        for name, value in given.items()
    ]
    made = model(attention(nodes), inputs, [info("y", ["batch", 3, 4, 6])], numbers)
    program = program_of(made)
    assert set(ops_of(program)) == {"scaled_dot_product_attention", "transpose"}
    product = given["q"] @ given["k"].transpose(0, 2, 3, 1) * np.float32(scale)
    wanted = softmax(product + given.get("mask", np.float32(0))) @ given["v"]
    np.testing.assert_allclose(run(program, **given)[0], wanted, rtol=1e-4, atol=1e-5)


def test_an_attention_is_not_moved_into_a_branch():
    """Where the softmax is outside, as a loop would compute it in each round."""
    *before, last = attention([helper.make_node("Identity", ["product"], ["scores"])])
    inner = [info("y", [2, 3, 4, 6])]
    branches = {
        "then_branch": helper.make_graph([last], "then", [], inner),
        "else_branch": helper.make_graph([helper.make_node("Neg", ["v2"], ["y"])], "e", [], inner),
    }
    nodes = [*before, helper.make_node("If", ["is_on"], ["z"], **branches)]
    given = {
        "q": floats(2, 3, 4, 8),
        "k": floats(2, 5, 3, 8),
        "v": floats(2, 3, 5, 6),
        "v2": floats(2, 3, 4, 6),
    }
    inputs = [info(name, list(value.shape)) for name, value in given.items()]
    inputs.append(info("is_on", [], TensorProto.BOOL))
    program = program_of(model(nodes, inputs, [info("z", [2, 3, 4, 6])]))
    assert "softmax" in ops_of(program)
    wanted = softmax(given["q"] @ given["k"].transpose(0, 2, 3, 1)) @ given["v"]
    found = run(program, **given, is_on=np.array(True))[0]
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("node", "shapes"),
    [
        (("Mul", "product", "q2"), {"q2": [2, 3, 4, 5]}),  # an array is no scale
        (("Add", "product", "q2"), {"q2": [4, 2, 3, 4, 5]}),  # a mask of more axes
        (("Sqrt", "product"), {}),
    ],
)
def test_other_products_of_weights_stay(node, shapes):
    op, *inputs = node
    given = {"q": floats(2, 3, 4, 8) ** 2, "k": floats(2, 5, 3, 8) ** 2, "v": floats(2, 3, 5, 6)}
    given |= {name: floats(*shape) for name, shape in shapes.items()}
    declared = [info(name, list(value.shape)) for name, value in given.items()]
    nodes = attention([helper.make_node(op, inputs, ["scores"])])
    wanted = given["q"] @ given["k"].transpose(0, 2, 3, 1)
    wanted = {
        "Mul": lambda: wanted * given["q2"],
        "Add": lambda: wanted + given["q2"],
        "Sqrt": lambda: np.sqrt(wanted),
    }[op]()
    result = softmax(wanted) @ given["v"]
    program = program_of(model(nodes, declared, [info("y", list(result.shape))]))
    assert "scaled_dot_product_attention" not in ops_of(program)
    np.testing.assert_allclose(run(program, **given)[0], result, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(5,), (5, 6), (3, 5, 6), (1, 1, 5, 6), (4, 2, 3, 5, 6)])
def test_weights_multiply_values_of_any_axes(shape):
    """It is an attention only if values have the batch and the heads of weights."""
    nodes = attention([helper.make_node("Identity", ["product"], ["scores"])])
    given = {"q": floats(2, 3, 4, 8), "k": floats(2, 5, 3, 8), "v": floats(*shape)}
    wanted = softmax(given["q"] @ given["k"].transpose(0, 2, 3, 1)) @ given["v"]
    inputs = [info(name, list(value.shape)) for name, value in given.items()]
    program = program_of(model(nodes, inputs, [info("y", list(wanted.shape))]))
    assert "scaled_dot_product_attention" not in ops_of(program)
    np.testing.assert_allclose(run(program, **given)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("factor", [0.0, np.inf, 1e-42])
def test_scores_over_a_number_that_is_no_scale_stay(factor):
    nodes = attention([helper.make_node("Div", ["product", "by"], ["scores"])])
    given = {"q": floats(2, 3, 4, 8), "k": floats(2, 5, 3, 8), "v": floats(2, 3, 5, 6)}
    inputs = [info(name, list(value.shape)) for name, value in given.items()]
    made = model(nodes, inputs, [info("y", [2, 3, 4, 6])], [weight("by", np.float32([factor]))])
    assert "scaled_dot_product_attention" not in ops_of(program_of(made))


def test_scores_of_an_attention_that_are_results_stay():
    nodes = attention([helper.make_node("Identity", ["product"], ["scores"])])
    given = {"q": floats(2, 3, 4, 8), "k": floats(2, 5, 3, 8), "v": floats(2, 3, 5, 6)}
    inputs = [info(name, list(value.shape)) for name, value in given.items()]
    outputs = [info("y", [2, 3, 4, 6]), info("weights", [2, 3, 4, 5])]
    y, weights = run(program_of(model(nodes, inputs, outputs)), **given)
    np.testing.assert_allclose(y, weights @ given["v"], rtol=1e-4, atol=1e-5)


def test_shapes_are_folded_with_their_names():
    """Reshape by Shape, Gather and Concat is one operation, for any batch."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"], axis=0),
        helper.make_node("Concat", ["batch", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    weights = [weight("zero", np.array([0])), weight("rest", np.array([2, -1]))]
    made = model(nodes, [info("x", ["batch", 6])], [info("y", ["batch", 2, 3])], weights)
    program = program_of(made)
    assert ops_of(program) == ["reshape"]
    assert [str(side) for side in program.outputs[0].spec.shape] == ["batch", "2", "3"]
    for batch in (1, 4):
        x = floats(batch, 6)
        np.testing.assert_array_equal(run(program, x=x)[0], x.reshape(batch, 2, 3))


def test_a_shape_that_depends_on_values_is_refused_or_fixed():
    made = model(
        [helper.make_node("Reshape", ["x", "s"], ["y"], name="turn")],
        [info("x", [2, 3]), info("s", [2], TensorProto.INT64)],
        [info("y", ["a", "b"])],
    )
    with pytest.raises(Unsupported, match=r"node 'turn' \(Reshape\).*\(s\).*fix that input"):
        program_of(made)
    (result,) = run(program_of(made, s=[3, 2]), x=floats(2, 3))
    assert result.shape == (3, 2)


def test_a_loop_with_a_fixed_number_of_rounds_is_a_scan():
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "step"], ["next"]),
            helper.make_node("Identity", ["going"], ["goes"]),
            helper.make_node("Identity", ["next"], ["seen"]),
        ],
        "body",
        [
            info("i", [], TensorProto.INT64),
            info("going", [], TensorProto.BOOL),
            info("state", [2]),
        ],
        [info("goes", [], TensorProto.BOOL), info("next", [2]), info("seen", [2])],
    )
    made = model(
        [helper.make_node("Loop", ["rounds", "", "x"], ["last", "all"], body=body)],
        [info("x", [2]), info("step", [2])],
        [info("last", [2]), info("all", [100, 2])],
        [weight("rounds", np.array(100))],
    )
    program = program_of(made)
    assert "scan" in ops_of(program)
    last, seen = run(program, x=np.zeros(2, "f"), step=np.ones(2, "f"))
    np.testing.assert_array_equal(last, [100, 100])
    np.testing.assert_array_equal(seen[:, 0], np.arange(1, 101))


def test_a_loop_that_ends_by_values_is_a_while():
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["state", "two"], ["next"]),
            helper.make_node("ReduceMax", ["next"], ["most"], keepdims=0),
            helper.make_node("Less", ["most", "limit"], ["goes"]),
        ],
        "body",
        [
            info("i", [], TensorProto.INT64),
            info("going", [], TensorProto.BOOL),
            info("state", [2]),
        ],
        [info("goes", [], TensorProto.BOOL), info("next", [2])],
    )
    made = model(
        [helper.make_node("Loop", ["", "start", "x"], ["last"], body=body)],
        [info("x", [2]), info("limit", [])],
        [info("last", [2])],
        [weight("start", np.array(True)), weight("two", np.array([2, 2], "f"))],
    )
    program = program_of(made)
    assert "while" in ops_of(program)
    (last,) = run(program, x=np.array([1, 3], "f"), limit=np.float32(20))
    np.testing.assert_array_equal(last, [8, 24])


def test_branches_read_weights_and_values_around_them():
    def branch(name: str, op: str):
        node = helper.make_node(op, ["x", "w"], [name])
        return helper.make_graph([node], name, [], [info(name, [3])])

    made = model(
        [
            helper.make_node(
                "If", ["c"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Mul")
            )
        ],
        [info("c", [], TensorProto.BOOL), info("x", [3])],
        [info("y", [3])],
        [weight("w", np.array([1, 2, 3], "f"))],
    )
    program = program_of(made)
    x = np.array([4, 5, 6], "f")
    np.testing.assert_array_equal(run(program, c=np.array(True), x=x)[0], [5, 7, 9])
    np.testing.assert_array_equal(run(program, c=np.array(False), x=x)[0], [4, 10, 18])


def test_functions_of_the_file_are_inlined():
    function = helper.make_function(
        "own",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    made = model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [info("x", [2])],
        [info("y", [2])],
    )
    made.functions.append(function)
    made.opset_import.append(helper.make_opsetid("own", 1))
    (result,) = run(program_of(made), x=np.array([1, 2], "f"))
    np.testing.assert_array_equal(result, [2, 4])


def test_quantized_weights_of_four_bits_go_onto_quantized_products():
    k, n, block = 64, 8, 32
    levels = RNG.integers(0, 16, (n, k)).astype(np.uint8)
    packed = (levels[:, ::2] | levels[:, 1::2] << 4).reshape(n, k // block, block // 2)
    scales = np.abs(floats(n * k // block)) + 0.1
    node = helper.make_node(
        "MatMulNBits",
        ["x", "w", "s"],
        ["y"],
        domain="com.microsoft",
        K=k,
        N=n,
        bits=4,
        block_size=block,
    )
    weights = [weight("w", packed), weight("s", scales)]
    made = model([node], [info("x", ["rows", k])], [info("y", ["rows", n])], weights)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    program = program_of(made)
    assert ops_of(program) == ["quantized_matmul"]
    x = floats(3, k)
    dense = (levels.astype("f") - 8) * np.repeat(scales.reshape(n, -1), block, 1)
    np.testing.assert_allclose(run(program, x=x)[0], x @ dense.T, rtol=1e-4, atol=1e-4)


def test_weights_between_quantize_and_dequantize_are_parameters_of_floats():
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["w"], axis=0),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    q = RNG.integers(-100, 100, (4, 5)).astype(np.int8)
    weights = [
        weight("q", q),
        weight("s", np.array([0.1, 0.2, 0.3, 0.4], "f")),
        weight("z", np.array([1, 2, 3, 4], np.int8)),
    ]
    made = model(nodes, [info("x", [2, 4])], [info("y", [2, 5])], weights)
    program = program_of(made)
    assert ops_of(program) == ["matmul"]
    assert [each.spec.dtype for each in program.inputs if each.parameter] == ["float32"]
    x = floats(2, 4)
    rows = np.arange(1, 5, dtype="f")[:, None]
    dense = (q.astype("f") - rows) * rows / 10
    np.testing.assert_allclose(run(program, x=x)[0], x @ dense, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ("NonZero", "depends on the values of inputs"),
        ("Unique", "depends on values"),
        ("NoSuchOperator", "no such operator"),
    ],
)
def test_what_no_program_has_is_refused_by_name(op: str, reason: str):
    made = model(
        [helper.make_node(op, ["x"], ["y"], name="odd")],
        [info("x", [3])],
        [info("y", ["n"], TensorProto.INT64)],
    )
    with pytest.raises(Unsupported, match=rf"node 'odd' \({op}\): .*{reason}") as refused:
        program_of(made)
    assert (refused.value.details["op"], refused.value.details["node"]) == (op, "odd")


@pytest.mark.parametrize(
    ("node", "said"),
    [
        (helper.make_node("ArgMax", ["x"], ["y"], axis="far"), "'axis' is of type 3, must be INT"),
        (helper.make_node("Elu", ["x"], ["y"], alpha="far"), "'alpha' is of type 3, must be FLOAT"),
        (helper.make_node("Softmax", ["x"], ["y"], axis=[0]), "'axis' is of type 7, must be INT"),
        (helper.make_node("LSTM", ["x", "x"], ["y"], hidden_size=2), r"has no input 2 \(R\)"),
        (helper.make_node("Squeeze", [""], ["y"]), r"has no input 0 \(data\)"),
        (helper.make_node("Split", ["x"], ["y"], num_outputs=0), "num_outputs 0, must be at least"),
    ],
)
def test_nodes_that_their_operators_cannot_have(node, said: str):
    node.name = "odd"
    made = model([node], [info("x", [3, 4, 2])], [info("y", ["n"])])
    with pytest.raises(BadFormat, match=rf"node 'odd' \({node.op_type}\): .*{said}"):
        program_of(made)


ODD_NAMES = {
    "NAME0": "input 'x' has a dimension '���E0', whose name is no text in UTF-8",
    "NAME1": "the name of input '���E1' is no text in UTF-8",
    "NAME2": "tensor '���E2' is of strings",
    "NAME3": r"node '���E3' \(Nothing\): there is no such operator",
    "NAME4": r"node 'y' \(���E4\): its operator is no text in UTF-8",
    "NAME5": r"node 'y' \(Relu\): its input '���E5' is no input",
    "NAME6": "the name of an output is no text in UTF-8",
    "NAME7": r"node 'y' \(Elu\): its attribute '���E7' is of no known type",
}


@pytest.mark.parametrize(("name", "said"), ODD_NAMES.items())
def test_names_that_are_not_utf_8(name: str, said: str, tmp_path):
    """They are shown as text, as a terminal shows it."""
    at = int(name[-1])
    node = helper.make_node(
        {3: "Nothing", 4: name, 7: "Elu"}.get(at, "Relu"),
        [{1: name, 5: name}.get(at, "x")],
        [name if at == 6 else "y"],
        name=name if at == 3 else "",
        **({name: 1.0} if at == 7 else {}),
    )
    if at == 7:
        node.attribute[0].type = 0
    made = model(
        [helper.make_node("Identity", [name], ["z"])] * (at == 2) + [node],
        [info(name if at == 1 else "x", [name if at == 0 else 2])],
        [info(name if at == 6 else "y", [2])],
        [helper.make_tensor(name, TensorProto.STRING, [1], [b"a"])] if at == 2 else [],
    )
    path = tmp_path / "odd.onnx"
    odd = b"\xff\xff\xff" + name[3:].encode()
    path.write_bytes(made.SerializeToString().replace(name.encode(), odd))
    with pytest.raises((BadFormat, Unsupported), match=said):
        finished(load_steps(str(path)))
