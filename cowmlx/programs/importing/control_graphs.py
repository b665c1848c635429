"""Control flow of a graph that is built: its parts become functions of the program.

A part reads values of the graphs around it: they become inputs of its function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.importing.values import Value
from cowmlx.programs.operations.row import Spec


@dataclass(frozen=True)
class Part:
    """A branch, a condition or a body.

    Args:
        scope: its graph.
        inputs: what it takes.
        results: what it gives.
    """

    scope: Scope
    inputs: Sequence[Value]
    results: Sequence[Value]

    def function(self, name: str, around: Sequence[Value] = (), returned: bool = False) -> str:
        """Add it to the program as a function; return its name.

        Args:
            name: of the function.
            around: values of graphs around it that the function takes behind its inputs.
            returned: whether it returns these behind its results.
        """
        own = [self.scope.local(value) for value in around]
        return self.scope.function(
            name, [*self.inputs, *own], [*self.results, *(own if returned else ())]
        )


def around(*parts: Part) -> list[Value]:
    """Return the values of graphs around them that parts read, each once."""
    found: dict[int, Value] = {}
    for part in parts:
        for value in part.results:
            part.scope.named(value)
        found |= {key: outer for key, (outer, _) in part.scope.captured.items()}
    return list(found.values())


def branched(scope: Scope, predicate: Value, then: Part, other: Part) -> list[Value]:
    """Return the results of one of two branches without inputs."""
    read = around(then, other)
    return scope.controlled(
        "cond",
        [predicate, *read],
        {"then": then.function("then", read), "else": other.function("else", read)},
        [value.spec for value in then.results],
    )


def looped(
    scope: Scope, states: Sequence[Value], condition: Part, body: Part, limit: int
) -> list[Value]:
    """Return the last states of a loop of at most so many rounds."""
    read = around(condition, body)
    given = [*states, *read]
    results = scope.controlled(
        "while",
        given,
        {
            "condition": condition.function("goes_on", read),
            "body": body.function("round", read, returned=True),
            "max_iterations": limit,
        },
        [value.spec for value in given],
    )
    return results[: len(states)]


def stepped(
    scope: Scope,
    carries: Sequence[Value],
    sequences: Sequence[Value],
    body: Part,
    reverse: bool = False,
) -> list[Value]:
    """Return the last carries, and the results of all steps behind each other."""
    read = around(body)
    length = sequences[0].shape[0]
    specs = [value.spec for value in carries]
    specs += [Spec((length, *value.shape), value.dtype) for value in body.results[len(carries) :]]
    attributes = {
        "body": body.function("step", read),
        "carries": len(carries),
        "sequences": len(sequences),
    }
    if reverse:
        attributes["reverse"] = True
    return scope.controlled("scan", [*carries, *sequences, *read], attributes, specs)
