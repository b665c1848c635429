"""Operators that change shapes, with shapes that are known before a run."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.dimensions import Dim, at_least, compare, count, divided
from cowmlx.programs.importing.onnx_nodes import MAX_SYMBOLIC, OnnxNode, converts
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.importing.values import Value, is_symbolic
from cowmlx.programs.operations.row import Spec


@converts("Constant")
def _constant(node: OnnxNode) -> Value:
    from cowmlx.programs.importing.onnx_file import sparse_value, tensor_value

    tensor = node.attr("value")
    if tensor is not None:
        return tensor_value(node.scope, tensor, node.graph.folder)
    if node.attr("sparse_value") is not None:
        return sparse_value(node.scope, node.attr("sparse_value"), node.graph.folder)
    for name, dtype in (("value_float", "float32"), ("value_int", "int64")):
        for key in (name, f"{name}s"):
            if node.attr(key) is not None:
                return node.scope.constant(np.array(node.attr(key), dtype))
    raise Unsupported("its value is a text, which programs do not have")


@converts("Shape")
def _shape(node: OnnxNode) -> Value:
    shape = node.input().shape
    start, end = node.attr("start", 0), node.attr("end")
    return node.scope.constant(list(shape[start:end]), "int64")


@converts("Size")
def _size(node: OnnxNode) -> Value:
    whole = np.empty((), object)
    whole[()] = count(node.input().shape)
    known = isinstance(whole[()], int)
    return node.scope.constant(whole.astype("int64") if known else whole)


@converts("Reshape")
def _reshape(node: OnnxNode) -> Value:
    value = node.input()
    given = node.attr("shape") if node.opset < 5 else node.dims(1, "shape")
    sides: list[Dim] = []
    for at, side in enumerate(given):
        if isinstance(side, int) and side == 0 and not node.attr("allowzero", 0):
            if at >= value.rank:
                raise BadFormat(f"its shape has a 0 for axis {at}, which its input has not")
            side = value.shape[at]
        sides.append(side)
    return reshaped(node, value, sides)


def reshaped(node: OnnxNode, value: Value, sides: list[Dim]) -> Value:
    """Return a value in a shape that may have one -1."""
    if is_symbolic(value.known):
        return node.scope.reshape(value, sides)
    if -1 in sides:
        rest = count([side for side in sides if side != -1])
        whole = divided(count(value.shape), rest) if rest != 0 else 0
        if whole is not None:
            sides = [whole if side == -1 else side for side in sides]
    if len(sides) == value.rank and all(
        compare(a, b) for a, b in zip(sides, value.shape, strict=True)
    ):
        return value
    return node.scope.reshape(value, sides)


@converts("Flatten")
def _flatten(node: OnnxNode) -> Value:
    value = node.input()
    axis = node.attr("axis", 1)
    if not -value.rank <= axis <= value.rank:
        raise BadFormat(f"has the axis {axis}, but its input has {value.rank} dimensions")
    axis = axis + value.rank if axis < 0 else axis
    return reshaped(node, value, [count(value.shape[:axis]), count(value.shape[axis:])])


@converts("Squeeze", "Unsqueeze")
def _squeeze(node: OnnxNode) -> Value:
    value = node.input()
    if node.op == "Squeeze":
        axes = node.axes(value.rank)
        if axes is None:
            axes = [at for at, side in enumerate(value.shape) if compare(side, 1)]
        if any(compare(value.shape[axis], 1) is False for axis in axes):
            raise BadFormat(f"an axis of {axes} of {value.spec} is not of length 1")
        sides = [side for at, side in enumerate(value.shape) if at not in axes]
    else:
        axes = node.axes(value.rank + len(node.attr("axes") or node.numbers(1, "axes")))
        assert axes is not None
        rest = iter(value.shape)
        length = value.rank + len(axes)
        sides = [1 if at in axes else next(rest, 1) for at in range(length)]
    if value.known is not None:
        spec = Spec(tuple(sides), value.dtype)
        return Value(spec, node.scope, known=value.known.reshape(sides), bits=value.bits)
    return node.scope.reshape(value, sides)


@converts("Transpose")
def _transpose(node: OnnxNode) -> Value:
    value = node.input()
    axes = node.attr("perm", list(range(value.rank))[::-1])
    if sorted(axes) != list(range(value.rank)):
        raise BadFormat(f"has perm {list(axes)[:8]} for an input of {value.rank} dimensions")
    return node.scope.transpose(value, axes)


@converts("Concat")
def _concat(node: OnnxNode) -> Value:
    values = [node.input(at) for at in range(len(node.inputs))]
    axis = node.axis_of(node.needed("axis"), values[0].rank)
    arrays = [value.known for value in values]
    if any(map(is_symbolic, arrays)) and all(array is not None for array in arrays):
        node.bounded([sum(array.size for array in arrays)], MAX_SYMBOLIC)
        whole = np.concatenate([a.astype(object) for a in arrays], axis)
        return node.scope.constant(whole, values[0].dtype)
    sources = [value.source for value in values]
    if all(source is not None and source[1] == sources[0][1] for source in sources):  # type: ignore[index]
        inner = [source[0] for source in sources if source is not None]
        axes = sources[0][1]  # type: ignore[index]
        return node.scope.transpose(node.apply("concatenate", *inner, axis=axes[axis]), axes)
    return node.apply("concatenate", *values, axis=axis)


@converts("Split")
def _split(node: OnnxNode) -> list[Value]:
    value = node.input()
    axis = node.axis(0, value.rank)
    sizes = node.attr("split")
    if sizes is None and node.optional(1) is not None:
        sizes = node.numbers(1, "split")
    number = len(node.outputs)
    if sizes is None:
        whole = value.shape[axis]
        if not isinstance(whole, int):
            part = divided(whole, number)
            if part is None:
                raise Unsupported(f"its axis of {whole} is not known before a run")
            return node.scope.several("split", value, indices_or_sections=number, axis=axis)
        many = node.attr("num_outputs", number)
        if many < 1:
            raise BadFormat(f"has num_outputs {many}, must be at least 1")
        part = -(-whole // many)
        sizes = [max(0, min(part, whole - at * part)) for at in range(number)]
    *places, total = accumulate(sizes)
    if min(sizes) < 0 or compare(value.shape[axis], total) is False:
        raise BadFormat(f"its split {sizes[:8]} is not {value.shape[axis]} in all")
    if len(sizes) == 1:
        return [value]
    return node.scope.several("split", value, indices_or_sections=places, axis=axis)


@converts("Expand")
def _expand(node: OnnxNode) -> Value:
    value = node.input()
    return expanded(node, value, node.dims(1, "shape"))


def expanded(node: OnnxNode, value: Value, wanted: list[Dim]) -> Value:
    """Broadcast a value to a shape that it may be wider than."""
    rank = max(len(wanted), value.rank)
    own: list[Dim] = [*[1] * (rank - value.rank), *value.shape]
    other: list[Dim] = [*[1] * (rank - len(wanted)), *wanted]
    sides = [_wider(a, b) for a, b in zip(own, other, strict=True)]
    if sides == list(value.shape):
        return value
    if is_symbolic(value.known):
        whole = [int(side) for side in sides]  # type: ignore[arg-type]
        node.bounded(whole, MAX_SYMBOLIC)
        return node.scope.constant(np.broadcast_to(value.known, whole), value.dtype)
    return node.apply("broadcast_to", value, shape=sides)


def _wider(own: Dim, wanted: Dim) -> Dim:
    """Return the length of an axis that is expanded."""
    is_one, is_equal = compare(own, 1), compare(own, wanted)
    if is_one:
        return wanted
    if is_equal or compare(wanted, 1):
        return own
    if is_one is None:
        raise Unsupported(
            f"whether its axis of {own} is 1 or {wanted} is not known before a run; fix the "
            "dimension at load"
        )
    if is_equal is False and isinstance(wanted, int):
        raise BadFormat(f"expands an axis of {own} to {wanted}")
    return own


@converts("ConstantOfShape")
def _constant_of_shape(node: OnnxNode) -> Value:
    from cowmlx.programs.importing import onnx_tensors

    sides = node.dims(0, "shape")
    tensor = node.attr("value")
    filled = np.zeros(1, "float32")
    if tensor is not None:
        filled = onnx_tensors.array_of(tensor, node.graph.folder)
    if filled.size != 1:
        raise BadFormat("its value has more than one element")
    return node.apply("broadcast_to", node.scope.constant(filled.reshape(())), shape=sides)


@converts("Range")
def _range(node: OnnxNode) -> Value:
    start, limit, step = (node.known(at, "length") for at in range(3))
    dtype = node.input().dtype
    if not any(map(is_symbolic, (start, limit, step))):
        first, last, by = (array.reshape(())[()] for array in (start, limit, step))
        if by == 0:
            raise BadFormat("its delta is 0")
        length = max(0, math.ceil((float(last) - float(first)) / float(by)))
        if length <= 1 << 16:
            steps = np.arange(length).astype(step.dtype)
            return node.scope.constant((first + steps * by).astype(step.dtype))
        sides: list[Dim] = [length]
    else:
        if is_symbolic(step) or int(step.reshape(())) != 1:
            raise Unsupported("its delta must be 1 where its length is a dimension")
        first, last = start.reshape(())[()], limit.reshape(())[()]
        sides = [0 if at_least(first, last) else last - first]
    counted = node.apply("iota", shape=sides, dtype=dtype)
    scaled = counted
    if is_symbolic(step) or step.reshape(())[()] != 1:
        scaled = node.apply("multiply", counted, node.scope.constant(step.reshape(())))
    if not is_symbolic(start) and start.reshape(())[()] == 0:
        return scaled
    return node.apply("add", scaled, node.scope.reshape(node.input(), []))


@converts("Tile")
def _tile(node: OnnxNode) -> Value:
    return node.apply("tile", node.input(), reps=node.numbers(1, "repeats"))


@converts("Trilu")
def _trilu(node: OnnxNode) -> Value:
    k = node.numbers(1, "k")[0] if node.optional(1) is not None else 0
    value = node.input()
    k = max(-(2**31) + 1, min(2**31 - 1, k))
    if value.dtype == "bool":
        inner = node.scope.cast(value, "uint8")
        cut = node.apply("triu" if node.attr("upper", 1) else "tril", inner, k=k)
        return node.apply("not_equal", cut, node.number(0, cut))
    return node.apply("triu" if node.attr("upper", 1) else "tril", value, k=k)


@converts("EyeLike")
def _eye(node: OnnxNode) -> Value:
    value = node.input()
    dtype = dtype_of(node.attr("dtype"), "its result") if node.attr("dtype") else value.dtype
    if value.rank != 2 or not all(isinstance(side, int) for side in value.shape):
        raise Unsupported(f"its input {value.spec} must have 2 dimensions of known length")
    n, m = value.shape
    eye = node.apply("eye", n=n, m=m, k=node.attr("k", 0), dtype="float32")
    return node.scope.cast(eye, dtype)


@converts("DepthToSpace", "SpaceToDepth")
def _depth(node: OnnxNode) -> Value:
    value = node.input()
    block = node.needed("blocksize")
    n, c, h, w = value.shape
    if block < 1:
        raise BadFormat(f"has a blocksize of {block}")
    if node.op == "SpaceToDepth":
        split = node.scope.reshape(value, [n, c, h // block, block, w // block, block])
        order = (0, 3, 5, 1, 2, 4) if node.attr("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
        turned = node.scope.transpose(split, order)
        return node.scope.reshape(turned, [n, c * block * block, h // block, w // block])
    depth = c // (block * block)
    if node.attr("mode", "DCR") == "DCR":
        split = node.scope.reshape(value, [n, block, block, depth, h, w])
        turned = node.scope.transpose(split, (0, 3, 4, 1, 5, 2))
    else:
        split = node.scope.reshape(value, [n, depth, block, block, h, w])
        turned = node.scope.transpose(split, (0, 1, 4, 2, 5, 3))
    return node.scope.reshape(turned, [n, depth, h * block, w * block])


_MODES = {"constant": "constant", "edge": "edge", "reflect": "reflect"}


@converts("Pad")
def _pad(node: OnnxNode) -> Value:
    value = node.input()
    pads = node.attr("pads") if node.opset < 11 else node.numbers(1, "pads")
    axes = list(range(value.rank))
    if node.optional(3) is not None:
        axes = [node.axis_of(axis, value.rank) for axis in node.numbers(3, "axes")]
    if len(pads) != 2 * len(axes):
        raise BadFormat(f"has {len(pads)} pads for {len(axes)} axes")
    pairs = [(0, 0)] * value.rank
    for at, axis in enumerate(axes):
        pairs[axis] = (pads[at], pads[at + len(axes)])
    value, pairs = _cut(node, value, pairs)
    mode = node.attr("mode", "constant")
    if mode == "wrap":
        return _wrapped(node, value, pairs)
    if mode not in _MODES:
        raise Unsupported(f"has the mode {mode!r}")
    return padded(node, value, pairs, mode, node.optional(2))


def _cut(
    node: OnnxNode, value: Value, pairs: list[tuple[int, int]]
) -> tuple[Value, list[tuple[int, int]]]:
    """Cut where pads are negative; return the rest of the pads."""
    for axis, (low, high) in enumerate(pairs):
        if low < 0 or high < 0:
            stop = high if high < 0 else 2**31 - 1
            value = node.apply("slice", value, start=[max(-low, 0)], stop=[stop], axes=[axis])
    return value, [(max(low, 0), max(high, 0)) for low, high in pairs]


def padded(
    node: OnnxNode,
    value: Value,
    pairs: list[tuple[int, int]],
    mode: str = "constant",
    filling: Value | None = None,
) -> Value:
    """Pad a value; with an array of one element, or 0."""
    if not any(low or high for low, high in pairs):
        return value
    if mode != "constant":
        return node.apply("pad", value, pad_width=[list(pair) for pair in pairs], mode=mode)
    known = node.scope.known(filling) if filling is not None else np.zeros(1)
    if known is None:
        assert filling is not None
        inside = node.apply("ones_like", value, dtype="bool")
        mask = node.apply("pad", inside, pad_width=[list(pair) for pair in pairs])
        wide = node.apply("pad", value, pad_width=[list(pair) for pair in pairs])
        return node.apply("where", mask, wide, node.scope.reshape(filling, []))
    number: Any = known.reshape(-1)[0].item() if known.size else 0
    if isinstance(number, float) and not math.isfinite(number):
        number = str(number)
    pads = [list(pair) for pair in pairs]
    return node.apply("pad", value, pad_width=pads, constant_values=number)


def _wrapped(node: OnnxNode, value: Value, pairs: list[tuple[int, int]]) -> Value:
    for axis, (low, high) in enumerate(pairs):
        if not (low or high):
            continue
        side = value.shape[axis]
        if not isinstance(side, int) or side == 0:
            raise Unsupported(f"wraps an axis of {side}")
        node.bounded([low + side + high])
        places = np.arange(-low, side + high) % side
        value = node.apply("take", value, node.scope.constant(places, "int64"), axis=axis)
    return value


@converts("CenterCropPad")
def _center(node: OnnxNode) -> Value:
    value = node.input()
    wanted = node.numbers(1, "shape")
    axes = node.attr("axes", list(range(value.rank)))
    pairs = [(0, 0)] * value.rank
    for axis, side in zip(axes, wanted, strict=True):
        at = node.axis_of(axis, value.rank)
        own = value.shape[at]
        if not isinstance(own, int):
            raise Unsupported(f"its axis of {own} is not known before a run")
        missing = side - own
        low = missing // 2 if missing >= 0 else -((-missing) // 2)
        pairs[at] = (low, missing - low)
    value, pairs = _cut(node, value, pairs)
    return padded(node, value, pairs)


def is_positive(side: Dim) -> bool:
    """Whether a dimension is 1 or more for all values."""
    return bool(at_least(side, 1))
