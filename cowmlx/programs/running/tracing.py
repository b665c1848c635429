"""Computes graphs lazily, also while mlx traces; loops are unrolled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import mlx.core as mx

from cowmlx.errors import CowMlxError
from cowmlx.programs.bounds import MAX_TRACED_DEPTH, MAX_TRACED_NODES
from cowmlx.programs.failure import ProgramError, placed
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations.indices import Check
from cowmlx.programs.operations.row import Attributes, Operation, Spec
from cowmlx.programs.operations.rules import (
    FLOATS,
    described,
    is_as_declared,
    mlx_dtype,
    name_of,
)
from cowmlx.programs.operations.vectorized import checks_of_rows, results_of_rows
from cowmlx.programs.running import flags as flagging
from cowmlx.programs.running.flags import Flags, Note
from cowmlx.programs.running.gradients import gated, unstacked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


Path = tuple[str | int, ...]
"""The place of control flow: names of nodes, and in loops the number of the round."""
Decisions = Mapping[Path, int]
"""The predicate of each ``cond``, the number of rounds of each ``while``."""


INEXACT = (*FLOATS, "complex64")


class Tracer:
    """Computes graphs lazily.

    Args:
        library: for given dimensions.
        decisions: of control flow; None: both branches of a ``cond`` are computed, and each element
            is chosen of one.
        finite: whether numbers that are not finite are flagged.
        depth: how many nodes may wait for each other.
        marker: an array that has rows while mlx's vmap traces; else None.
        rounds: how often a ``while`` runs where rows end in different rounds; None elsewhere.

    Attributes:
        flags: to be read once the values are computed.
    """

    def __init__(
        self,
        library: Library,
        decisions: Decisions | None = None,
        finite: bool = False,
        depth: int = MAX_TRACED_DEPTH,
        marker: mx.array | None = None,
        rounds: Decisions | None = None,
    ) -> None:
        self._rounds = rounds
        self.flags: Flags = {}
        self._library = library
        self._decisions = decisions
        self._finite = finite
        self._most = depth
        self.marker = marker
        self._count = 0

    def results(
        self, graph: Graph, arrays: Sequence[mx.array], wanted: Sequence[str]
    ) -> list[mx.array]:
        """Return some values of a graph.

        Args:
            graph: the graph.
            arrays: its inputs.
            wanted: the names of the values.
        """
        names = [declaration.name for declaration in graph.declared]
        scope = Scope(self, graph, dict(zip(names, arrays, strict=True)), (), None)
        return scope.results(graph.needed(wanted), wanted)

    def nodes(
        self,
        graph: Graph,
        nodes: Sequence[Node],
        values: dict[str, mx.array],
        wanted: Sequence[str],
        guard: mx.array | None = None,
    ) -> list[mx.array]:
        """Return the results of some nodes for the values that they read."""
        return Scope(self, graph, values, (), guard).results(nodes, wanted)

    # For scopes.

    def function(self, name: str) -> Graph:
        """Return a function."""
        return self._library.functions[name]

    def decision(self, path: Path) -> int | None:
        """Return the decision of control flow; None to compute both branches."""
        return None if self._decisions is None else self._decisions[path]

    def rounds(self, path: Path) -> int:
        """Return how often a ``while`` runs at most, of all rows."""
        assert self._rounds is not None
        return self._rounds[path]

    @property
    def finite(self) -> bool:
        """Whether numbers that are not finite are flagged."""
        return self._finite

    def counted(self, node: Node, function: str, depth: int) -> None:
        """Count a node.

        Raises:
            ProgramError: there are too many, or too many in a row.
        """
        self._count += 1
        for number, most, what in (
            (self._count, MAX_TRACED_NODES, "nodes"),
            (depth, self._most, "nodes that wait for each other"),
        ):
            if number > most:
                error = ProgramError(
                    "limit_exceeded",
                    f"with calls and loops unrolled there are more than {most} {what}; loops of "
                    "programs that are not derived are not unrolled",
                    limit=most,
                )
                raise placed(error, node.name, node.op, function)


class Scope:
    """The values of a graph, or of one call of a function.

    Args:
        tracer: the tracer.
        graph: the graph.
        values: the known values, by name.
        path: the place of the call.
        guard: a bool () that is false where the values are discarded; None: nowhere.
        depths: how many nodes each value waits for; 0 if it is missing.
    """

    def __init__(
        self,
        tracer: Tracer,
        graph: Graph,
        values: dict[str, mx.array],
        path: Path,
        guard: mx.array | None,
        depths: dict[str, int] | None = None,
    ) -> None:
        self._tracer = tracer
        self._graph = graph
        self._values = values
        self._path = path
        self._guard = guard
        self._depths = depths or {}
        self._sound: dict[str, mx.array] = {}

    def results(self, nodes: Sequence[Node], wanted: Sequence[str]) -> list[mx.array]:
        """Compute nodes and return some values."""
        for node in nodes:
            self._compute(node)
        return [self._value(name) for name in wanted]

    def depth(self, names: Sequence[str | None]) -> int:
        """Return how many nodes values wait for."""
        return max((self._depths.get(name, 0) for name in names if name), default=0)

    def _value(self, name: str) -> mx.array:
        value = self._values.get(name)
        return self._graph.constants[name].array if value is None else value

    def _compute(self, node: Node) -> None:
        depth = self.depth(node.inputs) + 1
        self._tracer.counted(node, self._graph.name, depth)
        arrays = [None if input_ is None else self._value(input_) for input_ in node.inputs]
        if isinstance(node.row, Operation):
            computed = self._operation(node, node.row, arrays)
        else:
            given = [operand for operand in arrays if operand is not None]
            computed, depth = self._CONTROL[node.op](self, node, given, depth)
        for name, array in zip(node.outputs, computed, strict=True):
            self._values[name] = array
            self._depths[name] = depth

    def _operation(
        self, node: Node, row: Operation, arrays: list[mx.array | None]
    ) -> list[mx.array]:
        arrays = [laid_out(operand) for operand in arrays]
        specs = [self._graph.specs[name] for name in node.outputs]
        marker = self._tracer.marker
        results = compute(row, arrays, node.attributes, specs, marker)
        detached = [_without_slope(result) for result in results]
        for name, array in zip(node.outputs, detached, strict=True):
            _require_inferred(node, self._graph, self._graph.specs[name], array)
        for number, check in enumerate(checks_of(row, arrays, node.attributes, marker)):
            note = flagging.of_check(node, self._graph.name, number, check)
            flagging.add(self._tracer.flags, note, check.found, self._guard)
        if self._tracer.finite:
            self._flag_finite(node, arrays, detached)
        return detached

    def _flag_finite(
        self, node: Node, arrays: list[mx.array | None], found: list[mx.array]
    ) -> None:
        """Flag a node whose results are not finite though its inputs are."""
        if _asks_for_infinity(node.attributes):
            return
        pairs = zip(node.inputs, arrays, strict=True)
        before = [
            self._is_sound(name, array) for name, array in pairs if name and array is not None
        ]
        after = [
            self._is_sound(name, array) for name, array in zip(node.outputs, found, strict=True)
        ]
        if all(value is None for value in after):
            return
        # Not with | and &: mlx's vmap loses rows where the first of two is the same for all.
        bad = mx.array(False)
        for sound in after:
            bad = bad if sound is None else mx.logical_or(bad, mx.logical_not(sound))
        for sound in before:
            bad = bad if sound is None else mx.logical_and(bad, sound)
        note = Note(node.name, node.op, self._graph.name)
        flagging.add(self._tracer.flags, note, bad, self._guard)

    def _is_sound(self, name: str, array: mx.array) -> mx.array | None:
        """Return a bool (): whether a value is finite; None if it always is."""
        if name_of(array.dtype) not in INEXACT or not array.size:
            return None
        if name not in self._sound:
            self._sound[name] = mx.all(mx.isfinite(mx.stop_gradient(array)))
        return self._sound[name]

    def _run(
        self,
        function: str,
        arrays: Sequence[mx.array],
        depths: Sequence[int],
        path: Path,
        guard: mx.array | None,
    ) -> tuple[list[mx.array], list[int]]:
        graph = self._tracer.function(function)
        names = [declaration.name for declaration in graph.declared]
        scope = Scope(
            self._tracer,
            graph,
            dict(zip(names, arrays, strict=True)),
            path,
            guard,
            dict(zip(names, depths, strict=True)),
        )
        results = scope.results(graph.needed(graph.outputs), graph.outputs)
        return results, [scope.depth([name]) for name in graph.outputs]

    def _call(self, node: Node, arrays: list[mx.array], depth: int) -> tuple[list[mx.array], int]:
        path = (*self._path, node.name)
        depths = [depth] * len(arrays)
        results, deep = self._run(node.attributes["function"], arrays, depths, path, self._guard)
        return results, max(deep)

    def _cond(self, node: Node, arrays: list[mx.array], depth: int) -> tuple[list[mx.array], int]:
        predicate, *given = arrays
        path = (*self._path, node.name)
        depths = [depth] * len(given)
        names = node.attributes["then"], node.attributes["else"]
        taken = self._tracer.decision(path)
        if taken is not None:
            results, deep = self._run(names[not taken], given, depths, path, self._guard)
            return results, max(deep)
        branches = []
        deepest = 0
        for name, holds in zip(names, (predicate, mx.logical_not(predicate)), strict=True):
            guard = holds if self._guard is None else mx.logical_and(self._guard, holds)
            entered = [
                gated(array, holds) if name_of(array.dtype) in INEXACT else array for array in given
            ]
            results, deep = self._run(name, entered, depths, (*path, name), guard)
            branches.append(results)
            deepest = max(deepest, *deep)
        pairs = zip(*branches, strict=True)
        return [mx.where(predicate, one, other) for one, other in pairs], deepest + 1

    def _while(self, node: Node, arrays: list[mx.array], depth: int) -> tuple[list[mx.array], int]:
        path = (*self._path, node.name)
        rounds = self._tracer.decision(path)
        depths = [depth] * len(arrays)
        if rounds is None:
            return self._while_of_rows(node, arrays, depths, path)
        for number in range(rounds):
            arrays, depths = self._run(
                node.attributes["body"], arrays, depths, (*path, number), self._guard
            )
        return arrays, max(depths)

    def _while_of_rows(
        self, node: Node, arrays: list[mx.array], depths: list[int], path: Path
    ) -> tuple[list[mx.array], int]:
        """Compute the rounds of the row with most; a row keeps its state where it has ended."""
        names = node.attributes["condition"], node.attributes["body"]
        active = self._guard
        for number in range(self._tracer.rounds(path)):
            place = (*path, "condition", number)
            (predicate,), deep = self._run(names[0], arrays, depths, place, active)
            active = predicate if active is None else mx.logical_and(active, predicate)
            entered = [
                gated(array, active) if name_of(array.dtype) in INEXACT else array
                for array in arrays
            ]
            results, depths = self._run(names[1], entered, depths, (*path, number), active)
            pairs = zip(results, arrays, strict=True)
            arrays = [mx.where(active, new, old) for new, old in pairs]
            depths = [max(each, *deep) + 1 for each in depths]
        return arrays, max(depths)

    def _scan(self, node: Node, arrays: list[mx.array], depth: int) -> tuple[list[mx.array], int]:
        attributes = node.attributes
        carries, sequences = attributes["carries"], attributes["sequences"]
        carried, scanned = arrays[:carries], arrays[carries : carries + sequences]
        rest = arrays[carries + sequences :]
        path = (*self._path, node.name)
        depths = [depth] * carries
        length = scanned[0].shape[0]
        steps = list(zip(*(unstacked(scan) for scan in scanned), strict=True)) if length else []
        rows: list[list[mx.array]] = []
        deepest = depth
        for number in range(length):
            at = length - 1 - number if attributes["reverse"] else number
            elements = steps[at]
            results, deep = self._run(
                attributes["body"],
                [*carried, *elements, *rest],
                [*depths, *[depth] * (len(elements) + len(rest))],
                (*path, number),
                self._guard,
            )
            carried, depths = results[:carries], deep[:carries]
            deepest = max(deepest, *deep)
            rows.append(results[carries:])
        specs = [self._graph.specs[name] for name in node.outputs[carries:]]
        return [*carried, *stacked(rows, specs, attributes["reverse"])], deepest + 1

    _CONTROL: ClassVar = {"call": _call, "cond": _cond, "while": _while, "scan": _scan}


def stacked(rows: list[list[mx.array]], specs: Sequence[Spec], backwards: bool) -> list[mx.array]:
    """Stack the results of a scan's steps beside carries along axis 0.

    Args:
        rows: the results of each step.
        specs: of the results, in numbers.
        backwards: whether the first step was that of the last element.
    """
    if not rows:
        return [zeros(spec) for spec in specs]
    order = rows[::-1] if backwards else rows
    return [mx.stack(list(column)) for column in zip(*order, strict=True)]


def _without_slope(array: mx.array) -> mx.array:
    """Stop gradients through an array of integers or bools.

    mlx would ask for the gradient of indices that are computed from floats, and has none.
    """
    if name_of(array.dtype) in INEXACT:
        return array
    return mx.stop_gradient(array)


def _asks_for_infinity(attributes: Attributes) -> bool:
    """Whether attributes ask for numbers that are not finite."""
    return any(
        isinstance(attribute, float) and not math.isfinite(attribute)
        for attribute in attributes.values()
    )


def _require_inferred(node: Node, graph: Graph, spec: Spec, array: mx.array) -> None:
    """Check that mlx computes what the table's rules say.

    Raises:
        CowMlxError: it does not, which is a fault of the table.
    """
    if not is_as_declared(array, spec):
        error = CowMlxError(f"mlx gives {described(array)}, the table says {spec}")
        raise placed(error, node.name, node.op, graph.name)


def compute(
    row: Operation,
    arrays: Sequence[mx.array | None],
    attributes: Attributes,
    specs: Sequence[Spec],
    marker: mx.array | None = None,
) -> list[mx.array]:
    """Return an operation's results, lazily.

    Args:
        row: the operation.
        arrays: its inputs, as :func:`laid_out` returns them.
        attributes: its attributes.
        specs: of the results, whose shapes are numbers.
        marker: an array that has rows while mlx's vmap traces; else None.
    """
    if all(0 in spec.shape for spec in specs):
        return [zeros(spec) for spec in specs]
    if marker is not None and row.stacks is not None:
        return results_of_rows(row, list(arrays), attributes, specs, marker)
    return row.compute(list(arrays), attributes)


def checks_of(
    row: Operation,
    arrays: Sequence[mx.array | None],
    attributes: Attributes,
    marker: mx.array | None,
) -> list[Check]:
    """Return what has to be looked at after a run; arguments are those of :func:`compute`."""
    if row.checks is None:
        return []
    if marker is not None and row.stacks is not None and row.cpu_only:
        return checks_of_rows(row, list(arrays), attributes, marker)
    return row.checks(list(arrays), attributes)


def laid_out(array: mx.array | None) -> mx.array | None:
    """Return an array without elements in row-major order, and every other array itself.

    mlx 0.32.4 reduces a transposed array without elements to what lies in memory beside it, or
    never ends.
    """
    if array is None or array.size:
        return array
    return mx.zeros(array.shape, array.dtype)


def zeros(spec: Spec) -> mx.array:
    """Return zeros of a shape of numbers."""
    shape: Any = spec.shape
    return mx.zeros(shape, mlx_dtype(spec.dtype))
