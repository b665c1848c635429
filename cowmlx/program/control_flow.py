"""Control flow of functions that are traced: their parts become functions of the program."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cowmlx.errors import InvalidArgument
from cowmlx.program.values import Value, called, graph_of_call, graph_value
from cowmlx.programs.bounds import MAX_ITERATIONS
from cowmlx.programs.importing import values as graph_values
from cowmlx.programs.importing.control_graphs import Part, branched, looped, stepped
from cowmlx.programs.importing.scope import Scope
from cowmlx.programs.operations.row import Spec


def cond(predicate: Any, then: Callable[..., Any], otherwise: Callable[..., Any]) -> Any:
    """Call one of two functions. They have no arguments, and may read values around them.

    Args:
        predicate: a bool without dimensions.
        then: the function for true.
        otherwise: the function for false. Its results have the same dtypes and shapes.

    Returns:
        the result of the function, or a tuple of its results.

    Raises:
        InvalidArgument: the functions give results of different dtypes or shapes.
    """
    branches = [_part(function) for function in (then, otherwise)]
    _require_alike("cond", branches[0].results, branches[1].results)
    return _given(branched(graph_of_call(), graph_value(predicate), *branches))


def scan(body: Callable[..., Any], carries: Sequence[Any], sequences: Sequence[Any]) -> Any:
    """Call a function for each element of sequences, along their first axis.

    Args:
        body: takes the carries, then an element of each sequence. It returns the next carries, then
            results of the step.
        carries: values that a step hands to the next one. Their dtypes and shapes stay.
        sequences: values of one length; one at least.

    Returns:
        the last carries, then the results of all steps, stacked along a new first axis.

    Raises:
        InvalidArgument: there is no sequence, or one without an axis; or the body changes the dtype
            or the shape of a carry.
    """
    states, rows = _values(carries), _values(sequences)
    if not rows or not all(row.shape for row in rows):
        raise InvalidArgument("scan needs one sequence at least, each with an axis for the steps")
    elements = [Spec(row.shape[1:], row.dtype) for row in rows]
    part = _part(body, [*(state.spec for state in states), *elements])
    _require_alike("scan", states, part.results[: len(states)])
    return _given(stepped(graph_of_call(), states, rows, part))


def while_loop(
    condition: Callable[..., Any],
    body: Callable[..., Any],
    carries: Sequence[Any],
    max_iterations: int = MAX_ITERATIONS,
) -> Any:
    """Call a function with its own results while a condition holds.

    Args:
        condition: takes the carries, and returns a bool without dimensions.
        body: takes the carries, and returns the next ones, of the same dtypes and shapes.
        carries: the first ones; one at least.
        max_iterations: the most rounds. A run that needs more fails.

    Returns:
        the last carry, or a tuple of them.

    Raises:
        InvalidArgument: there is no carry, or the body changes the dtype or the shape of one.
    """
    states = _values(carries)
    if not states:
        raise InvalidArgument("while_loop needs one carry at least")
    specs = [state.spec for state in states]
    test, turn = _part(condition, specs), _part(body, specs)
    _require_alike("while_loop", states, turn.results)
    return _given(looped(graph_of_call(), states, test, turn, max_iterations))


def _values(given: Any) -> list[graph_values.Value]:
    return [graph_value(each) for each in ([given] if isinstance(given, Value) else given)]


def _part(function: Callable[..., Any], specs: Sequence[Spec] = ()) -> Part:
    """Call a function in a separate graph, whose inputs have these specs."""
    outer = graph_of_call()
    scope = Scope(outer.book, outer)
    inputs = [scope.input(f"input{at}", spec) for at, spec in enumerate(specs)]
    with called(scope):
        found = function(*map(Value, inputs))
        results = found if isinstance(found, list | tuple) else [found]
        if not results:
            raise InvalidArgument(
                "a function of control flow returns nothing, must return one value at least"
            )
        return Part(scope, inputs, [scope.local(graph_value(each)) for each in results])


def _given(results: Sequence[graph_values.Value]) -> Any:
    return Value(results[0]) if len(results) == 1 else tuple(map(Value, results))


def _require_alike(
    operation: str, wanted: Sequence[graph_values.Value], found: Sequence[graph_values.Value]
) -> None:
    specs, others = ([str(value.spec) for value in values] for values in (wanted, found))
    if specs != others:
        raise InvalidArgument(
            f"{operation}: a function returns {', '.join(others) or 'nothing'}, must return "
            f"{', '.join(specs) or 'nothing'}",
            accepted=", ".join(specs),
        )
