"""Reductions, scans, sorting, and what is normalized along axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.dimensions import at_least, compare, count
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.operators.elementwise import quotient_of
from cowmlx.programs.importing.operators.shaping import reshaped
from cowmlx.programs.importing.values import Value

PLAIN = {"Max": "max", "Min": "min", "Mean": "mean", "Prod": "prod", "Sum": "sum"}


@converts(
    *(f"Reduce{kind}" for kind in PLAIN),
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
)
def _reduce(node: OnnxNode) -> Value:
    value = node.input()
    kind = node.op[6:]
    axes = node.axes(value.rank)
    if not axes and node.attr("noop_with_empty_axes", 0):
        axes = []
    elif not axes:
        axes = list(range(value.rank))
    return reduced(node, kind, value, axes, bool(node.attr("keepdims", 1)))


def reduced(node: OnnxNode, kind: str, value: Value, axes: list[int], keep: bool) -> Value:
    """Return a reduction of ONNX, without its transposes where the input is one."""
    if value.source is not None and keep:
        inner, turned = value.source
        found = reduced(node, kind, inner, [turned[axis] for axis in axes], True)
        return node.scope.transpose(found, turned)
    options: dict[str, Any] = {"axis": axes, "keepdims": keep}
    before = {"L1": "abs", "L2": "square", "SumSquare": "square"}.get(kind)
    if before:
        value = node.apply(before, value)
    if not axes and kind != "LogSumExp":
        found = value
    elif kind in ("Max", "Min"):
        return _extreme(node, kind, value, axes, options)
    elif kind == "LogSumExp":
        if any(compare(value.shape[axis], 0) for axis in axes):
            return _extreme(node, "Max", value, axes, options)
        found = node.apply("logsumexp", value, **options) if axes else value
    elif kind == "Mean" and "int" in value.dtype:
        found = _whole_mean(node, value, axes, options)
    else:
        found = node.apply(PLAIN.get(kind, "sum"), value, **options)
    if found.dtype != value.dtype:
        found = node.scope.cast(found, value.dtype)
    after = {"L2": "sqrt", "LogSum": "log"}.get(kind)
    return node.scope.cast(node.apply(after, found), value.dtype) if after else found


def _whole_mean(node: OnnxNode, value: Value, axes: list[int], options: dict[str, Any]) -> Value:
    """Return the mean of integers, rounded towards 0; by floats where axes may be empty."""
    size = count([value.shape[axis] for axis in axes])
    if not isinstance(size, int) or size == 0:
        return node.apply("mean", value, **options)
    wide = node.scope.cast(value, "uint64" if value.dtype == "uint64" else "int64")
    total = node.apply("sum", wide, **options)
    return quotient_of(node, total, node.number(size, total))


def _extreme(
    node: OnnxNode, kind: str, value: Value, axes: list[int], options: dict[str, Any]
) -> Value:
    if value.dtype == "bool":
        return node.apply("any" if kind == "Max" else "all", value, **options)
    if any(compare(value.shape[axis], 0) for axis in axes):
        sides = [1 if at in axes else side for at, side in enumerate(value.shape)]
        if not options["keepdims"]:
            sides = [side for at, side in enumerate(value.shape) if at not in axes]
        if "float" in value.dtype:
            worst: Any = -np.inf if kind == "Max" else np.inf
        else:
            bounds = np.iinfo(value.dtype)
            worst = bounds.min if kind == "Max" else bounds.max
        return node.apply("broadcast_to", node.number(worst, value), shape=sides)
    return node.apply(PLAIN[kind], value, **options)


@converts("ArgMax", "ArgMin")
def _arg(node: OnnxNode) -> Value:
    value = node.input()
    axis = node.axis(0, value.rank)
    keep = bool(node.attr("keepdims", 1))
    op = node.op.lower()
    if not node.attr("select_last_index", 0):
        return node.scope.cast(node.apply(op, value, axis=axis, keepdims=keep), "int64")
    side = value.shape[axis]
    if not isinstance(side, int):
        raise Unsupported(f"its axis of {side} is not known before a run")
    back = node.apply(op, node.apply("flip", value, axis=axis), axis=axis, keepdims=keep)
    back = node.scope.cast(back, "int64")
    return node.apply("subtract", node.number(side - 1, back), back)


@converts("CumSum", "CumProd")
def _cumulative(node: OnnxNode) -> Value:
    value = node.input()
    axis = node.axis_of(node.numbers(1, "axis")[0], value.rank)
    op = "cumsum" if node.op == "CumSum" else "cumprod"
    found = node.apply(
        op,
        value,
        axis=axis,
        reverse=bool(node.attr("reverse", 0)),
        inclusive=not node.attr("exclusive", 0),
    )
    return node.scope.cast(found, value.dtype)


@converts("Softmax", "LogSoftmax", "Hardmax")
def _softmax(node: OnnxNode) -> Value:
    value = node.input()
    flat = node.opset < 13
    axis = node.axis(1 if flat else -1, value.rank)
    shape = value.shape
    if flat and axis != value.rank - 1:
        value = reshaped(node, value, [count(shape[:axis]), count(shape[axis:])])
        axis = 1
    if node.op == "Hardmax":
        found = _hardmax(node, value, axis)
    else:
        found = node.apply("softmax" if node.op == "Softmax" else "log_softmax", value, axis=axis)
    return reshaped(node, found, list(shape))


def _hardmax(node: OnnxNode, value: Value, axis: int) -> Value:
    side = value.shape[axis]
    if not isinstance(side, int):
        raise Unsupported(f"its axis of {side} is not known before a run")
    node.bounded([side])
    best = node.scope.cast(node.apply("argmax", value, axis=axis, keepdims=True), "int64")
    shape = [1] * value.rank
    shape[axis] = side
    steps = node.scope.constant(np.arange(side).reshape(shape), "int64")
    return node.scope.cast(node.apply("equal", best, steps), value.dtype)


@converts("TopK")
def _top_k(node: OnnxNode) -> list[Value]:
    value = node.input()
    k = node.numbers(1, "k")[0] if node.opset >= 10 else node.needed("k")
    axis = node.axis(-1, value.rank)
    if k < 0 or at_least(value.shape[axis], k) is False:
        raise BadFormat(f"has k {k} for an axis of {value.shape[axis]}")
    key = value
    if node.attr("largest", 1):  # a stable sort of what is smaller the greater a value is
        if value.dtype.startswith("u") or "int" in value.dtype:
            key = node.apply("bitwise_invert", value)
        else:
            key = node.apply("negative", value)
    order = node.apply("argsort", key, axis=axis)
    places = node.apply("slice", order, start=[0], stop=[k], axes=[axis])
    values = node.apply("take_along_axis", value, places, axis=axis)
    return [values, node.scope.cast(places, "int64")]
