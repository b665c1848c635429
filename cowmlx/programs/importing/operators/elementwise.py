"""Elementwise operators."""

from __future__ import annotations

from typing import Any

import numpy as np

from cowmlx.errors import Unsupported
from cowmlx.programs.bounds import Steps
from cowmlx.programs.dimensions import Symbolic, at_least, compare, divided
from cowmlx.programs.importing.onnx_nodes import CONVERTERS, MAX_SYMBOLIC, OnnxNode, converts
from cowmlx.programs.importing.onnx_tensors import dtype_of
from cowmlx.programs.importing.values import Value, is_symbolic

UNARY = {
    "Abs": "abs",
    "Acos": "arccos",
    "Acosh": "arccosh",
    "Asin": "arcsin",
    "Asinh": "arcsinh",
    "Atan": "arctan",
    "Atanh": "arctanh",
    "BitwiseNot": "bitwise_invert",
    "Ceil": "ceil",
    "Cos": "cos",
    "Cosh": "cosh",
    "Det": "det",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "HardSwish": "hardswish",
    "IsNaN": "isnan",
    "Log": "log",
    "Mish": "mish",
    "Neg": "negative",
    "Not": "logical_not",
    "Reciprocal": "reciprocal",
    "Round": "round",
    "Sigmoid": "sigmoid",
    "Sign": "sign",
    "Sin": "sin",
    "Sinh": "sinh",
    "Softplus": "softplus",
    "Softsign": "softsign",
    "Sqrt": "sqrt",
    "Tan": "tan",
    "Tanh": "tanh",
}
BINARY = {
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Equal": "equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Mul": "multiply",
    "Or": "logical_or",
    "Sub": "subtract",
    "Xor": "logical_xor",
}
_SHAPES: dict[str, Any] = {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": lambda a, b: _cut_quotient(a, b),
    "Max": lambda a, b: _choice(a, b, True),
    "Min": lambda a, b: _choice(a, b, False),
    "Equal": lambda a, b: _decided(compare(a, b)),
}
WIDE = ("float16", "bfloat16")


def widened(node: OnnxNode, value: Value) -> Value:
    """Return a value of 16 bits as float32, whose sums of squares do not overflow."""
    return node.scope.cast(value, "float32") if value.dtype in WIDE else value


def _choice(a: Any, b: Any, greater: bool) -> Any:
    if at_least(a, b):
        return a if greater else b
    if at_least(b, a):
        return b if greater else a
    raise Unsupported(f"which of {a} and {b} is greater is not known before a run")


def _cut_quotient(a: Any, b: Any) -> Any:
    """Return a quotient of dimensions, rounded towards 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b if (a < 0) == (b < 0) else -(-a // b)
    exact = divided(a, b)
    if exact is not None and exact != 0:
        return exact
    if isinstance(b, int) and b > 0 and at_least(a, 0):
        return a // b
    raise Unsupported(f"{a} over {b}, rounded towards 0, is not known before a run")


def _decided(answer: bool | None) -> bool:
    if answer is None:
        raise Unsupported("whether two dimensions are equal is not known before a run")
    return answer


def dimension_steps(node: OnnxNode) -> Steps[Value | None]:
    """Return the result of arithmetic on dimensions, in steps; None if no input has any."""
    known = [value.known if value is not None else None for value in node.inputs]
    if not any(map(is_symbolic, known)) or any(array is None for array in known):
        return None
    rule = _SHAPES.get(node.op)
    if rule is None:
        return None
    try:
        result = yield from _arithmetic_steps(node, rule, known)
    except Unsupported:
        if node.op in ("Equal", "Div", "Max", "Min"):
            return None
        raise
    if node.op == "Equal":
        return node.scope.constant(result.astype(bool))
    dtype = node.input().dtype
    if not any(isinstance(each, Symbolic) for each in result.reshape(-1)):
        result = result.astype(dtype)
    return node.scope.constant(result, dtype)


def _arithmetic_steps(node: OnnxNode, rule: Any, arrays: list[Any]) -> Steps[Any]:
    """Return an array of what a rule makes of the elements of arrays, which are broadcast."""
    result = arrays[0].astype(object)
    for array in arrays[1:]:
        node.bounded(np.broadcast_shapes(result.shape, array.shape), MAX_SYMBOLIC)
        left, right = np.broadcast_arrays(result, array.astype(object))
        result = np.empty(left.shape, object)
        for at in np.ndindex(left.shape):
            yield from node.rest()
            result[at] = rule(left[at], right[at])
    return result


def _unary(node: OnnxNode) -> Value:
    return node.apply(UNARY[node.op], node.input())


def _binary(node: OnnxNode) -> Steps[Value]:
    found = yield from dimension_steps(node)
    return found or node.apply(BINARY[node.op], node.input(0), node.input(1))


for _name in UNARY:
    CONVERTERS["", _name] = _unary
for _name in BINARY:
    CONVERTERS["", _name] = _binary


@converts("Relu")
def _relu(node: OnnxNode) -> Value:
    value = node.input()
    if "int" in value.dtype:
        return node.apply("maximum", value, node.number(0, value))
    return node.apply("relu", value)


@converts("Identity", "Upcast")
def _identity(node: OnnxNode) -> Value:
    return node.input()


@converts("Div")
def _divide(node: OnnxNode) -> Steps[Value]:
    found = yield from dimension_steps(node)
    if found is not None:
        return found
    a, b = node.input(0), node.input(1)
    if "float" in a.dtype or a.dtype == "complex64":
        return node.apply("divide", a, b)
    return quotient_of(node, a, b)


def quotient_of(node: OnnxNode, a: Value, b: Value) -> Value:
    """Return the quotient of integers, rounded towards 0."""
    if a.dtype.startswith("u"):
        return node.apply("floor_divide", a, b)
    # Not by absolute values: the least integer has none.
    quotient, zero = node.apply("floor_divide", a, b), node.number(0, a)
    is_rounded = node.apply("not_equal", node.apply("remainder", a, b), zero)
    up = node.apply("logical_and", is_rounded, node.apply("less", quotient, zero))
    return node.apply("add", quotient, node.scope.cast(up, a.dtype))


@converts("Mod")
def _modulo(node: OnnxNode) -> Value:
    a, b = node.input(0), node.input(1)
    if not node.attr("fmod", 0) or a.dtype.startswith("u"):
        return node.apply("remainder", a, b)
    if "int" in a.dtype:  # the least integer has no absolute value
        return node.apply("subtract", a, node.apply("multiply", quotient_of(node, a, b), b))
    size = node.apply("remainder", node.apply("abs", a), node.apply("abs", b))
    below = node.apply("less", a, node.number(0, a))
    return node.apply("where", below, node.apply("negative", size), size)


@converts("Pow")
def _power(node: OnnxNode) -> Value:
    base, exponent = node.input(0), node.input(1)
    known = node.scope.known(exponent)
    if known is not None and known.size == 1 and "float" in base.dtype:
        number = float(known.reshape(())[()])
        if known.ndim <= base.rank:
            if number == 2:
                return node.apply("square", base)
            if number == 0.5:
                return node.apply("sqrt", base)
    if "float" in base.dtype or "float" not in exponent.dtype:
        return node.apply("power", base, node.scope.cast(exponent, base.dtype))
    found = node.apply("power", node.scope.cast(base, exponent.dtype), exponent)
    return node.scope.cast(found, base.dtype)


@converts("BitShift")
def _shift(node: OnnxNode) -> Value:
    op = "left_shift" if node.needed("direction") == "LEFT" else "right_shift"
    return node.apply(op, node.input(0), node.input(1))


@converts("Max", "Min", "Sum")
def _several(node: OnnxNode) -> Steps[Value]:
    found = yield from dimension_steps(node)
    if found is not None:
        return found
    op = {"Max": "maximum", "Min": "minimum", "Sum": "add"}[node.op]
    return (yield from _joined_steps(node, op))


def _joined_steps(node: OnnxNode, op: str) -> Steps[Value]:
    """Return the result of an operation on all inputs, one after the other, in steps."""
    total = node.input()
    for at in range(1, len(node.inputs)):
        yield from node.rest()
        total = node.apply(op, total, node.input(at))
    return total


@converts("Mean")
def _mean(node: OnnxNode) -> Steps[Value]:
    total = yield from _joined_steps(node, "add")
    return node.apply("divide", total, node.number(len(node.inputs), total))


@converts("Where")
def _where(node: OnnxNode) -> Value:
    given = [node.input(at) for at in range(3)]
    arrays = [node.scope.known(value) for value in given]
    if any(map(is_symbolic, arrays)) and all(array is not None for array in arrays):
        node.bounded(np.broadcast_shapes(*(array.shape for array in arrays)), MAX_SYMBOLIC)
        chosen = np.where(arrays[0], arrays[1].astype(object), arrays[2].astype(object))
        return node.scope.constant(chosen, given[1].dtype)
    return node.apply("where", *given)


@converts("Cast", "CastLike")
def _cast(node: OnnxNode) -> Value:
    if node.op == "CastLike":
        wanted = node.input(1).dtype
        if node.input(1).bits:
            raise Unsupported(f"its result is of int{node.input(1).bits}, which programs lack")
    else:
        wanted = dtype_of(node.needed("to"), "its result")
    value = node.input()
    if wanted == "bool" and value.dtype != "bool":
        return node.apply("not_equal", value, node.number(0, value))
    return node.scope.cast(value, wanted)


@converts("BitCast")
def _bit_cast(node: OnnxNode) -> Value:
    value = node.input()
    wanted = dtype_of(node.needed("to"), "its result")
    return value if wanted == value.dtype else node.apply("view", value, dtype=wanted)


@converts("Clip")
def _clip(node: OnnxNode) -> Value:
    value = node.input()
    low, high = node.optional(1), node.optional(2)
    if node.opset < 11:
        low = node.number(node.attr("min", -3.4028234663852886e38), value)
        high = node.number(node.attr("max", 3.4028234663852886e38), value)
    for bound, op in ((low, "maximum"), (high, "minimum")):
        if bound is not None:
            value = node.apply(op, value, bound)
    return value


@converts("IsInf")
def _is_infinite(node: OnnxNode) -> Value:
    positive, negative = node.attr("detect_positive", 1), node.attr("detect_negative", 1)
    if positive and negative:
        return node.apply("isinf", node.input())
    if positive or negative:
        return node.apply("isposinf" if positive else "isneginf", node.input())
    both = [node.apply(op, node.input()) for op in ("isposinf", "isneginf")]
    return node.apply("logical_and", *both)


@converts("Elu", "Celu", "LeakyRelu")
def _with_alpha(node: OnnxNode) -> Value:
    op = {"Elu": "elu", "Celu": "celu", "LeakyRelu": "leaky_relu"}[node.op]
    alpha = float(node.attr("alpha", 0.01 if node.op == "LeakyRelu" else 1.0))
    name = "negative_slope" if node.op == "LeakyRelu" else "alpha"
    return node.apply(op, node.input(), **{name: alpha})


@converts("Selu")
def _selu(node: OnnxNode) -> Value:
    value = node.input()
    alpha = node.attr("alpha", 1.67326319217681884765625)
    gamma = node.attr("gamma", 1.05070102214813232421875)
    return node.apply(
        "multiply", node.apply("elu", value, alpha=float(alpha)), node.number(gamma, value)
    )


@converts("PRelu")
def _prelu(node: OnnxNode) -> Value:
    value, slope = node.input(0), node.input(1)
    zero = node.number(0, value)
    scaled = node.apply("multiply", value, slope)
    return node.apply("where", node.apply("less", value, zero), scaled, value)


@converts("ThresholdedRelu")
def _thresholded(node: OnnxNode) -> Value:
    value = node.input()
    above = node.apply("greater", value, node.number(node.attr("alpha", 1.0), value))
    return node.apply("where", above, value, node.number(0, value))


@converts("HardSigmoid")
def _hard_sigmoid(node: OnnxNode) -> Value:
    value = node.input()
    return hard_sigmoid(node, value, node.attr("alpha", 0.2), node.attr("beta", 0.5))


def hard_sigmoid(node: OnnxNode, value: Value, alpha: float, beta: float) -> Value:
    """Return max(0, min(1, alpha x + beta))."""
    line = node.apply("multiply", value, node.number(alpha, value))
    line = node.apply("add", line, node.number(beta, value))
    return node.apply("clip", line, a_min=0, a_max=1)


@converts("Shrink")
def _shrink(node: OnnxNode) -> Value:
    value = node.input()
    bound, bias = node.attr("lambd", 0.5), node.attr("bias", 0.0)
    high = node.apply("greater", value, node.number(bound, value))
    lowered = node.apply("subtract", value, node.number(bias, value))
    rest = node.apply("where", high, lowered, node.number(0, value))
    if value.dtype.startswith("u"):
        return rest
    low = node.apply("less", value, node.number(-bound, value))
    raised = node.apply("add", value, node.number(bias, value))
    return node.apply("where", low, raised, rest)


@converts("Gelu")
def _gelu(node: OnnxNode) -> Value:
    tanh = node.attr("approximate", "none") == "tanh"
    return node.apply("gelu_approx" if tanh else "gelu", node.input())


@converts("Swish")
def _swish(node: OnnxNode) -> Value:
    value = node.input()
    inner = node.apply("multiply", value, node.number(node.attr("alpha", 1.0), value))
    return node.apply("multiply", value, node.apply("sigmoid", inner))


@converts("Dropout")
def _dropout(node: OnnxNode) -> list[Value]:
    value = node.input()
    training = node.scope.known(node.optional(2))
    ratio = node.scope.known(node.optional(1))
    share = node.attr("ratio", 0.5) if ratio is None else float(ratio.reshape(-1)[0])
    if node.optional(2) is not None and training is None:
        raise node.depends("training_mode", node.proto.input[2])
    if training is not None and training.any() and share > 0:
        raise Unsupported("in training mode it needs a random key, which it has not")
    return [value, node.apply("ones_like", value, dtype="bool")]
