"""What depends on which inputs, and through what: asked before a gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cowmlx.programs.bounds import Pace, Steps
from cowmlx.programs.failure import ProgramError
from cowmlx.programs.graph import Graph, Library, Node
from cowmlx.programs.operations.row import Operation, Spec
from cowmlx.programs.operations.rules import FLOATS

INEXACT = (*FLOATS, "complex64")
FLAT = (
    "floor",
    "ceil",
    "trunc",
    "round",
    "sign",
    "step",
    "floor_divide",
    "stop_gradient",
    "zeros_like",
    "ones_like",
    "full_like",
)
"""Operations on floats whose derivative is 0, or counts as that: nothing is lost in them."""
MAX_VISITS = 2_000_000
"""Nodes that are looked at; loops in loops are gone through until nothing changes."""


@dataclass(frozen=True)
class Reach:
    """On which inputs a value depends; inputs are bits of a number.

    Args:
        any: those on which it depends at all.
        smooth: those of which derivatives are known on all the way of floats.
        blocked: those that go through an operation on floats whose derivative mlx lacks.
    """

    any: int = 0
    smooth: int = 0
    blocked: int = 0

    def __or__(self, other: Reach) -> Reach:
        return Reach(self.any | other.any, self.smooth | other.smooth, self.blocked | other.blocked)


@dataclass
class Dependence:
    """Follows inputs through a program.

    Args:
        library: the program.
        inputs: the names of the inputs that are followed.

    Attributes:
        blocking: by input, the first node with its function that has no derivative for it.
    """

    library: Library
    inputs: Sequence[str]
    blocking: dict[int, tuple[Node, str]] = field(default_factory=dict)
    _visits: int = 0
    _pace: Pace = field(default_factory=Pace)
    _known: dict[tuple[str, tuple[Reach, ...]], list[Reach]] = field(default_factory=dict)

    def of(self, output: str) -> Steps[Reach]:
        """Return what a value of the program depends on, in steps."""
        given = {name: Reach(1 << at, 1 << at) for at, name in enumerate(self.inputs)}
        (reach,) = yield from self._graph(self.library.main, given, [output])
        return reach

    def _graph(
        self, graph: Graph, given: Mapping[str, Reach], wanted: Sequence[str]
    ) -> Steps[list[Reach]]:
        reach = dict(given)
        nodes = graph.needed(wanted)
        self._visits += len(nodes)
        if self._visits > MAX_VISITS:
            raise ProgramError(
                "limit_exceeded",
                "loops are nested too deeply to tell what depends on which inputs",
                function=graph.name or None,
                limit=MAX_VISITS,
            )
        for node in nodes:
            yield from self._pace.rest()
            inputs = [reach.get(name, Reach()) if name else Reach() for name in node.inputs]
            specs = [graph.specs[name] for name in node.outputs]
            if isinstance(node.row, Operation):
                reached = self._operation(graph, node, node.row, inputs, specs)
            else:
                reached = yield from self._control(node, inputs)
            reach.update(zip(node.outputs, reached, strict=True))
        return [reach.get(name, Reach()) for name in wanted]

    def _operation(
        self, graph: Graph, node: Node, row: Operation, inputs: list[Reach], specs: list[Spec]
    ) -> list[Reach]:
        places = [row.inputs[min(at, len(row.inputs) - 1)].name for at in range(len(inputs))]
        everything = Reach()
        blocked = 0
        for input_, name, place in zip(inputs, node.inputs, places, strict=True):
            smooth = input_.smooth if place in row.differentiable else 0
            everything = everything | Reach(input_.any, smooth, input_.blocked)
            is_float = name is not None and graph.specs[name].dtype in INEXACT
            if is_float and row.name not in FLAT:
                blocked |= input_.smooth & ~smooth
        reached = []
        for spec in specs:
            if spec.dtype not in INEXACT:
                reached.append(Reach(everything.any))
                continue
            reached.append(everything | Reach(0, 0, blocked))
            for bit in range(blocked.bit_length()):
                if blocked >> bit & 1:
                    self.blocking.setdefault(bit, (node, graph.name))
        return reached

    def _control(self, node: Node, inputs: list[Reach]) -> Steps[list[Reach]]:
        if node.op == "call":
            return (yield from self._function(node.attributes["function"], inputs))
        if node.op == "cond":
            predicate, *given = inputs
            pairs = zip(
                (yield from self._function(node.attributes["then"], given)),
                (yield from self._function(node.attributes["else"], given)),
                strict=True,
            )
            return [one | other | Reach(predicate.any) for one, other in pairs]
        if node.op == "while":
            return (yield from self._rounds(node.attributes["body"], inputs, len(inputs), []))
        carries = node.attributes["carries"]
        body, rest = node.attributes["body"], inputs[carries:]
        return (yield from self._rounds(body, inputs[:carries], carries, rest))

    def _rounds(
        self, body: str, state: list[Reach], carries: int, rest: list[Reach]
    ) -> Steps[list[Reach]]:
        """Go through a body until another round adds nothing."""
        while True:
            reached = yield from self._function(body, [*state, *rest])
            after = [one | other for one, other in zip(state, reached[:carries], strict=True)]
            if after == state:
                return [*state, *reached[carries:]]
            state = after

    def _function(self, name: str, inputs: Sequence[Reach]) -> Steps[list[Reach]]:
        key = (name, tuple(inputs))
        if key not in self._known:
            graph = self.library.functions[name]
            names = [declaration.name for declaration in graph.declared]
            given = dict(zip(names, inputs, strict=True))
            self._known[key] = yield from self._graph(graph, given, graph.outputs)
        return self._known[key]
