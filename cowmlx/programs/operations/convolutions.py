"""Convolutions and pooling; images have their channels last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least, count, divided
from cowmlx.programs.operations import rules
from cowmlx.programs.operations.half import in_float32
from cowmlx.programs.operations.indices import taken
from cowmlx.programs.operations.making import cast, example, row
from cowmlx.programs.operations.row import (
    REQUIRED,
    Attribute,
    Attributes,
    Example,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import FLOATS, promote
from cowmlx.programs.operations.windows import Steps, by_windows, convolve

MAX_STEP = 2**16
"""Of strides, padding and dilation."""
MAX_ELEMENTS = 2**31 - 1
"""Of an input with its padding and dilation, and of all its windows: mlx counts in 32 bits."""


def _option(name: str, default: Any, about: str, low: int = 1) -> Attribute:
    return Attribute(name, "int or ints", default, about, low=low, high=MAX_STEP)


_STRIDE = _option("stride", 1, "From one window to the next: a number, or one for each axis.")
_PADDING = _option("padding", 0, "Zeros at both ends of axes: a number, or one for each.", 0)
_DILATION = _option("dilation", 1, "Between the elements of a window: a number, or one for each.")
_GROUPS = Attribute("groups", "int", 1, "How many groups of channels.", low=1)


def _each_axis(attributes: Attributes, axes: int, *options: str) -> list[Any]:
    """Return for each option a number for each spatial axis."""
    numbers = []
    for option in options:
        value = attributes[option]
        each = value if isinstance(value, tuple) else (value,) * axes
        if len(each) != axes:
            raise rules.value_refused(option, list(each), f"a number, or {axes} of them")
        numbers.append(each)
    return numbers


def windows(
    shape: Shape, length: Dim, window: Dim, stride: int, pads: Dim, dilation: int = 1
) -> Dim:
    """Return how many windows an axis has."""
    space = length + pads - ((window - 1) * dilation + 1)
    if at_least(space, 0) is False:
        raise rules.shapes_refused(
            [shape], f"an axis of {length} with {pads} of padding has no room for {window}"
        )
    return space // stride + 1


def _channels(inputs: Sequence[Any], axes: int, groups: int) -> str:
    """Check dtypes, ranks and channels; return the dtype in which inputs meet."""
    given, weight = inputs
    for place, each in (("input", given), ("weight", weight)):
        rules.require_dtype(place, each, FLOATS)
        rules.require_rank(place, each, axes + 2, axes + 2)
    outputs, channels = weight.shape[0], weight.shape[-1]
    shapes = [given.shape, weight.shape]
    if not rules.equal(given.shape[-1], channels * groups):
        raise rules.shapes_refused(
            shapes,
            f"the input's channels ({given.shape[-1]}) must be the weight's ({channels}) times "
            f"groups ({groups})",
        )
    if groups > 1 and divided(outputs, groups) is None:
        raise rules.shapes_refused(shapes, f"{outputs} outputs are no multiple of {groups}")
    # mlx divides by it, and ends the process.
    if channels == 0 or outputs == 0 or 0 in weight.shape[1:-1]:
        raise rules.shapes_refused([weight.shape], "the weight must have elements")
    return promote([operand.dtype for operand in inputs])


def steps_of(
    name: str, attributes: Attributes, kernel: Sequence[Dim], is_cut: bool = True
) -> Steps:
    """Return the steps of a convolution for attributes.

    Args:
        name: the operation.
        attributes: its attributes.
        kernel: the axes of the weight's windows.
        is_cut: whether the padding of a transposed convolution cuts its result; it is computed in
            whole first.
    """
    axes = len(kernel)
    each = partial(_each_axis, attributes, axes)
    ones, groups = (1,) * axes, attributes["groups"]
    if name == "conv_general":
        stride, dilation = each("stride", "kernel_dilation")
        (spread,) = each("input_dilation")
        pads = attributes["padding"]
        pads = pads if isinstance(pads, tuple) else ((pads, pads),) * axes
        if len(pads) != axes:
            raise rules.value_refused("padding", [list(pair) for pair in pads], f"{axes} pairs")
        return Steps(stride, list(pads), dilation, spread, groups, attributes["flip"])
    stride, padding, dilation = each("stride", "padding", "dilation")
    if not name.startswith("conv_transpose"):
        return Steps(stride, [(pad, pad) for pad in padding], dilation, ones, groups)
    (more,) = each("output_padding")
    pads = []
    for window, pad, reach, end in zip(kernel, padding, dilation, more, strict=True):
        low: Any = reach * (window - 1) - (pad if is_cut else 0)
        pads.append((low, low + end))
    return Steps(ones, pads, dilation, stride, groups, flip=True)


def _require_bounded(inputs: Sequence[Any], out: Shape, steps: Steps) -> None:
    """Check what a convolution makes on its way, which may be far more than it takes and gives."""
    given, weight = inputs
    lengths = [
        (length - 1) * gap + 1 + max_of(sum(pad), 0)
        for length, gap, pad in zip(
            given.shape[1:-1], steps.input_dilation, steps.pads, strict=True
        )
    ]
    size = count((given.shape[0], *lengths, given.shape[-1]))
    if by_windows(given.dtype, steps):
        size = max_of(size, count((*out[:-1], *weight.shape[1:-1], given.shape[-1])))
    if isinstance(size, int) and size > MAX_ELEMENTS:
        raise OperationError(
            "limit_exceeded",
            f"makes {size} elements of padding, dilation and windows on its way, must be "
            f"{MAX_ELEMENTS} at most: take less padding, dilation or stride",
            limit=MAX_ELEMENTS,
            value=size,
            shapes=f"{given}, {weight}",
        )


def max_of(one: Dim, other: Dim) -> Dim:
    """Return the greater of two numbers; the first where a dimension has no value yet."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else one


def _axis_length(
    name: str, inputs: Sequence[Any], at: int, steps: Steps, attributes: Attributes
) -> Dim:
    """Return how long a spatial axis of the result is."""
    given, weight = inputs
    length, window = given.shape[1 + at], weight.shape[1 + at]
    spread, pad, reach = steps.input_dilation[at], steps.pads[at], steps.kernel_dilation[at]
    wide = 0 if length == 0 else (length - 1) * spread + 1
    if not name.startswith("conv_transpose"):
        return windows(given.shape, wide, window, steps.stride[at], sum(pad), reach)
    more = pad[1] - pad[0]
    if more >= max(spread, reach):
        raise rules.value_refused("output_padding", more, "less than stride or dilation")
    out = wide + sum(pad) - reach * (window - 1)
    if length == 0 or at_least(out, 1) is False:
        raise rules.shapes_refused([given.shape, weight.shape], "nothing is left of an axis")
    return out


def _convolution(
    name: str,
    axes: int | None,
    summary: str,
    formula: str,
    examples: Sequence[Example],
    attributes: Sequence[Attribute],
    **more: Any,
) -> Operation:
    """Return the row of a convolution along some axes; None: 1 to 3."""

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        given, weight = inputs
        if axes is None:
            rules.require_rank("input", given, 3, 5)
        spatial = len(given.shape) - 2 if axes is None else axes
        dtype = _channels(inputs, spatial, attributes["groups"])
        steps = steps_of(name, attributes, weight.shape[1:-1])
        lengths = [
            _axis_length(name, inputs, at, steps, attributes) for at in range(len(steps.stride))
        ]
        out = (given.shape[0], *lengths, weight.shape[0])
        whole = steps_of(name, attributes, weight.shape[1:-1], is_cut=False)
        _require_bounded(inputs, out, whole)
        return rules.spec(out, dtype)

    def compute(given: Any, weight: Any, /, gathers: bool = False, **attributes: Any) -> mx.array:
        given, weight = cast([given, weight])
        steps = steps_of(name, attributes, weight.shape[1:-1])
        return convolve(given, weight, steps, gathers)

    def cost(inputs: Sequence[Any], attributes: Attributes) -> Dim:
        return count(infer(*inputs, **attributes).shape) * count(inputs[1].shape[1:])

    return row(
        f"{name}(input, weight)",
        infer,
        compute,
        summary,
        formula,
        examples,
        attributes=attributes,
        differentiable=("input", "weight"),
        stacks=(0,),
        of_many_rows=partial(compute, gathers=True),
        multiplications=cost if _DILATION in attributes and len(attributes) == 4 else None,
        **more,
    )


def _plain(axes: int) -> Operation:
    sizes = ("[2,7,4]", "[2,6,5,4]", "[1,4,5,4,4]")[axes - 1]
    kernel = ",".join("322"[:axes])
    return _convolution(
        f"conv{axes}d",
        axes,
        f"The convolution along {axes} {'axis' if axes == 1 else 'axes'}: input (N, "
        f"{'DHW'[3 - axes :] if axes > 1 else 'L'}, C_in), weight (C_out, kernel, C_in / groups).",
        "out[n, i, o] = sum over k, c of input[n, i stride + k dilation - padding, c] weight[o, k, "
        "c]",
        [
            example(f"{sizes}", f"[6,{kernel},4]"),
            example(f"{sizes}", f"[6,{kernel},4]", stride=2, padding=1),
            example(f"{sizes}", f"[6,{kernel},2]", groups=2, padding=2, dilation=2),
            example(f"[0{sizes[2:]}", f"[6,{kernel},4]"),
        ],
        (_STRIDE, _PADDING, _DILATION, _GROUPS),
    )


def _transposed(axes: int) -> Operation:
    sizes = ("[2,5,4]", "[2,4,3,4]", "[1,2,3,2,4]")[axes - 1]
    kernel = ",".join("322"[:axes])
    whole, half = f"float32[6,{kernel},4]", f"float32[6,{kernel},2]"
    return _convolution(
        f"conv_transpose{axes}d",
        axes,
        f"The transposed convolution along {axes} {'axis' if axes == 1 else 'axes'}, the gradient "
        f"of conv{axes}d for its input.",
        "out[n, i stride + k dilation - padding, o] = sum over k, c of input[n, i, c] weight[o, k, "
        "c]",
        [
            example(f"{sizes}", whole),
            example(f"{sizes}", whole, stride=2, padding=1, output_padding=1),
            example(f"{sizes}", whole, dilation=2),
            example(f"{sizes}", half, groups=2, stride=2),
        ],
        (
            _STRIDE,
            _PADDING,
            _DILATION,
            _option("output_padding", 0, "More at the end of axes.", 0),
            _GROUPS,
        ),
    )


def _convolve(a: Any, v: Any, /, **attributes: Any) -> Spec:
    for place, each in (("a", a), ("v", v)):
        rules.require_dtype(place, each, FLOATS)
        rules.require_rank(place, each, 1, 1)
    if 0 in (a.shape[0], v.shape[0]):
        raise rules.shapes_refused([a.shape, v.shape], "both must have elements")
    if not isinstance(a.shape[0], int) or not isinstance(v.shape[0], int):
        raise rules.shapes_refused([a.shape, v.shape], "both lengths must be numbers")
    long, short = max(a.shape[0], v.shape[0]), min(a.shape[0], v.shape[0])
    length = {"full": long + short - 1, "same": long, "valid": long - short + 1}
    dtype = promote([a.dtype, v.dtype])
    return rules.spec((length[attributes["mode"]],), dtype)


def _convolve_arrays(a: Any, v: Any, /, **attributes: Any) -> mx.array:
    a, v = cast([a, v])
    if a.size < v.size:
        a, v = v, a
    short = v.size
    before, behind = {
        "full": (short - 1, short - 1),
        "same": (short // 2, short - 1 - short // 2),
        "valid": (0, 0),
    }[attributes["mode"]]
    line = mx.pad(a, (before, behind)).reshape(1, -1, 1)
    window = v[::-1].reshape(1, -1, 1)
    return convolve(line, window, Steps((1,), [(0, 0)], (1,), (1,))).reshape(-1)


def _pool(name: str, axes: int, largest: bool) -> Operation:
    def sizes(attributes: Attributes) -> list[tuple[int, ...]]:
        kernel, padding = _each_axis(attributes, axes, "kernel_size", "padding")
        if attributes["stride"] is None:
            return [kernel, kernel, padding]
        return [kernel, *_each_axis(attributes, axes, "stride"), padding]

    def infer(given: Any, /, **attributes: Any) -> Spec:
        rules.require_dtype("x", given, FLOATS)
        rules.require_rank("x", given, axes + 2, axes + 2)
        spatial = []
        for length, kernel, stride, padding in zip(
            given.shape[1:-1], *sizes(attributes), strict=True
        ):
            if 2 * padding > kernel:
                accepted = f"half of kernel_size {kernel} at most"
                raise rules.value_refused("padding", padding, accepted)
            spatial.append(windows(given.shape, length, kernel, stride, 2 * padding))
        return rules.spec((given.shape[0], *spatial, given.shape[-1]), given.dtype)

    def compute(x: mx.array, **attributes: Any) -> mx.array:
        return _pooled(x, sizes(attributes), largest)

    shape = ("[2,7,3]", "[2,5,6,3]", "[1,4,5,4,2]")[axes - 1]
    return row(
        f"{name}(x)",
        infer,
        compute if largest else in_float32(compute),
        f"The {'largest' if largest else 'mean'} of each window along {axes} "
        f"{'axis' if axes == 1 else 'axes'}, channels last"
        + (" (padding counts as 0)." if not largest else "."),
        f"out[n, i, c] = {'max' if largest else 'mean'} over k of x[n, i stride + k - padding, c]",
        [
            example(f"{shape}", kernel_size=2),
            example(f"{shape}", kernel_size=3, stride=1, padding=1),
        ],
        attributes=(
            _option("kernel_size", REQUIRED, "The window: a number, or one for each axis."),
            _option("stride", None, "From one window to the next; null is the window's size."),
            _option("padding", 0, "Added at both ends of axes, half a window at most.", 0),
        ),
        differentiable=("x",),
    )


def _pooled(x: mx.array, sizes: list[tuple[int, ...]], largest: bool) -> mx.array:
    """Pool one axis after the other, by indices of windows, which lie within."""
    kernel, stride, padding = sizes
    edge = mx.array(float("-inf") if largest else 0, dtype=x.dtype)
    if any(padding):
        x = mx.pad(
            x, [(0, 0), *((width, width) for width in padding), (0, 0)], constant_values=edge
        )
    for axis, (window, step) in enumerate(zip(kernel, stride, strict=True), 1):
        many = (x.shape[axis] - window) // step + 1
        places = mx.arange(many)[:, None] * step + mx.arange(window)
        parts = taken(x, places, axis)
        x = mx.max(parts, axis=axis + 1) if largest else mx.mean(parts, axis=axis + 1)
    return x


_POOLS: tuple[Callable[[int], Operation], ...] = (
    lambda axes: _pool(f"max_pool{axes}d", axes, True),
    lambda axes: _pool(f"avg_pool{axes}d", axes, False),
)

ROWS = (
    *(make(axes) for make in (_plain, _transposed) for axes in (1, 2, 3)),
    _convolution(
        "conv_general",
        None,
        "A convolution along 1 to 3 axes with padding for each end, and a dilated input.",
        "as conv1d, conv2d and conv3d, of the input with zeros between its elements",
        [
            example("[2,6,5,4]", "[3,2,3,4]", padding=[[1, 0], [2, 1]]),
            example("[2,6,4]", "[3,2,4]", input_dilation=2, stride=2),
            example("[2,6,4]", "[3,3,4]", kernel_dilation=2, flip=True),
        ],
        (
            _STRIDE,
            Attribute(
                "padding",
                "pairs",
                0,
                "Zeros at ends: a number, or [before, behind] for each axis.",
                low=0,
                high=MAX_STEP,
            ),
            _option("kernel_dilation", 1, "Between the elements of a window."),
            _option("input_dilation", 1, "Between the elements of the input."),
            _GROUPS,
            Attribute("flip", "bool", False, "Whether windows are reversed, as in mathematics."),
        ),
        aliases="conv convolution conv_general_dilated",
    ),
    row(
        "convolve(∂a, ∂v)",
        _convolve,
        _convolve_arrays,
        "The discrete convolution of two lines.",
        "out[i] = sum over k of a[i - k] v[k]",
        [
            example("[5]", "[3]"),
            example("[2]", "[5]", mode="same"),
            example("[5]", "[2]", mode="valid"),
        ],
        attributes=(
            Attribute(
                "mode",
                "choice",
                "full",
                "How much of the ends is wanted.",
                ("full", "same", "valid"),
            ),
        ),
    ),
    *(pool(axes) for pool in _POOLS for axes in (1, 2, 3)),
)
