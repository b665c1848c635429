"""Normalizations, rotary positions, attention and dropout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import operations
from cowmlx.programs.dimensions import at_least, divided
from cowmlx.programs.operations import elementary, rules
from cowmlx.programs.operations.half import in_float32, keeping, widened
from cowmlx.programs.operations.making import cast, constant, example, inputs_of, row
from cowmlx.programs.operations.random import require_key
from cowmlx.programs.operations.row import REQUIRED, Attribute, Attributes, Operation, Spec
from cowmlx.programs.operations.rules import FLOATS, SMALL_FLOATS, promote

EPS = Attribute("eps", "float", 1e-5, "What is added to the variance.", low=0)


def _met(arrays: Sequence[Any]) -> list[Any]:
    """Return arrays in the dtype in which those that are there meet."""
    there = iter(cast([array for array in arrays if array is not None]))
    return [None if array is None else next(there) for array in arrays]


def _normalization(
    signature: str,
    rank: int,
    function: Callable[..., mx.array],
    *page: Any,
    source: str,
    attributes: Sequence[Attribute] = (),
    limits: Callable[[Sequence[Any], Attributes], None] | None = None,
) -> Operation:
    """Return the row of a normalization, whose parts beside ``x`` have the length of its last axis.

    Args:
        signature: as ``row`` takes it.
        rank: the least rank of ``x``.
        function: takes the arrays, None for missing ones, then attributes by name.
        page: summary, formula and examples, as ``row`` takes them.
        source: of the formula.
        attributes: beside ``eps``.
        limits: refuses inputs that do not go together.
    """
    names = [each.name for each in inputs_of(signature)[1]]

    def infer(*inputs: Any, **attributes: Any) -> Spec:
        x = inputs[0]
        if rank > 1:
            rules.require_rank("x", x, rank)
        if limits is not None:
            limits(inputs, attributes)
        rules.require_dtype("x", x, FLOATS)
        rules.require_rank("x", x, 1)
        given = {
            place: operand
            for place, operand in zip(names, inputs, strict=True)
            if operand is not None
        }
        for place, operand in given.items():
            rules.require_dtype(place, operand, FLOATS)
            if place != "x" and not (
                len(operand.shape) == 1 and rules.equal(operand.shape[0], x.shape[-1])
            ):
                why = f"{place} must have the shape ({x.shape[-1]})"
                raise rules.shapes_refused([x.shape, operand.shape], why)
        return rules.spec(x.shape, promote([operand.dtype for operand in given.values()]))

    return row(
        signature,
        infer,
        function,
        *page,
        attributes=(*attributes, EPS),
        differentiable=names,
        source=source,
    )


def _normalized(x: mx.array, axes: tuple[int, ...], eps: float) -> mx.array:
    mean = mx.mean(x, axis=axes, keepdims=True)
    spread = mx.mean(mx.square(x - mean), axis=axes, keepdims=True)
    return (x - mean) * mx.rsqrt(spread + constant(eps, x))


def _applied(x: mx.array, weight: mx.array | None, bias: mx.array | None) -> mx.array:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _rms_norm(x: Any, weight: Any, eps: float) -> mx.array:
    x, weight = _met([x, weight])
    if x.dtype == mx.float64:
        mean = mx.mean(mx.square(x), axis=-1, keepdims=True)
        return _applied(x * mx.rsqrt(mean + eps), weight, None)
    return operations.rms_norm(x, weight, eps)


def _layer_norm(x: Any, weight: Any, bias: Any, eps: float) -> mx.array:
    x, weight, bias = _met([x, weight, bias])
    if x.dtype == mx.float64:
        return _applied(_normalized(x, (-1,), eps), weight, bias)
    return operations.layer_norm(x, weight, bias, eps)


def _require_groups(inputs: Sequence[Any], attributes: Attributes) -> None:
    x, groups = inputs[0], attributes["num_groups"]
    if divided(x.shape[-1], groups) is None:
        raise rules.shapes_refused([x.shape], f"its last axis is no multiple of {groups} groups")


def _group_norm(x: mx.array, weight: Any, bias: Any, num_groups: int, eps: float) -> mx.array:
    """Groups of channels that follow each other, as PyTorch has them."""
    if x.size:
        parts = x.reshape(*x.shape[:-1], num_groups, x.shape[-1] // num_groups)
        x = _normalized(parts, (*range(1, x.ndim - 1), x.ndim), eps).reshape(x.shape)
    return _applied(x, weight, bias)


def _instance_norm(x: mx.array, weight: Any, bias: Any, eps: float) -> mx.array:
    return _applied(_normalized(x, tuple(range(1, x.ndim - 1)), eps), weight, bias)


def _require_both(inputs: Sequence[Any], attributes: Attributes) -> None:
    if (inputs[1] is None) != (inputs[2] is None):
        raise rules.value_refused("mean", "given alone", "given with var, or neither")


def _batch_norm(x: mx.array, mean: Any, var: Any, weight: Any, bias: Any, eps: float) -> mx.array:
    if mean is None:
        if (made := operations.batch_norm(x, weight, bias, eps)) is not None:
            return made
        return _applied(_normalized(x, tuple(range(x.ndim - 1)), eps), weight, bias)
    return _applied((x - mean) * mx.rsqrt(var + constant(eps, var)), weight, bias)


def _rope(a: Any, freqs: Any, /, **attributes: Any) -> Spec:
    rules.require_dtype("a", a, SMALL_FLOATS)
    rules.require_rank("a", a, 3)
    dims = attributes["dims"]
    if dims % 2 or at_least(a.shape[-1], dims) is False:
        raise rules.value_refused("dims", dims, f"an even number up to {a.shape[-1]}")
    if (attributes["base"] is None) == (freqs is None):
        raise rules.value_refused(
            "base", attributes["base"], "a number without freqs, or null with them"
        )
    if freqs is not None:
        rules.require_dtype("freqs", freqs, ("float32",))
        if freqs.shape != (dims // 2,):
            raise rules.shapes_refused([freqs.shape], f"freqs must have the shape ({dims // 2},)")
    return a


def _rope_arrays(a: Any, freqs: Any, /, **attributes: Any) -> mx.array:
    return mx.fast.rope(a, **attributes, freqs=freqs)


def _attention(q: Any, k: Any, v: Any, mask: Any, /, **attributes: Any) -> Spec:
    for place, given in zip("qkv", (q, k, v), strict=True):
        rules.require_dtype(place, given, FLOATS)
        rules.require_rank(place, given, 4, 4)
    shapes = [q.shape, k.shape, v.shape]
    if not (rules.equal(q.shape[0], k.shape[0]) and rules.equal(q.shape[0], v.shape[0])):
        raise rules.shapes_refused(shapes, "the batches must be as long")
    if not (rules.equal(k.shape[1], v.shape[1]) and rules.equal(k.shape[2], v.shape[2])):
        raise rules.shapes_refused(shapes, "keys and values must have as many heads and positions")
    if not rules.equal(q.shape[3], k.shape[3]):
        raise rules.shapes_refused(shapes, "queries and keys must have as many features")
    if k.shape[1] == 0 or divided(q.shape[1], k.shape[1]) is None:
        raise rules.shapes_refused(shapes, "the heads of queries must be a multiple of the keys'")
    dtype = promote([q.dtype, k.dtype, v.dtype])
    if mask is not None:
        if attributes["causal"]:
            raise rules.value_refused("causal", "true with a mask", "one of them")
        if mask.dtype not in ("bool", dtype):
            raise rules.dtypes_refused("mask", mask, f"bool or {dtype}")
        scores = (q.shape[0], q.shape[1], q.shape[2], k.shape[2])
        if not rules.broadcasts_to(mask.shape, scores):
            raise rules.shapes_refused([mask.shape, scores], "the mask must broadcast to scores")
    return rules.spec((*q.shape[:3], v.shape[3]), dtype)


def _attention_arrays(q: Any, k: Any, v: Any, mask: Any, /, **attributes: Any) -> mx.array:
    dtype = mx.result_type(mx.result_type(q, k), v)
    q, k, v = (array.astype(dtype) for array in (q, k, v))
    if q.shape[-1] == 0:  # of no features all scores are 0, as of one that is 0
        q, k = (mx.zeros((*array.shape[:3], 1), dtype=dtype) for array in (q, k))
    scale = attributes["scale"]
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    if k.shape[2] == 0 or 0 in q.shape or v.shape[3] == 0:
        return mx.zeros((*q.shape[:3], v.shape[3]), dtype=dtype)
    kind = "causal" if attributes["causal"] else mask
    if dtype == mx.float64:
        return _attention_float64(q, k, v, scale, kind)
    if kind == "causal" and q.shape[2] > k.shape[2]:  # kernels give 0 where nothing is seen
        return mx.fast.scaled_dot_product_attention(q, k, v, scale=scale, mask=kind)
    if isinstance(kind, mx.array):
        return _masked(q, k, v, scale, kind)
    return operations.scaled_dot_product_attention(q, k, v, scale=scale, mask=kind)


def _masked(q: mx.array, k: mx.array, v: mx.array, scale: float, mask: mx.array) -> mx.array:
    """Attend with a mask as mlx does: a row of false gives the mean of v, one of -infinity nan."""
    mask = mask.reshape(1) if mask.ndim == 0 else mask
    made = operations.scaled_dot_product_attention(q, k, v, scale=scale, mask=mask)
    if mask.dtype == mx.bool_:
        mean = mx.mean(v, axis=2, keepdims=True)
        mean = mx.repeat(mean, q.shape[1] // k.shape[1], axis=1)
        return mx.where(mx.any(mask, axis=-1, keepdims=True), made, mean)
    sees = mx.max(mask, axis=-1, keepdims=True) != -math.inf
    return mx.where(sees, made, mx.array(math.nan, made.dtype))


_attention_wide = in_float32(_attention_arrays)
_attention_keeping = keeping(_attention_arrays, ["scale"])


def _attention_of_any(*arrays: Any, **attributes: Any) -> mx.array:
    """Hold scores in float32, as GPUs do; on a CPU that also is faster for 16-bit floats."""
    on_cpu = mx.default_device().type == mx.cpu
    return (_attention_wide if on_cpu else _attention_keeping)(*arrays, **attributes)


def _attention_float64(
    q: mx.array, k: mx.array, v: mx.array, scale: float, mask: mx.array | str | None
) -> mx.array:
    """As mlx's, which computes softmax in float32; masked scores are the least number."""
    batch, heads, length, _ = q.shape
    groups = (batch, k.shape[1], heads // k.shape[1])
    scores = (scale * q.reshape(*groups, length, -1)) @ k[:, :, None].swapaxes(-1, -2)
    if mask == "causal":
        last = mx.arange(k.shape[2] - length, k.shape[2])
        mask = mx.arange(k.shape[2]) <= last[:, None]
    if isinstance(mask, mx.array):
        whole = mx.broadcast_to(mask, (batch, heads, *scores.shape[-2:])).reshape(scores.shape)
        if mask.dtype == mx.bool_:
            scores = mx.where(whole, scores, mx.finfo(scores.dtype).min)
        else:
            scores = scores + whole
    result = elementary.softmax(scores, axis=-1) @ v[:, :, None]
    return result.reshape(batch, heads, length, -1)


def _dropout(x: Any, key: Any, /, **attributes: Any) -> Spec:
    rules.require_dtype("x", x, FLOATS)
    require_key(key)
    return x


def _dropout_arrays(x: Any, key: Any, /, **attributes: Any) -> mx.array:
    kept = 1 - attributes["p"]
    if kept == 0:
        return mx.zeros_like(x)
    mask = mx.random.bernoulli(kept, x.shape, key=key)
    wide = widened(x)  # float16 may have no number that is so small
    return mx.where(mask, (wide / constant(kept, wide)).astype(x.dtype), mx.zeros_like(x))


def _linear(x: Any, weight: Any, bias: Any, /, **attributes: Any) -> Spec:
    for place, given in (("x", x), ("weight", weight)):
        rules.require_dtype(place, given, FLOATS)
    rules.require_rank("x", x, 1)
    rules.require_rank("weight", weight, 2, 2)
    if not rules.equal(x.shape[-1], weight.shape[1]):
        raise rules.shapes_refused(
            [x.shape, weight.shape], "the last axes must be as long: weight is (out, in)"
        )
    dtypes = [x.dtype, weight.dtype]
    if bias is not None:
        rules.require_dtype("bias", bias, FLOATS)
        if len(bias.shape) != 1 or not rules.equal(bias.shape[0], weight.shape[0]):
            raise rules.shapes_refused(
                [weight.shape, bias.shape], f"bias must have the shape ({weight.shape[0]})"
            )
        dtypes.append(bias.dtype)
    return rules.spec((*x.shape[:-1], weight.shape[0]), promote(dtypes))


def _linear_arrays(x: Any, weight: Any, bias: Any, /, **attributes: Any) -> mx.array:
    dtype = mx.result_type(x, weight)
    result = mx.matmul(x.astype(dtype), weight.astype(dtype).T)
    return result if bias is None else result + bias


_GROUPS = Attribute("num_groups", "int", REQUIRED, "How many groups of channels.", low=1)
_FORMULA = "(x - mean) / sqrt(var + eps) weight + bias"

ROWS = (
    row(
        "linear(∂x, ∂weight, ∂bias?)",
        _linear,
        _linear_arrays,
        "A product with a matrix of weights (out, in), and a bias.",
        "x weight^T + bias",
        [example("[2,3]", "[4,3]", "[4]"), example("[3]", "[4,3]")],
    ),
    _normalization(
        "rms_norm(x, weight?)",
        1,
        _rms_norm,
        "The last axis divided by its root mean square.",
        "x / sqrt(mean(x^2) + eps) weight",
        [example("[2,4]", "[4]"), example("[2,3,4]")],
        source="arXiv 1910.07467",
    ),
    _normalization(
        "layer_norm(x, weight?, bias?)",
        1,
        _layer_norm,
        "The last axis with mean 0 and variance 1.",
        "(x - mean(x)) / sqrt(var(x) + eps) weight + bias",
        [example("[2,4]", "[4]", "[4]"), example("[2,3,4]"), example("[2,4]", None, "[4]")],
        source="arXiv 1607.06450",
    ),
    _normalization(
        "group_norm(x, weight?, bias?)",
        2,
        in_float32(_group_norm),
        "Groups of channels, which are last, with mean 0 and variance 1 over all positions; "
        "groups are channels that follow each other.",
        _FORMULA,
        [example("[2,3,4]", "[4]", "[4]", num_groups=2), example("[2,6]", num_groups=3)],
        source="arXiv 1803.08494",
        attributes=(_GROUPS,),
        limits=_require_groups,
    ),
    _normalization(
        "instance_norm(x, weight?, bias?)",
        3,
        in_float32(_instance_norm),
        "Each channel of each element of the batch with mean 0 and variance 1 over all positions.",
        _FORMULA,
        [example("[2,5,4]", "[4]", "[4]"), example("[2,3,3,2]")],
        source="arXiv 1607.08022",
    ),
    _normalization(
        "batch_norm(x, mean?, var?, weight?, bias?)",
        2,
        in_float32(_batch_norm),
        "Each channel with the mean and variance given, or with its own over batch and positions.",
        _FORMULA,
        [
            example("[4,3]"),
            example("[4,3]", "[3]", "[3] 0.5..2", "[3]", "[3]"),
            example("[4,2,3]", None, None, "[3]"),
        ],
        source="arXiv 1502.03167",
        limits=_require_both,
    ),
    row(
        "rope(∂a, freqs?)",
        _rope,
        _rope_arrays,
        "Pairs of features rotated by angles that grow with their position: the last axis but one.",
        "(x, y) rotated by (offset + position) scale base^(-2 i / dims)",
        [
            example("[1,2,3,8]", dims=8),
            example("[2,1,5,8]", dims=4, traditional=True, offset=3),
            example("[2,3,4]", "[2] 1..4", dims=4, base=None),
        ],
        attributes=(
            Attribute("dims", "int", REQUIRED, "How many features are rotated.", low=2),
            Attribute("traditional", "bool", False, "Whether pairs are neighbors, not halves."),
            Attribute(
                "base",
                "float",
                10000.0,
                "The base of angles; null with freqs.",
                low=1e-6,
                nullable=True,
            ),
            Attribute("scale", "float", 1.0, "A factor of positions."),
            Attribute("offset", "int", 0, "The first position."),
        ),
        source="arXiv 2104.09864",
    ),
    row(
        "scaled_dot_product_attention(∂q, ∂k, ∂v, ∂mask?)",
        _attention,
        _attention_of_any,
        "Attention of several heads: all are (batch, heads, positions, features), and each head of "
        "keys serves as many heads of queries.",
        "softmax(q k^T scale + mask) v",
        [
            example("[1,2,3,4]", "[1,2,5,4]", "[1,2,5,4]"),
            example("[1,4,3,4]", "[1,2,3,4]", "[1,2,3,4]", causal=True),
            example("[2,2,3,4]", "[2,2,5,4]", "[2,2,5,6]", "[3,5]", scale=0.5),
        ],
        aliases="attention sdpa",
        attributes=(
            Attribute("scale", "float", None, "A factor of scores; null is 1 / sqrt(features)."),
            Attribute("causal", "bool", False, "Whether queries see no later keys."),
        ),
        source="arXiv 1706.03762",
    ),
    row(
        "dropout(∂x, key)",
        _dropout,
        _dropout_arrays,
        "Elements become 0 with a probability; the others grow so that the mean stays.",
        "out = x / (1 - p) with probability 1 - p, else 0",
        [example("[2,3]", "uint32[2]"), example("[4]", "uint32[2]", p=0.0)],
        attributes=(Attribute("p", "float", 0.5, "The probability of 0.", low=0, high=1),),
        source="mlx.nn.Dropout",
    ),
)
