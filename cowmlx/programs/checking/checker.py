"""A program's text, checked."""

from __future__ import annotations

from cowmlx.programs.bounds import MAX_NODES
from cowmlx.programs.checking import functions, text
from cowmlx.programs.checking.declarations import bound_names, require_bound
from cowmlx.programs.dimensions import names_of
from cowmlx.programs.failure import ProgramError, shown
from cowmlx.programs.graph import Graph, Library
from cowmlx.programs.pace import Steps

KEYS = ("inputs", "parameters", "constants", "functions", "nodes", "outputs")


def check(source: str | bytes) -> Steps[Library]:
    """Return the program of a text, in steps.

    Raises:
        ProgramError: what is wrong with it, with the node, its operation and shapes.
    """
    read = yield from text.read_steps(source, "the program")
    entry = text.section(read, "the program", KEYS, ("outputs",))
    drafts = yield from functions.drafts(entry.get("functions", []))
    main = yield from functions.draft("", entry, "")
    total = len(main.nodes) + sum(len(each.nodes) for each in drafts)
    if total > MAX_NODES:
        raise ProgramError(
            "limit_exceeded",
            f"the program has {total} nodes, must have at most {MAX_NODES}",
            needed=total,
            limit=MAX_NODES,
        )
    known = bound_names(main.declared)
    for each in (main, *drafts):
        for declared in each.declared:
            require_bound(names_of(declared.spec.shape), known, f"input {shown(declared.name)}")
    checked: dict[str, Graph] = {}
    for each in drafts:
        checked[each.name] = yield from each.checked(checked, known)
    functions.require_functions(main, checked)
    return Library((yield from main.checked(checked, known)), checked)
