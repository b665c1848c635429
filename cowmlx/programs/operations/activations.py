"""Activations of networks, after ``mlx.nn``, written out so that they need no compiler."""

from __future__ import annotations

import math
from functools import partial

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.programs.dimensions import Shape, divided
from cowmlx.programs.operations import elementary
from cowmlx.programs.operations.half import in_float32, keeping
from cowmlx.programs.operations.making import elementwise, example, shaped
from cowmlx.programs.operations.row import Attribute, Attributes
from cowmlx.programs.operations.rules import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    axis_of,
    inexact,
    replaced,
    shapes_refused,
)

_ALPHA = Attribute("alpha", "float", 1.0, "The scale below 0.", low=1e-6)


_activation = partial(elementwise, accepted=FLOATS, places=("x",))


def _log_sigmoid(x: mx.array) -> mx.array:
    return -elementary.logaddexp(-x, mx.zeros_like(x))


def _softplus(x: mx.array) -> mx.array:
    return elementary.logaddexp(x, mx.zeros_like(x))


def _leaky_relu(x: mx.array, negative_slope: float) -> mx.array:
    return mx.maximum(x, 0) + negative_slope * mx.minimum(x, 0)


def _elu(x: mx.array, alpha: float) -> mx.array:
    return mx.where(x > 0, x, alpha * mx.expm1(mx.minimum(x, 0)))


def _celu(x: mx.array, alpha: float) -> mx.array:
    return mx.maximum(x, 0) + alpha * mx.expm1(mx.minimum(x, 0) / alpha)


def _gelu(x: mx.array) -> mx.array:
    if (made := operations.gelu(x)) is not None:
        return made
    return x * (1 + elementary.erf(x / math.sqrt(2))) / 2


def _gelu_approx(x: mx.array) -> mx.array:
    return 0.5 * x * (1 + mx.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))


def _selu(x: mx.array) -> mx.array:
    return 1.0507009873554805 * _elu(x, 1.6732632423543772)


def _soft_shrink(x: mx.array, lambd: float) -> mx.array:
    return mx.where(x > lambd, x - lambd, mx.where(x < -lambd, x + lambd, mx.zeros_like(x)))


def _hard_shrink(x: mx.array, lambd: float) -> mx.array:
    return mx.where(mx.abs(x) > lambd, x, mx.zeros_like(x))


def _step(x: mx.array, threshold: float) -> mx.array:
    return (x > threshold).astype(x.dtype)


def _hard_tanh(x: mx.array, min_val: float, max_val: float) -> mx.array:
    return mx.minimum(mx.maximum(x, min_val), max_val)


def _hard_swish(x: mx.array) -> mx.array:
    return x * mx.minimum(mx.maximum(x + 3, 0), 6) / 6


def _glu(shape: Shape, attributes: Attributes) -> Shape:
    axis = axis_of(attributes["axis"], len(shape))
    half = divided(shape[axis], 2)
    if half is None:
        raise shapes_refused([shape], f"axis {axis} must have an even length")
    return replaced(shape, axis, half)


def _glu_array(x: mx.array, axis: int) -> mx.array:
    left, right = mx.split(x, 2, axis)
    return left * elementary.sigmoid(right)


_LAMBDA = Attribute("lambd", "float", 0.5, "Where it begins.", low=0)

ROWS = (
    elementwise(
        "sigmoid",
        "The logistic function; integers and bools become float32.",
        "1 / (1 + e^-x)",
        elementary.sigmoid,
        places=("x",),
        accepted=(*FLOATS, "bool", *SIGNED, *UNSIGNED),
        result=inexact,
        aliases="logistic",
    ),
    _activation(
        "log_sigmoid", "The logarithm of the logistic function.", "-ln(1 + e^-x)", _log_sigmoid
    ),
    _activation("relu", "What is above 0.", "max(x, 0)", operations.relu),
    _activation(
        "relu2",
        "The square of what is above 0.",
        "max(x, 0)^2",
        lambda x: mx.square(mx.maximum(x, 0)),
    ),
    _activation(
        "relu6",
        "What is above 0, at most 6.",
        "min(max(x, 0), 6)",
        lambda x: mx.minimum(mx.maximum(x, 0), 6),
    ),
    _activation(
        "leaky_relu",
        "What is above 0, and a part of what is below.",
        "max(x, 0) + negative_slope min(x, 0)",
        keeping(_leaky_relu, ["negative_slope"]),
        attributes=(Attribute("negative_slope", "float", 0.01, "The slope below 0."),),
    ),
    _activation(
        "prelu",
        "What is above 0, and learned parts of what is below.",
        "max(x, 0) + alpha min(x, 0)",
        lambda x, alpha: mx.maximum(x, 0) + alpha * mx.minimum(x, 0),
        places=("x", "alpha"),
        examples=[example("[2,3]", "[3]"), example("[2,3]", "[]")],
    ),
    _activation(
        "elu",
        "Exponential below 0.",
        "x if x > 0, else alpha (e^x - 1)",
        keeping(_elu, ["alpha"]),
        attributes=(_ALPHA,),
        source="arXiv 1511.07289",
    ),
    _activation(
        "celu",
        "Exponential below 0, with a smooth slope.",
        "max(x, 0) + min(0, alpha (e^(x / alpha) - 1))",
        keeping(_celu, ["alpha"]),
        attributes=(_ALPHA,),
        source="arXiv 1704.07483",
    ),
    _activation(
        "selu",
        "The self-normalizing elu.",
        "1.0507 elu(x, alpha = 1.6733)",
        _selu,
        source="arXiv 1706.02515",
    ),
    _activation(
        "gelu",
        "The Gaussian error linear unit.",
        "x (1 + erf(x / sqrt(2))) / 2",
        in_float32(_gelu),
        source="arXiv 1606.08415",
    ),
    _activation(
        "gelu_approx",
        "The gelu with a tanh in place of erf.",
        "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
        in_float32(_gelu_approx),
        aliases="gelu_tanh",
        source="arXiv 1606.08415",
    ),
    _activation(
        "gelu_fast_approx",
        "The gelu with a sigmoid in place of erf.",
        "x sigmoid(1.702 x)",
        lambda x: x * elementary.sigmoid(1.702 * x),
        source="arXiv 1606.08415",
    ),
    _activation(
        "silu",
        "The sigmoid linear unit.",
        "x sigmoid(x)",
        lambda x: x * elementary.sigmoid(x),
        aliases="swish",
        source="arXiv 1606.08415",
    ),
    _activation(
        "mish",
        "A smooth unit.",
        "x tanh(softplus(x))",
        lambda x: x * mx.tanh(_softplus(x)),
        source="arXiv 1908.08681",
    ),
    _activation(
        "hardswish",
        "The silu of straight lines.",
        "x min(max(x + 3, 0), 6) / 6",
        in_float32(_hard_swish),
        aliases="hard_swish",
        source="arXiv 1905.02244",
    ),
    _activation(
        "hard_tanh",
        "The tanh of straight lines.",
        "min(max(x, min_val), max_val)",
        _hard_tanh,
        attributes=(
            Attribute("min_val", "float", -1.0, "The least value."),
            Attribute("max_val", "float", 1.0, "The greatest value."),
        ),
        aliases="hardtanh",
    ),
    _activation(
        "hard_shrink",
        "0 near 0.",
        "x if |x| > lambd, else 0",
        _hard_shrink,
        attributes=(_LAMBDA,),
        aliases="hardshrink",
    ),
    _activation(
        "softshrink",
        "Closer to 0 by lambd, and 0 near 0.",
        "sign(x) max(|x| - lambd, 0)",
        _soft_shrink,
        attributes=(_LAMBDA,),
    ),
    _activation("softplus", "A smooth relu.", "ln(1 + e^x)", _softplus),
    _activation("softsign", "Between -1 and 1.", "x / (1 + |x|)", lambda x: x / (1 + mx.abs(x))),
    _activation(
        "step",
        "1 above a threshold, 0 elsewhere.",
        "1 if x > threshold, else 0",
        _step,
        attributes=(Attribute("threshold", "float", 0.0, "The threshold."),),
        differentiable=False,
        aliases="heaviside",
    ),
    shaped(
        "glu(x)",
        _glu,
        "One half of an axis, gated by the other.",
        "left sigmoid(right)",
        [example("[2,6]"), example("[4,3]", axis=0)],
        _glu_array,
        accepted=FLOATS,
        attributes=(Attribute("axis", "axis", -1, "The axis that is halved."),),
        source="arXiv 1612.08083",
    ),
)
