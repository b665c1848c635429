"""Control flow of functions that are traced: their parts become functions of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cowmlx.errors import InvalidArgument
from cowmlx.program.values import Value, called, graph_of_call, graph_value
from cowmlx.programs.bounds import MAX_ITERATIONS
from cowmlx.programs.importing import values as graph_values
from cowmlx.programs.importing.operators.recurrent import finish_body
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.operations.row import Spec


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any]) -> Any:
    """Return what one of two functions gives, without inputs; they may read values around them.

    Args:
        predicate: a bool.
        then: called where it is true.
        otherwise: gives results of the same dtypes and shapes.
    """
    scope = graph_of_call()
    inner = [Scope(scope.book, scope) for _ in range(2)]
    found = [_called(each, part) for each, part in zip((then, otherwise), inner, strict=True)]
    _require_alike("cond", *found)
    outer: dict[int, graph_values.Value] = {}
    for part, results in zip(inner, found, strict=True):
        for result in results:
            part.named(result)
        outer |= {key: pair[0] for key, pair in part.captured.items()}
    names = [
        part.function(name, [part.local(value) for value in outer.values()], results)
        for name, part, results in zip(("then", "else"), inner, found, strict=True)
    ]
    given = [scope.reshape(graph_value(predicate), []), *outer.values()]
    attributes = {"then": names[0], "else": names[1]}
    return _given(scope.controlled("cond", given, attributes, [each.spec for each in found[0]]))


def scan(body: Callable[..., Any], carries: Sequence[Any], sequences: Sequence[Any]) -> Any:
    """Run a function over the first axis of sequences.

    Args:
        body: takes the carries, then an element of each sequence; returns the next carries, then
            results of the step.
        carries: values that go from step to step; dtypes and shapes stay.
        sequences: values of one length.

    Returns:
        the last carries, then the results of all steps, behind each other.
    """
    scope = graph_of_call()
    states, rows = (
        [graph_value(each) for each in carries],
        [graph_value(each) for each in sequences],
    )
    inner = Scope(scope.book, scope)
    own = [inner.input(f"carry{at}", each.spec) for at, each in enumerate(states)]
    for at, each in enumerate(rows):
        own.append(inner.input(f"element{at}", Spec(each.shape[1:], each.dtype)))
    results = _called(body, inner, own)
    _require_alike("scan", states, results[: len(states)])
    name, captured = finish_body(inner, "step", own, results)
    specs = [each.spec for each in states]
    length = rows[0].shape[0]
    specs += [Spec((length, *each.shape), each.dtype) for each in results[len(states) :]]
    attributes = {"body": name, "carries": len(states), "sequences": len(rows)}
    return _given(scope.controlled("scan", [*states, *rows, *captured], attributes, specs))


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carries: Sequence[Any],
    max_iterations: int = MAX_ITERATIONS,
) -> Any:
    """Run a function on its own results while a condition holds.

    Args:
        condition: takes the carries, returns a bool.
        body: takes the carries, returns the next ones, of the same dtypes and shapes.
        carries: the first ones.
        max_iterations: rounds at most.

    Returns:
        the last carries.
    """
    scope = graph_of_call()
    states = [graph_value(each) for each in carries]
    inner = [Scope(scope.book, scope) for _ in range(2)]
    own = [
        [each.input(f"carry{at}", state.spec) for at, state in enumerate(states)] for each in inner
    ]
    found = [
        _called(function, each, given)
        for function, each, given in zip((condition, body), inner, own, strict=True)
    ]
    _require_alike("while_loop", states, found[1])
    outer: dict[int, graph_values.Value] = {}
    for each, results in zip(inner, found, strict=True):
        for result in results:
            each.named(result)
        outer |= {key: pair[0] for key, pair in each.captured.items()}
    test, turn = ([each.local(value) for value in outer.values()] for each in inner)
    attributes = {
        "condition": inner[0].function("goes_on", [*own[0], *test], found[0]),
        "body": inner[1].function("round", [*own[1], *turn], [*found[1], *turn]),
        "max_iterations": max_iterations,
    }
    given = [*states, *outer.values()]
    results = scope.controlled("while", given, attributes, [each.spec for each in given])
    return _given(results[: len(states)])


def _called(
    function: Callable[..., Any], scope: Scope, inputs: Sequence[graph_values.Value] = ()
) -> list[graph_values.Value]:
    """Return the results of a function in a separate graph."""
    with called(scope):
        found = function(*map(Value, inputs))
        results = found if isinstance(found, list | tuple) else [found]
        return [scope.local(graph_value(each)) for each in results]


def _given(results: Sequence[graph_values.Value]) -> Any:
    return Value(results[0]) if len(results) == 1 else tuple(map(Value, results))


def _require_alike(
    what: str, wanted: Sequence[graph_values.Value], found: Sequence[graph_values.Value]
) -> None:
    both = [", ".join(str(each.spec) for each in each_of) for each_of in (wanted, found)]
    if both[0] != both[1]:
        raise InvalidArgument(
            f"{what} has functions that give {both[1] or 'nothing'}, must be {both[0]}",
            accepted=both[0],
        )
