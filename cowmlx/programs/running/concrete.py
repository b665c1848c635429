"""A program for given dimensions: shapes are numbers, and all rules apply again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.checking import nodes
from cowmlx.programs.dimensions import evaluate_shape
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations.attributes import concrete_attributes
from cowmlx.programs.operations.row import Operation, Spec


def concrete(library: Library, values: Mapping[str, int]) -> Steps[Library]:
    """Return a program for given dimensions, without unused nodes, in steps.

    Raises:
        ProgramError: shapes that cannot meet for these values, with the node.
    """
    functions: dict[str, Graph] = {}
    for name, graph in library.functions.items():
        functions[name] = yield from _concrete(graph, functions, values)
    return Library((yield from _concrete(library.main, functions, values)), functions)


def _concrete(
    graph: Graph, functions: Mapping[str, Graph], values: Mapping[str, int]
) -> Steps[Graph]:
    declared = tuple(
        replace(each, spec=Spec(evaluate_shape(each.spec.shape, values), each.spec.dtype))
        for each in graph.declared
    )
    specs = {each.name: each.spec for each in declared}
    specs |= {constant.name: constant.spec for constant in graph.constants.values()}
    found: list[Node] = []
    pace = Pace()
    for node in graph.needed(graph.outputs):
        yield from pace.rest()
        if isinstance(node.row, Operation):
            attributes = node.attributes
            if node.row.settled is not None:
                before = [None if name is None else graph.specs[name] for name in node.inputs]
                attributes = node.row.settled(before, attributes)
            attributes = concrete_attributes(node.row, attributes, values)
            node = replace(node, attributes=attributes)
        results = nodes.infer(node, specs, functions, graph.name)
        specs.update(zip(node.outputs, results, strict=True))
        found.append(node)
    return replace(graph, declared=declared, nodes=tuple(found), specs=specs)
