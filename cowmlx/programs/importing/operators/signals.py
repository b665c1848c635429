"""Fourier transforms, and matrices of signals."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.importing.values import Value


def _complex(node: OnnxNode, value: Value) -> Value:
    """Return (…, 1) or (…, 2) of floats as complex numbers."""
    if value.shape[-1] not in (1, 2):
        raise BadFormat(f"its last axis is {value.shape[-1]}, must be 1 or 2 for complex numbers")
    parts = [
        node.scope.reshape(
            node.apply("slice", value, start=[at], stop=[at + 1], axes=[value.rank - 1]),
            list(value.shape[:-1]),
        )
        for at in range(value.shape[-1])
    ]
    real = node.scope.cast(parts[0], "complex64")
    if len(parts) == 1:
        return real
    unit = node.scope.constant(np.array(1j, "complex64"))
    return node.apply("add", real, node.apply("multiply", parts[1], unit))


def _pairs(node: OnnxNode, value: Value) -> Value:
    parts = [node.apply("real", value), node.apply("imag", value)]
    return node.apply("stack", *parts, axis=value.rank)


@converts("DFT")
def _dft(node: OnnxNode) -> Value:
    value = node.input()
    if value.dtype != "float32":
        raise Unsupported(f"its input is {value.dtype}; complex numbers are of float32")
    if node.opset >= 20:
        axis = node.numbers(2, "axis")[0] if node.optional(2) is not None else -2
    else:
        axis = node.attr("axis", 1)
    axis = node.axis_of(axis, value.rank)
    options: dict[str, Any] = {"axis": axis}
    if node.optional(1) is not None:
        options["n"] = node.numbers(1, "dft_length")[0]
    inverse, onesided = node.attr("inverse", 0), node.attr("onesided", 0)
    if inverse and onesided:
        found = node.apply("irfft", _complex(node, value), **options)
        return node.apply("expand_dims", found, axis=found.rank)
    found = node.apply("ifft" if inverse else "fft", _complex(node, value), **options)
    if onesided:
        length = found.shape[axis]
        if not isinstance(length, int):
            raise Unsupported(f"its axis of {length} must be known before a run")
        found = node.apply("slice", found, start=[0], stop=[length // 2 + 1], axes=[axis])
    return _pairs(node, found)


@converts("STFT")
def _stft(node: OnnxNode) -> Value:
    value, window = node.input(0), node.optional(2)
    step = node.numbers(1, "frame_step")[0]
    length = node.numbers(3, "frame_length")[0] if node.optional(3) is not None else None
    if length is None:
        length = window.shape[0] if window is not None else None  # type: ignore[assignment]
    side = value.shape[1]
    if not isinstance(side, int) or not isinstance(length, int) or step < 1:
        raise Unsupported("its lengths must be known before a run")
    frames = (side - length) // step + 1
    node.bounded([frames, length])
    places = np.arange(frames)[:, None] * step + np.arange(length)[None, :]
    cut = node.apply("take", value, node.scope.constant(places, "int64"), axis=1)
    signal = _complex(node, cut)  # (N, frames, length)
    if window is not None:
        signal = node.apply("multiply", signal, window)
    found = node.apply("fft", signal, axis=2)
    if node.attr("onesided", 1):
        found = node.apply("slice", found, start=[0], stop=[length // 2 + 1], axes=[2])
    return _pairs(node, found)


@converts("MelWeightMatrix")
def _mel(node: OnnxNode) -> Value:
    bins, length, rate = (node.numbers(at, "sizes")[0] for at in range(3))
    low, high = (float(node.known(at, "edges").reshape(-1)[0]) for at in (3, 4))
    dtype = dtype_of(node.attr("output_datatype", 1), "its result")
    if bins < 1 or length < 1:
        raise BadFormat(f"makes {bins} bins of {length}")
    spectrogram = length // 2 + 1
    node.bounded([spectrogram, bins])
    low_mel, high_mel = (2595 * np.log10(1 + edge / 700) for edge in (low, high))
    mels = np.arange(bins + 2) * ((high_mel - low_mel) / (bins + 2)) + low_mel
    hertz = 700 * (np.power(10, mels / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(int)
    matrix = np.zeros((spectrogram, bins))
    for at in range(bins):
        first, centre, last = places[at : at + 3]
        if centre == first:
            matrix[centre, at] = 1
        else:
            for row in range(first, centre + 1):
                matrix[row, at] = (row - first) / (centre - first)
        if last > centre:
            for row in range(centre, last):
                matrix[row, at] = (last - row) / (last - centre)
    return node.scope.constant(matrix, dtype)


@converts("Col2Im")
def _col2im(node: OnnxNode) -> Value:
    value = node.input()
    image, block = node.numbers(1, "image_shape"), node.numbers(2, "block_shape")
    axes = len(image)
    dilations, strides = node.ints("dilations", axes, 1), node.ints("strides", axes, 1)
    pads = node.ints("pads", 2 * axes, 0)
    if not all(isinstance(side, int) for side in value.shape):
        raise Unsupported("its shape must be known before a run")
    wide = [side + pads[at] + pads[at + axes] for at, side in enumerate(image)]
    counts = [
        (side - ((b - 1) * d + 1)) // s + 1
        for side, b, d, s in zip(wide, block, dilations, strides, strict=True)
    ]
    node.bounded([*block, *counts])
    parts = []
    for at in range(axes):
        shape = [1] * (2 * axes)
        shape[at] = block[at]
        shape[axes + at] = counts[at]
        steps = np.arange(block[at])[:, None] * dilations[at]
        both = steps + np.arange(counts[at])[None, :] * strides[at]
        parts.append(both.reshape(shape))
    total: Any = 0
    for at in range(axes):
        total = total * wide[at] + parts[at]
    n, whole, _ = (int(side) for side in value.shape)  # type: ignore[arg-type]
    size = math.prod(block)
    channels = whole // size
    rows = node.scope.reshape(value, [n * channels, size * math.prod(counts)])
    turned = node.scope.transpose(rows, (1, 0))
    zero = node.apply("broadcast_to", node.number(0, value), shape=[math.prod(wide), n * channels])
    places = node.scope.constant(np.broadcast_to(total, [*block, *counts]).reshape(-1), "int64")
    summed = node.apply("scatter_add", zero, places, turned)
    found = node.scope.reshape(node.scope.transpose(summed, (1, 0)), [n, channels, *wide])
    return node.apply(
        "slice",
        found,
        start=pads[:axes],
        stop=[pads[at] + side for at, side in enumerate(image)],
        axes=list(range(2, 2 + axes)),
    )
