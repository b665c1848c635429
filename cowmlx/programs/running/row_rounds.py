"""Runs vectorized programs whose loops end when values say so: all rows in the same rounds.

A value has rows if it has one axis more than its spec says, the first. Others are the same for all
rows, and are computed once.
"""

from __future__ import annotations

from collections.abc import Sequence

import mlx.core as mx

from cowmlx.programs.graph import Graph, Node
from cowmlx.programs.operations.row import Spec
from cowmlx.programs.running.plan import Segment
from cowmlx.programs.running.rounds import Rounds, Steps, Units
from cowmlx.programs.running.rows import has_rows
from cowmlx.programs.running.tracing import Path, stacked


class RowRounds(Rounds):
    """One run of a vectorized program through its stages.

    Of a ``cond`` both branches are computed if rows take different ones, and of a ``while`` as many
    rounds as the row with most needs; results are chosen row by row.

    Args:
        units: the compiled units.
        count: the rows, 1 or more.
        values: whether to evaluate results; if not, only predicates are.
    """

    def __init__(self, units: Units, count: int, values: bool = True) -> None:
        super().__init__(units, values)
        self._count = count
        self._guard: mx.array | None = None  # bool (rows): those whose values are not discarded

    def results(self, wanted: Sequence[str], found: Sequence[mx.array]) -> list[mx.array]:
        """Return values of the program with rows, also those that are the same for all."""
        specs = [self._units.library.main.specs[name] for name in wanted]
        return [self._with_rows(spec, array) for spec, array in zip(specs, found, strict=True)]

    def _with_rows(self, spec: Spec, array: mx.array) -> mx.array:
        if has_rows(spec, array):
            return array
        return mx.broadcast_to(array, (self._count, *array.shape))

    def _segment(
        self, graph: Graph, segment: Segment, values: dict[str, mx.array]
    ) -> list[mx.array]:
        reads = [values[name] for name in segment.reads]
        pairs = zip(segment.reads, reads, strict=True)
        rows = tuple(has_rows(graph.specs[name], array) for name, array in pairs)
        if not any(rows):
            return super()._segment(graph, segment, values)
        guards = [] if self._guard is None else [self._guard]
        unit = self._units.unit_of_rows(graph, segment, rows, bool(guards))
        results, flags = unit([*reads, *guards])
        self._flags += zip(unit.notes, flags, strict=True)
        self._work += segment.work * self._count
        return results

    def _guarded(
        self, name: str, arrays: list[mx.array], path: Path, guard: mx.array | None
    ) -> Steps:
        outer, self._guard = self._guard, guard
        try:
            return (yield from self._function(name, arrays, path))
        finally:
            self._guard = outer

    def _cond(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        path = (*path, node.name)
        predicate = arrays.pop(0)
        names = node.attributes["then"], node.attributes["else"]
        if not predicate.ndim:
            yield from self.settle([predicate])
            name = names[not predicate.item()]
            return (yield from self._function(name, arrays, (*path, name)))
        holds = [self._and(predicate), self._and(mx.logical_not(predicate))]
        yield from self.settle([predicate, *holds])
        branches = []
        for name, taken in zip(names, holds, strict=True):
            if mx.any(taken).item():
                given = list(arrays)
                branches.append((yield from self._guarded(name, given, (*path, name), taken)))
        if len(branches) == 1:
            return branches[0]
        specs = [graph.specs[name] for name in node.outputs]
        return [
            self._chosen(predicate, spec, one, other)
            for spec, one, other in zip(specs, *branches, strict=True)
        ]

    def _while(self, graph: Graph, node: Node, arrays: list[mx.array], path: Path) -> Steps:
        path = (*path, node.name)
        attributes = node.attributes
        specs = [graph.specs[name] for name in node.outputs]
        active = self._guard
        rounds = 0
        while True:
            (predicate,) = yield from self._guarded(
                attributes["condition"], list(arrays), (*path, "condition", rounds), active
            )
            runs = predicate if active is None else mx.logical_and(active, predicate)
            # The state too: a graph over all rounds would grow without bound.
            yield from self.settle([runs, *arrays])
            if not mx.any(runs).item():
                break
            self.require_round(graph, node, rounds)
            active = runs if runs.ndim else None
            found = yield from self._guarded(
                attributes["body"], list(arrays), (*path, rounds), active
            )
            arrays = (
                found
                if active is None
                else [
                    self._chosen(active, spec, new, old)
                    for spec, new, old in zip(specs, found, arrays, strict=True)
                ]
            )
            rounds += 1
        self.note(path, rounds)
        return arrays

    def _elements(
        self, graph: Graph, node: Node, scanned: Sequence[mx.array], at: int
    ) -> list[mx.array]:
        first = node.attributes["carries"]
        names = [name for name in node.inputs if name is not None][first:]
        return [
            scan[:, at] if has_rows(graph.specs[name], scan) else scan[at]
            for name, scan in zip(names, scanned, strict=False)
        ]

    def _stacked(
        self, specs: Sequence[Spec], rows: list[list[mx.array]], backwards: bool
    ) -> list[mx.array]:
        """Stack the results of a scan's steps; of each, some steps may have rows."""
        bodies = [Spec(spec.shape[1:], spec.dtype) for spec in specs]
        own = [any(has_rows(body, row[at]) for row in rows) for at, body in enumerate(bodies)]
        alike = [
            [
                self._with_rows(body, array) if varies else array
                for body, array, varies in zip(bodies, row, own, strict=True)
            ]
            for row in rows
        ]
        found = stacked(alike, specs, backwards)
        return [
            mx.moveaxis(array, 0, 1) if varies else array
            for array, varies in zip(found, own, strict=True)
        ]

    def _and(self, predicate: mx.array) -> mx.array:
        return predicate if self._guard is None else mx.logical_and(self._guard, predicate)

    def _chosen(self, predicate: mx.array, spec: Spec, one: mx.array, other: mx.array) -> mx.array:
        rows = predicate.reshape(-1, *[1] * len(spec.shape))
        return mx.where(rows, one, other)
