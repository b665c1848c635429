"""If, Loop and Scan, onto cond, while and scan."""

from __future__ import annotations

from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, Unsupported
from cowmlx.programs.bounds import MAX_ITERATIONS, Steps
from cowmlx.programs.dimensions import compare
from cowmlx.programs.importing.control_graphs import Part, branched, looped, stepped
from cowmlx.programs.importing.onnx_nodes import OnnxNode, converts
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value, is_symbolic
from cowmlx.programs.operations.row import Spec

MAX_UNROLLED = 64
"""Rounds of a loop whose shapes change, or whose counter must be known."""


def graph_steps(node: OnnxNode, graph: Any, scope: Scope, given: list[Value]) -> Steps[list[Value]]:
    """Return the results of a graph within a node, in steps."""
    from cowmlx.programs.importing.onnx_file import tensor_value

    if len(graph.input) != len(given):
        raise BadFormat(f"its graph has {len(graph.input)} inputs, must have {len(given)}")
    values = {value.name: own for value, own in zip(graph.input, given, strict=True)}
    walk = node.graph.inner(scope, values)
    yield from node.rest()
    for tensor in graph.initializer:
        yield from node.rest()
        walk.set(tensor.name, tensor_value(scope, tensor, node.graph.folder, 2))
    yield from walk.nodes_steps(graph.node)
    missing = [output.name for output in graph.output if output.name not in walk.values]
    if missing:
        raise BadFormat(f"the output {missing[0][:80]!r} of its graph is no value of it")
    return [walk.values[output.name] for output in graph.output]


def alike(a: Spec, b: Spec) -> bool:
    """Whether two specs are equal for all dimensions."""
    return (
        a.dtype == b.dtype
        and len(a.shape) == len(b.shape)
        and all(compare(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    )


@converts("If")
def _if(node: OnnxNode) -> Steps[list[Value]]:
    branches = [node.needed(f"{name}_branch") for name in ("then", "else")]
    known = node.scope.known(node.input())
    if known is not None:
        chosen = branches[0 if known.reshape(-1)[0] else 1]
        return (yield from graph_steps(node, chosen, node.scope, []))
    scopes = [Scope(node.scope.book, node.scope) for _ in branches]
    results = []
    for graph, scope in zip(branches, scopes, strict=True):
        results.append((yield from graph_steps(node, graph, scope, [])))
    if len(results[0]) != len(results[1]):
        raise BadFormat("its branches have different numbers of results")
    for then, other in zip(*results, strict=True):
        if not alike(then.spec, other.spec):
            raise Unsupported(
                f"its branches give {then.spec} and {other.spec}, must be of one dtype and shape"
            )
    predicate = node.scope.reshape(node.input(), [])
    parts = [Part(scope, (), values) for scope, values in zip(scopes, results, strict=True)]
    return branched(node.scope, predicate, *parts)


@converts("Loop")
def _loop(node: OnnxNode) -> Steps[list[Value]]:
    body = node.needed("body")
    count = node.scope.known(node.optional(0))
    start = node.scope.known(node.optional(1))
    carries = [node.input(at) for at in range(2, len(node.inputs))]
    many = None
    if count is not None and not is_symbolic(count):
        many = min(max(int(count.reshape(-1)[0]), 0), MAX_ITERATIONS)
    if many is not None and many <= MAX_UNROLLED and start is not None:
        begun = len(node.scope.book.functions)
        try:
            return (yield from _unrolled(node, body, many, bool(start.all()), carries))
        except Dependent:
            del node.scope.book.functions[begun:]
    if start is None and node.optional(1) is None:
        start = np.array(True)
    if many is not None and start is not None and start.all():
        found = yield from _counted(node, body, many, carries)
        if found is not None:
            return found
    return (yield from _while(node, body, many, carries))


class Dependent(Exception):
    """A condition that depends on inputs."""


def _unrolled(
    node: OnnxNode, body: Any, count: int, going: bool, carries: list[Value]
) -> Steps[list[Value]]:
    """Return the results of so many rounds, one after the other."""
    number = len(carries)
    stacked: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - number)]
    for at in range(count):
        if not going:
            break
        step = node.scope.constant(np.array(at, "int64"))
        flag = node.scope.constant(np.array(True))
        results = yield from graph_steps(node, body, node.scope, [step, flag, *carries])
        condition = node.scope.known(results[0])
        if condition is None:
            raise Dependent
        going = bool(np.asarray(condition).all())
        carries = results[1 : 1 + number]
        for rows, value in zip(stacked, results[1 + number :], strict=True):
            rows.append(value)
    ends = []
    for at, rows in enumerate(stacked):
        if rows:
            ends.append(node.apply("stack", *rows, axis=0))
            continue
        from cowmlx.programs.importing.shapes import Names, declared_spec

        spec = declared_spec(body.output[1 + number + at], "a result", Names({}))
        zero = node.scope.constant(0, spec.dtype)
        ends.append(node.apply("broadcast_to", zero, shape=[0, *spec.shape]))
    return [*carries, *ends]


def _counted(
    node: OnnxNode, body: Any, count: int, carries: list[Value]
) -> Steps[list[Value] | None]:
    """Return the results of a loop that always goes on, as a scan; None if it may end."""
    inner = Scope(node.scope.book, node.scope)
    own = [inner.input(f"state{at}", value.spec) for at, value in enumerate(carries)]
    step = inner.input("step", Spec((), "int64"))
    flag = inner.constant(np.array(True))
    results = yield from graph_steps(node, body, inner, [step, flag, *own])
    going = inner.known(results[0])
    if going is None or not going.all():
        return None
    results = results[1:]
    require_alike(results, carries)
    steps = node.scope.apply("iota", shape=[count], dtype="int64")
    return stepped(node.scope, carries, [steps], Part(inner, [*own, step], results))


def require_alike(results: list[Value], carries: list[Value]) -> None:
    """Check that a body gives states of the specs that it takes."""
    for value, carry in zip(results, carries, strict=False):
        if not alike(value.spec, carry.spec):
            raise Unsupported(
                f"its body makes {value.spec} of a state of {carry.spec}, must not change it"
            )


def _while(
    node: OnnxNode, body: Any, count: int | None, carries: list[Value]
) -> Steps[list[Value]]:
    if len(body.output) - 1 > len(carries):
        raise Unsupported(
            "how many rounds it has depends on values, so would the shapes of its results"
        )
    scope = node.scope
    limit = MAX_ITERATIONS if count is None else count
    going = node.optional(1)
    flag = scope.reshape(going, []) if going is not None else scope.constant(np.array(True))
    total = node.optional(0)
    bound = scope.constant(np.array(limit, "int64"))
    if count is None and total is not None:
        bound = scope.cast(scope.reshape(total, []), "int64")
    zero = scope.constant(np.array(0, "int64"))
    state = [zero, flag, *carries]
    inner = Scope(scope.book, scope)
    own = [inner.input(f"state{at}", value.spec) for at, value in enumerate(state)]
    results = yield from graph_steps(node, body, inner, own)
    require_alike(results[1:], carries)
    following = inner.apply("add", own[0], inner.constant(np.array(1, "int64")))
    outputs = [following, inner.reshape(results[0], []), *results[1:]]
    test = Scope(scope.book, scope)
    held = [test.input(f"state{at}", value.spec) for at, value in enumerate(state)]
    below = test.apply("less", held[0], bound)
    answer = test.apply("logical_and", held[1], below)
    found = looped(scope, state, Part(test, held, [answer]), Part(inner, own, outputs), limit)
    return found[2:]


@converts("Scan")
def _scan(node: OnnxNode) -> Steps[list[Value]]:
    if node.opset < 9:
        raise Unsupported("its form before opset 9 has an axis for batches")
    body, scanned = node.needed("body"), node.needed("num_scan_inputs")
    given = [node.input(at) for at in range(len(node.inputs))]
    carries, sequences = given[: len(given) - scanned], given[len(given) - scanned :]
    if not 1 <= scanned <= len(given):
        raise BadFormat(f"has {len(given)} inputs and num_scan_inputs {scanned}")
    axes = node.ints("scan_input_axes", scanned, 0)
    directions = node.ints("scan_input_directions", scanned, 0)
    turned = []
    for value, axis, reverse in zip(sequences, axes, directions, strict=True):
        at = node.axis_of(axis, value.rank)
        order = [at, *(each for each in range(value.rank) if each != at)]
        moved = node.scope.transpose(value, order)
        turned.append(node.apply("flip", moved, axis=0) if reverse else moved)
    inner = Scope(node.scope.book, node.scope)
    own = [inner.input(f"state{at}", value.spec) for at, value in enumerate(carries)]
    elements = [
        inner.input(f"element{at}", Spec(value.shape[1:], value.dtype))
        for at, value in enumerate(turned)
    ]
    results = yield from graph_steps(node, body, inner, [*own, *elements])
    require_alike(results, carries)
    found = stepped(node.scope, carries, turned, Part(inner, [*own, *elements], results))
    rest = found[len(carries) :]
    out_axes = node.ints("scan_output_axes", len(rest), 0)
    out_directions = node.ints("scan_output_directions", len(rest), 0)
    for at, value in enumerate(rest):
        if out_directions[at]:
            value = node.apply("flip", value, axis=0)
        axis = node.axis_of(out_axes[at], value.rank)
        order = list(range(1, value.rank))
        order.insert(axis, 0)
        rest[at] = node.scope.transpose(value, order)
    return [*found[: len(carries)], *rest]
