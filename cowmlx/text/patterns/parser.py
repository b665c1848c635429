"""Reading a pattern into its graph."""

from __future__ import annotations

from cowmlx.text.patterns.characters import Unreadable, equal, never
from cowmlx.text.patterns.graph import UNBOUNDED, Graph, Node, empty
from cowmlx.text.patterns.reader import MAX_DEPTH, Reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    Has = Callable[[str], bool]

MAX_PATTERN = 8192  # characters
_MAX_COPIES = 64  # of a part that is repeated a counted number of times


class Parser(Reader):
    """Reads a pattern in Ruby's syntax.

    Args:
        graph: receives its atoms.
        source: of the pattern.
    """

    def __init__(self, graph: Graph, source: str) -> None:
        if len(source) > MAX_PATTERN:
            raise Unreadable(f"it has {len(source)} characters, more than {MAX_PATTERN}")
        super().__init__(source)
        self._graph = graph

    def literal(self) -> Node:
        """Read the text as it stands."""
        node = empty()
        for character in self._text:
            node = self._graph.joined(node, self._atom(equal(character, fold=False)))
        return node

    def expression(self) -> Node:
        """Read the whole text."""
        node = self._alternatives()
        if self._at < len(self._text):
            raise Unreadable(f"a ) too many at {self._at}")
        return node

    # ------------------------------------------------------------ Structure

    def _alternatives(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise Unreadable(f"its groups are nested more than {MAX_DEPTH} deep")
        fold = self._fold
        nodes = [self._sequence()]
        while self._take("|"):
            nodes.append(self._sequence())
        self._fold = fold
        self._depth -= 1
        return nodes[0] if len(nodes) == 1 else self._graph.either(nodes)

    def _sequence(self) -> Node:
        node = empty()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            node = self._graph.joined(node, self._repeated())
        return node

    def _repeated(self) -> Node:
        begin, fold = self._at, self._fold
        count = self._graph.size
        node = self._part()
        while True:
            bounds = self._bounds()
            if bounds is None:
                return node
            least, most = bounds
            own = list(range(count, self._graph.size))
            suffix = self._text[self._at : self._at + 1]
            exact = self._text[self._at - 1] == "}" and least == most
            # After a count in braces, + repeats once more in Ruby's syntax.
            possessive = suffix == "+" and self._text[self._at - 1] != "}"
            if suffix == "?" or possessive:
                self._at += 1
            if least > 1 or 1 < most < UNBOUNDED:
                node = self._counted(begin, fold, node, least, most)
            else:
                node = self._graph.looped(node, own, least, most)
            if suffix == "?" and exact:  # which in Ruby's syntax may be left out
                node = self._graph.looped(node, [], 0, 1)
            if possessive:
                self._graph.make_possessive(node)

    def _counted(self, begin: int, fold: bool, node: Node, least: int, most: int) -> Node:
        """Copy a part that is repeated a counted number of times: the graph has no counts."""
        if max(least, 0 if most == UNBOUNDED else most) > _MAX_COPIES:
            # Any number of times is more than what it says, and never less.
            looped = self._graph.looped(node, [], 0, UNBOUNDED)
            looped.alone, looped.void, looped.skips = never, False, never
            return looped
        end, after_fold = self._at, self._fold

        def copy() -> Node:
            self._at, self._fold = begin, fold
            return self._part()

        graph = self._graph
        whole = node if least else graph.looped(node, [], 0, 1)
        for number in range(1, max(least, 0 if most == UNBOUNDED else most)):
            part = copy()
            whole = graph.joined(whole, part if number < least else graph.looped(part, [], 0, 1))
        if most == UNBOUNDED:
            whole = graph.joined(whole, graph.looped(copy(), [], 0, UNBOUNDED))
        self._at, self._fold = end, after_fold
        return whole

    def _bounds(self) -> tuple[int, int] | None:
        for sign, bounds in (("*", (0, UNBOUNDED)), ("+", (1, UNBOUNDED)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if self._text[self._at : self._at + 1] != "{":
            return None
        end = self._text.find("}", self._at)
        inner = self._text[self._at + 1 : end] if end >= 0 else ""
        low, comma, high = inner.partition(",")
        if not inner or not all(part.isascii() and part.isdigit() for part in (low, high) if part):
            return None  # a brace that is one
        if not low and not high:
            return None
        self._at = end + 1
        least = int(low[:9] or 0)
        most = (int(high[:9]) if high else UNBOUNDED) if comma else least
        if most < least:
            raise Unreadable(f"its bounds {{{inner}}} are the wrong way round")
        return least, most

    # --------------------------------------------------------------- Parts

    def _part(self) -> Node:
        character = self._next()
        if character == "(":
            return self._group()
        if character == "[":
            return self._atom(self._class())
        if character == "\\":
            return self._escaped()
        if character == ".":
            return self._atom(lambda c: c != "\n")
        if character in "^$":
            return self._assertion()
        if character in "*+?":
            raise Unreadable(f"nothing stands in front of {character}")
        return self._atom(equal(character, fold=self._fold))

    def _atom(self, has: Has) -> Node:
        at = self._graph.add(has)
        return Node([at], [at], has)

    def _assertion(self) -> Node:
        """Something that looks at what stands around it."""
        at = self._graph.add(never, wild=True)
        node = empty(void=False)
        node.first = [at]
        return node

    def _group(self) -> Node:
        if not self._take("?"):
            return self._closed(self._alternatives())
        for sign in ("=", "!"):
            if self._take(sign):
                ahead = self._closed(self._alternatives())
                # Its atoms see what follows; what comes behind it follows what came before.
                node = empty(void=False)
                node.first = ahead.first
                node.loops, node.failing = ahead.loops, ahead.failing
                return node
        for sign in ("<=", "<!"):
            if self._take(sign):
                behind = self._closed(self._alternatives())
                if behind.varied or behind.least != 1:
                    self._graph.opaque = True
                return empty(void=False)
        if self._take(">"):
            node = self._closed(self._alternatives())
            node.alone = node.skips = never
            self._graph.make_possessive(node)
            return node
        return self._flagged()

    def _flagged(self) -> Node:
        on, fold = True, self._fold
        while True:
            character = self._next()
            if character == "-":
                on = False
            elif character == "i":
                fold = on
            elif character == ")":
                self._fold = fold  # to the end of the group around it
                return empty()
            elif character == ":":
                outer, self._fold = self._fold, fold
                node = self._closed(self._alternatives())
                self._fold = outer
                return node
            else:
                raise Unreadable(f"(?{character} is not supported")

    def _closed(self, node: Node) -> Node:
        if not self._take(")"):
            raise Unreadable("a ) is missing")
        return node

    def _escaped(self) -> Node:
        character = self._text[self._at : self._at + 1]
        if character and character in "bBAzZG":
            self._at += 1
            return self._assertion()
        if character == "R":
            self._at += 1
            return self._atom(lambda c: c in "\n\v\f\r\x85\u2028\u2029")
        if character.isdigit() or character in ("k", "g", "K", "X", "y", "Y"):
            raise Unreadable(f"\\{character} is not supported")
        return self._atom(self._escape())
