"""Runs programs whose control flow depends on values: in rounds, with turns of others between."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from itertools import chain
from time import perf_counter
from typing import Any

import mlx.core as mx

from cowmlx.programs.bounds import TURN
from cowmlx.programs.failure import ProgramError, placed
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running import flags as flagging
from cowmlx.programs.running.compiling import Unit
from cowmlx.programs.running.flags import Flags, Note
from cowmlx.programs.running.plan import (
    MAX_UNIT_NODES,
    MAX_UNIT_WORK,
    SHORT_WORK,
    Planner,
    Segment,
    Stage,
)
from cowmlx.programs.running.rows import rows_of
from cowmlx.programs.running.tracing import Path, Tracer, stacked

Computing = list[mx.array] | None
"""Arrays that have to be computed before the next step; others may have turns meanwhile."""
Steps = Generator[Computing, None, list[mx.array]]
"""Yields for turns of others; returns results that are not evaluated."""


class Units:
    """The compiled units of a program for given dimensions, kept for all its runs.

    Args:
        library: the program.
        finite: whether numbers that are not finite are flagged.
    """

    def __init__(self, library: Library, finite: bool) -> None:
        self.library = library
        self.planner = Planner(library)
        self._finite = finite
        # A kernel that mlx compiles for CUDA divides by the number of elements.
        self.compiles = not library.is_partly_empty()
        self._plans: dict[tuple[str, tuple[str, ...]], tuple[Stage, ...]] = {}
        self._units: dict[tuple[Any, ...], Unit] = {}

    def plan(self, graph: Graph, wanted: tuple[str, ...]) -> tuple[Stage, ...]:
        """Return the stages of a graph."""
        key = graph.name, wanted
        if key not in self._plans:
            self._plans[key] = self.planner.plan(graph, wanted)
        return self._plans[key]

    def unit(self, graph: Graph, segment: Segment) -> Unit:
        """Return a segment of a graph, compiled."""
        key = graph.name, segment.reads, segment.gives
        if key not in self._units:
            self._units[key] = Unit(self._traced(graph, segment), self.compiles)
        return self._units[key]

    def unit_of_rows(
        self, graph: Graph, segment: Segment, rows: tuple[bool, ...], guarded: bool
    ) -> Unit:
        """Return a segment of a graph for rows, compiled.

        Args:
            graph: the graph.
            segment: the segment.
            rows: which of the values that it reads have rows; one or more.
            guarded: whether it also reads a bool of each row, false where values are discarded.
        """
        key = graph.name, segment.reads, segment.gives, rows, guarded
        if key not in self._units:
            self._units[key] = Unit(self._traced_rows(graph, segment, rows, guarded))
        return self._units[key]

    def together(self, function: str) -> int:
        """Return how many steps of a scan are computed at once."""
        graph = self.library.functions[function]
        cost = self.planner.costs.multiplications(graph)
        nodes = self.planner.costs.unrolled(graph).nodes
        assert isinstance(cost, int)
        return max(1, min(MAX_UNIT_WORK // max(cost, 1), MAX_UNIT_NODES // max(nodes, 1)))

    def _traced(
        self, graph: Graph, segment: Segment
    ) -> Callable[[Sequence[mx.array]], tuple[list[mx.array], Flags]]:
        def traced(arrays: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
            tracer = Tracer(self.library, None, self._finite)
            values = dict(zip(segment.reads, arrays, strict=True))
            results = tracer.nodes(graph, segment.nodes, values, segment.gives)
            return results, tracer.flags

        return traced

    def _traced_rows(
        self, graph: Graph, segment: Segment, rows: Sequence[bool], guarded: bool
    ) -> Callable[[Sequence[mx.array]], tuple[list[mx.array], Flags]]:
        own = [at for at, varies in enumerate(rows) if varies]

        def traced(arrays: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
            def compute(mapped: Sequence[mx.array]) -> tuple[list[mx.array], Flags]:
                given = list(arrays[: len(rows)])
                for at, array in zip(own, mapped, strict=False):
                    given[at] = array
                guard = mapped[-1] if guarded else None
                tracer = Tracer(self.library, None, self._finite, marker=mapped[0])
                values = dict(zip(segment.reads, given, strict=True))
                results = tracer.nodes(graph, segment.nodes, values, segment.gives, guard)
                return results, tracer.flags

            varying = [*(arrays[at] for at in own), *arrays[len(rows) :]]
            return rows_of(compute, varying, segment.gives)

        return traced


class Rounds:
    """One run of a program through its stages.

    Args:
        units: the compiled units.
        values: whether to evaluate results; if not, only predicates are.

    Attributes:
        decisions: what control flow did, by where it is; kept unless results are evaluated.
    """

    def __init__(self, units: Units, values: bool = True) -> None:
        self.decisions: dict[Path, int] = {}
        self._units = units
        self._values = values
        self._flags: list[tuple[Note, mx.array]] = []
        self._began = perf_counter()
        self._work = 0  # that is not computed yet

    def graph(
        self, graph: Graph, arrays: list[mx.array], wanted: tuple[str, ...], path: Path = ()
    ) -> Steps:
        """Compute some values of a graph.

        Args:
            graph: the graph.
            arrays: its inputs; the list is emptied, so that they can be computed in place.
            wanted: the names of the values.
            path: where the call is.
        """
        names = [declaration.name for declaration in graph.declared]
        values = dict(zip(names, arrays, strict=True))
        arrays.clear()
        stages = self._units.plan(graph, wanted)
        for number, stage in enumerate(stages):
            if isinstance(stage.part, Segment):
                names = list(stage.part.gives)
                results = self._segment(graph, stage.part, values)
                cut = number + 1 < len(stages) and isinstance(stages[number + 1].part, Segment)
            else:
                node, names, cut = stage.part, list(stage.part.outputs), False
                given = [_value(graph, values, name) for name in node.inputs if name is not None]
                for name in stage.drops:
                    values.pop(name, None)
                results = yield from self._control(node.op)(graph, node, given, path)
            values.update(zip(names, results, strict=True))
            for name in stage.drops:
                values.pop(name, None)
            if (cut and self._values) or perf_counter() - self._began >= TURN:
                results = [values[name] for name in names if name in values]
                yield from self.settle(results)
            results = []
        return [_value(graph, values, name) for name in wanted]

    def _segment(
        self, graph: Graph, segment: Segment, values: dict[str, mx.array]
    ) -> list[mx.array]:
        unit = self._units.unit(graph, segment)
        results, flags = unit([values[name] for name in segment.reads])
        self._flags += zip(unit.notes, flags, strict=True)
        self._work += segment.work
        return results

    def settle(self, arrays: Sequence[mx.array]) -> Generator[Computing]:
        """Compute arrays, with turns of others meanwhile if it takes long.

        Raises:
            CowMlxError: a flag is set.
        """
        flags, self._flags = self._flags, []
        pending = [*arrays, *(flag for _, flag in flags)]
        if self._work > SHORT_WORK or perf_counter() - self._began >= TURN:
            yield pending
            self._began = perf_counter()
        self._work = 0
        mx.eval(pending)
        flagging.raise_first(flags)

    def _function(self, name: str, arrays: list[mx.array], path: Path) -> Steps:
        graph = self._units.library.functions[name]
        return (yield from self.graph(graph, arrays, graph.outputs, path))

    def _call(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        return (yield from self._function(node.attributes["function"], arrays, (*path, node.name)))

    def _cond(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        path = (*path, node.name)
        predicate = arrays.pop(0)
        yield from self.settle([predicate])
        taken = bool(predicate.item())
        self.note(path, taken)
        name = node.attributes["then" if taken else "else"]
        return (yield from self._function(name, arrays, path))

    def _while(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        path = (*path, node.name)
        attributes = node.attributes
        rounds = 0
        while True:
            (predicate,) = yield from self._function(
                attributes["condition"], list(arrays), (*path, "condition", rounds)
            )
            # The state too: a graph over all rounds would grow without bound.
            yield from self.settle([predicate, *arrays])
            if not predicate.item():
                break
            self.require_round(graph, node, rounds)
            arrays = yield from self._function(attributes["body"], arrays, (*path, rounds))
            rounds += 1
        self.note(path, rounds)
        return arrays

    def note(self, path: Path, decision: int) -> None:
        """Note what control flow did, for those who trace it again."""
        if not self._values:
            self.decisions[path] = decision

    @staticmethod
    def require_round(graph: Graph, node: Node, rounds: int) -> None:
        """Check that a loop may run once more.

        Raises:
            ProgramError: it has run as often as it may.
        """
        if rounds == node.attributes["max_iterations"]:
            error = ProgramError(
                "limit_exceeded",
                f"while: the condition is still true after max_iterations, which is {rounds}",
                limit=rounds,
            )
            raise placed(error, node.name, node.op, graph.name)

    def _scan(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        path = (*path, node.name)
        attributes = node.attributes
        carries, sequences = attributes["carries"], attributes["sequences"]
        names = [name for name in node.inputs if name is not None]
        carried, scanned = arrays[:carries], arrays[carries : carries + sequences]
        rest = arrays[carries + sequences :]
        arrays.clear()
        length = graph.specs[names[carries]].shape[0]
        assert isinstance(length, int)
        rows: list[list[mx.array]] = []
        settled = 0
        together = self._units.together(attributes["body"])
        for number in range(length):
            at = length - 1 - number if attributes["reverse"] else number
            elements = self._elements(graph, node, scanned, at)
            results = yield from self._function(
                attributes["body"], [*carried, *elements, *rest], (*path, number)
            )
            carried = results[:carries]
            rows.append(results[carries:])
            del results
            if len(rows) - settled == together or perf_counter() - self._began >= TURN:
                yield from self.settle([*carried, *chain(*rows[settled:])])
                settled = len(rows)
        specs = [graph.specs[name] for name in node.outputs[carries:]]
        return [*carried, *self._stacked(specs, rows, attributes["reverse"])]

    def _elements(
        self, graph: Graph, node: Node, scanned: Sequence[mx.array], at: int
    ) -> list[mx.array]:
        return [scan[at] for scan in scanned]

    def _stacked(
        self, specs: Sequence[Spec], rows: list[list[mx.array]], backwards: bool
    ) -> list[mx.array]:
        return stacked(rows, specs, backwards)

    def _control(self, op: str) -> Callable[[Graph, Node, list[mx.array], Path], Steps]:
        return {"call": self._call, "cond": self._cond, "while": self._while, "scan": self._scan}[
            op
        ]

    @property
    def flags(self) -> list[tuple[Note, mx.array]]:
        """What is still to be looked at."""
        return self._flags


def _value(graph: Graph, values: dict[str, mx.array], name: str) -> mx.array:
    value = values.get(name)
    return graph.constants[name].array if value is None else value
