"""Quantized forms: scales and zero points, products of integers, weights of few bits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.bounds import Steps
from cowmlx.programs.dimensions import count
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.importing.operators.elementwise import WIDE
from cowmlx.programs.importing.operators.products import channels_first, convolved
from cowmlx.programs.importing.values import Value, Weight, numpy_type
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.operations.rules import broadcasts_to


def _along(node: OnnxNode, part: Value, value: Value, axis: int, block: int) -> Value:
    """Return scales or zero points in a shape that meets the value's."""
    if part.rank == 0 or part.shape == (1,):
        return node.scope.reshape(part, [])
    if block:
        return _blocks(node, part, value, axis, block)
    if part.rank == 1:
        shape: list[Any] = [1] * value.rank
        shape[axis] = part.shape[0]
        return node.scope.reshape(part, shape)
    return part


def _blocks(node: OnnxNode, part: Value, value: Value, axis: int, block: int) -> Value:
    side = value.shape[axis]
    repeated = node.apply("repeat", part, repeats=block, axis=axis)
    if isinstance(side, int) and repeated.shape[axis] != side:
        repeated = node.apply("slice", repeated, start=[0], stop=[side], axes=[axis])
    return repeated


@converts("DequantizeLinear")
def _dequantize(node: OnnxNode) -> Value:
    value, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis = node.axis(1, value.rank) if count(scale.shape) != 1 else 0
    block = node.attr("block_size", 0)
    wanted = scale.dtype
    if node.attr("output_dtype"):
        wanted = dtype_of(node.attr("output_dtype"), "its result")
    weight = _dequantized_weight(node, value, scale, zero, axis, block, wanted)
    if weight is not None:
        return weight
    wide = "int32" if "int" in value.dtype else value.dtype
    number = node.scope.cast(value, wide)
    if zero is not None:
        point = node.scope.cast(_along(node, zero, value, axis, block), wide)
        number = node.apply("subtract", number, point)
    by = _along(node, scale, value, axis, block)
    if scale.dtype in WIDE:  # a number may be beyond their range, and its product within it
        number, by = node.scope.cast(number, "float32"), node.scope.cast(by, "float32")
    product = node.apply("multiply", node.scope.cast(number, by.dtype), by)
    return node.scope.cast(product, wanted)


def _dequantized_weight(
    node: OnnxNode,
    value: Value,
    scale: Value,
    zero: Value | None,
    axis: int,
    block: int,
    wanted: str,
) -> Value | None:
    """Return a parameter of floats, where all of a weight is in the file."""
    base, held = value.weight, value.known
    if held is not None and value.rank:
        base = Weight("", value.spec, lambda: held)
    scales, points = _reader(node, scale), None if zero is None else _reader(node, zero)
    if base is None or scales is None or (zero is not None and points is None):
        return None
    for part in (scale, zero):
        if part is not None:
            _require_placed(part, value, axis, block)

    def change(array: Any) -> Any:
        if not array.size:  # whose sides may be of any length
            return array.astype(numpy_type(wanted))
        array = array.astype("int32") if "int" in value.dtype else array
        if points is not None:
            array = array - _placed(points(), array, axis, block).astype(array.dtype)
        by = scales()
        wide = "float32" if scale.dtype in WIDE else by.dtype
        product = array.astype(wide) * _placed(by, array, axis, block).astype(wide)
        return product.astype(numpy_type(wanted))

    name = node.proto.output[0]
    return node.scope.weight(Weight(name, Spec(value.shape, wanted), change, 1, base))


def _reader(node: OnnxNode, part: Value) -> Callable[[], Any] | None:
    """Return what reads elements that are known before a run; None for others."""
    array = node.scope.known(part)
    if array is None:
        return None
    if part.weight is not None and part.weight.base is None:
        return part.weight.read
    node.scope.book.hold(array.size)
    return lambda: array


def _require_placed(part: Value, value: Value, axis: int, block: int) -> None:
    """Refuse scales or zero points that would make a weight larger."""
    if count(part.shape) == 1:
        return
    sides: list[Any] = list(part.shape)
    if block:
        side: Any = value.shape[axis]
        if block < 1 or part.rank != value.rank or sides[axis] * block < side:
            raise BadFormat(f"has blocks of {block}: {part.spec} of {value.spec}")
        sides[axis] = side
    elif part.rank == 1:
        sides = [1] * value.rank
        sides[axis] = part.shape[0]
    if not broadcasts_to(tuple(sides), value.shape):
        raise BadFormat(f"its scales or zero points {part.spec} do not fit {value.spec}")


def _placed(part: Any, value: Any, axis: int, block: int) -> Any:
    if part.size == 1:
        return part.reshape(())
    if block:
        return np.take(part, np.arange(value.shape[axis]) // block, axis)
    if part.ndim == 1:
        shape = [1] * value.ndim
        shape[axis] = -1
        return part.reshape(shape)
    return part


@converts("QuantizeLinear")
def _quantize(node: OnnxNode) -> Value:
    value, scale, zero = node.input(0), node.input(1), node.optional(2)
    axis = node.axis(1, value.rank) if count(scale.shape) != 1 else 0
    block = node.attr("block_size", 0)
    wanted = "uint8" if zero is None else zero.dtype
    if zero is None and node.attr("output_dtype"):
        wanted = dtype_of(node.attr("output_dtype"), "its result")
    point = None if zero is None else _along(node, zero, value, axis, block)
    by = _along(node, scale, value, axis, block)
    return quantized(node, value, by, point, wanted, None if zero is None else zero.bits)


def quantized(
    node: OnnxNode,
    value: Value,
    scale: Value,
    zero: Value | None,
    dtype: str,
    bits: int | None = None,
) -> Value:
    """Return round(value / scale) + zero, within the range of an integer, of fewer bits perhaps."""
    if "int" not in dtype:
        raise Unsupported(f"quantizes to {dtype}")
    wide = node.scope.cast(value, "float32")
    level = node.apply("round", node.apply("divide", wide, node.scope.cast(scale, "float32")))
    if zero is not None:
        level = node.apply("add", level, node.scope.cast(zero, "float32"))
    bounds = np.iinfo(dtype)
    by = 1 << (bounds.bits - (bits or bounds.bits))
    held = node.apply("clip", level, a_min=int(bounds.min) // by, a_max=int(bounds.max) // by)
    result = node.scope.cast(held, dtype)
    result.bits = bits
    return result


def _centred(node: OnnxNode, value: Value, zero: Value | None, by_rows: bool = False) -> Value:
    """Return integers less their zero point, as floats that hold them."""
    wide = node.scope.cast(value, "float32")
    if zero is None:
        return wide
    point = node.scope.cast(zero, "float32")
    if by_rows and point.rank == 1 and point.shape[0] != 1:
        point = node.scope.reshape(point, [*point.shape, 1])
    elif point.rank == 1 and point.shape[0] == 1:
        point = node.scope.reshape(point, [])
    return node.apply("subtract", wide, point)


EXACT = 1 << 12
"""Terms of a sum of products of 8 bits and 4 bits that float32 holds."""
_WHOLE = 1 << 24  # float32 holds all integers up to it
_LEVELS = 255  # between the least and the largest integer of 8 bits
_PART = 1 << 16  # elements of a weight that are added at once


@converts("MatMulInteger")
def _matmul_integer(node: OnnxNode) -> Steps[Value]:
    a = _centred(node, node.input(0), node.optional(2), by_rows=True)
    b = _centred_weight(node, node.input(1), node.optional(3))
    terms = b.shape[-2] if b.rank > 1 else b.shape[0]

    def multiply(part: Value) -> Value:
        return node.apply("matmul", part, node.scope.cast(b, part.dtype))

    sums = _largest_sum(node, node.input(1), node.optional(3))
    return (yield from _exactly(node, a, terms, sums, multiply))


def _exactly(
    node: OnnxNode,
    a: Value,
    terms: Any,
    sums: Steps[int | None],
    multiply: Callable[[Value], Value],
) -> Steps[Value]:
    """Return sums of products of integers of 8 bits as int32.

    Args:
        node: of the products.
        a: what weights are multiplied with.
        terms: of each sum.
        sums: give the largest sum of the sizes of the weights of a result; None: unknown. They are
            taken only where they decide.
        multiply: makes the sums of products of a part of ``a``.
    """
    fits = isinstance(terms, int) and terms <= EXACT >> 4
    if not fits:
        largest = yield from sums
        fits = largest is not None and _LEVELS * largest <= _WHOLE
    if fits:
        return node.scope.cast(multiply(a), "int32")
    if not isinstance(terms, int) or terms > EXACT:
        return node.scope.cast(multiply(node.scope.cast(a, "float64")), "int32")
    # Sums of whole products may be beyond float32's integers, those of four bits are not.
    sixteen = node.number(16, a)
    high = node.apply("floor", node.apply("divide", a, sixteen))
    low = node.apply("subtract", a, node.apply("multiply", high, sixteen))
    parts = [node.scope.cast(multiply(part), "int32") for part in (high, low)]
    return node.apply("add", node.apply("multiply", parts[0], node.number(16, parts[0])), parts[1])


def _largest_sum(
    node: OnnxNode, value: Value, zero: Value | None, *, of_kernel: bool = False
) -> Steps[int | None]:
    """Return the largest sum of the sizes of the weights of a result, in steps and small parts.

    Args:
        node: of the products.
        value: a matrix, or the kernel (O, ...) of a convolution.
        zero: its zero points.
        of_kernel: whether it is a kernel.

    Returns:
        None if inputs decide it.
    """
    point = node.scope.known(zero)
    if zero is not None and point is None:
        return None
    if value.weight is not None:
        whole = yield from value.weight.read_steps()
    else:
        whole = node.scope.known(value)
    if whole is None or whole.size == 0:
        return None
    # Zero points of single rows are bounded by the largest.
    points = [0] if point is None else point.astype(np.int64).ravel()
    by, more = (points[0], 0) if len(points) == 1 else (0, np.abs(points).max())
    inner = 1 if of_kernel or whole.ndim == 1 else whole.shape[-1]
    terms = whole[0].size if of_kernel else whole.shape[0 if whole.ndim == 1 else -2]
    rows = max(1, _PART // inner)
    most = 0
    for matrix in whole.reshape(-1, terms, inner):
        sums = np.zeros(inner, np.int64)
        for start in range(0, terms, rows):
            sums += np.abs(matrix[start : start + rows].astype(np.int64) - by).sum(axis=0)
            yield from node.rest()
        most = max(most, int(sums.max()) + terms * int(more))
    return most


def _centred_weight(node: OnnxNode, value: Value, zero: Value | None) -> Value:
    """Return a weight less its zero point as floats, computed at load if the file has both."""
    weight, point = value.weight, node.scope.known(zero)
    if weight is None or (zero is not None and point is None):
        return _centred(node, value, zero)
    if zero is not None and not broadcasts_to(zero.shape, value.shape):
        return _centred(node, value, zero)

    def change(array: Any) -> Any:
        whole = array.astype("float32")
        return whole if zero is None else whole - node.scope.known(zero).astype("float32")

    return node.scope.parameter(weight.changed(Spec(value.shape, "float32"), change))


@converts("QLinearMatMul")
def _quantized_matmul(node: OnnxNode) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, scale, zero = (node.input(at) for at in range(8))
    left = _scaled(node, _centred(node, a, a_zero, by_rows=True), a_scale, by_rows=True)
    right = _scaled(node, _centred(node, b, b_zero), b_scale)
    found = node.apply("matmul", left, right)
    return quantized(node, found, _scalar(node, scale), _scalar(node, zero), zero.dtype)


def _scaled(node: OnnxNode, value: Value, scale: Value, by_rows: bool = False) -> Value:
    wide = node.scope.cast(scale, "float32")
    if by_rows and wide.rank == 1 and wide.shape[0] != 1:
        wide = node.scope.reshape(wide, [*wide.shape, 1])
    else:
        wide = _scalar(node, wide)
    return node.apply("multiply", value, wide)


def _scalar(node: OnnxNode, value: Value) -> Value:
    return node.scope.reshape(value, []) if value.shape == (1,) else value


@converts("ConvInteger")
def _conv_integer(node: OnnxNode) -> Steps[Value]:
    image = _centred(node, node.input(0), node.optional(2))
    found = yield from _convolved_exactly(node, image, node.input(1), node.optional(3))
    return channels_first(node, found)


def _convolved_exactly(
    node: OnnxNode, image: Value, weight: Value, zero: Value | None
) -> Steps[Value]:
    kernel = _kernel(node, weight, zero)

    def convolve(part: Value) -> Value:
        return convolved(node, part, node.scope.cast(kernel, part.dtype))

    sums = _largest_sum(node, weight, zero, of_kernel=True)
    return (yield from _exactly(node, image, count(kernel.shape[1:]), sums, convolve))


def _kernel(node: OnnxNode, weight: Value, zero: Value | None) -> Value:
    wide = node.scope.cast(weight, "float32")
    if zero is None:
        return wide
    point = node.scope.cast(zero, "float32")
    if point.rank == 1 and point.shape[0] != 1:
        point = node.scope.reshape(point, [point.shape[0], *[1] * (weight.rank - 1)])
    return node.apply("subtract", wide, _scalar(node, point))


@converts("QLinearConv")
def _quantized_conv(node: OnnxNode) -> Steps[Value]:
    x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (node.input(at) for at in range(8))
    whole = yield from _convolved_exactly(node, _centred(node, x, x_zero), w, w_zero)
    bias = node.optional(8)
    if bias is not None:
        whole = node.apply("add", whole, node.scope.cast(bias, "int32"))
    found = node.scope.cast(whole, "float32")
    factor = node.apply("multiply", _scalar(node, x_scale), _scalar(node, w_scale))
    scaled = channels_first(node, node.apply("multiply", found, factor))
    return quantized(node, scaled, _scalar(node, scale), _scalar(node, zero), zero.dtype)


@converts("MatMulNBits", domain="com.microsoft")
def _few_bits(node: OnnxNode) -> Value:
    """Multiply by a quantized weight; onto the table's products where their groups are alike."""
    value, weight, scale = node.input(0), node.input(1), node.input(2)
    zero, bias = node.optional(3), node.optional(5)
    k, n = node.needed("K"), node.needed("N")
    bits, block = node.attr("bits", 4), node.needed("block_size")
    if node.optional(4) is not None:
        raise Unsupported("has g_idx, an order of groups")
    if bits not in (4, 8) or block < 16 or k < 1 or n < 1 or k > 1 << 24 or n > 1 << 24:
        raise Unsupported(f"has {bits} bits, block_size {block}, K {k} and N {n}")
    groups = -(-k // block)
    raw = node.scope.known(weight) if weight.weight is None else weight.weight.read()
    scales = node.scope.known(scale) if scale.weight is None else scale.weight.read()
    points = None if zero is None else node.scope.known(zero)
    if zero is not None and points is None and zero.weight is not None:
        points = zero.weight.read()
    if raw is None or scales is None or (zero is not None and points is None):
        raise node.depends("weight", node.proto.input[1])
    if raw.size != n * groups * block * bits // 8 or scales.size != n * groups:
        raise BadFormat(f"its weight has {raw.size} bytes and {scales.size} scales")
    scales = scales.reshape(n, groups)
    biases = -scales * _points(points, bits, n, groups).astype(scales.dtype)
    name = node.proto.input[1]
    if block in (32, 64, 128) and k % block == 0:
        words = np.ascontiguousarray(raw).reshape(-1).view("uint32").reshape(n, -1)
        parts = [
            _parameter(node, f"{name}{ending}", array)
            for ending, array in (("", words), (".scales", scales), (".biases", biases))
        ]
        found = node.apply("quantized_matmul", value, *parts, group_size=block, bits=bits)
    else:
        levels = raw.reshape(n, groups, -1)
        if bits == 4:
            levels = np.stack([levels & 15, levels >> 4], -1).reshape(n, groups, block)
        whole = levels * scales[:, :, None] + biases[:, :, None]
        dense = whole.reshape(n, -1)[:, :k].astype(scales.dtype)
        found = node.apply("linear", value, _parameter(node, name, dense))
    return node.apply("add", found, bias) if bias is not None else found


def _points(points: Any, bits: int, n: int, groups: int) -> Any:
    if points is None:
        return np.full((n, groups), 1 << (bits - 1))
    if points.dtype.kind == "f":
        return points.reshape(n, groups)
    if bits == 8:
        return points.reshape(n, groups)
    rows = points.reshape(n, -1)
    return np.stack([rows & 15, rows >> 4], -1).reshape(n, -1)[:, :groups]


def _parameter(node: OnnxNode, name: str, array: Any) -> Value:
    spec = Spec(tuple(array.shape), str(array.dtype))
    return node.scope.parameter(Weight(name, spec, lambda: array, 1))
