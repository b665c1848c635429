"""A program's text, checked: its functions in the order in which they use each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cowmlx.programs.bounds import MAX_CALL_DEPTH, MAX_DECLARED, MAX_FUNCTIONS, MAX_NODES, Steps
from cowmlx.programs.checking import declarations, nodes, text
from cowmlx.programs.checking.declarations import Names, bound_names, require_bound
from cowmlx.programs.checking.nodes import Cycle, ordered
from cowmlx.programs.checking.text import listed, name, section
from cowmlx.programs.dimensions import names_of
from cowmlx.programs.failure import ProgramError, placed, shown, too_many
from cowmlx.programs.graph import Constant, Declared, Graph, Library, Node
from cowmlx.programs.operations.row import OperationError, Spec

KEYS = ("inputs", "constants", "nodes", "outputs")


@dataclass(frozen=True)
class Draft:
    """A program's or a function's parts, read, whose nodes have no specs yet."""

    name: str
    declared: list[Declared]
    constants: dict[str, Constant]
    nodes: list[Node]
    outputs: tuple[str, ...]

    def checked(self, functions: Mapping[str, Graph], known: set[str]) -> Steps[Graph]:
        """Return the graph, with specs for all values, in steps.

        Args:
            functions: those that it uses, checked.
            known: names of dimensions that have a value in a run.
        """
        specs: dict[str, Spec] = {
            declaration.name: declaration.spec for declaration in self.declared
        }
        specs |= {constant.name: constant.spec for constant in self.constants.values()}
        order = yield from nodes.in_order(self.nodes, specs, self.name)
        self._require_outputs(set(specs))
        yield from nodes.infer_all(order, specs, functions, self.name, known)
        return Graph(
            self.name, tuple(self.declared), self.constants, tuple(order), self.outputs, specs
        )

    def _require_outputs(self, values: set[str]) -> None:
        results = {each for node in self.nodes for each in node.outputs}
        for output in self.outputs:
            if output not in values and output not in results:
                raise ProgramError(
                    "missing",
                    f"outputs{_within(self.name)} has {shown(output)}, which is no input, "
                    "parameter, constant or result",
                    argument=output,
                    function=self.name or None,
                )


def draft(own: str, entry: Mapping[str, Any], what: str) -> Steps[Draft]:
    """Return the parts of a program or a function, in steps."""
    before = f"{what}." if what else ""
    names = Names(_within(own))
    declared = [
        declaration
        for key in ("inputs", "parameters")
        for declaration in declarations.declared(
            entry.get(key, []), f"{before}{key}", names, key == "parameters"
        )
    ]
    constants = yield from declarations.constants_of(
        entry.get("constants", []), f"{before}constants", names
    )
    drafted = yield from nodes.read(entry.get("nodes", []), f"{before}nodes", own, names)
    outputs = [
        name(each, f"a name in {before}outputs")
        for each in listed(entry["outputs"], f"{before}outputs", MAX_DECLARED)
    ]
    if not outputs:
        raise ProgramError("missing", f"{before}outputs is empty", argument="outputs")
    return Draft(own, declared, constants, drafted, tuple(outputs))


def drafts(value: object) -> Steps[list[Draft]]:
    """Return the functions of a program, each after those that it uses, in steps."""
    drafted: dict[str, Draft] = {}
    total = 0
    for at, entry in enumerate(listed(value, "functions", MAX_FUNCTIONS)):
        what = f"functions[{at}]"
        section(entry, what, ("name", *KEYS), ("name", "outputs"))
        own = name(entry["name"], f"the name of {what}")
        if own in drafted:
            raise ProgramError(
                "conflict", f"two functions are called {shown(own)}", argument=own, value=own
            )
        drafted[own] = yield from draft(own, entry, what)
        total += len(drafted[own].nodes)
        if total > MAX_NODES:
            raise ProgramError(
                "limit_exceeded", f"functions have more than {MAX_NODES} nodes", limit=MAX_NODES
            )
    return _in_order(list(drafted.values()))


def require_functions(user: Draft, known: Mapping[str, object]) -> None:
    """Check that all functions that nodes use are there."""
    for node in user.nodes:
        for used in node.functions:
            if used not in known:
                accepted = ", ".join(sorted(known)[:16]) or "nothing: there are no functions"
                error = OperationError(
                    "missing",
                    f"there is no function {shown(used)}, must be one of {accepted}",
                    argument=used,
                    accepted=accepted,
                )
                raise placed(error, node.name, node.op, user.name)


def _in_order(found: Sequence[Draft]) -> list[Draft]:
    places = {function.name: index for index, function in enumerate(found)}
    for function in found:
        require_functions(function, places)
    needs = [
        [places[used] for node in function.nodes for used in node.functions] for function in found
    ]
    try:
        order = ordered(needs)
    except Cycle as cycle:
        members = [found[index].name for index in cycle.members]
        path = " → ".join(shown(each) for each in [*members[:8], members[0]])
        raise ProgramError(
            "conflict", f"functions use themselves, which must not be: {path}", function=members[0]
        ) from None
    depths = [1] * len(found)
    for index in order:
        depths[index] += max((depths[used] for used in needs[index]), default=0)
        if depths[index] > MAX_CALL_DEPTH:
            raise ProgramError(
                "limit_exceeded",
                f"function {shown(found[index].name)} uses functions that use others more than "
                f"{MAX_CALL_DEPTH} deep",
                function=found[index].name,
                limit=MAX_CALL_DEPTH,
            )
    return [found[index] for index in order]


def _within(function: str) -> str:
    return f" in function {shown(function)}" if function else ""


PROGRAM_KEYS = ("inputs", "parameters", "constants", "functions", "nodes", "outputs")


def check(source: str | bytes) -> Steps[Library]:
    """Return the program of a text, in steps."""
    read = yield from text.read_steps(source, "the program")
    return (yield from check_entry(read))


def check_entry(read: dict[str, Any]) -> Steps[Library]:
    """Return the program of a JSON object, in steps."""
    entry = text.section(read, "the program", PROGRAM_KEYS, ("outputs",))
    used = yield from drafts(entry.get("functions", []))
    main = yield from draft("", entry, "")
    total = len(main.nodes) + sum(len(function.nodes) for function in used)
    if total > MAX_NODES:
        raise too_many("the program", total, "nodes", MAX_NODES)
    known = bound_names(main.declared)
    for each in (main, *used):
        for declared in each.declared:
            require_bound(names_of(declared.spec.shape), known, f"input {shown(declared.name)}")
    checked: dict[str, Graph] = {}
    for function in used:
        checked[function.name] = yield from function.checked(checked, known)
    require_functions(main, checked)
    return Library((yield from main.checked(checked, known)), checked)
