"""How much memory a run takes beside its inputs, as far as that is known before it."""

from __future__ import annotations

from collections.abc import Iterable

from cowmlx.programs.dimensions import count
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations import VIEWS
from cowmlx.programs.operations.promotion import BITS
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.operations.scratch import scratch_of
from cowmlx.programs.running.cost import steps_of


def bytes_of(spec: Spec) -> int:
    """Return the bytes of an array of known shape."""
    elements = count(spec.shape)
    assert isinstance(elements, int)
    return elements * BITS[spec.dtype] // 8


def made_by(op: str, specs: Iterable[Spec]) -> int:
    """Return the bytes that an operation's results take."""
    return 0 if op in VIEWS else sum(bytes_of(spec) for spec in specs)


class Needs:
    """What the graphs of a program for given dimensions need; each is looked at once.

    Args:
        library: the program.
    """

    def __init__(self, library: Library) -> None:
        self._library = library
        self._peaks: dict[str, int] = {}
        self._totals: dict[str, int] = {}

    def of_run(self, levels: int, copies: int) -> int:
        """Return the bytes that a run takes at once.

        Args:
            levels: how often the program is differentiated. What is computed for a gradient has to
                stay until that is there.
            copies: how many rows a vectorised program computes at once.
        """
        main = self._library.main
        return copies * (levels * self.total(main) + self.peak(main))

    def peak(self, graph: Graph) -> int:
        """Return the bytes alive at once, if each result goes after its last reader.

        Of a loop that is what one round of it needs.
        """
        if graph.name not in self._peaks:
            self._peaks[graph.name] = self._peak(graph)
        return self._peaks[graph.name]

    def _peak(self, graph: Graph) -> int:
        nodes = graph.needed(graph.outputs)
        roots: dict[str, str] = {}
        last: dict[str, int] = {}
        for at, node in enumerate(nodes):
            for name in node.inputs:
                if name is not None:
                    last[roots.get(name, name)] = at
            if node.op in VIEWS and node.inputs[0] is not None:
                root = roots.get(node.inputs[0], node.inputs[0])
                roots.update(dict.fromkeys(node.outputs, root))
        last.update((roots.get(name, name), len(nodes)) for name in graph.outputs)
        ending: dict[int, int] = {}
        alive = peak = 0
        for at, node in enumerate(nodes):
            for name in node.outputs:
                if name in roots:
                    continue
                size = bytes_of(graph.specs[name])
                alive += size
                end = last.get(name, at)
                ending[end] = ending.get(end, 0) + size
            peak = max(peak, alive + self._inside(node) + _on_its_way(graph, node))
            alive -= ending.get(at, 0)
        return peak

    def _inside(self, node: Node) -> int:
        return max((self.peak(self._library.functions[name]) for name in node.functions), default=0)

    def total(self, graph: Graph) -> int:
        """Return the bytes of all that is made, with calls and scans unrolled.

        Of a ``while`` that is what one round makes.
        """
        if graph.name not in self._totals:
            found = 0
            for node in graph.needed(graph.outputs):
                found += made_by(node.op, [graph.specs[name] for name in node.outputs])
                found += _on_its_way(graph, node)
                if not isinstance(node.row, Operation):
                    inner = (self.total(self._library.functions[name]) for name in node.functions)
                    found += steps_of(node, graph.specs) * sum(inner)
            self._totals[graph.name] = found
        return self._totals[graph.name]


def _on_its_way(graph: Graph, node: Node) -> int:
    """Return the bytes that a node takes beside its inputs and results."""
    if not isinstance(node.row, Operation):
        return 0
    inputs = [None if name is None else graph.specs[name] for name in node.inputs]
    results = [graph.specs[name] for name in node.outputs]
    return scratch_of(node.op, node.row.arranged(inputs), node.attributes, results)
