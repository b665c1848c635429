"""What drawings of a wiring show: stages, repeated ones once, and what every block is like."""

from __future__ import annotations

import json
from typing import NamedTuple

from cowmlx.errors import WiringError
from cowmlx.folders import weights
from cowmlx.networks import blocks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.networks.blocks import Block
    from cowmlx.networks.wiring import BlockSpec, Wiring

# A part of a wiring is shown once if it comes at least so often, and has at most so many blocks.
_FEWEST_COPIES = 3
_MAX_PERIOD = 64

Inputs = list[tuple[str, int]]


class Place:
    """A block, or the blocks that stand at the same place of a repeated part.

    Attributes:
        names: of the blocks, one for every copy of the part.
        spec: the first one's declaration; the others have its type and parameters.
        inputs: (source, polarity) of what arrives at the first block.
        later: the same of the second block, if it does not stand for the same sources.
        takes: values per position that each takes; None if it takes tokens.
        gives: values per position that each gives.
        stateful: whether each has a state.
        parameters: numbers in the weights of each.
        borrowed: names of the embeddings whose weights it uses.
    """

    def __init__(self, names: list[str], spec: BlockSpec, block: Block, arriving: Any) -> None:
        self.names = names
        self.spec = spec
        self.inputs: Inputs = arriving[names[0]]
        self.later: Inputs = [] if len(names) == 1 else arriving[names[1]]
        self.takes = block.input_dims
        self.gives = block.output_dims
        self.stateful = block.stateful
        self.parameters = weights.count(block)
        self.borrowed = block.borrowed(spec)

    @property
    def label(self) -> str:
        """The names, shortened: the first and the last."""
        return self.names[0] if len(self.names) == 1 else f"{self.names[0]} … {self.names[-1]}"


class Part(NamedTuple):
    """Successive stages of a wiring, or several equal ones."""

    first: int
    """Its first stage, counted from 1."""
    stages: list[list[Place]]
    """The blocks of each stage of the first copy."""
    copies: int
    """How often it comes, one behind the other."""

    @property
    def last(self) -> int:
        """Its last stage."""
        return self.first + len(self.stages) * self.copies - 1


class Outline:
    """A wiring, ready to be drawn.

    Widths are shown whether or not they fit: a drawing shall show where they do not.

    Args:
        wiring: what to draw.

    Attributes:
        parts: the wiring from the input to the output.
        blocks: how many there are, every copy counted; so are:
        stateful: the blocks with a state.
        parameters: numbers in the weights.

    Raises:
        WiringError: there are no blocks, there is a cycle, or a block cannot be made.
    """

    def __init__(self, wiring: Wiring) -> None:
        self.wiring = wiring
        # Weights are never evaluated, and equal blocks are made once.
        self._made: dict[str, Block] = {}
        self._arriving = wiring.inputs()
        stages = wiring.stages()
        if not stages:
            raise WiringError("the wiring has no blocks")
        self._order = [name for stage in stages for name in stage]
        self._stage = {name: index for index, stage in enumerate(stages) for name in stage}
        self.parts = self._parts()
        places = [place for part in self.parts for stage in part.stages for place in stage]
        self.blocks = len(self._order)
        self.stateful = sum(len(place.names) for place in places if place.stateful)
        self.parameters = sum(len(place.names) * place.parameters for place in places)

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return self.parts[-1].last

    def _parts(self) -> list[Part]:
        signatures = self._signatures()
        parts = []
        at = 0
        while at < len(self._order):
            period, copies = self._repeated(signatures, at)
            first = self._stage[self._order[at]]
            stages: list[list[Place]] = []
            for offset in range(at, at + period):
                if self._stage[self._order[offset]] - first == len(stages):
                    stages.append([])
                stages[-1].append(
                    self._place(self._order[offset : offset + period * copies : period])
                )
            parts.append(Part(first + 1, stages, copies))
            at += period * copies
        return parts

    def _place(self, names: list[str]) -> Place:
        spec = self.wiring[names[0]]
        return Place(names, spec, self._block(spec), self._arriving)

    def _block(self, spec: BlockSpec) -> Block:
        key = _declaration(spec)
        if key not in self._made:
            self._made[key] = blocks.make(spec, self.wiring)
        return self._made[key]

    def _signatures(self) -> list[tuple[int, bool, int]]:
        """Return of every block: what it is, whether it opens a stage, and how far back it reaches.

        Blocks of equal signatures have equal surroundings: a source is given by its distance.
        """
        position = {name: index for index, name in enumerate(self._order)}
        numbers: dict[Any, int] = {}
        signatures = []
        stage = -1
        for index, name in enumerate(self._order):
            edges = sorted(
                (index - position[source], polarity) for source, polarity in self._arriving[name]
            )
            key = (_declaration(self.wiring[name]), tuple(edges))
            reach = edges[-1][0] if edges else 0
            signatures.append(
                (numbers.setdefault(key, len(numbers)), self._stage[name] > stage, reach)
            )
            stage = self._stage[name]
        return signatures

    def _repeated(self, signatures: list[tuple[int, bool, int]], at: int) -> tuple[int, int]:
        """Return how many blocks from here on are a part, and how often it comes.

        The part opens a stage, as does what follows its copies, and takes nothing from before the
        copy before it. The one that covers most is taken; failing all, a stage.
        """
        end = len(signatures)

        def opens(index: int) -> bool:
            return index == end or signatures[index][1]

        width = next(size for size in range(1, end - at + 1) if opens(at + size))
        best = (width, 1)
        for period in range(width, min(_MAX_PERIOD, (end - at) // _FEWEST_COPIES) + 1):
            part = signatures[at : at + period]
            if not opens(at + period) or any(
                reach > offset + period for offset, (_, _, reach) in enumerate(part)
            ):
                continue
            copies = 1
            while signatures[at + period * copies : at + period * (copies + 1)] == part:
                copies += 1
            while not opens(at + period * copies):
                copies -= 1
            if copies >= _FEWEST_COPIES and period * copies > best[0] * best[1]:
                best = (period, copies)
        return best


def _declaration(spec: BlockSpec) -> str:
    return f"{spec.type} {json.dumps(spec.parameters, sort_keys=True, default=repr)}"
