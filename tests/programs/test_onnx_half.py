"""ONNX operators of float16 whose sums are beyond its range, though their results are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.onnx_models import computed

RNG = np.random.default_rng(5)
IMAGE = (RNG.standard_normal((2, 4, 8, 8)) * 400).astype("float16")
ONES, ZEROS = np.ones(4, "float16"), np.zeros(4, "float16")


def standardized(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


def by_groups(x: np.ndarray) -> np.ndarray:
    return standardized(x.reshape(2, 2, 2, 8, 8), (2, 3, 4)).reshape(x.shape)


NORMS: dict[str, Any] = {
    "InstanceNormalization": (["x", "s", "b"], {}, lambda x: standardized(x, (2, 3))),
    "GroupNormalization": (["x", "s", "b"], {"num_groups": 2}, by_groups),
    "BatchNormalization": (
        ["x", "s", "b", "b", "s"],
        {"training_mode": 1},
        lambda x: standardized(x, (0, 2, 3)),
    ),
    "MeanVarianceNormalization": (["x"], {}, lambda x: standardized(x, (0, 2, 3))),
    "LpNormalization": (["x"], {}, lambda x: x / np.sqrt((x * x).sum(-1, keepdims=True))),
    "LRN": (["x"], {"size": 1, "alpha": 1.0}, lambda x: x / (1 + x * x) ** 0.75),
}


@pytest.mark.parametrize("op", NORMS)
def test_squares_of_a_norm_are_wide(op: str):
    inputs, attributes, norm = NORMS[op]
    node = helper.make_node(op, inputs, ["y"], **attributes)
    weights = {"s": ONES, "b": ZEROS} if len(inputs) > 1 else {}
    found = computed(node, {"x": IMAGE}, weights)
    assert found.dtype == np.float16
    wanted = norm(IMAGE.astype("float64"))
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("opset", [18, 21])
def test_groups_have_a_scale_each_before_opset_21(opset: int):
    shape = (2,) if opset < 21 else (4,)
    scale = np.arange(1, shape[0] + 1, dtype="float32")
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    x = IMAGE.astype("float32")
    found = computed(node, {"x": x}, {"s": scale, "b": scale}, opset)
    each = np.repeat(scale, 4 // shape[0])[:, None, None]
    np.testing.assert_allclose(found, by_groups(x) * each + each, rtol=1e-4, atol=1e-4)


POOLS = {
    "plain": {"kernel_shape": [7, 7]},
    "dilated": {"kernel_shape": [7, 7], "dilations": [2, 2]},
    "padded": {"kernel_shape": [7, 7], "pads": [3, 3, 3, 3]},
    "padded, all counted": {"kernel_shape": [7, 7], "pads": [1, 1, 1, 1], "count_include_pad": 1},
}


@pytest.mark.parametrize("kind", POOLS)
def test_sums_of_windows_are_wide(kind: str):
    """Of 49 elements of 1400, whose sum float16 does not hold."""
    node = helper.make_node("AveragePool", ["x"], ["y"], **POOLS[kind])
    x = np.full((1, 2, 13, 13), 1400, "float16")
    found = computed(node, {"x": x}, {}, 22)
    assert found.dtype == np.float16
    wanted = computed(node, {"x": x.astype("float32")}, {}, 22)
    np.testing.assert_allclose(found, wanted, rtol=2e-3)
    if kind != "padded, all counted":
        np.testing.assert_allclose(wanted, np.full(wanted.shape, 1400), rtol=1e-6)


@pytest.mark.parametrize("op", ["LpPool", "GlobalLpPool"])
def test_powers_of_windows_are_wide(op: str):
    attributes = {"kernel_shape": [4, 4]} if op == "LpPool" else {}
    found = computed(
        helper.make_node(op, ["x"], ["y"], **attributes),
        {"x": np.full((1, 1, 4, 4), 400, "float16")},
        {},
    )
    assert found.tolist() == [[[[1600.0]]]]
