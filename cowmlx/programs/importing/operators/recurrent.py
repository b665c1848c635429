"""Recurrent layers as scans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cowmlx.errors import Unsupported
from cowmlx.programs.importing.control_graphs import Part, stepped
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.operators.elementwise import hard_sigmoid
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value
from cowmlx.programs.operations.row import Spec

Gate = Callable[[Value], Value]
_PLAIN = {"Sigmoid": "sigmoid", "Tanh": "tanh", "Relu": "relu", "Softsign": "softsign"}
_PLAIN["Softplus"] = "softplus"
_WITH_ALPHA = ("hardsigmoid", "leakyrelu", "elu")
_WITH_BETA = ("hardsigmoid",)


class _Layer:
    """One direction of a recurrent layer."""

    def __init__(self, node: OnnxNode, direction: int) -> None:
        self.node = node
        self.scope = node.scope
        self.direction = direction
        self.is_reverse = direction == 1 or node.attr("direction", "forward") == "reverse"
        self.hidden = node.needed("hidden_size")

    def part(self, at: int) -> Value | None:
        """Return this direction's part of an input."""
        value = self.node.optional(at)
        if value is None:
            return None
        if value.shape[0] == 1:
            return self.scope.reshape(value, list(value.shape[1:]))
        cut = self.scope.apply(
            "slice", value, start=[self.direction], stop=[self.direction + 1], axes=[0]
        )
        return self.scope.reshape(cut, list(value.shape[1:]))

    def activations(self, defaults: list[str]) -> list[Callable[[Scope, Value], Value]]:
        """Return the functions of gates."""
        names = self.node.attr("activations") or defaults * 2
        alphas = iter(self.node.attr("activation_alpha") or ())
        betas = iter(self.node.attr("activation_beta") or ())
        made = []
        for name in names:  # of both directions: each takes the next numbers that it has use for
            alpha = next(alphas, None) if name.lower() in _WITH_ALPHA else None
            beta = next(betas, None) if name.lower() in _WITH_BETA else None
            made.append(_activation(self.node, name, alpha, beta))
        count = len(defaults)
        return made[self.direction * count : (self.direction + 1) * count]


def _activation(
    node: OnnxNode, name: str, alpha: float | None, beta: float | None
) -> Callable[[Scope, Value], Value]:
    key = name.capitalize() if name.lower() in map(str.lower, _PLAIN) else name
    if key in _PLAIN:
        return lambda scope, value: scope.apply(_PLAIN[key], value)
    if name.lower() == "hardsigmoid":
        low, high = 0.2 if alpha is None else alpha, 0.5 if beta is None else beta
        return lambda scope, value: hard_sigmoid(_in(node, scope), value, low, high)
    if name.lower() == "leakyrelu":
        slope = 0.01 if alpha is None else alpha
        return lambda scope, value: scope.apply("leaky_relu", value, negative_slope=float(slope))
    if name.lower() == "elu":
        size = 1.0 if alpha is None else alpha
        return lambda scope, value: scope.apply("elu", value, alpha=float(size))
    raise Unsupported(f"has the activation {name!r}")


def _in(node: OnnxNode, scope: Scope) -> OnnxNode:
    inner = OnnxNode(node.graph, node.proto, {}, [], node.opset)
    inner.scope = scope
    return inner


@converts("RNN", "GRU", "LSTM")
def _recurrent(node: OnnxNode) -> list[Value | None]:
    batch_first = bool(node.attr("layout", 0))
    value = node.input()
    if batch_first:
        value = node.scope.transpose(value, (1, 0, 2))
    directions = 2 if node.attr("direction", "forward") == "bidirectional" else 1
    sequences: list[Value] = []
    lasts: list[Value] = []
    cells: list[Value | None] = []
    for direction in range(directions):
        all_states, last, cell = _direction(node, value, direction, batch_first)
        sequences.append(all_states)
        lasts.append(last)
        cells.append(cell)
    join = node.scope
    whole = join.apply("stack", *sequences, axis=1)  # (T, D, N, H)
    last = join.apply("stack", *lasts, axis=0)
    results: list[Value | None] = [whole, last]
    if node.op == "LSTM":
        results.append(join.apply("stack", *cells, axis=0))
    if batch_first:
        results[0] = join.transpose(whole, (2, 0, 1, 3))
        for at in range(1, len(results)):
            result = results[at]
            assert result is not None
            results[at] = join.transpose(result, (1, 0, 2))
    return results


def _direction(
    node: OnnxNode, value: Value, direction: int, batch_first: bool
) -> tuple[Value, Value, Value | None]:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[node.op]
    layer = _Layer(node, direction)
    scope = node.scope
    weight, recurrence, bias = layer.part(1), layer.part(2), layer.part(3)
    assert weight is not None and recurrence is not None
    size = layer.hidden
    kept = None
    if bias is not None:
        halves = scope.several("split", bias, indices_or_sections=2, axis=0)
        bias, kept = halves
    given = scope.apply("matmul", value, scope.transpose(weight, (1, 0)))
    if bias is not None:
        given = scope.apply("add", given, bias)
    rows = value.shape[1]
    states = [_initial(layer, 5, rows, batch_first, value.dtype)]
    if node.op == "LSTM":
        states.append(_initial(layer, 6, rows, batch_first, value.dtype))
    lengths = node.optional(4)
    steps = scope.apply("iota", shape=[value.shape[0]], dtype="int32")
    inner = Scope(scope.book, scope)
    carries = [inner.input(f"state{at}", state.spec) for at, state in enumerate(states)]
    step_input = inner.input("given", Spec((rows, gates * size), given.dtype))
    step = inner.input("step", Spec((), "int32"))
    mask = _mask(inner, lengths, step)
    recurrent = scope.transpose(recurrence, (1, 0))
    cells = {"RNN": _rnn_cell, "GRU": _gru_cell, "LSTM": _lstm_cell}
    following = cells[node.op](layer, inner, carries, step_input, recurrent, kept)
    outputs = following
    emitted = following[0]
    if mask is not None:
        outputs = [
            inner.apply("where", mask, new, old)
            for new, old in zip(following, carries, strict=True)
        ]
        emitted = inner.apply("where", mask, following[0], inner.constant(0, value.dtype))
    body = Part(inner, [*carries, step_input, step], [*outputs, emitted])
    results = stepped(scope, states, [given, steps], body, reverse=layer.is_reverse)
    return results[-1], results[0], results[1] if node.op == "LSTM" else None


def _initial(layer: _Layer, at: int, rows: Any, batch_first: bool, dtype: str) -> Value:
    value = layer.node.optional(at)
    scope = layer.scope
    if value is None:
        zero = scope.constant(0, dtype)
        return scope.apply("broadcast_to", zero, shape=[rows, layer.hidden])
    if batch_first:
        value = scope.transpose(value, (1, 0, 2))
    cut = value
    if value.shape[0] != 1:
        cut = scope.apply(
            "slice", value, start=[layer.direction], stop=[layer.direction + 1], axes=[0]
        )
    return scope.reshape(cut, list(value.shape[1:]))


def _mask(inner: Scope, lengths: Value | None, step: Value) -> Value | None:
    if lengths is None:
        return None
    wide = inner.apply("expand_dims", lengths, axis=1)
    return inner.apply("less", step, inner.cast(wide, "int32"))


def _clipped(layer: _Layer, inner: Scope, value: Value) -> Value:
    bound = layer.node.attr("clip")
    if bound is None:
        return value
    return inner.apply("clip", value, a_min=-float(bound), a_max=float(bound))


def _rnn_cell(
    layer: _Layer, inner: Scope, carries: list[Value], given: Value, weight: Value, bias: Any
) -> list[Value]:
    (function,) = layer.activations(["Tanh"])
    total = inner.apply("add", given, inner.apply("matmul", carries[0], weight))
    if bias is not None:
        total = inner.apply("add", total, bias)
    return [function(inner, _clipped(layer, inner, total))]


def _gru_cell(
    layer: _Layer, inner: Scope, carries: list[Value], given: Value, weight: Value, bias: Any
) -> list[Value]:
    first, second = layer.activations(["Sigmoid", "Tanh"])
    state = carries[0]
    from_input = inner.several("split", given, indices_or_sections=3, axis=1)
    weights = inner.several("split", weight, indices_or_sections=3, axis=1)
    biases = [None] * 3
    if bias is not None:
        biases = inner.several("split", bias, indices_or_sections=3, axis=0)  # type: ignore[assignment]

    def recurrent(at: int, of: Value) -> Value:
        found = inner.apply("matmul", of, weights[at])
        return found if biases[at] is None else inner.apply("add", found, biases[at])

    update = first(
        inner, _clipped(layer, inner, inner.apply("add", from_input[0], recurrent(0, state)))
    )
    reset = first(
        inner, _clipped(layer, inner, inner.apply("add", from_input[1], recurrent(1, state)))
    )
    if layer.node.attr("linear_before_reset", 0):
        inside = inner.apply("multiply", reset, recurrent(2, state))
    else:
        inside = recurrent(2, inner.apply("multiply", reset, state))
    new = second(inner, _clipped(layer, inner, inner.apply("add", from_input[2], inside)))
    rest = inner.apply("subtract", inner.constant(1, update.dtype), update)
    fresh = inner.apply("multiply", rest, new)
    return [inner.apply("add", fresh, inner.apply("multiply", update, state))]


def _lstm_cell(
    layer: _Layer, inner: Scope, carries: list[Value], given: Value, weight: Value, bias: Any
) -> list[Value]:
    gate, squash, outer = layer.activations(["Sigmoid", "Tanh", "Tanh"])
    state, cell = carries
    total = inner.apply("add", given, inner.apply("matmul", state, weight))
    if bias is not None:
        total = inner.apply("add", total, bias)
    i, o, f, c = inner.several("split", total, indices_or_sections=4, axis=1)
    holes = layer.part(7)
    hole_i = hole_o = hole_f = None
    if holes is not None:
        hole_i, hole_o, hole_f = inner.several("split", holes, indices_or_sections=3, axis=0)
        i = inner.apply("add", i, inner.apply("multiply", hole_i, cell))
        f = inner.apply("add", f, inner.apply("multiply", hole_f, cell))
    entry = gate(inner, _clipped(layer, inner, i))
    if layer.node.attr("input_forget", 0):
        forget = inner.apply("subtract", inner.constant(1, entry.dtype), entry)
    else:
        forget = gate(inner, _clipped(layer, inner, f))
    fresh = inner.apply("multiply", entry, squash(inner, _clipped(layer, inner, c)))
    kept = inner.apply("add", inner.apply("multiply", forget, cell), fresh)
    if hole_o is not None:
        o = inner.apply("add", o, inner.apply("multiply", hole_o, kept))
    opened = gate(inner, _clipped(layer, inner, o))
    return [inner.apply("multiply", opened, outer(inner, kept)), kept]
