"""Matrix products and convolutions; images have their channels last here."""

from __future__ import annotations

from string import ascii_letters
from typing import Any

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.operators.shaping import padded, reshaped
from cowmlx.programs.importing.values import Value, is_symbolic
from cowmlx.programs.operations.rules import broadcasts_to

LEAST_SCALE = 1e-30
"""Of an attention; the largest is one over it. Others could take scores out of float32."""


@converts("MatMul")
def _matmul(node: OnnxNode) -> Value:
    a, b = node.input(0), node.input(1)
    attended = _attended(node, a, b)
    return product(node, a, b) if attended is None else attended


def _attended(node: OnnxNode, weights: Value, values: Value) -> Value | None:
    """Return softmax(q k^T scale + mask) v as one operation; None if the product is another one.

    The nodes that compute the scores stay if other nodes read them.
    """
    made = weights.made
    if made is None or made.op != "softmax" or made.attributes.get("axis") != 3:
        return None
    if weights.scope is not node.scope or values.rank != 4:  # a loop's body would repeat softmax
        return None
    (scores,) = made.inputs
    assert scores is not None
    sums = [pair for pair in _operands(scores, "add") if pair[0].shape == scores.shape]
    candidates: list[tuple[Value, Value | None]] = [(scores, None), *sums]
    products = [(_scaled_product(node, unmasked), mask) for unmasked, mask in candidates]
    found, mask = next((pair for pair in products if pair[0] is not None), (None, None))
    if found is None:
        return None
    q, turned, scale = found
    k = node.scope.transpose(turned, (0, 1, 3, 2))
    heads, types = q.shape[:2], {value.dtype for value in (q, k, values, mask or q)}
    fits = k.shape == (*heads, values.shape[2], q.shape[3]) and values.shape[:2] == heads
    if not fits or 0 in heads or len(types) > 1:
        return None
    if mask is not None and not broadcasts_to(mask.shape, scores.shape):
        return None
    return node.apply("scaled_dot_product_attention", q, k, values, mask, scale=scale)


def _scaled_product(node: OnnxNode, value: Value) -> tuple[Value, Value, float] | None:
    """Return a, b and a scale if a value is a @ b * scale, of (batch, heads, …); else None."""
    scale = 1.0
    for op in ("multiply", "divide"):
        for scaled, factor in _operands(value, op):
            number = node.scope.known(factor) if factor.rank <= 4 else None
            if number is None or is_symbolic(number) or number.size != 1:
                continue
            by = float(number.reshape(-1)[0])
            times = scale * by if op == "multiply" or not by else scale / by
            if LEAST_SCALE < abs(times) < 1 / LEAST_SCALE:
                value, scale = scaled, times
                break
    for a, b in _operands(value, "matmul"):
        if a.rank == 4 and b.rank == 4:
            return a, b, scale
    return None


def _operands(value: Value, op: str) -> list[tuple[Value, Value]]:
    """Return the operands of the operation that computes a value, in each order that it allows.

    Args:
        value: the value.
        op: an operation of two operands; there are none if another one computes the value.
    """
    if value.made is None or value.made.op != op:
        return []
    first, second = value.made.inputs
    assert first is not None
    assert second is not None
    return [(first, second), (second, first)] if op in ("add", "multiply") else [(first, second)]


def product(node: OnnxNode, a: Value, b: Value) -> Value:
    """Return a matrix product; of integers, which wrap, too."""
    if "int" not in a.dtype:
        return node.apply("matmul", a, b)
    whole = "uint64" if "64" in a.dtype else "uint32"
    terms = b.shape[-2] if b.rank > 1 else b.shape[0]
    # Sums of products of so few bits are exact in float64.
    bits = (53 - terms.bit_length()) // 2 if isinstance(terms, int) else 16
    size = int(whole[4:])
    left, right = (_digits(node, value, whole, bits) for value in (a, b))
    total: Value | None = None
    for at, first in enumerate(left):
        for by, second in enumerate(right[: -(-size // bits) - at]):
            part = node.scope.cast(node.apply("matmul", first, second), "uint64")
            part = node.apply("left_shift", part, node.number((at + by) * bits, part))
            total = part if total is None else node.apply("add", total, part)
    assert total is not None
    return node.scope.cast(total, a.dtype)


def _digits(node: OnnxNode, value: Value, whole: str, bits: int) -> list[Value]:
    """Return integers as float64 numbers of a few bits each, the lowest first."""
    value = node.scope.cast(value, whole)
    digits = []
    for shift in range(0, int(whole[4:]), bits):
        digit = node.apply("right_shift", value, node.number(shift, value))
        digit = node.apply("bitwise_and", digit, node.number((1 << bits) - 1, value))
        digits.append(node.scope.cast(digit, "float64"))
    return digits


@converts("Gemm")
def _gemm(node: OnnxNode) -> Value:
    a, b, c = node.input(0), node.input(1), node.optional(2)
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    dtype = a.dtype
    if a.rank != 2 or b.rank != 2:
        raise BadFormat(f"multiplies {a.spec} and {b.spec}, must be matrices")
    if node.attr("transA", 0):
        a = node.scope.transpose(a, (1, 0))
    plain = alpha == 1 and (c is None or beta == 1) and "float" in dtype
    if plain and node.attr("transB", 0) and (c is None or c.shape == (b.shape[0],)):
        return node.apply("linear", a, b, c)
    if node.attr("transB", 0):
        b = node.scope.transpose(b, (1, 0))
    found = product(node, a, b)
    if alpha != 1:
        found = node.apply("multiply", found, node.number(alpha, found))
    if c is not None:
        if beta != 1:
            c = node.apply("multiply", c, node.number(beta, c))
        found = node.apply("add", found, c)
    return node.scope.cast(found, dtype)


@converts("Einsum")
def _einsum(node: OnnxNode) -> Value:
    values = [node.input(at) for at in range(len(node.inputs))]
    equation = node.needed("equation").replace(" ", "")
    if "..." in equation:
        equation = _spelled(equation, [value.rank for value in values])
    return node.apply("einsum", *values, subscripts=equation)


def _spelled(equation: str, ranks: list[int]) -> str:
    """Return the subscripts of an einsum with letters for the axes of "..."."""
    given, arrow, result = equation.partition("->")
    terms = given.split(",")
    free = [letter for letter in ascii_letters if letter not in equation]
    lengths = [rank - len(term) + 3 for term, rank in zip(terms, ranks, strict=True)]
    lengths = [length for length, term in zip(lengths, terms, strict=True) if "..." in term]
    most = max(lengths, default=0)
    is_lost = bool(arrow and most and "..." not in result)
    if min(lengths, default=0) < 0 or most > len(free) or is_lost:
        raise BadFormat(f"has the equation {equation[:80]!r} for inputs of {ranks} axes")
    letters = "".join(free[:most])
    if not arrow:  # the letters that are there once, in order
        plain = given.replace("...", "").replace(",", "")
        result = "..." + "".join(sorted(each for each in set(plain) if plain.count(each) == 1))
    rest = iter(lengths)
    spelled = [
        term.replace("...", letters[most - next(rest) :]) if "..." in term else term
        for term in terms
    ]
    return f"{','.join(spelled)}->{result.replace('...', letters)}"


def pads_of(node: OnnxNode, sides: list[Any], reach: list[int], strides: list[int]) -> Any:
    """Return pairs of padding for spatial axes.

    Args:
        node: has the attributes ``auto_pad`` and ``pads``.
        sides: lengths of the axes.
        reach: how many elements a window spans.
        strides: from one window to the next.
    """
    axes = len(reach)
    auto = node.attr("auto_pad", "NOTSET")
    if auto == "VALID":
        return [(0, 0)] * axes
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        pairs = []
        for side, span, stride in zip(sides, reach, strides, strict=True):
            if not isinstance(side, int):
                if stride != 1:
                    raise Unsupported(f"{auto} needs an axis of known length, and has {side}")
                missing = span - 1
            else:
                missing = max((-(-side // stride) - 1) * stride + span - side, 0)
            small, large = missing // 2, missing - missing // 2
            pairs.append((small, large) if auto == "SAME_UPPER" else (large, small))
        return pairs
    pads = node.ints("pads", 2 * axes, 0)
    if any(pad < 0 for pad in pads):
        raise BadFormat(f"has negative pads {pads}")
    return list(zip(pads[:axes], pads[axes:], strict=True))


def channels_last(node: OnnxNode, value: Value) -> Value:
    """Return (N, C, …) as (N, …, C)."""
    return node.scope.transpose(value, (0, *range(2, value.rank), 1))


def channels_first(node: OnnxNode, value: Value) -> Value:
    """Return (N, …, C) as (N, C, …)."""
    return node.scope.transpose(value, (0, value.rank - 1, *range(1, value.rank - 1)))


@converts("Conv")
def _conv(node: OnnxNode) -> Value:
    found = convolved(node, node.input(0), node.input(1))
    bias = node.optional(2)
    return channels_first(node, node.apply("add", found, bias) if bias else found)


def convolved(node: OnnxNode, value: Value, weight: Value) -> Value:
    """Return a convolution, channels last."""
    axes = value.rank - 2
    if not 1 <= axes <= 3 or weight.rank != value.rank:
        raise Unsupported(f"convolves {value.spec} with {weight.spec}: 1 to 3 axes are possible")
    strides, dilations = node.ints("strides", axes, 1), node.ints("dilations", axes, 1)
    windows: list[Any] = list(weight.shape[2:])
    reach = [(side - 1) * by + 1 for side, by in zip(windows, dilations, strict=True)]
    pairs = pads_of(node, list(value.shape[2:]), reach, strides)
    image, kernel = channels_last(node, value), channels_last(node, weight)
    groups = node.attr("group", 1)
    if all(low == high for low, high in pairs):
        return node.apply(
            f"conv{axes}d",
            image,
            kernel,
            stride=strides,
            padding=[low for low, _ in pairs],
            dilation=dilations,
            groups=groups,
        )
    image = padded(node, image, [(0, 0), *pairs, (0, 0)])
    return node.apply(
        f"conv{axes}d", image, kernel, stride=strides, dilation=dilations, groups=groups
    )


@converts("ConvTranspose")
def _conv_transpose(node: OnnxNode) -> Value:
    value, weight, bias = node.input(0), node.input(1), node.optional(2)
    axes = value.rank - 2
    if not 1 <= axes <= 3:
        raise Unsupported(f"convolves {value.spec}: 1 to 3 axes are possible")
    strides, dilations = node.ints("strides", axes, 1), node.ints("dilations", axes, 1)
    more = node.ints("output_padding", axes, 0)
    groups = node.attr("group", 1)
    windows: list[Any] = list(weight.shape[2:])
    reach = [(side - 1) * by + 1 for side, by in zip(windows, dilations, strict=True)]
    pairs = _transposed_pads(node, value, strides, reach, more)
    image = channels_last(node, value)
    # (C_in, C_out / groups, kernel) as (C_out, kernel, C_in / groups).
    channels, outputs = weight.shape[0], weight.shape[1]
    if groups == 1:
        kernel = node.scope.transpose(weight, (1, *range(2, weight.rank), 0))
    else:
        split = node.scope.reshape(weight, [groups, channels // groups, outputs, *windows])
        turned = node.scope.transpose(split, (0, 2, *range(3, split.rank), 1))
        kernel = reshaped(node, turned, [groups * outputs, *windows, channels // groups])
    pads = [
        [span - 1 - low, span - 1 - high + end]
        for span, (low, high), end in zip(reach, pairs, more, strict=True)
    ]
    wide = [[max(low, 0), max(high, 0)] for low, high in pads]
    found = node.apply(
        "conv_general",
        image,
        kernel,
        padding=wide,
        kernel_dilation=dilations,
        input_dilation=strides,
        groups=groups,
        flip=True,
    )
    for axis, (low, high) in enumerate(pads, 1):
        if low < 0 or high < 0:
            stop = high if high < 0 else 2**31 - 1
            found = node.apply("slice", found, start=[max(-low, 0)], stop=[stop], axes=[axis])
    return channels_first(node, node.apply("add", found, bias) if bias else found)


def _transposed_pads(
    node: OnnxNode, value: Value, strides: list[int], reach: list[int], more: list[int]
) -> list[tuple[int, int]]:
    sides: list[Any] = list(value.shape[2:])
    wanted = node.attr("output_shape")
    auto = node.attr("auto_pad", "NOTSET")
    if wanted is None and auto not in ("SAME_UPPER", "SAME_LOWER"):
        return pads_of(node, sides, reach, strides)
    if not all(isinstance(side, int) for side in sides):
        raise Unsupported("its axes are not known before a run")
    if wanted is None:
        wanted = [side * stride for side, stride in zip(sides, strides, strict=True)]
    pairs = []
    for at, side in enumerate(sides):
        whole = strides[at] * (side - 1) + more[at] + reach[at]
        total = whole - wanted[len(wanted) - len(sides) + at]
        half = total // 2
        if auto == "SAME_UPPER":
            pairs.append((half, total - half))
        else:
            pairs.append((total - half, half))
    return pairs
