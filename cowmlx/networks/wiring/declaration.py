"""Models as data: blocks, and the signed graph between them."""

from __future__ import annotations

import graphlib
import re
from itertools import pairwise

from cowmlx.errors import WiringError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# Digits alone would read as the index of a list in a weight's name, a dot as its next part.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
# More than any model has; their matrix is in memory as a whole.
MAX_BLOCKS = 8192
_KEYS = ("blocks", "adjacency", "input", "output")
_SHOWN = 5


class BlockSpec:
    """One block, declared.

    Attributes:
        name: unique in a wiring; letters, digits, "_" and "-", no digit first.
        type: a key of :data:`cowmlx.networks.blocks.BLOCKS`.
        parameters: the keyword arguments of that type.
    """

    __slots__ = ("name", "parameters", "type")

    def __init__(self, name: str, type: str, parameters: Mapping[str, Any] | None = None) -> None:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            rule = "names have letters, digits, _ and -, and begin with no digit"
            raise WiringError(f"a block is named {_shown(name)}; {rule}")
        if not isinstance(type, str):
            raise WiringError(f"block {name}: type is {_shown(type)}, not a string", block=name)
        if parameters is not None and not hasattr(parameters, "keys"):
            message = f"block {name}: parameters are {_shown(parameters)}, not an object"
            raise WiringError(message, block=name)
        self.name = name
        self.type = type
        self.parameters: dict[str, Any] = dict(parameters or {})

    def __repr__(self) -> str:
        return f"BlockSpec({self.name!r}, {self.type!r}, {self.parameters!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BlockSpec) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def to_json(self) -> dict[str, Any]:
        """Return the block as JSON-ready values."""
        return {"name": self.name, "type": self.type, "parameters": self.parameters}

    @classmethod
    def from_json(cls, value: Any) -> BlockSpec:
        """Read what :meth:`to_json` returns.

        Raises:
            WiringError: a key is missing, unknown or of another type.
        """
        if not isinstance(value, dict):
            raise WiringError(f"a block of the wiring is {_shown(value)}, not an object")
        label = f"block {_shown(value.get('name', '?'))}"
        for key in ("name", "type"):
            if key not in value:
                raise WiringError(f"{label} of the wiring has no {key!r}")
        _refuse_unknown(value, ("name", "type", "parameters"), label)
        return cls(value["name"], value["type"], value.get("parameters"))


class Wiring:
    """Blocks and the signed graph between them.

    An edge carries a block's output to the input of another, where all that arrives is summed,
    each with the edge's polarity +1 or -1. Tokens enter at :attr:`input`, what
    :attr:`output` gives is the model's output; unless said otherwise they are the first and the
    last block.
    """

    def __init__(self) -> None:
        self._blocks: dict[str, BlockSpec] = {}
        self._edges: dict[tuple[str, str], int] = {}
        self._input: str | None = None
        self._output: str | None = None

    def add_block(self, name: str, type: str, **parameters: Any) -> Wiring:
        """Add a block behind the others; returns the wiring, so that calls can be chained.

        Raises:
            WiringError: the name is taken, or none.
        """
        return self._add(BlockSpec(name, type, parameters))

    def connect(self, source: str, target: str, polarity: int = 1) -> Wiring:
        """Add an edge; returns the wiring.

        Raises:
            WiringError: no such block, the edge is there already, or the polarity is not +1 or -1.
        """
        for name in (source, target):
            self._require(name, f"the edge {source} → {target}")
        if isinstance(polarity, bool) or polarity not in (1, -1):
            edge = f"the edge {source} → {target}"
            raise WiringError(f"{edge} has polarity {_shown(polarity)}; it can be 1 or -1")
        if (source, target) in self._edges:
            raise WiringError(f"{source} → {target} is connected already")
        self._edges[source, target] = int(polarity)
        return self

    def chain(self, *names: str) -> Wiring:
        """Connect each block to the next with polarity +1; returns the wiring."""
        for source, target in pairwise(names):
            self.connect(source, target)
        return self

    def _add(self, spec: BlockSpec) -> Wiring:
        if len(self._blocks) == MAX_BLOCKS:
            raise WiringError(f"the wiring has more than {MAX_BLOCKS} blocks")
        if spec.name in self._blocks:
            raise WiringError(f"two blocks are named {spec.name}", block=spec.name)
        self._blocks[spec.name] = spec
        return self

    def _require(self, name: object, what: str) -> None:
        if not isinstance(name, str) or name not in self._blocks:
            raise WiringError(f"{what} names {_shown(name)}, which is no block of the wiring")

    @property
    def blocks(self) -> list[BlockSpec]:
        """The blocks, in the order in which they were added."""
        return list(self._blocks.values())

    @property
    def edges(self) -> dict[tuple[str, str], int]:
        """The polarity of every edge (source, target)."""
        return dict(self._edges)

    @property
    def adjacency(self) -> list[list[int]]:
        """The polarity of the edge from block i to block j at [i][j]; 0 where there is none."""
        index = {name: place for place, name in enumerate(self._blocks)}
        matrix = [[0] * len(index) for _ in index]
        for (source, target), polarity in self._edges.items():
            matrix[index[source]][index[target]] = polarity
        return matrix

    @property
    def input(self) -> str:
        """The block that takes the tokens."""
        return self._input if self._input is not None else next(iter(self._blocks), "")

    @input.setter
    def input(self, name: str) -> None:
        self._require(name, "input")
        self._input = name

    @property
    def output(self) -> str:
        """The block whose value is the model's output."""
        return self._output if self._output is not None else next(reversed(self._blocks), "")

    @output.setter
    def output(self, name: str) -> None:
        self._require(name, "output")
        self._output = name

    def __getitem__(self, name: str) -> BlockSpec:
        return self._blocks[name]

    def __contains__(self, name: object) -> bool:
        return name in self._blocks

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Wiring) and self.to_json() == other.to_json()

    __hash__ = None  # type: ignore[assignment]

    def inputs(self) -> dict[str, list[tuple[str, int]]]:
        """Return what arrives at every block: (source, polarity), in the order of connecting."""
        sources: dict[str, list[tuple[str, int]]] = {name: [] for name in self._blocks}
        for (source, target), polarity in self._edges.items():
            sources[target].append((source, polarity))
        return sources

    def stages(self) -> list[list[str]]:
        """Sort the blocks topologically: those of a stage need only earlier stages.

        Raises:
            WiringError: there is a cycle; the message goes round it.
        """
        sorter = graphlib.TopologicalSorter(
            {name: [source for source, _ in sources] for name, sources in self.inputs().items()}
        )
        try:
            sorter.prepare()
        except graphlib.CycleError as exc:
            raise WiringError(f"the wiring has a cycle: {' → '.join(exc.args[1])}") from None
        place = {name: index for index, name in enumerate(self._blocks)}
        stages: list[list[str]] = []
        while sorter.is_active():
            stages.append(sorted(sorter.get_ready(), key=place.__getitem__))
            sorter.done(*stages[-1])
        return stages

    def validate(self) -> None:
        """Check the graph; blocks check their parameters and widths when they are made.

        Raises:
            WiringError: no blocks, a cycle, blocks that no token reaches, or blocks whose output
                no block uses.
        """
        if not self._blocks:
            raise WiringError("the wiring has no blocks")
        self.stages()
        forward: dict[str, list[str]] = {name: [] for name in self._blocks}
        backward: dict[str, list[str]] = {name: [] for name in self._blocks}
        for source, target in self._edges:
            forward[source].append(target)
            backward[target].append(source)
        if backward[self.input]:
            source = backward[self.input][0]
            message = f"the input block {self.input} takes the tokens, but {source} is connected"
            raise WiringError(f"{message} to it", block=self.input)
        lost = self._blocks.keys() - _reached(self.input, forward)
        if lost:
            raise WiringError(f"no token reaches {_names(lost)} from the input block {self.input}")
        idle = self._blocks.keys() - _reached(self.output, backward)
        if idle:
            message = f"nothing of {_names(idle)} arrives at the output block {self.output}"
            raise WiringError(message)

    def to_json(self) -> dict[str, Any]:
        """Return the wiring as JSON-ready values."""
        return {
            "blocks": [spec.to_json() for spec in self.blocks],
            "adjacency": self.adjacency,
            "input": self.input,
            "output": self.output,
        }

    @classmethod
    def from_json(cls, value: Any) -> Wiring:
        """Read what :meth:`to_json` returns; ``input`` and ``output`` may be left out.

        Raises:
            WiringError: a key is missing or unknown, blocks have the same name, or the matrix
                does not fit them.
        """
        if not isinstance(value, dict):
            raise WiringError(f"the wiring is {_shown(value)}, not an object")
        _refuse_unknown(value, _KEYS, "the wiring")
        for key in ("blocks", "adjacency"):
            if not isinstance(value.get(key), list):
                raise WiringError(f"the wiring has no list {key!r}")
        wiring = cls()
        for block in value["blocks"]:
            wiring._add(BlockSpec.from_json(block))
        names = list(wiring._blocks)
        rows = value["adjacency"]
        if len(rows) != len(names):
            raise WiringError(f"adjacency has {len(rows)} rows for {len(names)} blocks")
        for source, row in zip(names, rows, strict=True):
            if not isinstance(row, list) or len(row) != len(names):
                size = len(row) if isinstance(row, list) else _shown(row)
                message = f"adjacency has {size} columns for {len(names)} blocks"
                raise WiringError(f"{message} in the row of {source}")
            for target, polarity in zip(names, row, strict=True):
                if polarity != 0 or isinstance(polarity, bool):
                    wiring.connect(source, target, polarity)
        for key in ("input", "output"):
            if value.get(key) is not None:
                setattr(wiring, key, value[key])
        return wiring


def _reached(start: str, edges: Mapping[str, list[str]]) -> set[str]:
    reached = {start}
    waiting = [start]
    while waiting:
        for name in edges[waiting.pop()]:
            if name not in reached:
                reached.add(name)
                waiting.append(name)
    return reached


def _names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return ", ".join(ordered[:_SHOWN]) + more


def _refuse_unknown(value: Mapping[str, Any], known: tuple[str, ...], what: str) -> None:
    unknown = sorted(map(str, value.keys() - set(known)))
    if unknown:
        raise WiringError(f"{what} has an unknown key {unknown[0]!r}; it can have {list(known)}")


def _shown(value: object) -> str:
    """Return a value as a message shows it: short, whatever it is."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
