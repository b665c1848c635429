"""Control flow over functions: what each kind takes and gives."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from cowmlx.programs import dimensions
from cowmlx.programs.dimensions import Dim, text_of
from cowmlx.programs.failure import shown
from cowmlx.programs.graph import Control, Graph
from cowmlx.programs.operations.attributes import attributes_of
from cowmlx.programs.operations.row import (
    Attributes,
    Operation,
    OperationError,
    Spec,
)
from cowmlx.programs.operations.rules import equal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def control_attributes(row: Control, given: Mapping[str, Any]) -> Attributes:
    """Return all attributes of control flow, checked as those of an operation.

    Raises:
        OperationError: an unknown, missing or wrong one.
    """
    return attributes_of(cast(Operation, row), given)


def infer(
    row: Control,
    inputs: Sequence[Spec],
    attributes: Attributes,
    functions: Mapping[str, Graph],
) -> list[Spec]:
    """Return the specs of the results.

    Raises:
        OperationError: inputs, functions and their results do not fit each other.
    """
    used = [functions[attributes[name]] for name in row.functions]
    if row.name == "call":
        _require_taken(row.name, used[0], inputs)
        return _results(used[0])
    if row.name == "cond":
        return _cond(inputs, *used)
    if row.name == "while":
        return _while(inputs, *used)
    return _scan(inputs, used[0], attributes)


def scan_length(inputs: Sequence[Spec], attributes: Attributes) -> Dim:
    """Return how many steps a scan has."""
    return inputs[attributes["carries"]].shape[0]


def _cond(inputs: Sequence[Spec], then: Graph, otherwise: Graph) -> list[Spec]:
    if not inputs:
        raise OperationError("missing", "cond needs a predicate as its first input", op="cond")
    _require_predicate("cond", "its first input", inputs[0])
    for branch in (then, otherwise):
        _require_taken("cond", branch, inputs[1:])
    found = _results(then)
    _require_alike("cond", otherwise, _results(otherwise), f"those of {shown(then.name)}", found)
    return found


def _while(inputs: Sequence[Spec], condition: Graph, body: Graph) -> list[Spec]:
    if not inputs:
        raise OperationError("missing", "while needs a state: one input or more", op="while")
    for function in (condition, body):
        _require_taken("while", function, inputs)
    tested = _results(condition)
    if len(tested) != 1:
        raise OperationError(
            "conflict",
            f"while: the condition {shown(condition.name)} has {len(tested)} results, must have 1",
            op="while",
            accepted="1 result",
        )
    _require_predicate("while", f"the result of {shown(condition.name)}", tested[0])
    _require_alike("while", body, _results(body), "the inputs", list(inputs))
    return list(inputs)


def _scan(inputs: Sequence[Spec], body: Graph, attributes: Attributes) -> list[Spec]:
    carries, sequences = attributes["carries"], attributes["sequences"]
    if len(inputs) < carries + sequences:
        raise OperationError(
            "missing",
            f"scan has {len(inputs)} inputs, must have {carries + sequences} or more: {carries} "
            f"carries and {sequences} sequences",
            op="scan",
            value=len(inputs),
            accepted=f"{carries + sequences} or more",
        )
    scanned = inputs[carries : carries + sequences]
    for at, spec in enumerate(scanned, carries):
        if not spec.shape or not equal(spec.shape[0], scanned[0].shape[0]):
            raise OperationError(
                "conflict",
                f"scan: input {at} is {spec}, must have the axis 0 of the other sequences",
                op="scan",
                shapes=", ".join(text_of(each.shape) for each in scanned),
            )
    elements = [Spec(spec.shape[1:], spec.dtype) for spec in scanned]
    _require_taken("scan", body, [*inputs[:carries], *elements, *inputs[carries + sequences :]])
    found = _results(body)
    if len(found) < carries:
        raise OperationError(
            "conflict",
            f"scan: {shown(body.name)} has {len(found)} results, must have the {carries} carries "
            "or more",
            op="scan",
            accepted=f"{carries} or more results",
        )
    _require_alike("scan", body, found[:carries], "the carries", list(inputs[:carries]))
    length = scan_length(inputs, attributes)
    for spec in found[carries:]:
        dimensions.check_shape((length, *spec.shape))
    return found[:carries] + [Spec((length, *each.shape), each.dtype) for each in found[carries:]]


def _results(function: Graph) -> list[Spec]:
    return [function.specs[name] for name in function.outputs]


def _require_predicate(op: str, what: str, spec: Spec) -> None:
    if spec.dtype != "bool" or spec.shape:
        raise OperationError(
            "wrong_type" if spec.dtype != "bool" else "conflict",
            f"{op}: {what} is {spec}, must be bool()",
            op=op,
            shapes=str(spec),
            accepted="bool()",
        )


def _require_taken(op: str, function: Graph, given: Sequence[Spec]) -> None:
    """Check that a function takes inputs."""
    _require_alike(
        op, function, given, "its inputs", [each.spec for each in function.declared], "is given"
    )


def _require_alike(
    op: str,
    function: Graph,
    found: Sequence[Spec],
    what: str,
    wanted: Sequence[Spec],
    verb: str = "gives",
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
            f"{op}: function {shown(function.name)} {verb} {given}, must be as {what}: {accepted}",
            op=op,
            shapes=given,
            accepted=accepted,
        )


def _listed(specs: Sequence[Spec]) -> str:
    text = ", ".join(str(spec) for spec in specs[:16])
    return (text + ", …" if len(specs) > 16 else text) or "nothing"
