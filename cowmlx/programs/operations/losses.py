"""Losses: how far predictions are from their targets, after ``mlx.nn.losses``."""

from __future__ import annotations

from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.indexing import require_some
from cowmlx.programs.operations.indices import (
    INDICES,
    Check,
    checks_of,
    require_indices,
    safe,
)
from cowmlx.programs.operations.making import example, row
from cowmlx.programs.operations.promotion import FLOATS, promote
from cowmlx.programs.operations.row import Attribute, Attributes, Spec
from cowmlx.programs.operations.rules import (
    axis_of,
    require_dtype,
    require_elements,
    require_same,
    spec,
    without,
)


def reduction_of(default: str) -> Attribute:
    """Return the attribute ``reduction`` with mlx's default for a loss."""
    return Attribute(
        "reduction",
        "choice",
        default,
        "What becomes of the losses: none, or their mean or sum.",
        choices=("none", "mean", "sum"),
    )


def reduce_losses(losses: mx.array, attributes: Attributes) -> list[mx.array]:
    """Return the losses, or their mean or sum."""
    if attributes["reduction"] == "mean":
        return [mx.mean(losses)]
    return [mx.sum(losses) if attributes["reduction"] == "sum" else losses]


def reduced_spec(name: str, losses: Spec, attributes: Attributes) -> list[Spec]:
    """Return the spec of the losses, or of their mean or sum."""
    if attributes["reduction"] == "none":
        return [spec(name, losses.shape, losses.dtype)]
    return [spec(name, (), losses.dtype)]


def _cross_entropy(inputs: list[Any], attributes: Attributes) -> list[Spec]:
    name = "cross_entropy"
    logits, targets, weights = inputs
    require_dtype(name, "logits", logits, FLOATS)
    axis = axis_of(name, attributes["axis"], len(logits.shape))
    require_elements(name, logits, [axis])
    shape = without(logits.shape, axis)
    dtype = logits.dtype
    if len(targets.shape) == len(logits.shape):
        require_dtype(name, "targets (probabilities)", targets, FLOATS)
        require_same(name, ("logits", "targets"), [logits.shape, targets.shape])
        dtype = promote(name, [dtype, targets.dtype])
    else:
        require_indices(name, "targets (class ids)", targets)
        require_same(name, ("logits without its axis", "targets"), [shape, targets.shape])
        require_some(name, logits.shape, logits.shape[axis], targets.shape)
    if weights is not None:
        require_dtype(name, "weights", weights, FLOATS)
        require_same(name, ("losses", "weights"), [shape, weights.shape])
        dtype = promote(name, [dtype, weights.dtype])
    return reduced_spec(name, Spec(shape, dtype), attributes)


def _cross_entropy_arrays(arrays: list[Any], attributes: Attributes) -> list[mx.array]:
    logits, targets, weights = arrays
    axis, smoothing = attributes["axis"], attributes["label_smoothing"]
    logits = logits - mx.stop_gradient(mx.max(logits, axis=axis, keepdims=True))
    if targets.ndim == logits.ndim:
        score = mx.sum(logits * targets, axis=axis)
    else:
        ids = mx.expand_dims(safe(targets, logits.shape[axis], negative=False), axis)
        score = mx.take_along_axis(logits, ids, axis).squeeze(axis)
    losses = mx.logsumexp(logits, axis=axis) - (1 - smoothing) * score
    if smoothing > 0:
        losses = losses - smoothing * mx.mean(logits, axis=axis)
    if weights is not None:
        losses = losses * weights
    return reduce_losses(losses, attributes)


def _class_checks(name: str) -> Any:
    def checks(arrays: list[Any], attributes: Attributes) -> list[Check]:
        scores, targets = arrays[:2]
        if targets.ndim == scores.ndim:
            return []
        size = scores.shape[attributes["axis"]]
        return checks_of(name, "targets", targets, size, attributes, negative=False)

    return checks


ROWS = (
    row(
        "cross_entropy",
        ("logits", "targets", "weights?"),
        _cross_entropy,
        _cross_entropy_arrays,
        "The cross entropy of softmax(logits) with class ids, or with probabilities of the same "
        "shape.",
        "loss = logsumexp(logits) - (1 - s) score - s mean(logits), s the label smoothing, score "
        "logits[targets] or sum(logits targets)",
        [
            example("float32[4,3]", "int32[4] 0..2", reduction="mean"),
            example("float32[4,3]", "float32[4,3] 0..1", label_smoothing=0.1),
            example("float32[2,3,4]", "uint8[2,4] 0..2", "float32[2,4] 0..1", axis=1),
            example("float32[3]", "int64[] 0..2", reduction="sum"),
        ],
        aliases=("softmax_cross_entropy",),
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
        differentiable=("logits",),
        source="mlx.nn.losses.cross_entropy; label smoothing: arXiv 1512.00567, section 7",
        checks=_class_checks("cross_entropy"),
    ),
)
