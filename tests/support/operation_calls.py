"""Examples of the table as calls of typed builders, and the nodes that these have to give."""

from __future__ import annotations

from typing import Any

from cowmlx.programs.operations import ROWS
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.examples import spec_of, specs_of
from cowmlx.programs.operations.row import Example, Operation, Spec


def telling(row: Operation) -> list[Example]:
    """The first example of a row for each set of inputs and attributes."""
    found: dict[tuple[object, ...], Example] = {}
    for example in row.examples:
        key = (*(text is None for text in example.inputs), *sorted(example.attributes))
        found.setdefault(key, example)
    return list(found.values())


EXAMPLES = [(row, example) for row in ROWS for example in telling(row)]


def results_of(row: Operation, example: Example) -> int:
    """How many results an operation has for an example."""
    inputs = row.arranged(specs_of(example))
    return len(row.infer(inputs, attributes_of(row, example.attributes)))


def inputs_of(example: Example) -> list[tuple[str, Spec]]:
    """The inputs to declare, one more for each that the example leaves out."""
    return [(f"x{at}", spec_of(text or "float32[1]")) for at, text in enumerate(example.inputs)]


def require_node(row: Operation, example: Example, program: dict[str, Any]) -> None:
    """Assert that a program has one node, and that it is the example."""
    (node,) = program["nodes"]
    names = [None if text is None else f"x{at}" for at, text in enumerate(example.inputs)]
    assert (node["op"], trimmed(node["inputs"])) == (row.name, trimmed(names))
    assert attributes_of(row, node["attributes"]) == attributes_of(row, example.attributes)
    assert len(node["outputs"]) == results_of(row, example)


def trimmed(names: list[str | None]) -> list[str | None]:
    """Names of inputs without those that are left out at the end."""
    while names and names[-1] is None:
        names = names[:-1]
    return names
