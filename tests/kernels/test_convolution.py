"""Convolutions and their gradients against float64, on every instruction set at hand."""

from __future__ import annotations

import itertools
import re
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numbers_of_kernels import close, exact, random, viewed, views
from support.kernel_module import needed

pytestmark = pytest.mark.usefixtures("instruction_set")

MODULE = needed()
settled = settings(max_examples=60, deadline=None)


def places(side: int, window: int, steps: dict[str, Any], axis: int) -> list[list[int | None]]:
    """For each result along an axis the element that each weight meets; None: a zero."""
    names = ("stride", "padding", "kernel_dilation", "input_dilation")
    stride, (padding, behind), dilation, spread = (steps[name][axis] for name in names)
    wide, reach = (side - 1) * spread + 1, (window - 1) * dilation + 1
    found: list[list[int | None]] = []
    for result in range((wide + padding + behind - reach) // stride + 1):
        taps = [result * stride + tap * dilation - padding for tap in range(window)]
        if steps["flip"]:
            taps.reverse()
        found.append([at // spread if at % spread == 0 and 0 <= at < wide else None for at in taps])
    return found


def reference(x: np.ndarray, weight: np.ndarray, steps: dict[str, Any]) -> np.ndarray:
    """Every product of an element and a weight, added where it belongs."""
    sides, window, groups = x.shape[1:-1], weight.shape[1:-1], steps["groups"]
    axes = [places(*pair, steps, axis) for axis, pair in enumerate(zip(sides, window, strict=True))]
    apart = x.reshape(*x.shape[:-1], groups, -1)
    parts = weight.reshape(groups, -1, *weight.shape[1:])
    out = np.zeros((x.shape[0], *map(len, axes), weight.shape[0]))
    for place in itertools.product(*(range(len(axis)) for axis in axes)):
        for tap in itertools.product(*map(range, window)):
            at = [axis[one][two] for axis, one, two in zip(axes, place, tap, strict=True)]
            if None in at:
                continue
            taken = apart[(slice(None), *at)]  # (N, groups, C / groups)
            met = parts[(slice(None), slice(None), *tap)]  # (groups, O / groups, C / groups)
            products = np.einsum("ngc,goc->ngo", taken, met)
            out[(slice(None), *place)] += products.reshape(len(x), -1)
    return out


def steps_of(shape: tuple[int, ...], changed: dict[str, Any]) -> dict[str, Any]:
    """Steps of 1 without padding, but for some."""
    axes = len(shape) - 2
    steps = {name: [1] * axes for name in ("stride", "kernel_dilation", "input_dilation")}
    return steps | {"padding": [(0, 0)] * axes, "groups": 1, "flip": False} | changed


@st.composite
def convolutions(draw: Any) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes of an input and a weight that fit, and steps."""
    axes = draw(st.integers(1, 3))

    def numbers(low: int, high: int) -> list[int]:
        return draw(st.lists(st.integers(low, high), min_size=axes, max_size=axes))

    groups, kind = draw(st.sampled_from([(1, 0), (1, 0), (1, 0), (2, 0), (3, 0), (0, 1)]))
    if kind:  # each channel for itself
        groups = draw(st.sampled_from([2, 15, 16, 17, 64, 70]))
        channels = outputs = groups
    else:
        channels = groups * draw(st.sampled_from([1, 2, 3, 4, 5, 16, 17]))
        outputs = groups * draw(st.sampled_from([1, 2, 15, 16, 17, 33, 48, 64, 70]))
    most = {1: 40, 2: 9, 3: 4}[axes]
    steps = {
        "stride": numbers(1, 3),
        "kernel_dilation": numbers(1, 2),
        "input_dilation": numbers(1, 2) if draw(st.booleans()) else [1] * axes,
        "groups": groups,
        "flip": draw(st.booleans()),
    }
    before = numbers(0, 3)
    is_even = max(steps["input_dilation"]) > 1 or draw(st.booleans())
    steps["padding"] = list(zip(before, before if is_even else numbers(-1, 3), strict=True))
    window = numbers(1, 3)
    sides = [  # one result or more, of windows that may read nothing but zeros
        max(side, (size - 1) * dilation + 1 - sum(ends), 1 - min(0, *ends))
        for side, size, dilation, ends in zip(
            numbers(1, most), window, steps["kernel_dilation"], steps["padding"], strict=True
        )
    ]
    images = draw(st.integers(1, 3))
    return (images, *sides, channels), (outputs, *window, channels // groups), steps


@settled
@given(convolutions(), views, st.booleans())
def test_a_convolution_adds_every_product(case, view, biased):
    shape, window, steps = case
    x = viewed(random(shape, "float32", 1), view)
    weight = viewed(random(window, "float32", 2), view)
    bias = random(window[:1], "float32", 3) if biased else None
    found = MODULE.convolution(x, weight, bias, **steps)
    added = exact(bias) if bias is not None else 0.0
    wanted = reference(exact(x), exact(weight), steps) + added
    size = reference(abs(exact(x)), abs(exact(weight)), steps) + abs(added)
    assert close(found, wanted, size)


# Windows of three numbers along lines, with zeros at one end, at both or at none. Lines shorter and
# longer than a tile, and cut into parts.
LINES = [
    ((3, 5, 4, 1), (16, 3, 3, 1), {"padding": [(1, 1), (1, 1)]}),
    ((2, 6, 17, 9), (32, 3, 3, 9), {"padding": [(1, 1), (1, 0)], "flip": True}),
    ((2, 7, 30, 3), (16, 2, 3, 3), {"padding": [(0, 2), (0, 1)], "stride": [2, 1]}),
    ((2, 200, 17), (16, 3, 17), {"padding": [(1, 1)]}),
    ((1, 3, 4, 16, 8), (48, 2, 3, 3, 8), {"padding": [(1, 1), (1, 1), (0, 0)]}),
]

# Many weights, which are read once for many results, by parts that threads share; windows on all
# edges, and more of them than are computed at once.
LARGE = [
    ((1, 5, 6, 256), (150, 3, 3, 256), {"padding": [(1, 1), (1, 1)]}),
    ((2, 40, 9, 70), (520, 2, 4, 70), {"padding": [(0, 1), (2, 3)], "stride": [1, 2]}),
    ((1, 3, 600), (900, 1, 600), {}),
    ((3, 50, 20, 3), (65, 7, 7, 3), {"padding": [(3, 3), (3, 3)], "stride": [2, 1]}),
    ((1, 30, 128), (100, 3, 128), {"input_dilation": [3], "padding": [(2, 2)]}),
    ((2, 9, 9, 40), (40, 3, 3, 1), {"groups": 40, "padding": [(1, 1), (1, 1)]}),
    ((1, 5, 1, 5), (5, 3, 2, 1), {"groups": 5, "padding": [(1, 2), (3, 0)], "stride": [2, 3]}),
    ((5, 13, 2, 1), (7, 3, 1, 1), {"padding": [(0, -1), (2, -1)], "stride": [1, 3]}),
    ((40, 4, 5, 6), (32, 3, 3, 3), {"groups": 2, "padding": [(1, 1), (1, 1)]}),
    ((2, 30, 48, 8), (16, 3, 3, 8), {"padding": [(1, 1), (1, 1)], "flip": True}),
    ((1, 9, 48, 128), (16, 9, 3, 128), {"padding": [(4, 4), (1, 1)]}),
    ((2, 4, 12, 49, 3), (16, 2, 3, 3, 3), {"padding": [(0, 0), (0, 0), (0, 0)]}),
    *LINES,
]


@pytest.mark.parametrize(("shape", "window", "changed"), LARGE)
def test_results_do_not_depend_on_threads(shape, window, changed):
    steps = steps_of(shape, changed)
    x, weight = random(shape, "float32", 1), random(window, "float32", 2)
    known = MODULE.threads()
    results = []
    for threads in (1, 2, 7):
        MODULE.set_threads(threads)
        results.append(MODULE.convolution(x, weight, **steps))
        mx.eval(results)
        MODULE.set_threads(known)
    size = reference(abs(exact(x)), abs(exact(weight)), steps)
    assert close(results[0], reference(exact(x), exact(weight), steps), size)
    assert all(mx.array_equal(results[0], other) for other in results)


# mlx has wrong gradients of both.
DILATED = [
    (shape, window, steps_of(shape, changed))
    for shape, window, changed in (
        ((2, 3, 4), (2, 1, 2), {"padding": [(3, 3)], "input_dilation": [3], "groups": 2}),
        ((1, 4, 3), (5, 1, 3), {"stride": [3], "padding": [(4, 4)], "input_dilation": [2]}),
    )
]


@settings(max_examples=40, deadline=None)
@given(convolutions(), st.booleans())
@example(DILATED[0], False)
@example(DILATED[1], True)
def test_gradients_are_those_of_the_sum_of_products(case, biased):
    shape, window, steps = case
    if len(window) == 5 and steps["groups"] > 1:
        return  # mlx has no such convolutions, so that programs never ask for them
    x, weight = random(shape, "float32", 1), random(window, "float32", 2)
    by = random(MODULE.convolution(x, weight, **steps).shape, "float32", 3)
    bias = random(window[:1], "float32", 5) if biased else None

    def total(*both):
        return (MODULE.convolution(*both, bias, **steps) * by).sum()

    found = mx.grad(total, [0, 1])(x, weight)
    # The sum is linear in each: its change along a direction is what the gradient says.
    for at, gradient in enumerate(found):
        given, along = [exact(x), exact(weight)], random((x, weight)[at].shape, "float32", 4)
        given[at] = exact(along)
        wanted = float((reference(*given, steps) * exact(by)).sum())
        size = float((reference(*map(np.abs, given), steps) * np.abs(exact(by))).sum())
        assert abs(float((exact(gradient) * exact(along)).sum()) - wanted) <= 1e-5 * size + 1e-6


def reference_gradients(x, weight, by, steps):
    """The same products, added for each element and for each weight (one group)."""
    sides, window = x.shape[1:-1], weight.shape[1:-1]
    axes = [places(*pair, steps, axis) for axis, pair in enumerate(zip(sides, window, strict=True))]
    of_x, of_weight = np.zeros(x.shape), np.zeros(weight.shape)
    for place in itertools.product(*(range(len(axis)) for axis in axes)):
        for tap in itertools.product(*map(range, window)):
            at = [axis[one][two] for axis, one, two in zip(axes, place, tap, strict=True)]
            if None in at:
                continue
            here, there = (slice(None), *place), (slice(None), *at)
            of_x[there] += by[here] @ weight[(slice(None), *tap)]
            of_weight[(slice(None), *tap)] += by[here].T @ x[there]
    return of_x, of_weight


# Shapes of an input and a weight, and steps that are not 1, 0 and false: few and many results, taps
# and channels, that fill fours, lanes and tiles, and that do not.
GRADIENTS = [
    ((3, 9, 7, 5), (6, 3, 3, 5), {"stride": [2, 1], "padding": [(1, 1), (0, 2)]}),
    ((2, 31, 12), (17, 4, 12), {"stride": [3], "padding": [(2, 0)], "kernel_dilation": [2]}),
    ((4, 30, 31, 1), (3, 3, 3, 1), {"stride": [2, 2], "padding": [(1, 1), (1, 1)]}),
    ((2, 5, 6, 4, 8), (16, 2, 3, 1, 8), {"stride": [2, 1, 2], "padding": [(0, 1)] * 3}),
    ((2, 12, 12, 20), (4, 5, 5, 20), {"padding": [(2, 2), (2, 2)], "flip": True}),
    ((2, 20, 21, 3), (33, 3, 2, 3), {"flip": True, "stride": [1, 2], "padding": [(-1, 3), (1, 1)]}),
    ((1, 600, 300), (2, 1, 300), {}),
    ((1, 6, 6, 4), (5, 3, 3, 4), {"stride": [2, 2]}),
    ((2, 2, 4), (2, 1, 4), {"padding": [(-6, 5)]}),
    ((5, 4, 4, 7), (1, 4, 4, 7), {}),
    *LINES,
]


@pytest.mark.parametrize(("shape", "window", "changed"), GRADIENTS)
def test_every_number_of_gradients(shape, window, changed):
    steps = steps_of(shape, changed)
    x, weight = random(shape, "float32", 1), random(window, "float32", 2)
    by = random(MODULE.convolution(x, weight, **steps).shape, "float32", 3)

    def results(*both):
        return [MODULE.convolution(*both, **steps)]

    def gradients():
        found = mx.vjp(results, [x, weight], [by])[1]
        mx.eval(found)
        return found

    found = gradients()
    wanted = reference_gradients(exact(x), exact(weight), exact(by), steps)
    sizes = reference_gradients(*(abs(exact(one)) for one in (x, weight, by)), steps)
    for one, other, size in zip(found, wanted, sizes, strict=True):
        assert close(one, other, size)
    known = MODULE.threads()
    for threads in (1, 5):
        MODULE.set_threads(threads)
        again = gradients()
        MODULE.set_threads(known)
        assert all(mx.array_equal(one, other) for one, other in zip(found, again, strict=True))


@pytest.mark.parametrize("padding", [(-6, 5), (5, -6), (-2, 1)])
def test_padding_that_cuts_off_the_whole_axis_leaves_zeros(padding):
    steps = steps_of((2, 2, 4), {"padding": [padding], "groups": 2})
    x, weight = random((2, 2, 4), "float32", 1), random((2, 1, 2), "float32", 2)
    found = MODULE.convolution(x, weight, **steps)
    assert found.shape == (2, 1, 2)
    assert not found.any()

    def squares(*both):
        return mx.square(MODULE.convolution(*both, **steps) - 1).sum()

    assert not any(each.any() for each in mx.grad(squares, [0, 1])(x, weight))


def test_gradients_have_gradients_and_rows():
    steps = {"stride": [2], "padding": [(1, 2)], "kernel_dilation": [1], "input_dilation": [1]}
    x, weight = random((3, 9, 4), "float32", 1), random((5, 3, 4), "float32", 2)
    along = random(x.shape, "float32", 3), random(weight.shape, "float32", 4)

    def loss(x, weight):
        return (MODULE.convolution(x, weight, **steps) ** 3).sum()

    def change(x, weight):
        of_x, of_weight = mx.grad(loss, [0, 1])(x, weight)
        return (of_x * along[0]).sum() + (of_weight * along[1]).sum()

    found = mx.grad(change, [0, 1])(x, weight)
    step = 1e-2
    slopes = [
        mx.grad(loss, [0, 1])(x + by * along[0], weight + by * along[1]) for by in (step, -step)
    ]
    for one, up, down in zip(found, *slopes, strict=True):
        wanted = (up - down) / (2 * step)
        assert mx.abs(one - wanted).max() < 2e-3 * mx.abs(wanted).max()
    rows = mx.stack([x, 2 * x]), mx.stack([weight, weight - 1])
    mapped = mx.vmap(mx.grad(loss, [0, 1]))(*rows)
    for row in range(2):
        alone = mx.grad(loss, [0, 1])(rows[0][row], rows[1][row])
        for one, other in zip(mapped, alone, strict=True):
            assert mx.allclose(one[row], other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("x", "weight", "changed", "reason"),
    [
        ((1, 4, 3), (2, 2, 3), {"groups": 2}, "do not fit 2 groups"),
        ((1, 4, 3), (2, 5, 3), {}, "an axis of 4 has no room"),
        ((1, 4, 3), (2, 2, 3), {"stride": [1, 1]}, "stride has 2 numbers"),
        ((1, 4, 3), (2, 2, 3), {"stride": [0]}, "stride has 0; it can be 1 or more"),
        ((1, 4, 3), (2, 2, 3), {"padding": []}, "padding has a pair"),
        ((4, 3), (2, 3), {"stride": []}, "1 to 3 axes"),
        ((1, 4, 3), (2, 0, 3), {}, "weight has no elements"),
        ((1, 4, 3), (2, 2, 3), {"input_dilation": [2], "padding": [(0, 1)]}, "the same padding"),
        ((1, 4, 3), (2, 2, 3), {"padding": [(2**31 - 1, -(2**31))]}, "padding is beyond 2^30"),
        ((1, 1, 65537), (1, 1, 65537), {}, "65537 numbers; it can have 65536 at most"),
    ],
)
def test_what_does_not_fit_is_refused(x, weight, changed, reason):
    steps = {"stride": [1], "padding": [(0, 0)], "kernel_dilation": [1], "input_dilation": [1]}
    with pytest.raises(ValueError, match=re.escape(reason)):
        MODULE.convolution(mx.zeros(x), mx.zeros(weight), **(steps | changed))


def test_no_images_give_no_results():
    steps = {"stride": [1], "padding": [(0, 0)], "kernel_dilation": [1], "input_dilation": [1]}
    assert MODULE.convolution(mx.zeros((0, 4, 3)), mx.zeros((2, 2, 3)), **steps).shape == (0, 3, 2)


def test_rows_that_mlx_maps_are_those_of_each_alone():
    steps = {"stride": [2], "padding": [(1, 0)], "kernel_dilation": [1], "input_dilation": [1]}
    x, weight = mx.random.normal((3, 2, 9, 4)), mx.random.normal((3, 5, 3, 4))
    found = mx.vmap(lambda *both: MODULE.convolution(*both, **steps))(x, weight)
    for row, (one, other) in enumerate(zip(x, weight, strict=True)):
        assert mx.allclose(found[row], MODULE.convolution(one, other, **steps), atol=1e-5)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_rows_of_weights_over_the_same_images(groups):
    """Mlx gives other numbers with groups, if the weight alone has rows."""
    steps = {"stride": [1], "padding": [(1, 1)], "kernel_dilation": [1], "input_dilation": [1]}
    x, weight = mx.random.normal((2, 9, 8)), mx.random.normal((3, 4, 3, 8 // groups))
    found = mx.vmap(
        lambda one, other: MODULE.convolution(one, other, **steps, groups=groups), (None, 0)
    )(x, weight)
    for row, other in enumerate(weight):
        wanted = MODULE.convolution(x, other, **steps, groups=groups)
        assert mx.allclose(found[row], wanted, atol=1e-5)
