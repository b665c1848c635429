"""The table of control flow: attributes, functions and an example program of each kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cowmlx.programs.bounds import MAX_ITERATIONS
from cowmlx.programs.graph import Control
from cowmlx.programs.operations import attribute_as_json
from cowmlx.programs.operations.row import REQUIRED, Attribute

FAMILY = "control flow"


def _function(name: str, about: str) -> Attribute:
    return Attribute(name, "text", REQUIRED, about)


def _input(name: str, *shape: int | str, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def _node(name: str, op: str, *inputs: str) -> dict[str, Any]:
    return {"name": name, "op": op, "inputs": list(inputs)}


def _constant(name: str, value: float, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "value": value}


_DOUBLE: Mapping[str, Any] = {
    "name": "double",
    "inputs": [_input("x", 3)],
    "nodes": [_node("y", "add", "x", "x")],
    "outputs": ["y"],
}

CONTROL: dict[str, Control] = {
    row.name: row
    for row in (
        Control(
            "call",
            (_function("function", "The function."),),
            ("function",),
            "The results of a function of the inputs.",
            inputs=(("inputs", "What the function takes."),),
            outputs=(("results", "What the function gives."),),
            formula="results = function(inputs)",
            example={
                "inputs": [_input("x", 3)],
                "functions": [_DOUBLE],
                "nodes": [
                    {
                        "name": "doubled",
                        "op": "call",
                        "inputs": ["x"],
                        "attributes": {"function": "double"},
                    }
                ],
                "outputs": ["doubled"],
            },
        ),
        Control(
            "cond",
            (
                _function("then", "The function where the predicate is true."),
                _function("else", "The function where it is false."),
            ),
            ("then", "else"),
            "The results of one of two functions, which take and give the same dtypes and shapes.",
            inputs=(
                ("predicate", "A bool of shape ()."),
                ("inputs", "What both functions take; may be none."),
            ),
            outputs=(("results", "What the chosen function gives."),),
            formula="results = then(inputs) if predicate else else(inputs)",
            example={
                "inputs": [_input("x", 3), _input("is_doubled", dtype="bool")],
                "functions": [
                    _DOUBLE,
                    {
                        "name": "negate",
                        "inputs": [_input("x", 3)],
                        "nodes": [_node("y", "negative", "x")],
                        "outputs": ["y"],
                    },
                ],
                "nodes": [
                    {
                        "name": "chosen",
                        "op": "cond",
                        "inputs": ["is_doubled", "x"],
                        "attributes": {"then": "double", "else": "negate"},
                    }
                ],
                "outputs": ["chosen"],
            },
        ),
        Control(
            "while",
            (
                _function("condition", "Takes the state, gives a bool of shape ()."),
                _function("body", "Takes the state, gives the next: the same dtypes and shapes."),
                Attribute(
                    "max_iterations",
                    "int",
                    REQUIRED,
                    "How often the body runs at most; a run that needs more fails.",
                    low=0,
                    high=MAX_ITERATIONS,
                ),
            ),
            ("condition", "body"),
            "The first state for which the condition is false.",
            inputs=(("state", "The state at the beginning, one value or more."),),
            outputs=(("state", "The state at the end, as many values."),),
            formula="state = body(state) while condition(state)",
            example={
                "inputs": [_input("x", 3), _input("count", dtype="int32")],
                "functions": [
                    {
                        "name": "is_small",
                        "inputs": [_input("x", 3), _input("n", dtype="int32")],
                        "constants": [_constant("limit", 100)],
                        "nodes": [_node("total", "sum", "x"), _node("y", "less", "total", "limit")],
                        "outputs": ["y"],
                    },
                    {
                        "name": "grow",
                        "inputs": [_input("x", 3), _input("n", dtype="int32")],
                        "constants": [_constant("step", 1.5), _constant("one", 1, "int32")],
                        "nodes": [_node("y", "add", "x", "step"), _node("m", "add", "n", "one")],
                        "outputs": ["y", "m"],
                    },
                ],
                "nodes": [
                    {
                        "outputs": ["grown", "rounds"],
                        "op": "while",
                        "inputs": ["x", "count"],
                        "attributes": {
                            "condition": "is_small",
                            "body": "grow",
                            "max_iterations": 1000,
                        },
                    }
                ],
                "outputs": ["grown", "rounds"],
            },
        ),
        Control(
            "scan",
            (
                _function(
                    "body",
                    "Takes the carries, an element of each sequence and the constants; gives the "
                    "next carries, of the same dtypes and shapes, then any results.",
                ),
                Attribute("carries", "int", 0, "How many inputs are carries.", low=0),
                Attribute("sequences", "int", 1, "How many inputs are sequences.", low=1),
                Attribute("reverse", "bool", False, "Whether to begin at the end."),
            ),
            ("body",),
            "A function of each element of sequences in turn, which hands carries on.",
            inputs=(
                ("carries", "The carries at the beginning, as many as the attribute says."),
                (
                    "sequences",
                    "As many as the attribute says, with the same length of axis 0; the body "
                    "takes an element of it.",
                ),
                ("constants", "All other inputs; the body takes them whole."),
            ),
            outputs=(
                ("carries", "The carries at the end."),
                ("results", "The body's other results, stacked along axis 0 in their order."),
            ),
            formula="carries, results[i] = body(carries, sequences[i], constants) for each i",
            example={
                "inputs": [_input("start", 2), _input("xs", "steps", 2), _input("factor")],
                "functions": [
                    {
                        "name": "decay",
                        "inputs": [_input("sum", 2), _input("x", 2), _input("factor")],
                        "nodes": [
                            _node("less", "multiply", "sum", "factor"),
                            _node("next", "add", "less", "x"),
                        ],
                        "outputs": ["next", "next"],
                    }
                ],
                "nodes": [
                    {
                        "outputs": ["last", "sums"],
                        "op": "scan",
                        "inputs": ["start", "xs", "factor"],
                        "attributes": {"body": "decay", "carries": 1},
                    }
                ],
                "outputs": ["last", "sums"],
            },
        ),
    )
}


def control_table() -> list[dict[str, Any]]:
    """Return the rows as JSON has them, in the form of those of operations."""
    return [
        {
            "name": row.name,
            "aliases": [],
            "family": FAMILY,
            "summary": row.summary,
            "formula": row.formula,
            "source": "",
            "inputs": [
                {
                    "name": name,
                    "optional": name == "constants",
                    "variadic": name != "predicate",
                    "differentiable": name != "predicate",
                    "about": about,
                }
                for name, about in row.inputs
            ],
            "attributes": [
                attribute_as_json(each)
                | ({"kind": "function"} if each.name in row.functions else {})
                for each in row.attributes
            ],
            "outputs": [name for name, _ in row.outputs],
            "outputs_vary": True,
            "vectorisable": True,
            "cpu_only": False,
            "float64_error": 0.0,
            "examples": [],
            "program": row.example,
        }
        for row in CONTROL.values()
    ]
