"""Losses: how far predictions are from their targets, after ``mlx.nn.losses``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx

from cowmlx.accelerate import trained
from cowmlx.programs.operations import elementary, rules, sums
from cowmlx.programs.operations.half import in_float32
from cowmlx.programs.operations.indexing import require_some
from cowmlx.programs.operations.indices import INDICES, Check, checks_of, require_indices, safe
from cowmlx.programs.operations.making import cast, constant, example, inputs_of, row
from cowmlx.programs.operations.row import Attribute, Attributes, Example, Operation, Spec
from cowmlx.programs.operations.rules import FLOATS, promote


def reduction_of(default: str) -> Attribute:
    """Return the attribute ``reduction`` with mlx's default for a loss."""
    return Attribute(
        "reduction",
        "choice",
        default,
        "What becomes of the losses: none, or their mean or sum.",
        ("none", "mean", "sum"),
    )


def reduce_losses(losses: mx.array, attributes: Attributes) -> mx.array:
    """Return the losses, or their mean or sum."""
    if attributes["reduction"] == "mean":
        return sums.mean(losses)
    return sums.total(losses) if attributes["reduction"] == "sum" else losses


def reduced_spec(losses: Spec, attributes: Attributes) -> list[Spec]:
    """Return the spec of the losses, or of their mean or sum."""
    if attributes["reduction"] == "none":
        return [rules.spec(losses.shape, losses.dtype)]
    return [rules.spec((), losses.dtype)]


def _cross_entropy(logits: Any, targets: Any, weights: Any, /, **attributes: Any) -> list[Spec]:
    rules.require_dtype("logits", logits, FLOATS)
    axis = rules.axis_of(attributes["axis"], len(logits.shape))
    rules.require_elements(logits.shape, [axis])
    shape = rules.without(logits.shape, axis)
    dtype = logits.dtype
    if len(targets.shape) == len(logits.shape):
        rules.require_dtype("targets (probabilities)", targets, FLOATS)
        rules.require_same(("logits", "targets"), [logits.shape, targets.shape])
        dtype = promote([dtype, targets.dtype])
    else:
        require_indices("targets (class ids)", targets)
        rules.require_same(("logits without its axis", "targets"), [shape, targets.shape])
        require_some(logits.shape, logits.shape[axis], targets.shape)
    if weights is not None:
        rules.require_dtype("weights", weights, FLOATS)
        rules.require_same(("losses", "weights"), [shape, weights.shape])
        dtype = promote([dtype, weights.dtype])
    return reduced_spec(Spec(shape, dtype), attributes)


def _common(arrays: Sequence[Any]) -> mx.Dtype:
    """Return the dtype in which the floats of a loss meet."""
    floats = [
        array for array in arrays if array is not None and mx.issubdtype(array.dtype, mx.floating)
    ]
    return cast(floats)[0].dtype


def _losses(logits: mx.array, targets: mx.array, axis: int, smoothing: float) -> mx.array:
    """Return the cross entropy of each row, without weights."""
    is_last = axis % logits.ndim == logits.ndim - 1
    if targets.ndim < logits.ndim and is_last and not smoothing and trained.takes(logits):
        return trained.cross_entropy(logits, targets, exactly=True)
    largest = mx.max(logits, axis=axis, keepdims=True)
    if targets.ndim < logits.ndim:
        # It cancels, as it does where probabilities sum to 1.
        largest = mx.stop_gradient(largest)
    logits = logits - largest
    if targets.ndim == logits.ndim:
        score = mx.sum(logits * targets, axis=axis)
    else:
        ids = mx.expand_dims(safe(targets, logits.shape[axis], negative=False), axis)
        score = mx.take_along_axis(logits, ids, axis).squeeze(axis)
    losses: mx.array = elementary.logsumexp(logits, axis=axis) - (1 - smoothing) * score
    if smoothing > 0:
        losses = losses - smoothing * mx.mean(logits, axis=axis)
    return losses


def _cross_entropy_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    logits, targets, weights = arrays
    axis, smoothing = attributes["axis"], attributes["label_smoothing"]
    if logits.size == 0:
        shape = [length for at, length in enumerate(logits.shape) if at != axis % logits.ndim]
        return reduce_losses(mx.zeros(shape, dtype=_common(arrays)), attributes)
    losses = _losses(logits, targets, axis, smoothing)
    if weights is not None:
        losses = losses * weights
    return reduce_losses(losses, attributes)


def _class_checks(arrays: Sequence[Any], attributes: Attributes) -> list[Check]:
    scores, targets = arrays[:2]
    if targets.ndim == scores.ndim:
        return []
    size = scores.shape[attributes["axis"]]
    return checks_of("targets", targets, size, attributes, negative=False)


def _met(inputs: Sequence[Any], places: Sequence[str]) -> Spec:
    """Check inputs of one shape; return the spec of a loss for each of their elements."""
    for place, given in zip(places, inputs, strict=True):
        rules.require_dtype(place, given, FLOATS)
    rules.require_same(places, [given.shape for given in inputs])
    return Spec(inputs[0].shape, promote([given.dtype for given in inputs]))


def _loss(
    signature: str,
    function: Callable[..., mx.array],
    *page: Any,
    default: str = "none",
    attributes: Sequence[Attribute] = (),
    axis: int | None = None,
    examples: Sequence[Example] | None = None,
    aliases: str = "",
) -> Operation:
    """Return the row of a loss of inputs of one shape.

    Args:
        signature: as ``row`` takes it.
        function: takes the arrays, then attributes by name but for ``reduction``.
        page: summary and formula.
        default: of ``reduction``.
        attributes: beside ``reduction``.
        axis: the axis that it sums over by default; None for a loss of each element.
        examples: if not the usual ones.
        aliases: other names, separated by spaces.
    """
    name, inputs = inputs_of(signature)
    places = [operand.name for operand in inputs]
    along = () if axis is None else (Attribute("axis", "axis", axis, "The axis of vectors."),)

    def infer(*inputs: Any, **attributes: Any) -> list[Spec]:
        shape = _met(inputs, places)
        if axis is not None:
            at = rules.axis_of(attributes["axis"], len(shape.shape))
            shape = Spec(rules.without(shape.shape, at), shape.dtype)
        return reduced_spec(shape, attributes)

    def compute(*arrays: Any, **attributes: Any) -> mx.array:
        given = {key: value for key, value in attributes.items() if key != "reduction"}
        return reduce_losses(function(*cast(arrays), **given), attributes)

    if examples is None:
        ways = ("none", "mean", "sum")
        examples = [example(*["[4,3]"] * len(places), reduction=way) for way in ways]
    return row(
        signature,
        infer,
        in_float32(compute),
        *(*page, examples),
        attributes=(*along, *attributes, reduction_of(default)),
        differentiable=places,
        aliases=aliases,
        source=f"mlx.nn.losses.{name}",
    )


def _binary(*inputs: Any, **attributes: Any) -> list[Spec]:
    given = [operand for operand in inputs if operand is not None]
    return reduced_spec(_met(given, ("inputs", "targets", "weights")[: len(given)]), attributes)


_bounded_log = elementary.with_slope(
    lambda a: mx.maximum(mx.log(a), -100),
    lambda a, out: mx.where(out <= -100, 0, 1 / mx.where(out <= -100, 1, a)),
)
"""The logarithm, -100 at least; without a slope where it is that."""


def _binary_arrays(*arrays: Any, **attributes: Any) -> mx.array:
    inputs, targets, *weights = cast([array for array in arrays if array is not None])
    if attributes["with_logits"]:
        losses = elementary.logaddexp(inputs, mx.zeros_like(inputs)) - inputs * targets
    else:
        hit, miss = _bounded_log(inputs), _bounded_log(1 - inputs)
        losses = -(targets * hit + (1 - targets) * miss)
    return reduce_losses(losses * weights[0] if weights else losses, attributes)


def _nll(scores: Any, targets: Any, /, **attributes: Any) -> list[Spec]:
    rules.require_dtype("inputs", scores, FLOATS)
    require_indices("targets", targets)
    axis = rules.axis_of(attributes["axis"], len(scores.shape))
    shape = rules.without(scores.shape, axis)
    rules.require_same(("inputs without its axis", "targets"), [shape, targets.shape])
    require_some(scores.shape, scores.shape[axis], targets.shape)
    return reduced_spec(Spec(shape, scores.dtype), attributes)


def _nll_arrays(scores: Any, targets: Any, /, **attributes: Any) -> mx.array:
    axis = attributes["axis"]
    if targets.size == 0:
        return reduce_losses(mx.zeros(targets.shape, dtype=scores.dtype), attributes)
    ids = mx.expand_dims(safe(targets, max(scores.shape[axis], 1), negative=False), axis)
    return reduce_losses(-mx.take_along_axis(scores, ids, axis).squeeze(axis), attributes)


def _gaussian(
    inputs: mx.array, targets: mx.array, vars: mx.array, full: bool, eps: float
) -> mx.array:
    spread = mx.maximum(vars, constant(eps, vars))
    losses = 0.5 * (mx.log(spread) + mx.square(targets - inputs) / spread)
    return losses + constant(0.5 * math.log(2 * math.pi), losses) if full else losses


def _huber(inputs: mx.array, targets: mx.array, delta: float) -> mx.array:
    errors = mx.abs(inputs - targets)
    far = constant(delta, errors) * (errors - constant(0.5 * delta, errors))
    return mx.where(errors <= delta, 0.5 * mx.square(errors), far)


def _smooth_l1(predictions: mx.array, targets: mx.array, beta: float) -> mx.array:
    errors = mx.abs(predictions - targets)
    near = 0.5 * mx.square(errors) / constant(beta, errors)
    return mx.where(errors < beta, near, errors - constant(0.5 * beta, errors))


def _cosine(x1: mx.array, x2: mx.array, axis: int, eps: float) -> mx.array:
    lengths = [elementary.root(mx.sum(mx.square(array), axis=axis)) for array in (x1, x2)]
    least = mx.maximum(lengths[0] * lengths[1], constant(eps, x1))
    return mx.sum(x1 * x2, axis=axis) / least


def _triplet(
    anchors: mx.array,
    positives: mx.array,
    negatives: mx.array,
    axis: int,
    p: float,
    margin: float,
    eps: float,
) -> mx.array:
    def distance(others: mx.array) -> mx.array:
        total = mx.sum(mx.power(mx.abs(anchors - others), constant(p, anchors)), axis=axis)
        return mx.power(total + constant(eps, anchors), constant(1 / p, anchors))

    return mx.maximum(distance(positives) - distance(negatives) + constant(margin, anchors), 0)


ROWS = (
    row(
        "cross_entropy(∂logits, ∂targets, ∂weights?)",
        _cross_entropy,
        in_float32(_cross_entropy_arrays),
        "The cross entropy of softmax(logits) with class ids, or with probabilities of the same "
        "shape.",
        "loss = logsumexp(logits) - (1 - s) score - s mean(logits), s the label smoothing, score "
        "logits[targets] or sum(logits targets)",
        [
            example("[4,3]", "int32[4] 0..2", reduction="mean"),
            example("[4,3]", "[4,3] 0..1", label_smoothing=0.1),
            example("[2,3,4]", "uint8[2,4] 0..2", "[2,4] 0..1", axis=1),
            example("[3]", "int64[] 0..2", reduction="sum"),
        ],
        aliases="softmax_cross_entropy",
        attributes=(
            Attribute("axis", "axis", -1, "The axis of the classes."),
            Attribute(
                "label_smoothing",
                "float",
                0.0,
                "How much goes to all classes alike.",
                low=0,
                high=1,
            ),
            reduction_of("none"),
            INDICES,
        ),
        source="mlx.nn.losses.cross_entropy; label smoothing: arXiv 1512.00567, section 7",
        checks=_class_checks,
    ),
    row(
        "binary_cross_entropy(∂inputs, ∂targets, ∂weights?)",
        _binary,
        in_float32(_binary_arrays),
        "The cross entropy of probabilities, or of their logits, with targets of 0 to 1.",
        "-(t ln(p) + (1 - t) ln(1 - p)), p = sigmoid(inputs) with logits; logarithms are -100 at "
        "least",
        [
            example("[4]", "[4] 0..1"),
            example("[4] 0.1..0.9", "[4] 0..1", with_logits=False, reduction="none"),
            example("[4]", "[4] 0..1", "[4] 0..1", reduction="sum"),
        ],
        attributes=(
            Attribute("with_logits", "bool", True, "Whether inputs are logits."),
            reduction_of("mean"),
        ),
        source="mlx.nn.losses.binary_cross_entropy",
    ),
    row(
        "nll_loss(∂inputs, targets)",
        _nll,
        _nll_arrays,
        "The negative of the log probabilities at class ids.",
        "-inputs[targets]",
        [
            example("[4,3]", "int32[4] 0..2", reduction="mean"),
            example("[3,4]", "uint8[4] 0..2", axis=0),
        ],
        attributes=(
            Attribute("axis", "axis", -1, "The axis of the classes."),
            reduction_of("none"),
            INDICES,
        ),
        source="mlx.nn.losses.nll_loss",
        checks=_class_checks,
    ),
    _loss(
        "l1_loss(predictions, targets)",
        lambda predictions, targets: mx.abs(predictions - targets),
        "The absolute differences.",
        "|p - t|",
        default="mean",
        aliases="mae_loss",
    ),
    _loss(
        "mse_loss(predictions, targets)",
        lambda predictions, targets: mx.square(predictions - targets),
        "The squared differences.",
        "(p - t)^2",
        default="mean",
        aliases="mean_squared_error",
    ),
    _loss(
        "smooth_l1_loss(predictions, targets)",
        _smooth_l1,
        "The absolute differences, squared where they are small.",
        "(p - t)^2 / (2 beta) if |p - t| < beta, else |p - t| - beta / 2",
        default="mean",
        attributes=(Attribute("beta", "float", 1.0, "Where it begins.", low=1e-9),),
    ),
    _loss(
        "huber_loss(inputs, targets)",
        _huber,
        "The squared differences, straight where they are large.",
        "a^2 / 2 if a <= delta, else delta (a - delta / 2), a = |inputs - targets|",
        attributes=(Attribute("delta", "float", 1.0, "Where it ends.", low=1e-9),),
    ),
    _loss(
        "log_cosh_loss(inputs, targets)",
        lambda inputs, targets: (
            elementary.logaddexp(inputs - targets, targets - inputs) - constant(math.log(2), inputs)
        ),
        "The logarithms of the hyperbolic cosines of differences.",
        "ln cosh(inputs - targets)",
    ),
    _loss(
        "hinge_loss(inputs, targets)",
        lambda inputs, targets: mx.maximum(1 - inputs * targets, 0),
        "How far predictions are from the margin of their targets, -1 or 1.",
        "max(0, 1 - inputs targets)",
    ),
    _loss(
        "kl_div_loss(inputs, targets)",
        lambda inputs, targets, axis: mx.sum(
            elementary.exp(targets) * (targets - inputs), axis=axis
        ),
        "The Kullback-Leibler divergence of two distributions, both as logarithms.",
        "sum over axis of e^targets (targets - inputs)",
        axis=-1,
    ),
    _loss(
        "gaussian_nll_loss(inputs, targets, vars)",
        _gaussian,
        "The negative log likelihood of targets in normal distributions.",
        "(ln v + (targets - inputs)^2 / v) / 2, v = max(vars, eps), + ln(2 pi) / 2 if full",
        default="mean",
        attributes=(
            Attribute("full", "bool", False, "Whether the constant is added."),
            Attribute("eps", "float", 1e-6, "The least variance.", low=0),
        ),
        examples=[
            example("[4]", "[4]", "[4] 0.5..2"),
            example("[4]", "[4]", "[4] 0.5..2", full=True, reduction="none"),
        ],
    ),
    _loss(
        "cosine_similarity_loss(x1, x2)",
        _cosine,
        "The cosines of the angles between vectors.",
        "sum(x1 x2) / max(|x1| |x2|, eps)",
        axis=1,
        attributes=(Attribute("eps", "float", 1e-8, "The least divisor.", low=0),),
    ),
    _loss(
        "margin_ranking_loss(inputs1, inputs2, targets)",
        lambda inputs1, inputs2, targets, margin: mx.maximum(
            constant(margin, targets) - targets * (inputs1 - inputs2), 0
        ),
        "How far pairs are from the order that targets, 1 or -1, say.",
        "max(0, margin - targets (inputs1 - inputs2))",
        attributes=(Attribute("margin", "float", 0.0, "The least distance."),),
    ),
    _loss(
        "triplet_loss(anchors, positives, negatives)",
        _triplet,
        "How much farther anchors are from positives than from negatives.",
        "max(0, |a - p| - |a - n| + margin), |x| = (sum(|x|^p) + eps)^(1/p)",
        axis=-1,
        attributes=(
            Attribute("p", "float", 2.0, "The power of the norm.", low=1),
            Attribute("margin", "float", 1.0, "The least difference."),
            Attribute("eps", "float", 1e-6, "Added to the sum.", low=0),
        ),
    ),
)
