"""The graph of a pattern: its atoms, and which may match next to each other."""

from __future__ import annotations

from typing import NamedTuple

from cowmlx.text.patterns.characters import SAMPLES, Unreadable, Unsure, always, never

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Has = Callable[[str], bool]

UNBOUNDED = 1 << 30
_MAX_PARTS = 4096
# What is done for one pattern: links, and questions whether a class has a character. Those of
# well-known tokenizers take 3,000 to 65,000.
_MAX_STEPS = 1 << 21
PART = 128  # steps for reading one


class Atom(NamedTuple):
    """One place of a pattern that a character may stand at.

    Attributes:
        has: whether a character may; raises Unsure.
        size: how many classes are asked for that, at most.
        wild: whether it looks at its surroundings in a way that is not followed up.
    """

    has: Has
    size: int
    wild: bool


class Node:
    """A part of a pattern.

    Attributes:
        nullable: whether it may match nothing.
        first, last: the atoms that a match may begin and end with.
        alone: whether it surely matches where a character stands, whatever follows it.
        void: whether it may match nothing, whatever stands around it.
        skips: whether it may match nothing in front of a character.
        varied: whether matches differ in length.
        loops: the atoms that each of its endless repetitions begins with.
        failing: those of the repetitions behind which the match may fail, which costs going back.
        explodes: whether a text may go exponentially many ways through it, if all of them fail.
        least: characters that every match has.
        depth: how many nodes in each other are asked for ``alone`` and ``skips``, at most.
    """

    def __init__(
        self,
        first: list[int],
        last: list[int],
        alone: Has,
        *,
        nullable: bool = False,
        void: bool = False,
        least: int = 1,
    ) -> None:
        self.first = first
        self.last = last
        self.alone = alone
        self.nullable = nullable
        self.void = void
        self.skips: Has = always if void else never
        self.varied = False
        self.depth = 0
        self.explodes = False
        self.loops: list[list[int]] = []
        self.failing: list[list[int]] = []
        self.least = least


def empty(*, void: bool = True) -> Node:
    """Return what matches nothing."""
    return Node([], [], never, nullable=True, void=void, least=0)


class Graph:
    """What atoms there are, and which follow which.

    Attributes:
        opaque: whether the pattern looks back further than one character.
        explosive: whether a text may go exponentially many ways through a repetition, and fail.

    Args:
        named: the characters that the pattern names.
    """

    def __init__(self, named: str) -> None:
        self._samples = list(dict.fromkeys([*SAMPLES, *named]))
        self._taken: dict[int, int] = {}
        self._steps = 0
        self.atoms: list[Atom] = []
        self.follow: list[list[int]] = []
        self.opaque = False
        self.explosive = False

    def spend(self, steps: int = 1) -> None:
        """Count steps.

        Raises:
            Unreadable: there are too many.
        """
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise Unreadable(f"reading it takes more than {_MAX_STEPS} steps")

    def add(self, has: Has, size: int, *, wild: bool = False) -> int:
        """Make an atom and return its number."""
        if len(self.atoms) >= _MAX_PARTS:
            raise Unreadable(f"it has more than {_MAX_PARTS} parts")
        self.atoms.append(Atom(has, size, wild))
        self.follow.append([])
        return len(self.atoms) - 1

    def link(self, before: list[int], after: list[int]) -> None:
        """Let atoms follow others."""
        self.spend(len(before) * len(after))
        for at in before:
            self.follow[at].extend(after)

    def ambiguous(self, atoms: Iterable[int]) -> bool:
        """Whether some text may go several ways from one of these atoms to the next."""
        return any(self.overlapping(self.follow[at]) for at in atoms)

    def overlapping(self, atoms: list[int]) -> bool:
        """Whether two of these atoms may take the same character."""
        taken = 0
        for at in atoms:
            self.spend()
            own = self._of(at)
            if own & taken:
                return True
            taken |= own
        return False

    def _of(self, at: int) -> int:
        """Return a bit for each sample, set if it may stand at an atom that is followed up."""
        atom = self.atoms[at]
        if atom.wild:
            return 0
        if at not in self._taken:
            self.spend(len(self._samples) * atom.size)
            bits = "".join("01"[_may(atom.has, sample)] for sample in self._samples)
            self._taken[at] = int(bits, 2)
        return self._taken[at]

    # ------------------------------------------------------------- Making nodes

    def either(self, nodes: list[Node]) -> Node:
        """Return what matches one of several parts."""
        node = Node(
            [at for node in nodes for at in node.first],
            [at for node in nodes for at in node.last],
            lambda c: any(node.alone(c) for node in nodes),
            nullable=any(node.nullable for node in nodes),
            void=any(node.void for node in nodes),
            least=min(node.least for node in nodes),
        )
        node.skips = lambda c: any(node.skips(c) for node in nodes)
        node.depth = 1 + max(other.depth for other in nodes)
        node.explodes = any(other.explodes for other in nodes)
        node.loops = max((other.loops for other in nodes), key=len)
        node.failing = max((other.failing for other in nodes), key=len)
        node.varied = len({other.least for other in nodes}) > 1 or any(n.varied for n in nodes)
        return node

    def joined(self, left: Node, right: Node) -> Node:
        """Return what matches one part after another."""
        self.link(left.last, right.first)

        def alone(c: str) -> bool:
            return (right.void and left.alone(c)) or (left.skips(c) and right.alone(c))

        node = Node(
            left.first + right.first if left.nullable else left.first,
            right.last + left.last if right.nullable else right.last,
            alone,
            nullable=left.nullable and right.nullable,
            void=left.void and right.void,
            least=left.least + right.least,
        )
        self.spend(len(node.first) + len(node.last))
        node.skips = lambda c: left.skips(c) and right.skips(c)
        node.depth = 1 + max(left.depth, right.depth)
        node.explodes = left.explodes or right.explodes
        if left.explodes and not right.void:
            self.explosive = True
        self.spend(2 * (len(left.loops) + len(right.loops)))
        node.loops = left.loops + right.loops
        node.failing = (left.failing if right.void else left.loops) + right.failing
        node.varied = left.varied or right.varied
        return node

    def looped(self, node: Node, own: list[int], least: int, most: int) -> Node:
        """Return what matches a part again and again.

        Args:
            node: the part.
            own: the atoms in it.
            least: 0 or 1 times.
            most: 1 or UNBOUNDED times.
        """
        looped = Node(
            node.first,
            node.last,
            node.alone if most else never,
            nullable=node.nullable or least == 0,
            void=node.void or least == 0,
            least=node.least if least else 0,
        )
        looped.skips = always if least == 0 else node.skips
        looped.varied = node.varied or least != most
        looped.depth = node.depth
        if most == UNBOUNDED:
            self.link(node.last, node.first)
            looped.explodes = node.nullable or self.ambiguous(own) or self.overlapping(node.first)
        looped.explodes = looped.explodes or node.explodes
        looped.loops, looped.failing = node.loops, node.failing
        if most == UNBOUNDED and not node.loops:
            looped.loops = [node.first]
        return looped

    def make_possessive(self, node: Node) -> None:
        """What may be left out is left out only where it does not match."""
        node.explodes, node.loops = False, []
        node.depth += 1
        skips, first = node.skips, [self.atoms[at] for at in node.first]
        node.skips = lambda c: skips(c) and not any(atom.wild or atom.has(c) for atom in first)


def _may(has: Has, character: str) -> bool:
    try:
        return has(character)
    except Unsure:
        return True
