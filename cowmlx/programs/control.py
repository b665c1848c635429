"""Control flow over functions: the table of its kinds, what each takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from cowmlx.programs import dimensions
from cowmlx.programs.bounds import MAX_ITERATIONS
from cowmlx.programs.dimensions import Dim, text_of
from cowmlx.programs.failure import shown
from cowmlx.programs.graph import Control, Graph
from cowmlx.programs.operations import attribute_as_json
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import (
    REQUIRED,
    Attribute,
    Attributes,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import equal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FAMILY = "control flow"


def _function(name: str, about: str) -> Attribute:
    return Attribute(name, "text", REQUIRED, about)


def _input(name: str, *shape: int | str, dtype: str = "float32") -> dict[str, Any]:
    return {"name": name, "dtype": dtype, "shape": list(shape)}


def _node(name: str | list[str], op: str, *inputs: str, **attributes: Any) -> dict[str, Any]:
    key = "name" if isinstance(name, str) else "outputs"
    given = {"attributes": attributes} if attributes else {}
    return {key: name, "op": op, "inputs": list(inputs), **given}


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
                "nodes": [_node("doubled", "call", "x", function="double")],
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
                    _node(
                        "chosen", "cond", "is_doubled", "x", **{"then": "double", "else": "negate"}
                    )
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
            "The first state for which the condition is false; of vectorized rows, each its own.",
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
                    _node(
                        ["grown", "rounds"],
                        "while",
                        "x",
                        "count",
                        condition="is_small",
                        body="grow",
                        max_iterations=1000,
                    )
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
                    _node(
                        ["last", "sums"], "scan", "start", "xs", "factor", body="decay", carries=1
                    )
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
                attribute_as_json(attribute)
                | ({"kind": "function"} if attribute.name in row.functions else {})
                for attribute in row.attributes
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


def control_attributes(row: Control, given: Mapping[str, Any]) -> Attributes:
    """Return all attributes of control flow, checked as those of an operation."""
    return attributes_of(cast(Operation, row), given)


def infer(
    row: Control, inputs: Sequence[Spec], attributes: Attributes, functions: Mapping[str, Graph]
) -> list[Spec]:
    """Return the specs of the results."""
    used = [functions[attributes[name]] for name in row.functions]
    try:
        if row.name == "call":
            _require_taken(used[0], inputs)
            return _results(used[0])
        if row.name == "scan":
            return _scan(inputs, used[0], attributes)
        return (_cond if row.name == "cond" else _while)(inputs, *used)
    except OperationError as error:
        raise error.of(row.name) from None


def scan_length(inputs: Sequence[Spec], attributes: Attributes) -> Dim:
    """Return how many steps a scan has."""
    return inputs[attributes["carries"]].shape[0]


def _cond(inputs: Sequence[Spec], then: Graph, otherwise: Graph) -> list[Spec]:
    if not inputs:
        raise OperationError("missing", "needs a predicate as its first input")
    _require_predicate("its first input", inputs[0])
    for branch in (then, otherwise):
        _require_taken(branch, inputs[1:])
    specs = _results(then)
    _require_alike(otherwise, _results(otherwise), f"those of {shown(then.name)}", specs)
    return specs


def _while(inputs: Sequence[Spec], condition: Graph, body: Graph) -> list[Spec]:
    if not inputs:
        raise OperationError("missing", "needs a state: one input or more")
    for function in (condition, body):
        _require_taken(function, inputs)
    tested = _results(condition)
    if len(tested) != 1:
        raise OperationError(
            "conflict",
            f"the condition {shown(condition.name)} has {len(tested)} results, must have 1",
            accepted="1 result",
        )
    _require_predicate(f"the result of {shown(condition.name)}", tested[0])
    _require_alike(body, _results(body), "the inputs", list(inputs))
    return list(inputs)


def _scan(inputs: Sequence[Spec], body: Graph, attributes: Attributes) -> list[Spec]:
    carries, sequences = attributes["carries"], attributes["sequences"]
    if len(inputs) < carries + sequences:
        raise OperationError(
            "missing",
            f"has {len(inputs)} inputs, must have {carries + sequences} or more: {carries} "
            f"carries and {sequences} sequences",
            value=len(inputs),
            accepted=f"{carries + sequences} or more",
        )
    scanned = inputs[carries : carries + sequences]
    for at, spec in enumerate(scanned, carries):
        if not spec.shape or not equal(spec.shape[0], scanned[0].shape[0]):
            raise OperationError(
                "conflict",
                f"input {at} is {spec}, must have the axis 0 of the other sequences",
                shapes=", ".join(text_of(scan.shape) for scan in scanned),
            )
    elements = [Spec(spec.shape[1:], spec.dtype) for spec in scanned]
    _require_taken(body, [*inputs[:carries], *elements, *inputs[carries + sequences :]])
    specs = _results(body)
    if len(specs) < carries:
        raise OperationError(
            "conflict",
            f"{shown(body.name)} has {len(specs)} results, must have the {carries} carries or more",
            accepted=f"{carries} or more results",
        )
    _require_alike(body, specs[:carries], "the carries", list(inputs[:carries]))
    length = scan_length(inputs, attributes)
    for spec in specs[carries:]:
        dimensions.check_shape((length, *spec.shape))
    return specs[:carries] + [Spec((length, *each.shape), each.dtype) for each in specs[carries:]]


def _results(function: Graph) -> list[Spec]:
    return [function.specs[name] for name in function.outputs]


def _require_predicate(what: str, spec: Spec) -> None:
    if spec.dtype != "bool" or spec.shape:
        raise OperationError(
            "wrong_type" if spec.dtype != "bool" else "conflict",
            f"{what} is {spec}, must be bool()",
            shapes=str(spec),
            accepted="bool()",
        )


def _require_taken(function: Graph, given: Sequence[Spec]) -> None:
    """Check that a function takes inputs."""
    _require_alike(
        function,
        given,
        "its inputs",
        [declaration.spec for declaration in function.declared],
        "is given",
    )


def _require_alike(
    function: Graph, found: Sequence[Spec], what: str, wanted: Sequence[Spec], verb: str = "gives"
) -> None:
    same = len(found) == len(wanted) and all(
        mine.dtype == its.dtype
        and len(mine.shape) == len(its.shape)
        and all(map(equal, mine.shape, its.shape))
        for mine, its in zip(found, wanted, strict=True)
    )
    if not same:
        given, accepted = _listed(found), _listed(wanted)
        raise OperationError(
            "conflict",
            f"function {shown(function.name)} {verb} {given}, must be as {what}: {accepted}",
            shapes=given,
            accepted=accepted,
        )


def _listed(specs: Sequence[Spec]) -> str:
    text = ", ".join(str(spec) for spec in specs[:16])
    return (text + ", …" if len(specs) > 16 else text) or "nothing"
