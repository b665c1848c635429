"""MLX's primitives as operations of the table: the parts of their state, and their converters.

The inputs of a primitive have met already: files hold broadcasts and casts as primitives.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.dimensions import MAX_RANK
from cowmlx.programs.importing import mlxfn_indexing  # noqa: F401 - adds its converters
from cowmlx.programs.importing.mlxfn_node import (
    PRIMITIVES,
    Convert,
    Node,
    Primitive,
    choice,
    converts,
    sides_of,
)
from cowmlx.programs.importing.scope import INLINED
from cowmlx.programs.importing.values import Value
from cowmlx.quantized_formats import FORMATS

_GRADIENT = "it is part of a gradient: export the function itself, and derive the program"
REFUSED = {
    "BlockMaskedMM": "no operation multiplies masked blocks",
    "CustomKernel": "it is a kernel for a GPU",
    "LayerNormVJP": _GRADIENT,
    "MaskedScatter": "which elements it replaces depends on values",
    "RMSNormVJP": _GRADIENT,
    "RandomBits": "programs have no random bits: let the function take what it draws as an input, "
    "and evaluate weights (mx.eval) before it is exported",
}
"""Primitives that no program can have, and why."""
MODES = tuple(FORMATS)
"""By mlx's numbers."""


def _operation(op: str, *options: str) -> Convert:
    """Return the converter of a primitive that is an operation, its state these attributes."""
    return lambda node: node.scope.several(
        op, *node.inputs, **dict(zip(options, node.state, strict=True))
    )


_SAME = (
    "Abs Add ArcCos ArcCosh ArcSin ArcSinh ArcTan ArcTan2 ArcTanh Ceil Conjugate Cos Cosh Divide "
    "DivMod Erf ErfInv Exp Expm1 Floor Greater Imag Less Log1p LogAddExp Matmul Maximum Minimum "
    "Multiply Negative Power Real Remainder Round Sigmoid Sign Sin Sinh Square Subtract Tan Tanh"
)
"""Primitives whose operation has the same name in small letters."""
PRIMITIVES |= {name: Primitive("", _operation(name.lower())) for name in _SAME.split()}
PRIMITIVES |= {
    "ArgPartition": Primitive("ii", _operation("argpartition", "kth", "axis")),
    "ArgSort": Primitive("i", _operation("argsort", "axis")),
    "AsType": Primitive("t", _operation("astype", "dtype")),
    "Cholesky": Primitive("b", _operation("cholesky", "upper")),
    "Concatenate": Primitive("i", _operation("concatenate", "axis")),
    "DynamicSlice": Primitive("II", _operation("dynamic_slice", "axes", "slice_size")),
    "DynamicSliceUpdate": Primitive("I", _operation("slice_update", "axes")),
    "FloorDivide": Primitive("", _operation("floor_divide")),
    "GatherAxis": Primitive("i", _operation("take_along_axis", "axis")),
    "GreaterEqual": Primitive("", _operation("greater_equal")),
    "Hadamard": Primitive("f", _operation("hadamard_transform", "scale")),
    "LessEqual": Primitive("", _operation("less_equal")),
    "LogicalAnd": Primitive("", _operation("logical_and")),
    "LogicalNot": Primitive("", _operation("logical_not")),
    "LogicalOr": Primitive("", _operation("logical_or")),
    "NotEqual": Primitive("", _operation("not_equal")),
    "Partition": Primitive("ii", _operation("partition", "kth", "axis")),
    "QRF": Primitive("", _operation("qr")),
    "SVD": Primitive("b", _operation("svd", "compute_uv")),
    "Select": Primitive("", _operation("where")),
    "Sort": Primitive("i", _operation("sort", "axis")),
    "Split": Primitive("Ii", _operation("split", "indices_or_sections", "axis")),
    "StopGradient": Primitive("", _operation("stop_gradient")),
    "View": Primitive("t", _operation("view", "dtype")),
}


# ------------------------------------------------------------------- elements


@converts("i", "BitwiseBinary")
def _bitwise(node: Node) -> Value:
    op = choice(node.state[0], ("and", "or", "xor", "left_shift", "right_shift"))
    return node.apply(op if "shift" in op else f"bitwise_{op}", *node.inputs)


@converts("b", "Equal")
def _equal(node: Node) -> Value:
    a, b = node.inputs
    equal = node.apply("equal", a, b)
    if not node.state[0]:
        return equal
    both = node.apply("logical_and", node.apply("isnan", a), node.apply("isnan", b))
    return node.apply("logical_or", equal, both)


@converts("i", "Log")
def _log(node: Node) -> Value:
    return node.apply(choice(node.state[0], ("log2", "log10", "log")), node.inputs[0])


@converts("b", "Sqrt")
def _sqrt(node: Node) -> Value:
    return node.apply("rsqrt" if node.state[0] else "sqrt", node.inputs[0])


# --------------------------------------------------------------------- shapes


@converts("", "Copy")
def _copy(node: Node) -> Value:
    return node.inputs[0]


@converts("", "Depends")
def _depends(node: Node) -> list[Value]:
    return node.inputs[: len(node.specs)]


PRIMITIVES |= {
    name: Primitive(codes, lambda node: node.scope.reshape(node.inputs[0], node.shape))
    for name, codes in {
        "ExpandDims": "I",
        "Flatten": "ii",
        "Reshape": "I",
        "Squeeze": "I",
        "Unflatten": "iI",
    }.items()
}


def _broadcast(node: Node) -> Value:
    value = node.inputs[0]
    if list(value.shape) == node.shape:
        return value
    return node.apply("broadcast_to", value, shape=node.shape)


PRIMITIVES |= {
    name: Primitive(codes, _broadcast)
    for name, codes in {"Broadcast": "I", "BroadcastAxes": "I", "Full": ""}.items()
}


@converts("I", "Transpose")
def _transpose(node: Node) -> Value:
    value, axes = node.inputs[0], [axis % max(node.inputs[0].rank, 1) for axis in node.state[0]]
    if sorted(axes) != list(range(value.rank)):
        raise BadFormat(f"axes are {node.state[0]} of {value.rank} dimensions")
    return node.scope.transpose(value, axes)


@converts("III", "Pad")
def _pad(node: Node) -> Value:
    axes, low, high = node.state
    widths = [[0, 0] for _ in node.inputs[0].shape]
    for axis, before, behind in zip(axes, low, high, strict=True):
        widths[axis] = [before, behind]
    value = node.number(1, "what it pads with")
    return node.apply("pad", node.inputs[0], pad_width=widths, constant_values=value)


@converts("ILN", "AsStrided")
def _as_strided(node: Node) -> Value:
    shape, strides, offset = node.state
    if 0 in shape:
        return node.apply("zeros", shape=shape, dtype=node.inputs[0].dtype)
    size = prod(shape)
    if size > INLINED or len(shape) != len(strides):
        raise Unsupported(f"a view of {size} elements by strides, must be {INLINED} at most")
    places = np.full(shape, offset, "int64")
    for axis, (many, stride) in enumerate(zip(shape, strides, strict=True)):
        line = np.arange(many, dtype="int64") * stride
        places += line.reshape([-1 if at == axis else 1 for at in range(len(shape))])
    flat = node.scope.reshape(node.inputs[0], [-1])
    if not 0 <= places.min() <= places.max() < prod(sides_of(node.inputs[0])):
        raise BadFormat("it reads beyond its input")
    return node.apply("take", flat, node.scope.constant(places), axis=0)


@converts("ddd", "Arange")
def _arange(node: Node) -> Value:
    start, stop, step = node.state
    if node.specs[0].dtype[:5] != "float" and all(each.is_integer() for each in node.state):
        start, stop, step = int(start), int(stop), int(step)
    dtype = node.specs[0].dtype
    return node.apply("arange", start=start, stop=stop, step=step, dtype=dtype)


@converts("Ibt", "NumberOfElements")
def _number_of_elements(node: Node) -> Value:
    axes, is_inverted, dtype = node.state
    if len(axes) > MAX_RANK:
        raise BadFormat(f"it has {len(axes)} axes")
    many: float = prod(sides_of(node.inputs[0])[axis] for axis in axes)
    if is_inverted:
        many = 1 / many if many else np.inf
    return node.scope.cast(node.scope.constant(np.array(many)), dtype)


# ----------------------------------------------------------- reductions, sorts


@converts("iI", "Reduce")
def _reduce(node: Node) -> Value:
    op = choice(node.state[0], ("all", "any", "sum", "prod", "min", "max"))
    return node.apply(op, node.inputs[0], axis=node.state[1], keepdims=True)


@converts("ii", "ArgReduce")
def _arg_reduce(node: Node) -> Value:
    op = choice(node.state[0], ("argmin", "argmax"))
    return node.apply(op, node.inputs[0], axis=node.state[1], keepdims=True)


@converts("iibb", "Scan")
def _scan(node: Node) -> Value:
    kind, axis, is_reverse, is_inclusive = node.state
    op = choice(kind, ("cummax", "cummin", "cumsum", "cumprod", "logcumsumexp"))
    return node.apply(op, node.inputs[0], axis=axis, reverse=is_reverse, inclusive=is_inclusive)


@converts("b", "Softmax")
def _softmax(node: Node) -> Value:
    return node.apply("softmax", node.inputs[0], axis=-1, precise=node.state[0])


@converts("", "LogSumExp")
def _log_sum_exp(node: Node) -> Value:
    return node.apply("logsumexp", node.inputs[0], axis=-1, keepdims=True)


# ------------------------------------------------------------------- products


@converts("ff", "AddMM")
def _addmm(node: Node) -> Value:
    a, b, c = node.inputs
    alpha, beta = node.state
    return node.apply("addmm", c, a, b, alpha=alpha, beta=beta)


@converts("IIIIIib", "Convolution")
def _convolution(node: Node) -> Value:
    stride, low, high, dilation, spread, groups, flip = node.state
    if any(pad < 0 for pad in low + high):
        raise Unsupported(f"padding of {low} and {high}, must not be negative")
    return node.apply(
        "conv_general",
        *node.inputs,
        stride=stride,
        padding=[list(pair) for pair in zip(low, high, strict=True)],
        kernel_dilation=dilation,
        input_dilation=spread,
        groups=groups,
        flip=flip,
    )


@converts("bb", "GatherMM")
def _gather_mm(node: Node) -> Value:
    return node.apply("gather_mm", *node.inputs)


@converts("iiib", "QuantizedMatmul")
def _quantized_matmul(node: Node) -> Value:
    group, bits, mode, is_transposed = node.state
    return node.apply(
        "quantized_matmul",
        *node.inputs,
        transpose=is_transposed,
        group_size=group,
        bits=bits,
        mode=choice(mode, MODES),
    )


@converts("iiibbb", "GatherQMM")
def _gather_qmm(node: Node) -> Value:
    group, bits, mode, is_transposed, _, _ = node.state
    *weights, left, right = node.inputs
    return node.apply(
        "gather_qmm",
        *weights,
        *[None] * (4 - len(weights)),
        left,
        right,
        transpose=is_transposed,
        group_size=group,
        bits=bits,
        mode=choice(mode, MODES),
    )


@converts("iiib", "Quantize")
def _quantize(node: Node) -> Value | list[Value]:
    group, bits, mode, is_back = node.state
    packing: Any = {"group_size": group, "bits": bits, "mode": choice(mode, MODES)}
    if is_back:
        return node.apply("dequantize", *node.inputs, dtype=node.specs[0].dtype, **packing)
    return node.scope.several("quantize", *node.inputs, **packing)


# -------------------------------------------------------------- linear algebra


@converts("Zbbb", "FFT")
def _fft(node: Node) -> Value:
    axes, is_inverse, is_real, _ = node.state
    op = f"{'i' * is_inverse}{'r' * is_real}fftn"
    sides = node.shape if is_inverse else sides_of(node.inputs[0])
    return node.apply(op, node.inputs[0], s=[sides[axis] for axis in axes], axes=axes)


@converts("bb", "Inverse")
def _inverse(node: Node) -> Value:
    is_triangular, is_upper = node.state
    if is_triangular:
        return node.apply("tri_inv", node.inputs[0], upper=is_upper)
    return node.apply("inv", node.inputs[0])


@converts("b", "Eig")
def _eig(node: Node) -> list[Value]:
    return node.scope.several("eig" if node.state[0] else "eigvals", node.inputs[0])


@converts("sb", "Eigh")
def _eigh(node: Node) -> list[Value]:
    half, has_vectors = node.state
    return node.scope.several("eigh" if has_vectors else "eigvalsh", node.inputs[0], UPLO=half)


# -------------------------------------------------- layers that a GPU computes


def _scale(value: Value) -> Value | None:
    """Return a weight; mlx stands a number in place of one that is left out."""
    return value if value.rank else None


@converts("f", "RMSNorm")
def _rms_norm(node: Node) -> Value:
    x, weight = node.inputs
    return node.apply("rms_norm", x, _scale(weight), eps=node.state[0])


@converts("f", "LayerNorm")
def _layer_norm(node: Node) -> Value:
    x, weight, bias = node.inputs
    return node.apply("layer_norm", x, _scale(weight), _scale(bias), eps=node.state[0])


@converts("ibffb", "RoPE")
def _rope(node: Node) -> Value:
    dims, is_traditional, base, scale, is_forward = node.state
    if not is_forward:
        raise Unsupported(_GRADIENT)
    return node.apply(
        "rope",
        node.inputs[0],
        *node.inputs[2:],
        dims=dims,
        traditional=is_traditional,
        base=None if len(node.inputs) > 2 else base,
        scale=scale,
        offset=node.number(1, "its offset"),
    )


@converts("fbbbb", "ScaledDotProductAttention")
def _attention(node: Node) -> Value:
    scale, is_causal, has_sinks, has_sums, _ = node.state
    if has_sinks or has_sums:
        raise Unsupported("attention with sinks, or whose sums are read")
    return node.apply("attention", *node.inputs, scale=scale, causal=is_causal)
