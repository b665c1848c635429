"""A program for given dimensions: shapes are numbers, and all rules apply again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.checking import nodes
from cowmlx.programs.dimensions import DimensionError, evaluate_shape, names_of, text_of
from cowmlx.programs.failure import ProgramError, placed
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
        replace(
            declaration,
            spec=Spec(evaluate_shape(declaration.spec.shape, values), declaration.spec.dtype),
        )
        for declaration in graph.declared
    )
    specs = {declaration.name: declaration.spec for declaration in declared}
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


def require_declared(
    declared: Graph, main: Graph, wanted: Collection[str], values: Mapping[str, int]
) -> None:
    """Check that values have the shapes that were declared before the dimensions had values.

    A slice that begins at n - 3 has fewer than three elements where n is 2, for example.

    Args:
        declared: the program.
        main: the same for these dimensions.
        wanted: the names of values.
        values: of all dimensions.

    Raises:
        DimensionError: a dimension below 0.
        ProgramError: another shape, with the first node that gives one.
    """
    if all(
        evaluate_shape(declared.specs[name].shape, values) == main.specs[name].shape
        for name in wanted
    ):
        return
    for node in main.needed(wanted):
        for name in node.outputs:
            if not _is_declared(declared.specs[name], main.specs[name], values):
                names = sorted(
                    names_of(side for each in declared.declared for side in each.spec.shape)
                )
                where = ", ".join(f"{each} = {values[each]}" for each in names)
                said, found = text_of(declared.specs[name].shape), text_of(main.specs[name].shape)
                error = ProgramError(
                    "conflict",
                    f"its result has the shape {found} for {where}, must have the declared {said}",
                    value=found,
                    accepted=said,
                )
                raise placed(error, node.name, node.op)


def _is_declared(declared: Spec, found: Spec, values: Mapping[str, int]) -> bool:
    try:
        return evaluate_shape(declared.shape, values) == found.shape
    except DimensionError:
        return False
