"""Numbers of ONNX operators at their bounds: few bits, long sums, indices beyond an axis."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.onnx_models import computed, info, model, program_of, run, weight

from cowmlx.programs.failure import ProgramError
from cowmlx.programs.importing import onnx_file
from cowmlx.steps import finished


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [(TensorProto.INT4, [7, -8, 3, -8, 1]), (TensorProto.UINT4, [15, 0, 3, 0, 1])],
)
def test_four_bits_saturate(kind, wanted):
    node = helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])
    x = np.float32([100, -100, 3, -8, 1])
    zero = helper.make_tensor("z", kind, [], [0])
    assert computed(node, {"x": x}, {"s": np.float32(1), "z": zero}).tolist() == wanted


@pytest.mark.parametrize("channels", [16, 30, 512])
def test_convolutions_of_integers_are_exact(channels):
    rng = np.random.default_rng(channels)
    x, w = (rng.integers(200, 256, (2, channels, 3, 3)).astype("uint8") for _ in range(2))
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    found = computed(node, {"x": x}, {"w": w})
    wanted = np.einsum("nchw,mchw->nm", x.astype("int64"), w.astype("int64"))
    np.testing.assert_array_equal(found[:, :, 0, 0], wanted)


@pytest.mark.parametrize(("largest", "convolutions"), [(16, 1), (128, 2)])
def test_weights_decide_whether_one_convolution_is_exact(largest, convolutions):
    rng = np.random.default_rng(largest)
    x = rng.integers(0, 256, (1, 128, 3, 3)).astype("uint8")
    w = rng.integers(1 - largest, largest, (4, 128, 3, 3)).astype("int8")
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    inputs = [info("x", list(x.shape), TensorProto.UINT8)]
    made = model([node], inputs, [info("y", [])], [weight("w", w)])
    entry = finished(onnx_file.model_steps(made, "/nowhere", {})).entry
    assert json.dumps(entry).count('"op": "conv2d"') == convolutions
    wanted = np.einsum("nchw,mchw->nm", x.astype("int64"), w.astype("int64"))
    np.testing.assert_array_equal(run(program_of(made), x=x)[0][:, :, 0, 0], wanted)


def test_quantized_convolutions_add_exactly():
    """Sums beyond float32's integers, less a bias that leaves a few units."""
    rng = np.random.default_rng(1)
    x = rng.integers(200, 256, (1, 512, 3, 3)).astype("uint8")
    w = rng.integers(100, 128, (1, 512, 3, 3)).astype("int8")
    total = int((x.astype("int64") * w.astype("int64")).sum())
    names = ["x", "one", "zero", "w", "one", "zero8", "one", "zero", "bias"]
    node = helper.make_node("QLinearConv", names, ["y"])
    weights = {
        "one": np.float32(1),
        "zero": np.uint8(0),
        "zero8": np.int8(0),
        "w": w,
        "bias": np.int32([5 - total]),
    }
    assert computed(node, {"x": x}, weights).tolist() == [[[[5]]]]


def test_large_integers_by_a_scale_of_16_bits():
    node = helper.make_node("DequantizeLinear", ["x", "s"], ["y"])
    x, scale = np.int32([100000, 12345]), np.array(0.001, "float16")
    wanted = (x * np.float32(scale)).astype("float16")
    for given, weights in (({"x": x}, {"s": scale}), ({}, {"x": x, "s": scale})):
        found = computed(node, given, weights)
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("start", "stop", "step", "wanted"),
    [
        (-6, -100, -1, [0]),
        (-100, -100, -2, [0]),
        (-6, 0, -1, []),
        (-5, -100, -1, [0]),
        (100, -3, -1, [4, 3]),
        (-100, 2, 1, [0, 1]),
    ],
)
def test_slices_from_before_an_axis(start, stop, step, wanted):
    node = helper.make_node("Slice", ["x", "start", "stop", "axes", "step"], ["y"])
    numbers = {"start": start, "stop": stop, "axes": 0, "step": step}
    weights = {name: np.array([number]) for name, number in numbers.items()}
    found = computed(node, {"x": np.arange(5, dtype=np.float32)}, weights)
    assert found.tolist() == wanted


X, UPDATE = np.zeros((2, 3), np.float32), np.float32([[9]])
BEYOND = {
    "GatherND": (helper.make_node("GatherND", ["x", "i"], ["y"]), [[0, 5]], [[1, -3]]),
    "GatherND of a batch": (
        helper.make_node("GatherND", ["x", "i"], ["y"], batch_dims=1),
        [[3], [0]],
        [[2], [-3]],
    ),
    "ScatterND": (helper.make_node("ScatterND", ["x", "i", "u"], ["y"]), [[[0, -4]]], [[[1, 2]]]),
    "ScatterElements": (
        helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1),
        [[4]],
        [[-3]],
    ),
}


@pytest.mark.parametrize(("node", "beyond", "within"), BEYOND.values(), ids=BEYOND)
def test_an_index_beyond_its_axis_is_no_other_place(node, beyond, within):
    weights = {"u": UPDATE} if "u" in node.input else {}
    computed(node, {"x": X, "i": np.array(within)}, weights)
    with pytest.raises(ProgramError, match="must be"):
        computed(node, {"x": X, "i": np.array(beyond)}, weights)


def test_numbers_of_activations_belong_to_those_that_take_them():
    """The second of three functions is the first that has an alpha."""
    node = helper.make_node(
        "LSTM",
        ["x", "w", "r"],
        ["y"],
        hidden_size=1,
        activations=["Sigmoid", "LeakyRelu", "HardSigmoid"],
        activation_alpha=[0.5, 0.25],
        activation_beta=[0.125],
    )
    weights = {"w": np.ones((1, 4, 1), "float32"), "r": np.zeros((1, 4, 1), "float32")}
    found = computed(node, {"x": np.full((1, 1, 1), -1, "float32")}, weights)
    gate = 1 / (1 + math.e)
    cell = gate * -0.5
    assert found.item() == pytest.approx(gate * (0.25 * cell + 0.125), rel=1e-6)


def test_no_infinity_is_looked_for():
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=0, detect_negative=0)
    x = np.float32([np.nan, np.inf, -np.inf, 1])
    assert computed(node, {"x": x}, {}).tolist() == [False] * 4


def test_quotients_of_integers_are_cut():
    node = helper.make_node("Div", ["x", "d"], ["y"])
    x, d = np.int32([-(2**31), -7, 7, -6, 6, 0, -1]), np.int32([3, 3, -3, 3, -3, 5, 2])
    wanted = [-715827882, -2, -2, -2, -2, 0, 0]
    assert computed(node, {"x": x}, {"d": d}).tolist() == wanted


def test_one_number_is_added_to_a_product():
    node = helper.make_node("Gemm", ["x", "w", "c"], ["y"], transB=1)
    weights = {"w": np.ones((4, 3), "float32"), "c": np.float32([2])}
    assert computed(node, {"x": np.ones((2, 3), "float32")}, weights).tolist() == [[5.0] * 4] * 2


def test_remainders_of_integers_have_the_sign_of_the_dividend():
    node = helper.make_node("Mod", ["x", "d"], ["y"], fmod=1)
    x, d = np.int32([-(2**31), -7, 7, 6]), np.int32([3, 3, -3, -3])
    assert computed(node, {"x": x}, {"d": d}).tolist() == [-2, -1, 1, 0]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [([2**40 + 1, 2**40 + 1], 2**40 + 1), ([-7, 2, 0], -1), ([7, -2, 0], 1)],
)
def test_means_of_integers_are_cut(given, wanted):
    node = helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)
    assert computed(node, {"x": np.array(given)}, {}).item() == wanted


def test_means_of_small_integers_do_not_overflow():
    node = helper.make_node("ReduceMean", ["x"], ["y"], keepdims=0)
    assert computed(node, {"x": np.full(6, 2**30, "int32")}, {}).item() == 2**30


@pytest.mark.parametrize("kind", ["int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("terms", [0, 1, 5, 700])
def test_products_of_integers_wrap_and_are_exact(kind, terms):
    rng = np.random.default_rng(terms)
    bounds = np.iinfo(kind)
    a, b = (
        rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
        for shape in ((2, 3, terms), (terms, 4))
    )
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    found = computed(node, {"x": a}, {"w": b})
    assert found.dtype == kind
    np.testing.assert_array_equal(found, a @ b)
