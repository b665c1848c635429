"""Small files of networks that ask their importers for much memory, or for long turns."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from onnx import TensorProto, helper
from support import mlxfn_files
from support.onnx_models import info, model, program_of, run, turns, weight

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs import bounds
from cowmlx.programs.importing.book import MAX_FOLDED

FAR = 2**31 - 1
PEAK = 32 << 20
INT64 = TensorProto.INT64
node = helper.make_node


@contextmanager
def little_memory(peak: int = PEAK) -> Iterator[None]:
    """Check that numpy and Python take little memory at any time."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < peak
    finally:
        tracemalloc.stop()


def whole(name: str, *numbers: int) -> Any:
    return weight(name, np.array(numbers, np.int64))


def number(name: str, value: float, kind: str = "int64") -> Any:
    return weight(name, np.array(value, kind))


def doubled(times: int) -> list[Any]:
    """Return nodes that make "s", the shape of x many times over."""
    names = ["s0", *(f"s{at}" for at in range(1, times)), "s"]
    nodes = [node("Shape", ["x"], ["s0"])]
    return nodes + [node("Concat", [a, a], [b], axis=0) for a, b in pairwise(names)]


def long_constant() -> Any:
    return node("Constant", [], ["v"], value_floats=[0.5] * (bounds.MAX_CONSTANT + 1))


SYMBOLIC = {
    "Concat": (doubled(24), []),
    "Gather": (
        [*doubled(1), node("Gather", ["s", "i"], ["y"])],
        [weight("i", np.zeros((99, 99), int))],
    ),
    "Expand": ([*doubled(1), node("Expand", ["s", "i"], ["y"])], [whole("i", 4000, 2)]),
    "Mul": (
        [*doubled(8), node("Unsqueeze", ["s", "one"], ["t"]), node("Mul", ["s", "t"], ["y"])],
        [whole("one", 1)],
    ),
    "Where": (
        [
            *doubled(8),
            node("Unsqueeze", ["s", "one"], ["t"]),
            node("Where", ["c", "s", "t"], ["y"]),
        ],
        [whole("one", 1), weight("c", np.array([True]))],
    ),
}


@pytest.mark.parametrize("op", SYMBOLIC)
def test_arrays_of_dimensions_stay_small(op):
    nodes, weights = SYMBOLIC[op]
    made = model(nodes, [info("x", ["n"])], [info(nodes[-1].output[0], ["m"])], weights)
    with little_memory(), pytest.raises(Unsupported, match=rf"\({op}\): .*more than 4096 elements"):
        program_of(made)


MEL = [number("b", 1000), number("l", (1 << 20) - 1), number("r", 44100)]
MEL += [number("low", 0, "f"), number("high", 2e4, "f")]
IMAGE = {"x": [1, 1, 20000, 20000]}
LARGE: dict[str, tuple[Any, dict[str, Any], list[Any]]] = {
    "scatter": (
        node("ScatterElements", ["x", "i", "u"], ["y"]),
        {"x": [9000, 9000], "i": [9000, 9000], "u": [9000, 9000]},
        [],
    ),
    "empty scatter": (
        node("ScatterElements", ["x", "i", "u"], ["y"]),
        {"x": [0, FAR], "i": [0, FAR], "u": [0, FAR]},
        [],
    ),
    "tensor scatter": (
        node("TensorScatter", ["x", "u"], ["y"]),
        {"x": [1, FAR, 1], "u": [1, FAR, 1]},
        [],
    ),
    "one hot": (
        node("OneHot", ["i", "d", "v"], ["y"]),
        {"i": [1]},
        [whole("d", 1 << 24), weight("v", np.float32([0, 1]))],
    ),
    "reverse": (
        node("ReverseSequence", ["x", "i"], ["y"], batch_axis=0, time_axis=1),
        {"x": [1, FAR], "i": [1]},
        [],
    ),
    "wrap": (node("Pad", ["x", "p"], ["y"], mode="wrap"), {"x": [2]}, [whole("p", 0, FAR)]),
    "hardmax": (node("Hardmax", ["x"], ["y"]), {"x": [1, FAR]}, []),
    "frames": (
        node("STFT", ["x", "step", "", "length"], ["y"]),
        {"x": [1, FAR, 1]},
        [number("step", 1), number("length", 512)],
    ),
    "mel": (node("MelWeightMatrix", ["b", "l", "r", "low", "high"], ["y"]), {}, MEL),
    "columns": (
        node("Col2Im", ["x", "image", "block"], ["y"]),
        {"x": [1, 1 << 20, 1 << 20]},
        [whole("image", 2047, 2047), whole("block", 1024, 1024)],
    ),
    "mean": (node("AveragePool", ["x"], ["y"], kernel_shape=[3, 3], pads=[1] * 4), IMAGE, []),
    "nearest": (
        node("Resize", ["x", "", "", "sizes"], ["y"]),
        {"x": [2]},
        [whole("sizes", 1 << 24)],
    ),
    "linear": (
        node("Resize", ["x", "", "", "sizes"], ["y"], mode="linear"),
        {"x": [4096]},
        [whole("sizes", 4095)],
    ),
    "taps": (
        node("Resize", ["x", "", "scales"], ["y"], mode="cubic", antialias=1),
        {"x": [4]},
        [weight("scales", np.float32([1e-9]))],
    ),
    "constant": (node("Add", ["x", "v"], ["y"]), {"x": [1]}, []),
}


def model_of(made: Any, shapes: dict[str, Any], weights: list[Any]) -> Any:
    """Return a network of a node, whose inputs of integers are "i"."""
    nodes = [long_constant(), made] if "v" in made.input and not weights else [made]
    inputs = [
        info(name, shape, INT64 if name == "i" else TensorProto.FLOAT)
        for name, shape in shapes.items()
    ]
    return model(nodes, inputs, [info("y", ["m"])], weights, 24)


@pytest.mark.parametrize("name", LARGE)
def test_arrays_that_are_computed_at_load_stay_small(name):
    """What a file declares or says in a number is refused before it is allocated."""
    made, shapes, weights = LARGE[name]
    small = model_of(made, shapes, weights)
    said = rf"node 'y' \({made.op_type}\): .*{bounds.MAX_CONSTANT}"
    with little_memory(), pytest.raises(Unsupported, match=said) as refused:
        program_of(small)
    assert refused.value.details["limit"] == bounds.MAX_CONSTANT


WRONG: dict[str, tuple[Any, dict[str, Any], list[Any], str]] = {
    "window": (  # whose elements are 0 in numbers of 64 bits
        node("MaxPool", ["x"], ["y"], kernel_shape=[1 << 16] * 4),
        {"x": [1, 1, *[1 << 16] * 4]},
        [],
        r"kernel_shape \[65536, .* is too large",
    ),
    "channels": (
        node("LRN", ["x"], ["y"], size=1 << 30),
        {"x": [1, 1, 1, 1]},
        [],
        "size 1073741824 is too large",
    ),
    "stride": (
        node("MaxPool", ["x"], ["y"], kernel_shape=[1, 1], strides=[0, 1]),
        IMAGE,
        [],
        "strides",
    ),
    "signal": (node("DFT", ["x"], ["y"]), {"x": [1, 2, FAR]}, [], "last axis is 2147483647"),
    "resized twice": (
        node("Resize", ["x", "", "", "sizes"], ["y"], axes=[0, 0]),
        {"x": [2]},
        [whole("sizes", 3, 4)],
        "must be different",
    ),
    "axes": (
        node("Unsqueeze", ["x", "axes"], ["y"]),
        {"x": [2]},
        [weight("axes", np.zeros(1 << 16, np.int64))],
        "has 65536 axes",
    ),
    "sides": (
        node("Reshape", ["x", "sides"], ["y"]),
        {"x": [2]},
        [weight("sides", np.full(1 << 16, FAR, np.int64))],
        "its shape are 65536",
    ),
    "scales": (
        node("DequantizeLinear", ["w", "s"], ["y"], axis=0),
        {},
        [weight("w", np.zeros((1, 70000), np.int8)), weight("s", np.ones(70000, "f"))],
        "do not fit",
    ),
    "blocks": (
        node("DequantizeLinear", ["w", "s"], ["y"], axis=0, block_size=2),
        {},
        [weight("w", np.zeros((9, 900), np.int8)), weight("s", np.ones((2, 900), "f"))],
        "has blocks of 2",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_numbers_that_no_network_has(name):
    made, shapes, weights, said = WRONG[name]
    with (
        little_memory(),
        pytest.raises((BadFormat, Unsupported), match=rf"\({made.op_type}\).*{said}"),
    ):
        program_of(model_of(made, shapes, weights))


def test_blocks_that_are_longer_than_a_weight():
    """Their scales are not repeated for elements that the weight does not have."""
    rows = np.arange(1 << 13, dtype=np.int8).reshape(2, -1)
    scales = np.linspace(1, 2, rows.shape[1], dtype="f")[None]
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"], axis=0, block_size=1 << 30),
        node("Add", ["x", "d"], ["y"]),
    ]
    weights = [weight("w", rows), weight("s", scales)]
    with little_memory():
        program = program_of(model(nodes, [info("x", [1])], [info("y", [2, 1 << 12])], weights))
    np.testing.assert_allclose(run(program, x=np.zeros(1, "f"))[0], rows * scales)


def test_a_mean_of_a_large_image_counts_its_windows():
    """The image itself is larger than a constant; the windows are not."""
    x = np.random.default_rng(1).standard_normal((1, 1, 1000, 300)).astype("f")
    made = node("AveragePool", ["x"], ["y"], kernel_shape=[3, 2], strides=[9, 7], pads=[2, 1, 0, 1])
    with little_memory():
        program = program_of(model([made], [info("x", x.shape)], [info("y", ["a", "b", "c", "d"])]))
    wide = np.pad(x[0, 0], [(2, 0), (1, 1)], constant_values=np.nan)
    parts = [wide[i::9, j::7][:112, :43] for i in range(3) for j in range(2)]
    (result,) = run(program, x=x)
    np.testing.assert_allclose(result[0, 0], np.nanmean(parts, 0), rtol=1e-3, atol=1e-5)


def test_places_of_a_large_image():
    """They are counted in a run, where a constant would be too large."""
    x = np.random.default_rng(2).standard_normal((1, 2, 600, 500)).astype("f")
    made = node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2], storage_order=1)
    outputs = [info("y", [1, 2, 300, 250]), info("i", [1, 2, 300, 250], INT64)]
    with little_memory():
        program = program_of(model([made], [info("x", x.shape)], outputs))
    best, places = run(program, x=x)
    columns = x.transpose(0, 1, 3, 2).reshape(-1)
    np.testing.assert_array_equal(columns[places], best)


def test_constants_together_stay_small():
    """A node of a few bytes makes a small array; the last ones are left to the run."""
    nodes = [node("ConstantOfShape", ["s"], [f"v{at}"]) for at in range(600)]
    nodes.append(node("Add", ["x", "v0"], ["y"]))
    made = model(nodes, [info("x", [1])], [info("y", [1 << 16])], [whole("s", 1 << 16)])
    with little_memory(5 * MAX_FOLDED):
        program = program_of(made)
    (result,) = run(program, x=np.ones(1, "f"))
    np.testing.assert_array_equal(result, np.ones(1 << 16, "f"))


def test_copies_of_a_weight_stay_few():
    """A weight in another layout is another parameter."""
    nodes = [node("Constant", [], ["w"], value=weight("w", np.zeros((512, 2048), "f")))]
    for at in range(300):
        nodes.append(node("Transpose", ["w"], [f"t{at}"]))
        nodes.append(node("MatMul", ["x", f"t{at}"], [f"y{at}"]))
    made = model(nodes, [info("x", [1, 2048])], [info("y299", [1, 512])])
    with (
        little_memory(),
        pytest.raises(Unsupported, match=r"\(MatMul\): parameters have more than"),
    ):
        program_of(made)


def test_windows_of_a_constant_are_gathered_in_a_run():
    """At load they would take 4 GiB."""
    nodes = [
        node("ConstantOfShape", ["s"], ["v"]),
        node("AveragePool", ["v"], ["m"], kernel_shape=[1 << 15]),
        node("Add", ["x", "m"], ["y"]),
    ]
    made = model(nodes, [info("x", [1])], [info("y", ["n"])], [whole("s", 1, 1, 1 << 16)])
    assert "avg_pool1d" in [each["op"] for each in program_of(made).info()["nodes"]]


def test_products_of_long_dimensions_have_turns(monkeypatch):
    monkeypatch.setattr(bounds, "TURN", 0)
    nodes = [*doubled(8), node("Mul", ["s", "s"], ["t"]), node("Reshape", ["x", "s0"], ["y"])]
    assert turns(model(nodes, [info("x", ["n"])], [info("y", ["n"])])) > 256


@pytest.mark.parametrize("op", ["Max", "Mean"])
def test_nodes_of_many_inputs_have_turns(op, monkeypatch):
    monkeypatch.setattr(bounds, "TURN", 0)
    made = model([node(op, ["x"] * 300, ["y"])], [info("x", [1])], [info("y", [1])])
    assert turns(made) > 300


def test_a_weight_that_is_dequantized_thousands_of_times():
    nodes, last = [], "w"
    for at in range(3000):
        nodes.append(node("DequantizeLinear", [last, "s"], [f"t{at}"]))
        last = f"t{at}"
    nodes.append(node("Add", ["x", last], ["y"]))
    weights = [weight("w", np.int8([3, 4])), number("s", 1, "f")]
    made = model(nodes, [info("x", [2])], [info("y", [2])], weights)
    (result,) = run(program_of(made), x=np.zeros(2, "f"))
    np.testing.assert_array_equal(result, [3, 4])


# -------------------------------------------------------------- exported functions


def test_a_view_by_strides_of_no_elements(tmp_path):
    path = tmp_path / "view.mlxfn"
    state = [[0, FAR], [1, 1], 0]
    mlxfn_files.write(path, [mx.zeros(4)], "AsStrided", "ILN", state, [0, FAR])
    with little_memory():
        program = mlxfn_files.load(path)
    assert mlxfn_files.run(program, mx.zeros(4))[0].shape == (0, FAR)


def test_sums_at_no_indices(tmp_path):
    path = tmp_path / "sums.mlxfn"
    array, none = mx.zeros((4, FAR)), mx.zeros((0, FAR))
    inputs = [array, none.astype(mx.int32), none]
    mlxfn_files.write(path, inputs, "ScatterAxis", "ii", [0, 0], array.shape)
    with little_memory():
        program = mlxfn_files.load(path)
    assert program.info()["nodes"][0]["op"] == "contiguous"


def test_a_list_of_axes_that_no_array_has(tmp_path):
    path = tmp_path / "axes.mlxfn"
    state = [[0] * (1 << 16), False, "float32"]
    mlxfn_files.write(path, [mx.zeros(FAR)], "NumberOfElements", "Ibt", state, [])
    with pytest.raises(BadFormat, match="65536 axes"):
        mlxfn_files.load(path)


def test_sums_along_no_axis(tmp_path):
    """The importer finds no place for its index, and tells what is damaged."""
    path, index = tmp_path / "scatter.mlxfn", mx.zeros((), mx.int32)
    mlxfn_files.write(path, [mx.zeros(()), index, mx.zeros(())], "ScatterAxis", "ii", [0, 0], [])
    with pytest.raises(BadFormat, match="is damaged: ScatterAxis"):
        mlxfn_files.load(path)
