"""What nodes cost: multiply-adds, or an operation per element, and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cowmlx.programs.control import scan_length
from cowmlx.programs.dimensions import Dim, count
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations import VIEWS, fourier, sorting
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.operations.rules import BITS
from cowmlx.programs.operations.scratch import scratch_of


@dataclass(frozen=True)
class Unrolled:
    """The nodes of a node or graph with calls and scans unrolled.

    Args:
        nodes: all. Of a ``while``, those of one round.
        depth: those that wait for each other.
    """

    nodes: int
    depth: int


ELEMENT_WORK = 16
"""Multiply-adds of a matrix product that take as long as an element that is read or written."""

_LOGARITHMIC = frozenset(row.name for row in (*sorting.ROWS, *fourier.ROWS))
"""Operations that touch each element about as often as a logarithm of their length."""
_TOUCHES = 16

_TURNING = frozenset(
    {"broadcast_arrays", "broadcast_to", "moveaxis", "slice", "split", "swapaxes", "transpose"}
)
"""Views whose elements lie in memory in another order, or with gaps."""
_FLATTENING = frozenset({"flatten", "reshape"})
"""Views that copy the elements of such a view."""


class Costs:
    """The costs of a program's nodes, computed once for each function.

    Args:
        library: the program.
        element: for how many multiply-adds each element counts that an operation without any reads
            or writes; None: one for each that it writes.
    """

    def __init__(self, library: Library, element: int | None = None) -> None:
        self._element = element
        self._functions = library.functions
        self._multiplications: dict[str, Dim] = {}
        self._unrolled: dict[str, Unrolled] = {}

    def multiplications(self, graph: Graph) -> Dim:
        """Return the multiply-adds of a graph's results; of a ``while``, of one round of it."""
        if graph.name not in self._multiplications:
            total: Dim = 0
            for node in graph.needed(graph.outputs):
                total = total + self.of_node(node, graph.specs)
            self._multiplications[graph.name] = total
        return self._multiplications[graph.name]

    def longest(self, graph: Graph) -> int:
        """Return the multiply-adds of a graph's most expensive node, among those of known sizes."""
        costs = [self.of_node(node, graph.specs) for node in graph.needed(graph.outputs)]
        return max((cost for cost in costs if isinstance(cost, int)), default=0)

    def of_node(self, node: Node, specs: Mapping[str, Spec]) -> Dim:
        """Return the multiply-adds of a node; of a ``cond``, those of both branches."""
        if isinstance(node.row, Operation):
            if node.row.multiplications is not None:
                inputs = [None if input_ is None else specs[input_] for input_ in node.inputs]
                return node.row.multiplications(inputs, node.attributes)
            return self._of_elements(node, specs)
        inner: Dim = 0
        for name in node.functions:
            inner = inner + self.multiplications(self._functions[name])
        return inner * _steps(node, specs)

    def _of_elements(self, node: Node, specs: Mapping[str, Spec]) -> Dim:
        total: Dim = 0
        if self._element is None:
            for name in node.outputs:
                total = total + count(specs[name].shape)
        elif node.op not in VIEWS:
            for input_ in (*node.inputs, *node.outputs):
                if input_ is not None:
                    total = total + count(specs[input_].shape) * self._element
            total = total * _touches(node, specs)
        return total

    def unrolled(self, graph: Graph) -> Unrolled:
        """Return how many nodes a graph of given dimensions stands for."""
        if graph.name not in self._unrolled:
            total = 0
            depths: dict[str, int] = {}
            for node in graph.needed(graph.outputs):
                unrolled_nodes = self.unrolled_node(node, graph.specs)
                total += unrolled_nodes.nodes
                before = max((depths.get(input_, 0) for input_ in node.inputs if input_), default=0)
                depths.update(dict.fromkeys(node.outputs, before + unrolled_nodes.depth))
            deepest = max((depths.get(name, 0) for name in graph.outputs), default=0)
            self._unrolled[graph.name] = Unrolled(total, deepest)
        return self._unrolled[graph.name]

    def unrolled_node(self, node: Node, specs: Mapping[str, Spec]) -> Unrolled:
        """Return how many nodes a node stands for."""
        inner = [self.unrolled(self._functions[name]) for name in node.functions]
        steps = steps_of(node, specs)
        nodes = sum(cost.nodes for cost in inner)
        depth = max((cost.depth for cost in inner), default=0)
        return Unrolled(1 + steps * nodes, 1 + steps * depth)


def _touches(node: Node, specs: Mapping[str, Spec]) -> Dim:
    """Return how often an operation touches each element, roughly."""
    if node.op in _LOGARITHMIC:
        return _TOUCHES
    if isinstance(node.row, Operation) and node.row.cpu_only:  # matrix decompositions
        sides = [specs[input_].shape[-1:] for input_ in node.inputs if input_ is not None]
        return max((side for shape in sides for side in shape if isinstance(side, int)), default=1)
    return 1


def steps_of(node: Node, specs: Mapping[str, Spec]) -> int:
    """Return how many steps a ``scan`` of known shapes has; 1 for other nodes."""
    steps = _steps(node, specs)
    assert isinstance(steps, int)
    return steps


def _steps(node: Node, specs: Mapping[str, Spec]) -> Dim:
    """Return how many steps a ``scan`` has; 1 for other nodes."""
    if node.op != "scan":
        return 1
    inputs = [specs[input_] for input_ in node.inputs if input_ is not None]
    return scan_length(inputs, node.attributes)


def bytes_of(spec: Spec) -> int:
    """Return the bytes of an array of known shape."""
    elements = count(spec.shape)
    assert isinstance(elements, int)
    return elements * BITS[spec.dtype] // 8


def made_by(op: str, specs: Iterable[Spec]) -> int:
    """Return the bytes that an operation's results take."""
    return 0 if op in VIEWS else sum(bytes_of(spec) for spec in specs)


class Needs:
    """The memory of a program for given dimensions, computed once for each graph.

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
            copies: how many rows a vectorized program computes at once.
        """
        main = self._library.main
        _, turned = _views(main.needed(main.outputs))
        copied = sum(bytes_of(main.specs[name]) for name in main.outputs if name in turned)
        return copies * (levels * self.total(main) + self.peak(main) + copied)

    def peak(self, graph: Graph) -> int:
        """Return the bytes alive at once, if each result is freed after its last reader.

        Loops count as one round.
        """
        if graph.name not in self._peaks:
            self._peaks[graph.name] = self._peak(graph)
        return self._peaks[graph.name]

    def _peak(self, graph: Graph) -> int:
        nodes = graph.needed(graph.outputs)
        roots, _ = _views(nodes)
        last: dict[str, int] = {}
        for at, node in enumerate(nodes):
            for name in node.inputs:
                if name is not None:
                    last[roots.get(name, name)] = at
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
        """Return the bytes of all results, with calls and scans unrolled, ``while`` as a round."""
        if graph.name not in self._totals:
            needed = 0
            nodes = graph.needed(graph.outputs)
            roots, _ = _views(nodes)
            for node in nodes:
                made = [graph.specs[name] for name in node.outputs if name not in roots]
                needed += sum(map(bytes_of, made)) + _on_its_way(graph, node)
                if not isinstance(node.row, Operation):
                    inner = (self.total(self._library.functions[name]) for name in node.functions)
                    needed += steps_of(node, graph.specs) * sum(inner)
            self._totals[graph.name] = needed
        return self._totals[graph.name]


def _views(nodes: Iterable[Node]) -> tuple[dict[str, str], set[str]]:
    """Return the results that lie in the memory of other values.

    Returns:
        whose memory each lies in, and those whose elements are not row-major there.
    """
    roots: dict[str, str] = {}
    turned: set[str] = set()
    for node in nodes:
        first = node.inputs[0] if node.inputs else None
        if node.op not in VIEWS or first is None:
            continue
        is_turned = first in turned
        if is_turned and node.op in _FLATTENING:
            continue
        roots.update(dict.fromkeys(node.outputs, roots.get(first, first)))
        if is_turned or node.op in _TURNING:
            turned.update(node.outputs)
    return roots, turned


def _on_its_way(graph: Graph, node: Node) -> int:
    """Return the bytes that a node takes beside its inputs and results."""
    if not isinstance(node.row, Operation):
        return 0
    inputs = [None if name is None else graph.specs[name] for name in node.inputs]
    results = [graph.specs[name] for name in node.outputs]
    return scratch_of(node.op, node.row.arranged(inputs), node.attributes, results)
