"""Cuts a graph into units that are computed at once, and control flow between them.

A unit is a turn of the scheduler, so it is bounded in nodes and in work. Control flow whose
predicate has to be known, and loops that are long, run in separate rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations.row import Operation
from cowmlx.programs.running.cost import ELEMENT_WORK, Costs

MAX_UNIT_NODES = 1_000
"""Nodes that are computed in one turn."""
MAX_UNIT_WORK = 10**9
"""Multiply-adds that are computed in one turn: some tens of milliseconds on a CPU."""
SHORT_WORK = 10**8
"""Multiply-adds of a few milliseconds: the dispatch thread waits for so much work."""
SHORT_KERNEL_WORK = 4 * SHORT_WORK
"""The same for runs of kernels alone, which the dispatch thread computes itself."""
MAX_INLINED = 256
"""Nodes of a call or a scan that is unrolled where it stands; longer ones run in rounds."""


@dataclass(frozen=True)
class Segment:
    """Nodes that are computed at once.

    Args:
        nodes: in order.
        reads: the earlier values that they need.
        gives: the values that later nodes need.
        work: their cost in multiply-adds.
    """

    nodes: tuple[Node, ...]
    reads: tuple[str, ...]
    gives: tuple[str, ...]
    work: int


@dataclass(frozen=True)
class Stage:
    """A segment, or a node of control flow that runs in rounds.

    Args:
        part: the segment or node.
        drops: values without a later reader.
    """

    part: Segment | Node
    drops: tuple[str, ...]


class Planner:
    """Cuts the graphs of a program for given dimensions.

    Args:
        library: the program.
    """

    def __init__(self, library: Library) -> None:
        self.costs = Costs(library, ELEMENT_WORK)
        self._decided = library.users_of(("while", "cond"))

    def is_decided(self, graph: Graph) -> bool:
        """Whether a graph's control flow depends on values."""
        return graph.name in self._decided

    def plan(self, graph: Graph, wanted: Sequence[str]) -> tuple[Stage, ...]:
        """Return the stages that compute some values of a graph."""
        nodes = graph.needed(wanted)
        groups = self._groups(graph, nodes)
        users: dict[str, int] = {}
        for at, group in enumerate(groups):
            for node in group:
                users.update((name, at) for name in node.inputs if name is not None)
        users.update((name, len(groups)) for name in wanted)
        return tuple(
            Stage(self._part(graph, at, group, users), _drops(at, group, users))
            for at, group in enumerate(groups)
        )

    def _groups(self, graph: Graph, nodes: Iterable[Node]) -> list[list[Node]]:
        """Put nodes that can be computed together into groups; control flow stands alone."""
        levels: dict[str, int] = {}
        together: dict[int, list[Node]] = {}
        alone: dict[int, list[Node]] = {}
        for node in nodes:
            level = max((levels.get(name, 0) for name in node.inputs if name), default=0)
            rounds = self._runs_in_rounds(graph, node)
            (alone if rounds else together).setdefault(level, []).append(node)
            levels.update(dict.fromkeys(node.outputs, level + rounds))
        groups: list[list[Node]] = []
        for level in range(max((*together, *alone), default=-1) + 1):
            groups += self._cut(graph, together.get(level, []))
            groups += [[node] for node in alone.get(level, [])]
        return groups

    def _runs_in_rounds(self, graph: Graph, node: Node) -> bool:
        if isinstance(node.row, Operation):
            return False
        if node.op in ("while", "cond") or any(name in self._decided for name in node.functions):
            return True
        count = self.costs.unrolled_node(node, graph.specs).nodes
        return count > MAX_INLINED or self._work(graph, node) > MAX_UNIT_WORK

    def _cut(self, graph: Graph, nodes: list[Node]) -> list[list[Node]]:
        pieces: list[list[Node]] = []
        count = work = 0
        for node in nodes:
            cost = self._work(graph, node)
            number = self.costs.unrolled_node(node, graph.specs).nodes
            if not pieces or work + cost > MAX_UNIT_WORK or count + number > MAX_UNIT_NODES:
                pieces.append([])
                count = work = 0
            pieces[-1].append(node)
            count += number
            work += cost
        return pieces

    def _part(
        self, graph: Graph, at: int, group: list[Node], users: dict[str, int]
    ) -> Segment | Node:
        if len(group) == 1 and self._runs_in_rounds(graph, group[0]):
            return group[0]
        made = [name for node in group for name in node.outputs]
        read = dict.fromkeys(name for node in group for name in node.inputs if name is not None)
        reads = [name for name in read if name not in set(made) and name not in graph.constants]
        gives = [name for name in made if users.get(name, -1) > at]
        work = sum(self._work(graph, node) for node in group)
        return Segment(tuple(group), tuple(reads), tuple(gives), work)

    def _work(self, graph: Graph, node: Node) -> int:
        cost = self.costs.of_node(node, graph.specs)
        assert isinstance(cost, int)
        return cost


def _drops(at: int, group: list[Node], users: dict[str, int]) -> tuple[str, ...]:
    """Return the values that a group reads or makes, and that no later one reads."""
    touched = {name for node in group for name in (*node.inputs, *node.outputs)}
    return tuple(name for name in touched if name is not None and users.get(name, at) <= at)
