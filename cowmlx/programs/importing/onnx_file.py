"""ONNX files as programs: the file, its graph, and what is refused."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from cowmlx.errors import BadFormat, InvalidArgument, Unsupported
from cowmlx.programs.bounds import MAX_DECLARED, MAX_NODES, Pace, Steps
from cowmlx.programs.failure import shown, text_of
from cowmlx.programs.importing import onnx_tensors
from cowmlx.programs.importing.book import Book
from cowmlx.programs.importing.failures import ODD, missing, unreadable
from cowmlx.programs.importing.onnx_walk import NEWEST, Walk
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.shapes import Names, declared_spec
from cowmlx.programs.importing.values import Imported, Value, Weight
from cowmlx.programs.operations.row import Spec

MAX_FILE = (1 << 31) - 1
"""Of a protobuf message."""
DOMAINS = ("", "ai.onnx")
OLDEST = 1
"""Opsets from 13 are tested; older ones are read where operators did not change."""


def package() -> Any:
    """Return the package ``onnx``.

    Raises:
        NotFound: it is not installed.
    """
    try:
        import onnx
    except ImportError as error:
        raise missing("ONNX files", "onnx", error, "'onnx>=1.17'") from error
    return onnx


def load_steps(path: str, fixed: Mapping[str, Any]) -> Steps[Imported]:
    """Return the program of an ONNX file, in steps.

    Args:
        path: the file.
        fixed: values of inputs, and of dimensions, by their names.

    Raises:
        NotFound: the file or the package is missing.
        BadFormat: the file is damaged.
        Unsupported: it needs what programs do not have; names the operator and the node.
    """
    onnx = package()
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size > MAX_FILE:
                raise BadFormat(f"{path} has more than {MAX_FILE} bytes", file=path)
            data = file.read(MAX_FILE)
    except OSError as error:
        raise unreadable(path, error) from error
    yield
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # protobuf's class differs between its versions
        raise BadFormat(f"{path} is damaged or no ONNX file: {error}", file=path) from error
    del data
    yield
    try:
        return (yield from model_steps(model, os.path.dirname(os.path.abspath(path)), fixed))
    except ODD as error:  # names that are not UTF-8 are bytes
        raise BadFormat(f"{path} is damaged: {error}", file=path) from error


def model_steps(model: Any, folder: str, fixed: Mapping[str, Any]) -> Steps[Imported]:
    """Return the program of a ModelProto, as :func:`load_steps`."""
    opsets = {"" if o.domain in DOMAINS else o.domain: o.version for o in model.opset_import}
    if not model.HasField("graph") or not model.graph.output:
        raise BadFormat("the file has no graph with outputs")
    if not OLDEST <= opsets.get("", OLDEST) <= NEWEST:
        raise BadFormat(f"the file is of opset {opsets['']}, must be {OLDEST} or newer")
    graph = model.graph
    declared = (graph.input, graph.initializer, graph.sparse_initializer, graph.output)
    if sum(map(len, declared)) > MAX_DECLARED:
        raise BadFormat(f"the graph declares more than {MAX_DECLARED} values")
    if len(graph.node) > MAX_NODES:
        raise Unsupported(f"the graph has more than {MAX_NODES} nodes")
    book = Book()
    book.read("", model.ByteSize())
    scope = Scope(book)
    for output in graph.output:
        if not isinstance(output.name, str):
            raise BadFormat("the file is damaged: the name of an output is no text in UTF-8")
        book.reserve(output.name)
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    walk = Walk(scope, opsets, functions, folder, {})
    uses = yield from used_steps(graph, walk)
    begun = yield from _declare(walk, graph, fixed)
    yield from _initialize(walk, graph, folder, uses, begun)
    yield from walk.nodes_steps(graph.node)
    outputs = []
    for output in graph.output:
        if output.name not in walk.values:
            raise BadFormat(f"output {shown(output.name)} is no value of the graph")
        outputs.append((output.name, walk.values[output.name]))
    yield
    entry = yield from scope.program_steps(outputs)
    return Imported(entry, {name: weight for name, (_, weight) in book.parameters.items()})


def used_steps(graph: Any, walk: Walk) -> Steps[Counter[str]]:
    """Return how often nodes read each name, in steps.

    What the body of a loop reads counts twice, as it may be converted many times; so does what is
    given to a function.
    """
    uses: Counter[str] = Counter()
    waiting = [(graph, False)]
    while waiting:
        here, repeats = waiting.pop()
        uses.update(output.name for output in here.output)
        for node in here.node:
            yield from walk.scope.book.pace.rest()
            uses.update(node.input)
            if repeats or walk.is_inlined(node):
                uses.update(node.input)
            within = repeats or node.op_type == "Loop"
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    waiting.append((attribute.g, within))
                waiting.extend((inner, within) for inner in attribute.graphs)
    return uses


def _declare(walk: Walk, graph: Any, fixed: Mapping[str, Any]) -> Steps[set[str]]:
    """Declare the inputs of the graph, in steps; return the names that initializers have."""
    begun = {tensor.name for tensor in graph.initializer}
    begun |= {sparse.values.name for sparse in graph.sparse_initializer}
    known = {value.name for value in graph.input} - begun
    sizes = {name: value for name, value in fixed.items() if name not in known}
    names = Names(sizes, graph.input)
    for value in sorted(graph.input, key=lambda each: each.name not in fixed):
        yield from walk.scope.book.pace.rest()
        if value.name in begun:
            continue
        what = f"input {shown(value.name)}"
        if not isinstance(value.name, str):
            raise BadFormat(f"the file is damaged: the name of {what} is no text in UTF-8")
        spec = declared_spec(value, what, names)
        if value.name in fixed:
            made = walk.scope.fixed(value.name, spec, fixed[value.name])
            names.note(spec.shape, made.known.shape)
        else:
            made = walk.scope.input(value.name, spec)
        walk.set(value.name, made)
    for name in sizes:
        if name not in names.seen:
            accepted = ", ".join(sorted(known | names.seen)[:16])
            raise InvalidArgument(
                f"fixed has {shown(name)}, which is no input and no dimension of the file; it has "
                f"{accepted}",
                reason="unknown_option",
                argument=name,
                accepted=accepted,
            )
    return begun


def _initialize(
    walk: Walk, graph: Any, folder: str, uses: Counter[str], begun: set[str]
) -> Steps[None]:
    pace = Pace()
    for tensor in graph.initializer:
        yield from pace.rest()
        if not uses[tensor.name]:
            continue
        walk.set(tensor.name, tensor_value(walk.scope, tensor, folder, uses[tensor.name]))
    for sparse in graph.sparse_initializer:
        yield from pace.rest()
        walk.set(sparse.values.name, sparse_value(walk.scope, sparse, folder))


def tensor_value(scope: Scope, tensor: Any, folder: str, uses: int = 1) -> Value:
    """Return the value of a tensor of the file."""
    dtype, shape = onnx_tensors.checked(tensor, folder)
    if tensor.data_location == onnx_tensors.EXTERNAL:
        scope.book.read(*onnx_tensors.external_file(tensor, folder))
    weight = Weight(
        text_of(tensor.name) or "constant",
        Spec(shape, dtype),
        lambda: onnx_tensors.array_of(tensor, folder),
        uses,
    )
    value = scope.weight(weight)
    value.bits = 4 if tensor.data_type in onnx_tensors.FOUR_BITS else None
    return value


def sparse_value(scope: Scope, sparse: Any, folder: str) -> Value:
    """Return the value of a sparse tensor of the file, as a whole one."""
    from cowmlx.programs.bounds import MAX_CONSTANT

    shape = onnx_tensors.shape_of(sparse, "a sparse tensor")
    values = onnx_tensors.array_of(sparse.values, folder)
    indices = onnx_tensors.array_of(sparse.indices, folder)
    if int(np.prod(shape)) > MAX_CONSTANT or values.ndim != 1:
        raise BadFormat(f"a sparse tensor of the shape {list(shape)} is too large")
    whole = np.zeros(shape, values.dtype)
    try:
        if (indices < 0).any():
            raise IndexError
        if indices.ndim == 1:
            whole.reshape(-1)[indices] = values
        else:
            whole[tuple(indices.T)] = values
    except (IndexError, ValueError):
        raise BadFormat("a sparse tensor has indices outside of its shape") from None
    return scope.constant(whole)
