"""Nodes: read from JSON, put in order, and given the specs of their results."""

from __future__ import annotations

import difflib
import heapq
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cowmlx.errors import CowMlxError
from cowmlx.programs import control
from cowmlx.programs.bounds import MAX_NODES, MAX_PROBLEMS, Pace, Steps
from cowmlx.programs.checking.declarations import Names, require_bound
from cowmlx.programs.checking.text import listed, name, section
from cowmlx.programs.control import CONTROL
from cowmlx.programs.failure import ProgramError, combined, place_of, placed, refused, shown
from cowmlx.programs.graph import Control, Graph, Node
from cowmlx.programs.operations import find
from cowmlx.programs.operations.attributes import attributes_of, names_in
from cowmlx.programs.operations.row import Operation, OperationError, Spec


class Cycle(ValueError):
    """Things that need each other.

    Attributes:
        members: their indices; each needs the next, the last the first.
    """

    def __init__(self, members: list[int]) -> None:
        super().__init__(members)
        self.members = members


def ordered(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return indices, each after those that it needs, and otherwise as they are given.

    Args:
        needs: the indices that each needs.

    Raises:
        Cycle: there is no such order.
    """
    waiting = [len(set(need)) for need in needs]
    users: list[list[int]] = [[] for _ in needs]
    for index, required in enumerate(needs):
        for needed in set(required):
            users[needed].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    order = []
    while ready:
        index = heapq.heappop(ready)
        order.append(index)
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(order) < len(needs):
        raise Cycle(_cycle(dict(enumerate(needs)), set(range(len(needs))) - set(order)))
    return order


def _cycle(needs: Mapping[int, Sequence[int]], left: set[int]) -> list[int]:
    """Return a cycle among those of which each needs another of them."""
    path = [min(left)]
    places = {path[0]: 0}
    while True:
        following = next(index for index in needs[path[-1]] if index in left)
        if following in places:
            return path[places[following] :]
        places[following] = len(path)
        path.append(following)


MAX_HINTS = 1000  # names among which those like a wrong one are looked for
KEYS = ("name", "outputs", "op", "inputs", "attributes")


class Problems:
    """Problems of several nodes, for one error."""

    def __init__(self) -> None:
        self._found: list[CowMlxError] = []
        self._more = 0

    def add(self, error: CowMlxError) -> None:
        """Add a problem; only so many are kept."""
        if len(self._found) < MAX_PROBLEMS:
            self._found.append(error)
        else:
            self._more += 1

    @property
    def is_full(self) -> bool:
        """Whether more are only counted."""
        return len(self._found) == MAX_PROBLEMS

    def report(self) -> None:
        """Raise the first problem, with the sentences of the others.

        Raises:
            CowMlxError: there is one.
        """
        if not self._found:
            return
        raise combined(self._found, self._more)


def read(value: object, what: str, function: str, names: Names) -> Steps[list[Node]]:
    """Return the nodes of a list, in its order, without knowing what their inputs are; in steps."""
    problems = Problems()
    nodes = []
    pace = Pace()
    for at, entry in enumerate(listed(value, what, MAX_NODES)):
        yield from pace.rest()
        try:
            nodes.append(_node(entry, f"{what}[{at}]", function, names))
        except CowMlxError as error:
            problems.add(error)
    problems.report()
    return nodes


def _node(entry: Any, place: str, function: str, names: Names) -> Node:
    section(entry, place, KEYS, ("op",))
    if ("name" in entry) == ("outputs" in entry):
        raise ProgramError(
            "conflict" if "name" in entry else "missing",
            f'{place} must have either "name", for its one result, or "outputs", a list of names',
            argument="name",
        )
    if "name" in entry:
        results = [name(entry["name"], f"the name of {place}")]
    else:
        given = listed(entry["outputs"], f"outputs of {place}", MAX_NODES)
        results = [name(item, f"a name in outputs of {place}") for item in given]
    own = results[0] if results else place
    op = entry["op"]
    if not isinstance(op, str):
        accepted = "the name of an operation"
        raise refused(f"op of node {shown(own)}", op, accepted, node=own, argument="op")
    try:
        for result in results:
            names.take(result, place_of(own, op, function))
        inputs = listed(entry.get("inputs", []), "inputs", MAX_NODES)
        for input_ in inputs:
            if input_ is not None and not isinstance(input_, str):
                raise ProgramError(
                    "wrong_type",
                    f"inputs has {shown(input_)}, must be names of values, or null for an input "
                    "that is left out",
                    argument="inputs",
                    value=shown(input_),
                )
        attributes = section_of_attributes(entry.get("attributes", {}))
        row = CONTROL.get(op)
        if not results and (row is not None or not find(op).outputs_vary):
            raise ProgramError("missing", f"outputs of {place} is empty", argument="outputs")
        if row is not None:
            if None in inputs:
                raise OperationError("missing", f"{op} has no inputs that may be null", op=op)
            checked = control.control_attributes(row, attributes)
            return Node(own, row, tuple(inputs), checked, tuple(results))
        found = find(op)
        arranged = found.arranged(inputs)
        return Node(own, found, tuple(arranged), attributes_of(found, attributes), tuple(results))
    except CowMlxError as error:
        raise placed(error, own, op, function) from None


def section_of_attributes(value: object) -> dict[str, Any]:
    """Return attributes, whose names the operation checks."""
    if not isinstance(value, dict):
        raise refused("attributes", value, "an object", argument="attributes")
    return value


def in_order(nodes: Sequence[Node], known: Iterable[str], function: str) -> Steps[list[Node]]:
    """Return nodes so that each comes after what it reads, in steps."""
    values = set(known)
    makers = {output: index for index, node in enumerate(nodes) for output in node.outputs}
    problems = Problems()
    needs: list[list[int]] = []
    pace = Pace()
    for node in nodes:
        yield from pace.rest()
        needs.append([])
        for input_ in node.inputs:
            if input_ in makers:
                needs[-1].append(makers[input_])
            elif input_ is not None and input_ not in values:
                known_here = [] if problems.is_full else sorted(values | set(makers))[:MAX_HINTS]
                problems.add(placed(_unknown(input_, known_here), node.name, node.op, function))
    problems.report()
    yield
    try:
        return [nodes[index] for index in ordered(needs)]
    except Cycle as cycle:
        members = [nodes[index] for index in cycle.members]
        path = " → ".join(shown(node.name) for node in [*members[:8], members[0]])
        raise ProgramError(
            "conflict",
            f"{place_of(members[0].name, members[0].op, function)} is in a cycle of "
            f"{len(members)} nodes, each of which needs the next: {path}",
            node=members[0].name,
            op=members[0].op,
            function=function or None,
        ) from None


def _unknown(wanted: str, known: Sequence[str]) -> ProgramError:
    near = difflib.get_close_matches(wanted[:64], known, n=3)
    hint = f"; is it {' or '.join(shown(each) for each in near)}?" if near else ""
    return ProgramError(
        "missing",
        f"its input {shown(wanted)} is no input, parameter, constant or result{hint}",
        argument=wanted[:80],
        accepted=", ".join(near) or None,
    )


def infer(
    node: Node, specs: Mapping[str, Spec], functions: Mapping[str, Graph], function: str
) -> list[Spec]:
    """Return the specs of a node's results."""
    inputs = [None if input_ is None else specs[input_] for input_ in node.inputs]
    try:
        if isinstance(node.row, Control):
            given = [input_ for input_ in inputs if input_ is not None]
            found = control.infer(node.row, given, node.attributes, functions)
        else:
            found = node.row.infer(inputs, node.attributes)
        if len(found) != len(node.outputs):
            raise _wrong_outputs(node, len(found))
    except CowMlxError as error:
        raise placed(error, node.name, node.op, function) from None
    return found


def _wrong_outputs(node: Node, number: int) -> OperationError:
    named = isinstance(node.row, Operation) and not node.row.outputs_vary
    called = f" ({', '.join(node.row.outputs)})" if isinstance(node.row, Operation) else ""
    return OperationError(
        "conflict",
        f"{node.op} has {number} results{called if named else ''}, but {len(node.outputs)} are "
        'named; "outputs" names them all',
        op=node.op,
        argument="outputs",
        value=len(node.outputs),
        accepted=f"{number}",
    )


def infer_all(
    nodes: Sequence[Node],
    specs: dict[str, Spec],
    functions: Mapping[str, Graph],
    function: str,
    known: set[str],
) -> Steps[None]:
    """Add the specs of all results, in steps.

    Args:
        nodes: in order.
        specs: of the values before; receives the others.
        functions: those that nodes may use.
        function: whose they are.
        known: names of dimensions that have a value in a run.
    """
    problems = Problems()
    pace = Pace()
    for node in nodes:
        yield from pace.rest()
        if any(input_ is not None and input_ not in specs for input_ in node.inputs):
            continue
        try:
            if isinstance(node.row, Operation):
                _require_bound(node, node.row, known, function)
            inferred = infer(node, specs, functions, function)
        except CowMlxError as error:
            problems.add(error)
        else:
            specs.update(zip(node.outputs, inferred, strict=True))
    problems.report()


def _require_bound(node: Node, row: Operation, known: set[str], function: str) -> None:
    try:
        require_bound(names_in(row, node.attributes), known, "an attribute")
    except CowMlxError as error:
        raise placed(error, node.name, node.op, function) from None
