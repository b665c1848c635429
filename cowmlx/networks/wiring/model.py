"""The network of a wiring, with the interface of mlx-lm's networks."""

from __future__ import annotations

from typing import NamedTuple

import mlx.core as mx
from mlx.nn.layers.base import Module

from cowmlx import blas
from cowmlx.folders import weights
from cowmlx.networks import blocks
from cowmlx.networks.wiring.declaration import Wiring
from cowmlx.resources import BRANCHES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from cowmlx.networks.blocks import Block

# Multiplications from which a block is worth another stream on a CPU (benchmarks/branches.py).
_WORTH_A_STREAM = 1 << 21


class WiredModel(Module):
    """A network made of a wiring: tokens (B, T) to what the output block gives.

    The parameters of a block are named ``blocks.NAME.…``. Blocks with a state have a layer cache
    each, in the order in which they were declared. Where a stage has several blocks with much to
    do, all but the first are issued on other streams; the numbers stay the same.

    Args:
        wiring: the declaration.

    Attributes:
        wiring: the declaration.
        blocks: the blocks, by name.
        layers: the blocks that have a state.

    Raises:
        WiringError: see :meth:`Wiring.validate` and :mod:`cowmlx.networks.blocks`.
    """

    def __init__(self, wiring: Wiring) -> None:
        super().__init__()
        wiring.validate()
        self.wiring = wiring
        self.blocks: dict[str, Block] = {
            spec.name: blocks.make(spec, wiring) for spec in wiring.blocks
        }
        blocks.check_widths(wiring, self.blocks)
        self._plan = _plan(wiring, self.blocks)

    @property
    def layers(self) -> list[Block]:
        """The blocks that have a state."""
        return [block for block in self.blocks.values() if block.stateful]

    def make_cache(self) -> list[Any]:
        """Return a fresh layer cache for every block with a state."""
        return [block.make_state() for block in self.layers]

    def __call__(self, inputs: mx.array, cache: list[Any] | None = None) -> mx.array:
        """Run the blocks, stage by stage.

        Args:
            inputs: tokens (B, T).
            cache: what :meth:`make_cache` returned and earlier calls have filled; None: nothing
                came before, and nothing is kept.
        """
        values: dict[str, mx.array] = {}
        for stage in self._plan:
            large = [step for step in stage if step.parameters * inputs.size >= _WORTH_A_STREAM]
            if _occupies_all(len(large)):
                first, *others = large
                for number, step in enumerate(others):
                    with mx.stream(BRANCHES.stream(number)):
                        values[step.name] = self._run(step, inputs, values, cache)
                values[first.name] = self._run(first, inputs, values, cache)
            for step in stage:
                if step.name not in values:
                    values[step.name] = self._run(step, inputs, values, cache)
        return values[self.wiring.output]

    def _run(
        self, step: _Step, inputs: mx.array, values: Mapping[str, mx.array], cache: list[Any] | None
    ) -> mx.array:
        x = _sum(step.inputs, values) if step.inputs else inputs
        lent = [self.blocks[name] for name in step.lent]
        state = cache[step.state] if cache is not None and step.state is not None else None
        return self.blocks[step.name](x, state, *lent)


def _occupies_all(branches: int) -> bool:
    """Whether so many branches keep every processor busy, so that each gets another stream."""
    if branches < 2 or mx.default_device().type != mx.cpu:
        return False
    return branches >= blas.processors() > 1


class _Step(NamedTuple):
    """A block's place in the plan."""

    name: str
    inputs: tuple[tuple[str, int], ...]
    """(source, polarity) of each input; none: tokens."""
    state: int | None
    """The index of its layer cache, or None."""
    lent: tuple[str, ...]
    """The blocks it borrows."""
    parameters: int
    """How many numbers it has, if its stage has others."""


def _plan(wiring: Wiring, blocks: Mapping[str, Block]) -> tuple[tuple[_Step, ...], ...]:
    arriving = wiring.inputs()
    stateful = [name for name, block in blocks.items() if block.stateful]
    states = {name: index for index, name in enumerate(stateful)}

    def step(name: str, alone: bool) -> _Step:
        block = blocks[name]
        parameters = 0
        if not alone:
            parameters = sum(array.size for array in weights.flatten(block.parameters()).values())
        lent = block.borrowed(wiring[name])
        inputs = tuple(arriving[name])
        return _Step(name, inputs, states.get(name), tuple(lent), parameters)

    return tuple(tuple(step(name, len(stage) == 1) for name in stage) for stage in wiring.stages())


def _sum(inputs: tuple[tuple[str, int], ...], values: Mapping[str, mx.array]) -> mx.array:
    """Sum values with their polarities."""
    (first, polarity), *others = inputs
    total = values[first] if polarity > 0 else -values[first]
    for name, polarity in others:
        total = total + values[name] if polarity > 0 else total - values[name]
    return total
