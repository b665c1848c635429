"""Normalizations."""

from __future__ import annotations

from typing import Any

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.bounds import Steps
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.operators.elementwise import widened
from cowmlx.programs.importing.operators.pooling import MAX_WINDOW
from cowmlx.programs.importing.operators.products import channels_first, channels_last
from cowmlx.programs.importing.operators.reductions import reduced
from cowmlx.programs.importing.operators.shaping import padded
from cowmlx.programs.importing.values import Value


@converts("BatchNormalization")
def _batch(node: OnnxNode) -> list[Value]:
    value, scale, bias, mean, var = (node.input(at) for at in range(5))
    epsilon = node.attr("epsilon", 1e-5)
    if value.rank == 1:
        raise Unsupported("its input has one dimension")
    image = channels_last(node, value)
    if not node.attr("training_mode", 0):
        if node.has_output(1):
            raise Unsupported("it has statistics as results, but not training_mode")
        found = node.apply("batch_norm", image, mean, var, scale, bias, eps=float(epsilon))
        return [channels_first(node, node.scope.cast(found, value.dtype))]
    axes = list(range(image.rank - 1))
    wide = widened(node, image)
    own_mean = node.apply("mean", wide, axis=axes)
    own_var = node.apply("var", wide, axis=axes)
    found = node.apply("batch_norm", image, own_mean, own_var, scale, bias, eps=float(epsilon))
    momentum = node.attr("momentum", 0.9)
    results = [channels_first(node, node.scope.cast(found, value.dtype))]
    for old, new in ((mean, own_mean), (var, own_var)):
        kept = node.apply("multiply", old, node.number(momentum, old))
        new = node.scope.cast(new, old.dtype)
        added = node.apply("multiply", new, node.number(1 - momentum, new))
        results.append(node.apply("add", kept, added))
    return results


@converts("InstanceNormalization")
def _instance(node: OnnxNode) -> Value:
    value, scale, bias = (node.input(at) for at in range(3))
    image = channels_last(node, value)
    found = _standardized(node, image, list(range(1, image.rank - 1)))
    scaled = node.apply("multiply", found, scale)
    return channels_first(node, node.apply("add", scaled, bias))


def _standardized(node: OnnxNode, value: Value, axes: list[int]) -> Value:
    """Return a value less its mean, over its standard deviation."""
    wide = widened(node, value)
    mean = node.apply("mean", wide, axis=axes, keepdims=True)
    var = node.apply("var", wide, axis=axes, keepdims=True)
    epsilon = node.number(node.attr("epsilon", 1e-5), var)
    slope = node.apply("rsqrt", node.apply("add", var, epsilon))
    found = node.apply("multiply", node.apply("subtract", wide, mean), slope)
    return node.scope.cast(found, value.dtype)


@converts("LayerNormalization", "RMSNormalization")
def layer(node: OnnxNode) -> list[Value]:
    """Convert a normalization over the last axes, and its statistics."""
    value, scale, bias = node.input(0), node.input(1), node.optional(2)
    axis = node.axis(-1, value.rank)
    epsilon = float(node.attr("epsilon", 1e-5))
    rms = node.op != "LayerNormalization"
    if axis == value.rank - 1 and scale.rank == 1 and len(node.outputs) == 1:
        if rms:
            return [node.apply("rms_norm", value, scale, eps=epsilon)]
        return [node.apply("layer_norm", value, scale, bias, eps=epsilon)]
    axes = list(range(axis, value.rank))
    wide = widened(node, value)
    results = []
    if rms:
        power = node.apply("mean", node.apply("square", wide), axis=axes, keepdims=True)
        centred = wide
    else:
        mean = node.apply("mean", wide, axis=axes, keepdims=True)
        power = node.apply("var", wide, axis=axes, keepdims=True)
        centred = node.apply("subtract", wide, mean)
        results.append(mean)
    slope = node.apply("rsqrt", node.apply("add", power, node.number(epsilon, power)))
    found = node.scope.cast(node.apply("multiply", centred, slope), value.dtype)
    found = node.apply("multiply", found, scale)
    if bias is not None:
        found = node.apply("add", found, bias)
    return [found, *results, slope]


@converts("GroupNormalization")
def _group(node: OnnxNode) -> Value:
    value, scale, bias = (node.input(at) for at in range(3))
    groups = node.needed("num_groups")
    channels: Any = value.shape[1]
    split = node.scope.reshape(
        value, [value.shape[0], groups, channels // groups, *value.shape[2:]]
    )
    found = _standardized(node, split, list(range(2, split.rank)))
    sides = [groups, 1, *[1] * (value.rank - 2)]
    if node.opset >= 21:
        found = node.scope.reshape(found, list(value.shape))
        sides = [channels, *[1] * (value.rank - 2)]
    found = node.apply("multiply", found, node.scope.reshape(scale, sides))
    found = node.apply("add", found, node.scope.reshape(bias, sides))
    return node.scope.reshape(found, list(value.shape))


@converts("LpNormalization")
def _lp(node: OnnxNode) -> Value:
    value, p = node.input(), node.attr("p", 2)
    if p not in (1, 2):
        raise BadFormat(f"has p {p}, must be 1 or 2")
    wide = widened(node, value)
    norm = reduced(node, f"L{p}", wide, [node.axis(-1, value.rank)], True)
    empty = node.apply("equal", norm, node.number(0, norm))
    safe = node.apply("where", empty, node.number(1, norm), norm)
    return node.scope.cast(node.apply("divide", wide, safe), value.dtype)


@converts("LRN")
def _local(node: OnnxNode) -> Steps[Value]:
    value = node.input()
    size = node.needed("size")
    channels = value.shape[1]
    if not isinstance(channels, int):
        raise Unsupported("its channels are not known before a run")
    if size > MAX_WINDOW:
        raise Unsupported(f"its size {size} is too large")
    image = widened(node, value)
    square = node.apply("square", image)
    pairs = [(0, 0)] * value.rank
    pairs[1] = ((size - 1) // 2, size - 1 - (size - 1) // 2)
    wide = padded(node, square, pairs)
    total: Value | None = None
    for at in range(size):
        yield from node.rest()
        part = node.apply("slice", wide, start=[at], stop=[at + channels], axes=[1])
        total = part if total is None else node.apply("add", total, part)
    assert total is not None
    scaled = node.apply("multiply", total, node.number(node.attr("alpha", 1e-4) / size, image))
    base = node.apply("add", scaled, node.number(node.attr("bias", 1.0), image))
    power = node.apply("power", base, node.number(node.attr("beta", 0.75), image))
    return node.scope.cast(node.apply("divide", image, power), value.dtype)


@converts("MeanVarianceNormalization")
def _mean_variance(node: OnnxNode) -> Value:
    value = node.input()
    axes = list(node.attr("axes", [0, 2, 3]))
    wide = widened(node, value)
    centred = node.apply("subtract", wide, reduced(node, "Mean", wide, axes, True))
    power = reduced(node, "Mean", node.apply("square", centred), axes, True)
    deviation = node.apply("add", node.apply("sqrt", power), node.number(1e-9, wide))
    return node.scope.cast(node.apply("divide", centred, deviation), value.dtype)
