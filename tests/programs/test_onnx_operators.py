"""ONNX operators in forms that are rare: integers, attributes of optimizers, axes that stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import computed, info, model, program_of, run, weight

from cowmlx.errors import BadFormat, Unsupported

node = helper.make_node
RNG = np.random.default_rng(11)
MICROSOFT = "com.microsoft"


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype("float32")


def contributed(made: Any, given: dict[str, np.ndarray], *outputs: str) -> list[np.ndarray]:
    """Return results of one node of ONNX Runtime's."""
    inputs = [info(name, list(array.shape)) for name, array in given.items()]
    whole = model([made], inputs, [info(name, []) for name in outputs])
    whole.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return run(program_of(whole), **given)


@pytest.mark.parametrize("name", ["transBatchA", "transBatchB"])
def test_products_of_turned_batches_are_refused(name: str):
    made = node("FusedMatMul", ["a", "b"], ["y"], domain=MICROSOFT, **{name: 1})
    given = {"a": floats(2, 2, 2), "b": floats(2, 2, 2)}
    with pytest.raises(Unsupported, match=rf"\(FusedMatMul\): has {name}"):
        contributed(made, given, "y")


@pytest.mark.parametrize("axis", [-1, 1])
@pytest.mark.parametrize("domain", ["", MICROSOFT])
def test_simplified_norms_have_an_axis_and_a_second_result(domain: str, axis: int):
    made = node("SimplifiedLayerNormalization", ["x", "s"], ["y", "r"], domain=domain, axis=axis)
    x = floats(2, 3, 4)
    scale = floats(*x.shape[axis:])
    axes = tuple(range(axis % 3, 3))
    wanted = 1 / np.sqrt((x * x).mean(axes, keepdims=True) + 1e-5)
    found, slope = contributed(made, {"x": x, "s": scale}, "y", "r")
    np.testing.assert_allclose(slope, wanted, rtol=1e-5)
    np.testing.assert_allclose(found, x * wanted * scale, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [("uint8", [0, 0, 1, 2]), ("int32", [0, 0, 1, 2]), ("float32", [0, 0, 1, 2])],
)
def test_unsigned_integers_shrink_from_above(kind: str, wanted: list[int]):
    made = node("Shrink", ["x"], ["y"], lambd=1.0, bias=1.0)
    found = computed(made, {"x": np.arange(4, dtype=kind)}, {})
    assert found.dtype == kind
    assert found.tolist() == wanted


@pytest.mark.parametrize("kind", ["int8", "int32", "int64", "float16"])
def test_relu_of_any_numbers(kind: str):
    x = np.array([-3, 0, 5], kind)
    found = computed(node("Relu", ["x"], ["y"]), {"x": x}, {})
    assert (str(found.dtype), found.tolist()) == (kind, [0, 0, 5])


@pytest.mark.parametrize(
    ("op", "wanted"), [("ReduceL2", 5), ("ReduceLogSum", 1), ("ReduceLogSumExp", 4)]
)
def test_reductions_of_integers_are_integers(op: str, wanted: int):
    found = computed(node(op, ["x"], ["y"], keepdims=0), {"x": np.int32([3, 4])}, {})
    assert (found.dtype, found.item()) == (np.int32, wanted)


def test_a_mask_of_dropout_is_true():
    made = model(
        [node("Dropout", ["x"], ["y", "mask"])],
        [info("x", [3])],
        [info("y", [3]), info("mask", [3], TensorProto.BOOL)],
    )
    program = program_of(made)
    x = np.float32([1, np.nan, 2])
    assert run(program, x=x)[1].tolist() == [True] * 3
    assert [each["op"] for each in program.info()["nodes"]].count("ones_like") == 1
    assert len(program.info()["nodes"]) <= 2


@pytest.mark.parametrize("of_weight", [False, True])
def test_dequantized_numbers_have_the_type_that_is_asked_for(of_weight: bool):
    made = node("DequantizeLinear", ["x", "s"], ["y"], output_dtype=TensorProto.FLOAT16)
    x, scale = np.int8([1, -2, 3]), np.float32(0.5)
    given, weights = ({}, {"x": x, "s": scale}) if of_weight else ({"x": x}, {"s": scale})
    found = computed(made, given, weights, 23)
    assert (found.dtype, found.tolist()) == (np.float16, [0.5, -1, 1.5])


WRONG = {
    "a part": (node("Split", ["x"], ["y"], split=[2]), 11, "its split .2. is not 3"),
    "below 0": (node("Split", ["x"], ["y", "z"], split=[5, -2]), 11, "its split .5, -2. is not 3"),
    "of many": (node("Split", ["x"], ["y"], num_outputs=2), 21, "its split .2. is not 3"),
    "TopK": (node("TopK", ["x"], ["y", "z"], k=5), 9, "has k 5 for an axis of 3"),
    "a norm": (node("LpNormalization", ["x"], ["y"], p=3), 21, "has p 3, must be 1 or 2"),
}


@pytest.mark.parametrize("kind", WRONG)
def test_what_onnx_calls_wrong_is_damage(kind: str):
    made, opset, said = WRONG[kind]
    with pytest.raises(BadFormat, match=said):
        computed(made, {"x": np.zeros(3, "float32")}, {}, opset)


def test_a_named_axis_is_split_into_no_more_than_it_can_have():
    made = node("Split", ["x"], ["y", "z"], split=[2, 3])
    with pytest.raises(BadFormat, match=r"is not n\+6 in all"):
        program_of(model([made], [info("w", ["n"]), info("x", ["n+6"])], [info("y", [])], opset=11))


LOOPS = {"without end": (2**63 - 1, 10), "below 0": (-3, 0), "of 100": (100, 10)}


@pytest.mark.parametrize("kind", LOOPS)
def test_loops_of_any_count(kind: str):
    """They double until a sum is 1000."""
    count, rounds = LOOPS[kind]
    body = helper.make_graph(
        [
            node("Add", ["a", "a"], ["b"]),
            node("Less", ["b", "most"], ["go"]),
        ],
        "round",
        [info("at", [], TensorProto.INT64), info("more", [], TensorProto.BOOL), info("a", [])],
        [info("go", [], TensorProto.BOOL), info("b", [])],
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [info("x", [])],
        [info("y", [])],
        [weight("n", np.array(count)), weight("most", np.float32(1000))],
    )
    assert run(program_of(made), x=np.float32(1))[0].item() == 2**rounds


def test_a_loop_of_fewer_rounds_than_none_has_no_rows():
    body = helper.make_graph(
        [node("Identity", ["more"], ["go"]), node("Neg", ["a"], ["b"]), node("Abs", ["a"], ["c"])],
        "round",
        [info("at", [], TensorProto.INT64), info("more", [], TensorProto.BOOL), info("a", [2])],
        [info("go", [], TensorProto.BOOL), info("b", [2]), info("c", [2])],
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y", "z"], body=body)],
        [info("x", [2])],
        [info("y", [2]), info("z", [0, 2])],
        [weight("n", np.array(-3))],
    )
    x = np.float32([1, 2])
    last, rows = run(program_of(made), x=x)
    assert (last.tolist(), rows.shape) == ([1, 2], (0, 2))


RESIZED = {
    "Resize": ([node("Resize", ["x", "", "scales"], ["y"])], 21),
    "Upsample": ([node("Upsample", ["x", "scales"], ["y"])], 9),
    "by sizes": (
        [
            node("Shape", ["x"], ["s"], start=0, end=2),
            node("Concat", ["s", "sides"], ["sizes"], axis=0),
            node("Resize", ["x", "", "", "sizes"], ["y"]),
        ],
        21,
    ),
}


@pytest.mark.parametrize("kind", RESIZED)
def test_axes_that_are_not_resized_may_have_names(kind: str):
    nodes, opset = RESIZED[kind]
    weights = [weight("scales", np.float32([1, 1, 2, 3])), weight("sides", np.array([4, 6]))]
    made = model(nodes, [info("x", ["n", "c", 2, 2])], [info("y", [])], weights, opset)
    x = floats(3, 2, 2, 2)
    wanted = x.repeat(2, 2).repeat(3, 3)
    np.testing.assert_array_equal(run(program_of(made), x=x)[0], wanted)


def test_an_axis_with_a_name_is_not_resized_to_a_number():
    made = model(
        [node("Resize", ["x", "", "", "sizes"], ["y"])],
        [info("x", ["n", 2])],
        [info("y", [])],
        [weight("sizes", np.array([4, 2]))],
    )
    with pytest.raises(Unsupported, match="its axis of n must be known"):
        program_of(made)
    x = floats(2, 2)
    np.testing.assert_array_equal(run(program_of(made, n=2), x=x)[0], x.repeat(2, 0))


EINSUMS = [
    ("...ij,...jk->...ik", (2, 5, 3, 4), (2, 5, 4, 6)),
    ("...ij,jk->...ik", (2, 3, 4), (4, 6)),
    ("...ij,...jk->...ik", (2, 5, 3, 4), (5, 4, 6)),
    ("i...,j...->ij...", (2, 5), (3, 5)),
    ("...ij,...jk", (2, 3, 4), (2, 4, 6)),
    ("a...->...", (2, 3), None),
    ("...,...", (2, 3), (2, 3)),
    ("... i j , j -> ... i", (3, 4), (4,)),
]


@pytest.mark.parametrize(("equation", "first", "second"), EINSUMS)
def test_axes_without_letters(
    equation: str, first: tuple[int, ...], second: tuple[int, ...] | None
):
    given = {"a": floats(*first)}
    if second is not None:
        given["b"] = floats(*second)
    found = computed(node("Einsum", list(given), ["y"], equation=equation), given, {})
    wanted = np.einsum(equation.replace(" ", ""), *given.values())
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("equation", "axes"), [("ij...->i", 1), ("i...->i", 2)])
def test_axes_without_letters_that_are_not_there(equation: str, axes: int):
    """In the input, or in the result."""
    made = node("Einsum", ["a"], ["y"], equation=equation)
    with pytest.raises(BadFormat, match=rf"has the equation '.*' for inputs of \[{axes}\] axes"):
        computed(made, {"a": floats(*[3] * axes)}, {})
