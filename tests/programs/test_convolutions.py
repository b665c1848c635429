"""Convolutions of all strides, paddings, dilations and groups: values, first and second gradients.

The values are numpy's; what mlx computes in float32 is compared with products of windows in
float64, which take another way.
"""

from __future__ import annotations

from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from support.programs import derive, graph, node, parse, value

from cowmlx.programs.operations import find, vectorized
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import OperationError, Spec

CASES = 40
NAMES = [f"{kind}{axes}d" for kind in ("conv", "conv_transpose") for axes in (1, 2, 3)]


def drawn(name: str, axes: int, seed: int) -> list[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Inputs, weights and attributes that the operation takes."""
    draw = np.random.default_rng(seed)

    def numbers(low: int, high: int) -> list[int]:
        return [int(integer) for integer in draw.integers(low, high, axes)]

    found = []
    while len(found) < CASES:
        groups = 1 if draw.random() < 0.8 else 2
        given: dict[str, Any] = {"stride": numbers(1, 4), "groups": groups}
        if name == "conv_general":
            given["padding"] = [[*draw.integers(0, 3, 2).tolist()] for _ in range(axes)]
            given["kernel_dilation"] = numbers(1, 3)
            given["input_dilation"] = numbers(1, 4)
            given["flip"] = bool(draw.random() < 0.5)
            if draw.random() < 0.6:
                given["stride"] = [1] * axes
        else:
            given["padding"] = numbers(0, 3)
            given["dilation"] = numbers(1, 4)
            if name.startswith("conv_transpose"):
                most = np.maximum(given["stride"], given["dilation"])
                given["output_padding"] = [int(each) for each in draw.integers(0, most)]
        attributes = attributes_of(find(name), given)
        x = draw.normal(size=(2, *numbers(1, 6), 2 * groups))
        w = draw.normal(size=(2 * groups, *numbers(1, 4), 2))
        try:
            find(name).infer([Spec(x.shape, "float64"), Spec(w.shape, "float64")], attributes)
        except OperationError:
            continue
        found.append((x, w, attributes))
    return found


def reference(name: str, x: np.ndarray, w: np.ndarray, attributes: dict[str, Any]) -> np.ndarray:
    """Every product of an element and a weight, added where it belongs."""
    axes = x.ndim - 2
    groups, stride, padding = (attributes[each] for each in ("groups", "stride", "padding"))
    dilation = attributes.get("dilation", attributes.get("kernel_dilation"))
    sides, window = x.shape[1:-1], w.shape[1:-1]
    if name.startswith("conv_transpose"):
        spread, ends = stride, attributes["output_padding"]
        steps, low, sign = (1,) * axes, padding, 1
        sizes = [
            (side - 1) * step - 2 * pad + reach * (each - 1) + end + 1
            for side, step, pad, reach, each, end in zip(
                sides, stride, padding, dilation, window, ends, strict=True
            )
        ]
    else:
        spread = attributes.get("input_dilation", (1,) * axes)
        pairs = [(each, each) if isinstance(each, int) else each for each in padding]
        steps, low, sign = stride, [pair[0] for pair in pairs], -1
        sizes = [
            ((side - 1) * gap + 1 + sum(pair) - reach * (each - 1) - 1) // step + 1
            for side, gap, pair, reach, each, step in zip(
                sides, spread, pairs, dilation, window, stride, strict=True
            )
        ]
    out = np.zeros((x.shape[0], *sizes, w.shape[0]))
    inner, outer = w.shape[-1], w.shape[0] // groups
    for at in np.ndindex(*sides):
        for tap in np.ndindex(*window):
            turned = [n - 1 - k for n, k in zip(window, tap, strict=True)]
            taken = turned if attributes.get("flip") else tap
            place = []
            for axis in range(axes):
                move = tap[axis] * dilation[axis]
                here = at[axis] * spread[axis] + (-low[axis] if sign > 0 else low[axis])
                here += sign * move
                whole, rest = divmod(here, steps[axis])
                place.append(whole if not rest and 0 <= whole < sizes[axis] else None)
            if None in place:
                continue
            for group in range(groups):
                ins = slice(group * inner, (group + 1) * inner)
                outs = slice(group * outer, (group + 1) * outer)
                out[(slice(None), *place, outs)] += x[(slice(None), *at, ins)] @ w[outs, *taken].T
    return out


def derivatives(name: str, x: np.ndarray, w: np.ndarray, attributes: Any, dtype: mx.Dtype) -> Any:
    """The gradients of a sum of squares, and those of a sum of the gradients."""

    def squares(*arrays: mx.array) -> mx.array:
        (out,) = find(name).compute(list(arrays), attributes)
        return mx.sum(out * out * mx.cos(mx.arange(out.size)).reshape(out.shape).astype(dtype))

    def sums(*arrays: mx.array) -> mx.array:
        found = mx.grad(squares, argnums=(0, 1))(*arrays)
        return sum(mx.sum(mx.sin(each) * each) for each in found)

    arrays = [mx.array(each).astype(dtype) for each in (x, w)]
    found = [mx.grad(function, argnums=(0, 1))(*arrays) for function in (squares, sums)]
    for pair in found:
        for gradient, array in zip(pair, arrays, strict=True):
            assert (gradient.shape, gradient.dtype) == (array.shape, dtype)
    return [np.array(each.astype(mx.float64)) for pair in found for each in pair]


@pytest.mark.parametrize("name", [*NAMES, *(f"conv_general{axes}" for axes in (1, 2, 3))])
def test_convolutions_of_all_kinds(name):
    axes = int(name.removesuffix("d")[-1])
    name = "conv_general" if name.startswith("conv_general") else name
    for x, w, attributes in drawn(name, axes, seed=axes):
        wanted = reference(name, x, w, attributes)
        for dtype in (mx.float32, mx.float64):
            arrays = [mx.array(each).astype(dtype) for each in (x, w)]
            (found,) = find(name).compute(arrays, attributes)
            assert found.shape == wanted.shape, (x.shape, w.shape, attributes)
            np.testing.assert_allclose(found, wanted, atol=1e-4, err_msg=f"{attributes}")
        narrow, wide = (
            derivatives(name, x, w, attributes, dtype) for dtype in (mx.float32, mx.float64)
        )
        for one, other in zip(narrow, wide, strict=True):
            close = 2e-3 * max(1, np.max(np.abs(other)))
            np.testing.assert_allclose(one, other, atol=close, err_msg=f"{attributes}")


def test_padding_that_cuts_off_more_than_the_axis_leaves_zeros():
    name = "conv_transpose1d"
    attributes = attributes_of(find(name), {"stride": 5, "padding": 2, "output_padding": 4})
    x = w = np.ones((1, 1, 1))
    (spec,) = find(name).infer([Spec(x.shape, "float32"), Spec(w.shape, "float32")], attributes)
    for dtype in (mx.float32, mx.float64):
        arrays = [mx.array(each).astype(dtype) for each in (x, w)]
        (found,) = find(name).compute(arrays, attributes)
        assert (found.shape, found.item()) == (spec.shape, 0)
        assert not any(each.any() for each in derivatives(name, x, w, attributes, dtype))


def spoiled(rng: np.random.Generator, many: np.ndarray) -> np.ndarray:
    """An array with an infinity and a nan in places."""
    many = many.copy()
    for number in (np.inf, np.nan):
        many[tuple(rng.integers(0, side) for side in many.shape)] = number
    return many


@pytest.mark.parametrize("name", [*NAMES, "conv_general"])
def test_rows_with_infinities_and_nans_are_those_of_each(name):
    """Mlx's own vmap makes groups of rows, whose products with padding differ."""
    axes = 1 if name == "conv_general" else int(name[-2])
    rng = np.random.default_rng(5)
    inputs = [value("x", [2, *[4] * axes, 2]), value("w", [2, *[3] * axes, 2])]
    attributes = {"padding": 1, "stride": 2 if axes == 2 else 1}
    one = parse(graph(inputs, [node("y", name, "x", "w", **attributes)], ["y"]))
    arrays = [rng.normal(size=(3, *each["shape"])) for each in inputs]
    for place in range(2):
        given = [each if at != place else spoiled(rng, each) for at, each in enumerate(arrays)]
        given = [mx.array(each).astype(mx.float32) for each in given]
        mx.eval(given)
        for own in ({"x"}, {"w"}, {"x", "w"}):
            shares = [name not in own for name in ("x", "w")]
            rows = derive(one, vectorize=dict.fromkeys(own, 0))
            (found,) = rows.run(
                [a[0] if s else a for a, s in zip(given, shares, strict=True)]
            ).finish()
            for at in range(3):
                alone = [a[0 if s else at] for a, s in zip(given, shares, strict=True)]
                (wanted,) = one.run(alone).finish()
                np.testing.assert_allclose(found[at], wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["conv2d", "conv_general", "conv_transpose1d"])
def test_many_rows_of_weights_are_those_of_each(name, monkeypatch):
    monkeypatch.setattr(vectorized, "MAX_ROWS", 2)
    axes = 1 if name == "conv_transpose1d" else 2
    inputs = [value("x", [2, *[4] * axes, 2]), value("w", [2, *[3] * axes, 2])]
    one = parse(graph(inputs, [node("y", name, "x", "w", padding=1)], ["y"]))
    rows = derive(one, vectorize={"w": 1})
    x, w = (mx.random.normal(shape) for shape in ((2, *[4] * axes, 2), (3, 2, *[3] * axes, 2)))
    (found,) = rows.run([x, mx.contiguous(w.swapaxes(0, 1))]).finish()
    for at in range(3):
        np.testing.assert_allclose(found[at], one.run([x, w[at]]).finish()[0], atol=1e-5)


@pytest.mark.parametrize("name", [*NAMES, "conv_general"])
def test_what_a_convolution_makes_on_its_way_is_bounded(name):
    """Padding and dilation can make more elements than mlx counts, which ends the process."""
    row = find(name)
    axes = 2 if name == "conv_general" else int(name[-2])
    inputs = [Spec((1, *[4] * axes, 2), "float32"), Spec((2, *[2] * axes, 2), "float32")]
    refused = 0
    for stride in (1, 2**16):
        for option in ("padding", "dilation", "kernel_dilation", "input_dilation"):
            if option not in [attribute.name for attribute in row.attributes]:
                continue
            attributes = attributes_of(row, {"stride": stride, option: 2**16})
            try:
                (out,) = row.infer(inputs, attributes)
            except OperationError as error:
                refused += "2147483647" in str(error)
            else:
                assert axes == 1 or np.prod(out.shape) < 2**31
    assert refused or axes == 1
