"""A pattern, and what is asked of it."""

from __future__ import annotations

from itertools import combinations

from cowmlx.text.patterns.characters import Unsure
from cowmlx.text.patterns.graph import Graph
from cowmlx.text.patterns.parser import Parser

_UPPER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]"
_LOWER = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_JOINED = r"[^\r\n\p{L}\p{N}]?"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
# Alternatives that go together: the last of them takes the run on which the others fail.
_TAKING_ALL = (
    rf"{_JOINED}{_UPPER}*{_LOWER}+{_SHORT}|{_JOINED}{_UPPER}+{_LOWER}*{_SHORT}|",
    rf"{_JOINED}{_UPPER}*{_LOWER}+|{_JOINED}{_UPPER}+{_LOWER}*|",
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"|\s+(?!\S)|\s+",
)


class Pattern:
    """A regular expression, or a plain text, that a component looks for.

    Args:
        source: of the expression.
        literal: whether it is a plain text.

    Raises:
        Unreadable: its syntax is not followed here.
    """

    def __init__(self, source: str, *, literal: bool = False) -> None:
        self.source = source
        self._graph = Graph(source)
        parser = Parser(self._graph, source)
        self._root = parser.literal() if literal else parser.expression()

    @property
    def least(self) -> int:
        """Characters that every match has; 0 if it may match nothing."""
        return 0 if self._root.nullable else max(1, self._root.least)

    def crosses(self, left: str, right: str) -> bool:
        """Whether a match, or a look ahead, may go on from one character to the next.

        Raises:
            Unsure: that cannot be told.
        """
        if self._graph.opaque:
            raise Unsure
        for at, atom in enumerate(self._graph.atoms):
            if not self._graph.follow[at] or not atom.has(left):
                continue
            for then in self._graph.follow[at]:
                other = self._graph.atoms[then]
                if other.wild or other.has(right):
                    return True
        return False

    def touches(self, character: str) -> bool:
        """Whether a match may hold a character.

        Raises:
            Unsure: that cannot be told.
        """
        return any(atom.has(character) for atom in self._graph.atoms if not atom.wild)

    def takes(self, character: str) -> bool:
        """Whether every search that comes to a character finds a match there.

        Raises:
            Unsure: that cannot be told.
        """
        return not self._root.nullable and self._root.alone(character)

    @property
    def explosive(self) -> bool:
        """Whether it may take exponential time to fail: a repetition can go several ways."""
        return self._graph.explosive

    @property
    def slow(self) -> bool:
        """Whether two repetitions of the same characters are gone back over one by one.

        Then the time to fail at one place grows with the square of what they match.
        """
        loops = self._root.failing
        return any(self._graph.overlapping([*a, *b]) for a, b in combinations(loops, 2))

    @property
    def retries(self) -> bool:
        """Whether the time to fail at one place may grow with what a repetition matches.

        A search that fails so at every place of a run takes the square of its length. The ways
        in which well-known patterns end do not: what fails on a run is followed by what takes
        all of it.
        """
        source = self.source
        for way in _TAKING_ALL:
            source = source.replace(way, "")
        if source == self.source:
            return bool(self._root.failing)
        return bool(Pattern(source.removesuffix("|") or "x")._root.failing)
