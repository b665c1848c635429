"""float16 gives what float32 does, where that is a float16: nothing is lost on the way."""

from __future__ import annotations

import math
from typing import Any

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.programs.operations import ROWS, activations, find, losses, normalizations
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import array_of
from cowmlx.programs.operations.row import Operation, OperationError, Spec

NUMBERS = (None, 1e-8, 0.99999999, 7e4)
"""Of attributes; None: those of the example."""
SCALES = (0.0, 1.0, 300.0, 2e4)
"""Of inputs; constant ones for 0."""
BOUND = 65000.0
# Their inputs are rounded to a grid, or their angles grow with what is rounded.
BY_THEMSELVES = ("rope",)
TESTED = [
    row
    for row in ROWS
    if row.differentiable
    and row.name not in BY_THEMSELVES
    and (
        row in (*normalizations.ROWS, *losses.ROWS, *activations.ROWS)
        or row.name in ("norm", "avg_pool1d", "avg_pool2d", "avg_pool3d")
    )
]


def _given(row: Operation, texts: tuple[str | None, ...], scale: float) -> list[Any]:
    found: list[Any] = []
    for at, text in enumerate(texts):
        array = None if text is None else array_of(text, at)
        if array is not None and array.dtype == mx.float32:
            if text and " " not in text:
                array = array * scale if scale else mx.full(array.shape, 3.0)
            array = array.astype(mx.float16)
        found.append(array)
    return row.arranged(found)


def _outcome(row: Operation, given: list[Any], attributes: dict[str, Any]) -> list[mx.array]:
    """The results, and the slopes of a weighted sum of them."""
    names = [row.inputs[min(at, len(row.inputs) - 1)].name for at in range(len(given))]
    places = [
        at
        for at, array in enumerate(given)
        if array is not None and mx.issubdtype(array.dtype, mx.floating)
        if names[at] in row.differentiable
    ]

    def loss(*chosen: mx.array) -> mx.array:
        inputs = list(given)
        for at, array in zip(places, chosen, strict=True):
            inputs[at] = array
        (result,) = row.compute(inputs, attributes)
        weights = mx.cos(mx.arange(result.size)).reshape(result.shape)
        return (result * weights.astype(result.dtype)).astype(mx.float32).sum()

    _, slopes = mx.vjp(loss, [given[at] for at in places], [mx.array(1.0)])
    return [*row.compute(given, attributes), *slopes]


def _widened(array: Any) -> Any:
    return array.astype(mx.float32) if array is not None and array.dtype == mx.float16 else array


@pytest.mark.parametrize("row", TESTED, ids=lambda row: row.name)
def test_float16_loses_no_number_that_it_has(row):
    tried = 0
    numbers = [each.name for each in row.attributes if each.kind == "float"]
    changes = [{}] + [{name: number} for name in numbers for number in NUMBERS[1:]]
    for example in row.examples[:2]:
        for change in changes:
            try:
                attributes = attributes_of(row, {**example.attributes, **change})
            except OperationError:
                continue  # a number that it does not take
            for scale in SCALES:
                given = _given(row, example.inputs, scale)
                specs = [
                    None if each is None else Spec(each.shape, str(each.dtype).split(".")[-1])
                    for each in given
                ]
                row.infer(specs, attributes)
                found = _outcome(row, given, attributes)
                wanted = _outcome(row, [_widened(each) for each in given], attributes)
                for one, other in zip(found, wanted, strict=True):
                    assert one.dtype == mx.float16
                    number = np.array(other)
                    with np.errstate(invalid="ignore"):
                        is_half = np.isfinite(number) & (np.abs(number) < BOUND)
                    lost = is_half & ~np.isfinite(np.array(one))
                    assert not lost.any(), (example, change, scale, number[lost])
                    tried += int(is_half.sum())
    assert tried


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("row", normalizations.ROWS, ids=lambda row: row.name)
def test_normalizations_of_16_bits_are_rounded_once(row, dtype):
    names = {each.name for each in row.attributes}
    if "eps" not in names:
        return
    for example in row.examples:
        attributes = attributes_of(row, {**example.attributes, "eps": 1e-8})
        given = [
            None if text is None else array_of(text, at, dtype)
            for at, text in enumerate(example.inputs)
        ]
        inputs = row.arranged(given)
        (found,) = row.compute(inputs, attributes)
        (wide,) = row.compute(
            [None if each is None else each.astype(mx.float32) for each in inputs], attributes
        )
        step = np.array(mx.finfo(getattr(mx, dtype)).eps)
        np.testing.assert_allclose(
            np.array(found.astype(mx.float32)), np.array(wide), rtol=float(step), atol=1e-6
        )
        assert found.dtype == getattr(mx, dtype)


@pytest.mark.parametrize("name", ["alpha", "beta"])
@pytest.mark.parametrize("number", [1e-8, 7e4])
def test_factors_of_a_product_need_not_be_float16(name, number):
    c, a, b = (mx.full(shape, 0.0625, mx.float16) for shape in ((2, 2), (2, 3), (3, 2)))
    row = find("addmm")
    attributes = attributes_of(row, {"alpha": 0.0, "beta": 0.0, name: number})
    (found,) = row.compute([c, a, b], attributes)
    wanted = number * (0.0625 if name == "beta" else 3 * 0.0625**2)
    np.testing.assert_allclose(np.array(found), wanted, rtol=1e-3, atol=6e-8)


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("random_uniform", {"low": -9e4, "high": 1000.0}),
        ("random_uniform", {"low": 5.0, "high": 7e4}),
        ("random_normal", {"scale": 7e4}),
        ("random_laplace", {"scale": 7e4}),
        ("random_truncated_normal", {"lower": -7e4}),
        ("random_truncated_normal", {"lower": -8.0, "upper": 8.0}),
    ],
)
def test_random_numbers_of_distributions_beyond_float16(name, numbers):
    """Some are float16, and these are distributed as they are in float32."""
    row, key = find(name), mx.random.key(3)
    found, wanted = (
        np.array(
            row.compute([key], attributes_of(row, {"shape": [20000], "dtype": dtype, **numbers}))[0]
        )
        for dtype in ("float16", "float32")
    )
    is_half = np.abs(wanted) < 65000
    assert is_half.mean() > 0.4 and np.isfinite(found[is_half]).all()
    np.testing.assert_allclose(
        found[is_half].std(dtype=np.float64), wanted[is_half].std(), rtol=0.01
    )
    if numbers.get("high", math.inf) < BOUND:
        assert (found < numbers["high"]).all()
