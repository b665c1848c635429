"""Convolutions and pooling; images have their channels last."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import mlx.core as mx

from cowmlx.programs.dimensions import Dim, Shape, at_least, count, divided
from cowmlx.programs.operations.indices import taken
from cowmlx.programs.operations.making import cast, example, row
from cowmlx.programs.operations.promotion import promote
from cowmlx.programs.operations.row import (
    LIMIT,
    REQUIRED,
    Attribute,
    Attributes,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import (
    equal,
    require_dtype,
    require_rank,
    shapes_refused,
    spec,
    value_refused,
)
from cowmlx.programs.operations.windows import by_windows, convolve

MAX_STEP = 2**16
"""Of strides, padding and dilation."""
FLOATS = ("float16", "bfloat16", "float32", "float64")


def _option(name: str, default: Any, about: str, low: int = 1) -> Attribute:
    return Attribute(name, "int or ints", default, about, low=low, high=MAX_STEP)


_STRIDE = _option("stride", 1, "From one window to the next: a number, or one for each axis.")
_PADDING = _option("padding", 0, "Zeros at both ends of axes: a number, or one for each.", 0)
_DILATION = _option("dilation", 1, "Between the elements of a window: a number, or one for each.")
_GROUPS = Attribute("groups", "int", 1, "How many groups of channels.", low=1)


def each_axis(name: str, attribute: str, value: Any, axes: int) -> tuple[int, ...]:
    """Return a number for each spatial axis.

    Raises:
        OperationError: as many as axes are not there.
    """
    found = value if isinstance(value, tuple) else (value,) * axes
    if len(found) != axes:
        raise value_refused(name, attribute, list(found), f"a number, or {axes} of them")
    return found


def windows(
    name: str, shape: Shape, length: Dim, window: Dim, stride: int, pads: int, dilation: int = 1
) -> Dim:
    """Return how many windows an axis has."""
    space = length + pads - ((window - 1) * dilation + 1)
    if at_least(space, 0) is False:
        raise shapes_refused(
            name, [shape], f"an axis of {length} with {pads} of padding has no room for {window}"
        )
    return space // stride + 1


def _channels(name: str, inputs: list[Any], axes: int, groups: int) -> str:
    """Check what all convolutions want; return the dtype in which inputs meet."""
    given, weight = inputs
    for place, each in (("input", given), ("weight", weight)):
        require_dtype(name, place, each, FLOATS)
        require_rank(name, place, each, axes + 2, axes + 2)
    outputs, taken = weight.shape[0], weight.shape[-1]
    if not equal(given.shape[-1], taken * groups):
        raise shapes_refused(
            name,
            [given.shape, weight.shape],
            f"the input's channels ({given.shape[-1]}) must be the weight's ({taken}) times groups "
            f"({groups})",
        )
    if groups > 1 and divided(outputs, groups) is None:
        raise shapes_refused(
            name, [given.shape, weight.shape], f"{outputs} outputs are no multiple of {groups}"
        )
    # mlx divides by it, and ends the process.
    if taken == 0 or outputs == 0 or 0 in weight.shape[1:-1]:
        raise shapes_refused(name, [weight.shape], "the weight must have elements")
    return promote(name, [each.dtype for each in inputs])


MAX_ELEMENTS = 2**31 - 1
"""Of an input with its padding and dilation, and of all its windows: mlx counts in 32 bits."""


def _require_bounded(
    name: str,
    inputs: list[Any],
    out: Shape,
    steps: list[tuple[int, ...]],
    pads: list[tuple[int, int]],
) -> None:
    """Check what a convolution makes on its way, which may be far more than it takes and gives.

    Args:
        name: the operation.
        inputs: the specs of input and weight.
        out: the result's shape.
        steps: stride, kernel_dilation and input_dilation of each axis.
        pads: of each axis.

    Raises:
        OperationError: it is more than mlx can count.
    """
    given, weight = inputs
    stride, kernel, spread = steps
    lengths = [
        (length - 1) * gap + 1 + max_of(sum(pad), 0)
        for length, gap, pad in zip(given.shape[1:-1], spread, pads, strict=True)
    ]
    found = count((given.shape[0], *lengths, given.shape[-1]))
    if by_windows(given.dtype, stride, kernel, spread):
        found = max_of(found, count((*out[:-1], *weight.shape[1:-1], given.shape[-1])))
    if isinstance(found, int) and found > MAX_ELEMENTS:
        raise OperationError(
            LIMIT,
            f"{name} makes {found} elements of padding, dilation and windows on its way, must be "
            f"{MAX_ELEMENTS} at most: take less padding, dilation or stride",
            op=name,
            limit=MAX_ELEMENTS,
            value=found,
            shapes=f"{given}, {weight}",
        )


def max_of(one: Dim, other: Dim) -> Dim:
    """Return the greater of two numbers; the first where a dimension has no value yet."""
    return max(one, other) if isinstance(one, int) and isinstance(other, int) else one


def _convolution(axes: int) -> Operation:
    name = f"conv{axes}d"

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        given, weight = inputs
        dtype = _channels(name, inputs, axes, attributes["groups"])
        options = [
            each_axis(name, option, attributes[option], axes)
            for option in ("stride", "padding", "dilation")
        ]
        spatial = [
            windows(name, given.shape, length, window, stride, 2 * padding, dilation)
            for length, window, stride, padding, dilation in zip(
                given.shape[1:-1], weight.shape[1:-1], *options, strict=True
            )
        ]
        out = (given.shape[0], *spatial, weight.shape[0])
        stride, padding, dilation = options
        pads = [(each, each) for each in padding]
        _require_bounded(name, inputs, out, [stride, dilation, (1,) * axes], pads)
        return [spec(name, out, dtype)]

    def cost(inputs: list[Any], attributes: Attributes) -> Dim:
        return count(infer(inputs, attributes)[0].shape) * count(inputs[1].shape[1:])

    sizes = ("[2,7,4]", "[2,6,5,4]", "[1,4,5,4,4]")[axes - 1]
    kernel = ",".join("322"[:axes])
    return row(
        name,
        ("input", "weight"),
        infer,
        lambda arrays, attributes: [_convolved(arrays, axes, attributes)],
        f"The convolution along {axes} {'axis' if axes == 1 else 'axes'}: input (N, "
        f"{'DHW'[3 - axes :] if axes > 1 else 'L'}, C_in), weight (C_out, kernel, C_in / groups).",
        "out[n, i, o] = sum over k, c of input[n, i stride + k dilation - padding, c] weight[o, k, "
        "c]",
        [
            example(f"float32{sizes}", f"float32[6,{kernel},4]"),
            example(f"float32{sizes}", f"float32[6,{kernel},4]", stride=2, padding=1),
            example(f"float32{sizes}", f"float32[6,{kernel},2]", groups=2, padding=2, dilation=2),
            example(f"float32[0{sizes[2:]}", f"float32[6,{kernel},4]"),
        ],
        attributes=(_STRIDE, _PADDING, _DILATION, _GROUPS),
        differentiable=("input", "weight"),
        stacks=(0,),
        of_many_rows=lambda arrays, attributes: [
            _convolved(arrays, axes, attributes, gathers=True)
        ],
        multiplications=cost,
    )


def _convolved(
    arrays: list[mx.array], axes: int, attributes: Attributes, gathers: bool = False
) -> mx.array:
    given, weight = cast(arrays)
    stride, padding, dilation = (
        each_axis("conv", name, attributes[name], axes)
        for name in ("stride", "padding", "dilation")
    )
    pads = [(each, each) for each in padding]
    groups = attributes["groups"]
    ones = (1,) * axes
    return convolve(given, weight, stride, pads, dilation, ones, groups, gathers=gathers)


def _transposed_arrays(
    arrays: list[mx.array], axes: int, attributes: Attributes, gathers: bool = False
) -> mx.array:
    given, weight = cast(arrays)
    stride, padding, dilation, more = (
        each_axis("conv", name, attributes[name], axes)
        for name in ("stride", "padding", "dilation", "output_padding")
    )
    pads = []
    for at in range(axes):
        low = dilation[at] * (weight.shape[1 + at] - 1) - padding[at]
        pads.append((low, low + more[at]))
    groups = attributes["groups"]
    return convolve(
        given, weight, (1,) * axes, pads, dilation, stride, groups, flip=True, gathers=gathers
    )


def _transposed(axes: int) -> Operation:
    name = f"conv_transpose{axes}d"

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        given, weight = inputs
        dtype = _channels(name, inputs, axes, attributes["groups"])
        options = [
            each_axis(name, option, attributes[option], axes)
            for option in ("stride", "padding", "dilation", "output_padding")
        ]
        spatial = []
        for length, window, stride, padding, dilation, more in zip(
            given.shape[1:-1], weight.shape[1:-1], *options, strict=True
        ):
            if more >= max(stride, dilation):
                raise value_refused(name, "output_padding", more, "less than stride or dilation")
            out = (length - 1) * stride - 2 * padding + dilation * (window - 1) + more + 1
            if length == 0 or at_least(out, 1) is False:
                raise shapes_refused(
                    name, [given.shape, weight.shape], "nothing is left of an axis"
                )
            spatial.append(out)
        out = (given.shape[0], *spatial, weight.shape[0])
        stride, _, dilation, more = options
        # The result before it is cut, and its room, count like an input with its padding.
        pads = [
            (reach * (window - 1), reach * (window - 1) + end)
            for reach, window, end in zip(dilation, weight.shape[1:-1], more, strict=True)
        ]
        _require_bounded(name, inputs, out, [(1,) * axes, dilation, stride], pads)
        return [spec(name, out, dtype)]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        return [_transposed_arrays(arrays, axes, attributes)]

    sizes = ("[2,5,4]", "[2,4,3,4]", "[1,2,3,2,4]")[axes - 1]
    kernel = ",".join("322"[:axes])
    return row(
        name,
        ("input", "weight"),
        infer,
        compute,
        f"The transposed convolution along {axes} {'axis' if axes == 1 else 'axes'}, the gradient "
        f"of conv{axes}d for its input.",
        "out[n, i stride + k dilation - padding, o] = sum over k, c of input[n, i, c] weight[o, k, "
        "c]",
        [
            example(f"float32{sizes}", f"float32[6,{kernel},4]"),
            example(
                f"float32{sizes}", f"float32[6,{kernel},4]", stride=2, padding=1, output_padding=1
            ),
            example(f"float32{sizes}", f"float32[6,{kernel},4]", dilation=2),
            example(f"float32{sizes}", f"float32[6,{kernel},2]", groups=2, stride=2),
        ],
        attributes=(
            _STRIDE,
            _PADDING,
            _DILATION,
            _option("output_padding", 0, "More at the end of axes.", 0),
            _GROUPS,
        ),
        differentiable=("input", "weight"),
        stacks=(0,),
        of_many_rows=lambda arrays, attributes: [
            _transposed_arrays(arrays, axes, attributes, gathers=True)
        ],
    )


def _general(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    name = "conv_general"
    given, weight = inputs
    require_rank(name, "input", given, 3, 5)
    axes = len(given.shape) - 2
    dtype = _channels(name, inputs, axes, attributes["groups"])
    strides = each_axis(name, "stride", attributes["stride"], axes)
    kernels = each_axis(name, "kernel_dilation", attributes["kernel_dilation"], axes)
    dilations = each_axis(name, "input_dilation", attributes["input_dilation"], axes)
    pads = _paddings(axes, attributes["padding"])
    spatial = [
        windows(name, given.shape, _spread(length, spread), window, stride, sum(pad), kernel)
        for length, window, stride, kernel, spread, pad in zip(
            given.shape[1:-1], weight.shape[1:-1], strides, kernels, dilations, pads, strict=True
        )
    ]
    out = (given.shape[0], *spatial, weight.shape[0])
    _require_bounded(name, inputs, out, [strides, kernels, dilations], pads)
    return [spec(name, out, dtype)]


def _spread(length: Dim, dilation: int) -> Dim:
    """Return the length of an axis with zeros between its elements."""
    return 0 if length == 0 else (length - 1) * dilation + 1


def _paddings(axes: int, padding: Any) -> list[tuple[int, int]]:
    if not isinstance(padding, tuple):
        return [(padding, padding)] * axes
    if len(padding) != axes:
        raise value_refused(
            "conv_general", "padding", [list(each) for each in padding], f"{axes} pairs"
        )
    return list(padding)


def _general_arrays(
    arrays: list[Any], attributes: Attributes, gathers: bool = False
) -> list[mx.array]:
    given, weight = cast(arrays)
    axes = weight.ndim - 2
    pads = _paddings(axes, attributes["padding"])
    stride, kernel, spread = (
        each_axis("conv_general", name, attributes[name], axes)
        for name in ("stride", "kernel_dilation", "input_dilation")
    )
    groups, flip = attributes["groups"], attributes["flip"]
    return [convolve(given, weight, stride, pads, kernel, spread, groups, flip, gathers)]


def _convolve(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    a, v = inputs
    for place, each in (("a", a), ("v", v)):
        require_dtype("convolve", place, each, FLOATS)
        require_rank("convolve", place, each, 1, 1)
    if 0 in (a.shape[0], v.shape[0]):
        raise shapes_refused("convolve", [a.shape, v.shape], "both must have elements")
    if not isinstance(a.shape[0], int) or not isinstance(v.shape[0], int):
        raise shapes_refused("convolve", [a.shape, v.shape], "both lengths must be numbers")
    long, short = max(a.shape[0], v.shape[0]), min(a.shape[0], v.shape[0])
    length = {"full": long + short - 1, "same": long, "valid": long - short + 1}
    dtype = promote("convolve", [a.dtype, v.dtype])
    return [spec("convolve", (length[attributes["mode"]],), dtype)]


def _convolve_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    a, v = cast(arrays)
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
    return [convolve(line, window, (1,), [(0, 0)], (1,), (1,)).reshape(-1)]


def _pool(name: str, axes: int, largest: bool) -> Operation:
    def sizes(attributes: Attributes) -> list[tuple[int, ...]]:
        stride = attributes["stride"]
        kernel = each_axis(name, "kernel_size", attributes["kernel_size"], axes)
        return [
            kernel,
            kernel if stride is None else each_axis(name, "stride", stride, axes),
            each_axis(name, "padding", attributes["padding"], axes),
        ]

    def infer(inputs: list[Any], attributes: Attributes) -> list[Spec]:
        (given,) = inputs
        require_dtype(name, "x", given, FLOATS)
        require_rank(name, "x", given, axes + 2, axes + 2)
        spatial = []
        for length, kernel, stride, padding in zip(
            given.shape[1:-1], *sizes(attributes), strict=True
        ):
            if 2 * padding > kernel:
                raise value_refused(
                    name, "padding", padding, f"half of kernel_size {kernel} at most"
                )
            spatial.append(windows(name, given.shape, length, kernel, stride, 2 * padding))
        return [spec(name, (given.shape[0], *spatial, given.shape[-1]), given.dtype)]

    def compute(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
        (x,) = arrays
        return [_pooled(x, sizes(attributes), largest)]

    shape = ("[2,7,3]", "[2,5,6,3]", "[1,4,5,4,2]")[axes - 1]
    return row(
        name,
        ("x",),
        infer,
        compute,
        f"The {'largest' if largest else 'mean'} of each window along {axes} "
        f"{'axis' if axes == 1 else 'axes'}, channels last"
        + (" (padding counts as 0)." if not largest else "."),
        f"out[n, i, c] = {'max' if largest else 'mean'} over k of x[n, i stride + k - padding, c]",
        [
            example(f"float32{shape}", kernel_size=2),
            example(f"float32{shape}", kernel_size=3, stride=1, padding=1),
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
        x = mx.pad(x, [(0, 0), *((each, each) for each in padding), (0, 0)], constant_values=edge)
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
    *(_convolution(axes) for axes in (1, 2, 3)),
    *(_transposed(axes) for axes in (1, 2, 3)),
    row(
        "conv_general",
        ("input", "weight"),
        _general,
        _general_arrays,
        "A convolution along 1 to 3 axes with padding for each end, and a dilated input.",
        "as conv1d, conv2d and conv3d, of the input with zeros between its elements",
        [
            example("float32[2,6,5,4]", "float32[3,2,3,4]", padding=[[1, 0], [2, 1]]),
            example("float32[2,6,4]", "float32[3,2,4]", input_dilation=2, stride=2),
            example("float32[2,6,4]", "float32[3,3,4]", kernel_dilation=2, flip=True),
        ],
        aliases=("conv", "convolution", "conv_general_dilated"),
        attributes=(
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
        differentiable=("input", "weight"),
        stacks=(0,),
        of_many_rows=partial(_general_arrays, gathers=True),
    ),
    row(
        "convolve",
        ("a", "v"),
        _convolve,
        _convolve_arrays,
        "The discrete convolution of two lines.",
        "out[i] = sum over k of a[i - k] v[k]",
        [
            example("float32[5]", "float32[3]"),
            example("float32[2]", "float32[5]", mode="same"),
            example("float32[5]", "float32[2]", mode="valid"),
        ],
        attributes=(
            Attribute(
                "mode",
                "choice",
                "full",
                "How much of the ends is wanted.",
                choices=("full", "same", "valid"),
            ),
        ),
        differentiable=("a", "v"),
    ),
    *(pool(axes) for pool in _POOLS for axes in (1, 2, 3)),
)
