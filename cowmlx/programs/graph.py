"""A program as data: what it declares, its nodes in order, and what is known of every value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx

from cowmlx.programs.operations.row import Attribute, Attributes, Operation, Spec


@dataclass(frozen=True)
class Declared:
    """An input or a parameter.

    Args:
        name: its name.
        spec: its dtype and shape.
        parameter: whether it is a parameter, which a training may change.
        init: how a parameter begins: a function of ``mlx.nn.init`` and its arguments; None if
            that is not said.
        value: the array of a parameter that came with the program's file; a run may leave it out.
    """

    name: str
    spec: Spec
    parameter: bool = False
    init: tuple[str, dict[str, Any]] | None = None
    value: mx.array | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Constant:
    """An array that is part of the program, evaluated."""

    name: str
    spec: Spec
    array: mx.array


@dataclass(frozen=True)
class Control:
    """Control flow over functions, as a row beside those of the table.

    Args:
        name: "call", "cond", "while" or "scan".
        attributes: its keyword arguments.
        functions: which of them name functions.
        summary: one sentence.
        inputs: groups of inputs, in their order: the name and a sentence of each.
        outputs: groups of results, likewise.
        formula: what it computes, in plain text.
        example: a program of it, as JSON has it.
    """

    name: str
    attributes: tuple[Attribute, ...]
    functions: tuple[str, ...]
    summary: str
    inputs: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    formula: str
    example: Mapping[str, Any]


@dataclass(frozen=True)
class Node:
    """An operation on values.

    Args:
        name: what messages call it: its own name, or its first result's.
        row: the operation, or the control flow.
        inputs: the names of values; None for an optional input that is left out.
        attributes: all of them, checked.
        outputs: the names of its results.
    """

    name: str
    row: Operation | Control
    inputs: tuple[str | None, ...]
    attributes: Attributes
    outputs: tuple[str, ...]

    @property
    def op(self) -> str:
        """The name of its operation in the table."""
        return self.row.name

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions that it uses."""
        if isinstance(self.row, Operation):
            return ()
        return tuple(self.attributes[name] for name in self.row.functions)


@dataclass(frozen=True)
class Graph:
    """A program's nodes, or a function's.

    Args:
        name: the function's; "" for the program itself.
        declared: inputs, then parameters.
        constants: by name.
        nodes: in an order in which each comes after what it reads.
        outputs: the names of its results.
        specs: what is known of every value by its name.
    """

    name: str
    declared: tuple[Declared, ...]
    constants: Mapping[str, Constant]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    specs: Mapping[str, Spec]

    def needed(self, wanted: Iterable[str]) -> list[Node]:
        """Return the nodes that values depend on, in order."""
        names = set(wanted)
        nodes = []
        for node in reversed(self.nodes):
            if not names.isdisjoint(node.outputs):
                nodes.append(node)
                names.update(name for name in node.inputs if name is not None)
        return nodes[::-1]


@dataclass(frozen=True)
class Library:
    """A checked program.

    Args:
        main: the program itself.
        functions: by name, each after those that it uses.
    """

    main: Graph
    functions: Mapping[str, Graph]

    def is_partly_empty(self) -> bool:
        """Whether some value has no elements."""
        graphs = (*self.functions.values(), self.main)
        return any(0 in spec.shape for graph in graphs for spec in graph.specs.values())

    def users_of(self, kinds: Iterable[str]) -> set[str]:
        """Return the functions that use control flow of some kinds, also through others.

        The program itself is among them as "".
        """
        users: set[str] = set()
        for graph in (*self.functions.values(), self.main):
            if any(node.op in kinds or users & set(node.functions) for node in graph.nodes):
                users.add(graph.name)
        return users
