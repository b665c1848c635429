"""Operators of ONNX Runtime that exporters and optimizers write."""

from __future__ import annotations

from cowmlx.errors import Unsupported
from cowmlx.programs.importing.onnx_nodes import CONVERTERS, OnnxNode, converts
from cowmlx.programs.importing.operators.normalizations import layer
from cowmlx.programs.importing.values import Value

OURS = "com.microsoft"
for _name in ("Gelu", "QuantizeLinear", "DequantizeLinear"):
    CONVERTERS[OURS, _name] = CONVERTERS["", _name]
for _domain in ("", OURS):
    CONVERTERS[_domain, "SimplifiedLayerNormalization"] = layer


@converts("FastGelu", "BiasGelu", "QuickGelu", domain=OURS)
def _gelu(node: OnnxNode) -> Value:
    value, bias = node.input(0), node.optional(1)
    if bias is not None:
        value = node.apply("add", value, bias)
    if node.op == "QuickGelu":
        inner = node.apply("multiply", value, node.number(node.attr("alpha", 1.702), value))
        return node.apply("multiply", value, node.apply("sigmoid", inner))
    return node.apply("gelu_approx" if node.op == "FastGelu" else "gelu", value)


@converts("FusedMatMul", domain=OURS)
def _fused_matmul(node: OnnxNode) -> Value:
    sides = []
    for name in ("transBatchA", "transBatchB"):
        if node.attr(name, 0):
            raise Unsupported(f"has {name}")
    for at, name in enumerate(("transA", "transB")):
        value = node.input(at)
        if node.attr(name, 0):
            axes = list(range(value.rank))
            axes[-2:] = axes[-2:][::-1]
            value = node.scope.transpose(value, axes)
        sides.append(value)
    found = node.apply("matmul", *sides)
    alpha = node.attr("alpha", 1.0)
    return found if alpha == 1 else node.apply("multiply", found, node.number(alpha, found))


@converts("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=OURS)
def _skip(node: OnnxNode) -> list[Value | None]:
    total = node.apply("add", node.input(0), node.input(1))
    simple = node.op.startswith("SkipS")
    bias = node.optional(3 if simple else 4)
    if bias is not None:
        total = node.apply("add", total, bias)
    epsilon = float(node.attr("epsilon", 1e-12))
    if simple:
        found = node.apply("rms_norm", total, node.input(2), eps=epsilon)
    else:
        found = node.apply("layer_norm", total, node.input(2), node.optional(3), eps=epsilon)
    return [found, None, None, total]
