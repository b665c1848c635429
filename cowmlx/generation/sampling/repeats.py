"""Runs of tokens that a sequence repeats, and the tokens that would continue them (DRY)."""

from __future__ import annotations

from collections import defaultdict

from cowmlx.cache.sequence import common_prefix
from cowmlx.text.prefixes import begins, shortest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_KEY = 2  # tokens that are looked up, at most: runs that end alike in them are compared


class Breakers:
    """Sequence breakers: runs never cross these texts.

    Args:
        texts: of them.
        text_of: gives the bytes of a token.
    """

    def __init__(self, texts: list[str], text_of: Callable[[int], bytes]) -> None:
        backwards = [text.encode()[::-1] for text in texts]
        self._backwards = shortest(backwards)
        self._longest = max(map(len, backwards), default=0)
        self._last = {text[0] for text in backwards}
        self._text_of = text_of
        self._known: dict[int, bool] = {}

    def within(self, token: int) -> bool:
        """Whether a token's own text has one."""
        is_broken = self._known.get(token)
        if is_broken is None:
            own = self._text_of(token)
            is_broken = self._known[token] = self._ends(own[::-1], len(own))
        return is_broken

    def follow(self, tail: bytes, token: int) -> tuple[bool, bytes]:
        """Return whether one ends in a token, wherever it begins, and the tail behind the token.

        Args:
            tail: of the tokens before, see :meth:`tail`.
            token: that follows.
        """
        own = self._text_of(token)[::-1]
        text = own + tail
        return self._ends(text, len(own)), text[: max(self._longest - 1, 0)]

    def tail(self, tokens: list[int]) -> bytes:
        """Return the last bytes of tokens that may begin one, backwards."""
        size = max(self._longest - 1, 0)
        tail = b""
        for token in reversed(tokens):
            if len(tail) >= size:
                break
            tail += self._text_of(token)[::-1]
        return tail[:size]

    def _ends(self, backwards: bytes, count: int) -> bool:
        """Whether one ends in the first ``count`` bytes of a text that is given backwards."""
        for place in range(count):
            if backwards[place] in self._last:
                rest = backwards[place : place + self._longest]
                if begins(rest, self._backwards)[0]:
                    return True
        return False


class Repeats:
    """Finds the runs at the end of a growing sequence that occurred in it before.

    A further token costs a step for each place in the window where the last tokens occurred
    before. Only a sequence that does not continue the last call's, such as a prompt, is read as a
    whole (by a Z-function, in time proportional to its length).

    Args:
        shortest: tokens of the shortest run, at least 1.
        window: tokens at the end of the sequence in which runs are found.
        breakers: end runs.
        back: tokens by which a sequence may be shorter than the last call's without being read as
            a whole.

    Attributes:
        steps: places read so far, for tests of the cost.
    """

    def __init__(self, shortest: int, window: int, breakers: Breakers, back: int = 0) -> None:
        self._shortest = shortest
        self._key = min(shortest, _KEY)
        self._window = window
        self._breakers = breakers
        self._back = back
        self._tokens: list[int] = []
        self._tail: bytes | None = b""  # of the tokens, for the breakers; None: not known
        # Where the tokens that are looked up end, ascending.
        self._ends: defaultdict[tuple[int, ...], list[int]] = defaultdict(list)
        # For each token where the run begins that it belongs to.
        self._begins: list[int] = []
        # Of the last few tokens the earlier places that end alike, and how long they do.
        self._alike: list[dict[int, int]] = []
        self.steps = 0

    def after(self, tokens: list[int]) -> dict[int, int]:
        """Return the length of the longest run that each token would continue.

        Args:
            tokens: the sequence, mostly the last call's and one token.
        """
        known = common_prefix(self._tokens, tokens)
        dropped = len(self._tokens) - known
        if dropped >= max(len(self._alike), 1) or len(tokens) - known > self._back + 1:
            self._read(tokens, known)
        else:
            for _ in range(dropped):
                self._drop()
            for token in tokens[known:]:
                self._add(token)
        return self._longest()

    def _read(self, tokens: list[int], known: int) -> None:
        """Look at a whole sequence, of which the first tokens are known."""
        while len(self._tokens) > known:
            self._drop()
        for token in tokens[known:]:
            self._note(token)
        self._alike = [self._all_alike()] if tokens else []

    def _add(self, token: int) -> None:
        earlier = self._note(token)
        last = len(self._tokens) - 1
        alike: dict[int, int] = {}
        if last + 1 - self._begins[last] >= self._key:
            before = self._alike[-1] if self._alike else {}
            first = max(len(self._tokens) - self._window, 0) + self._key - 1
            for place in reversed(earlier):
                if place < first:
                    break
                self.steps += 1
                if place < last:
                    alike[place] = before.get(place - 1, self._key - 1) + 1
        self._alike.append(alike)
        if len(self._alike) > self._back + 1:
            del self._alike[0]

    def _note(self, token: int) -> list[int]:
        """Append a token; returns the places where the same last tokens end."""
        self.steps += 1
        tokens, last = self._tokens, len(self._tokens)
        tail = self._breakers.tail(tokens) if self._tail is None else self._tail
        breaks, self._tail = self._breakers.follow(tail, token)
        tokens.append(token)
        self._begins.append(last + 1 if breaks else self._begins[-1] if self._begins else 0)
        if last + 1 < self._key:
            return []
        places = self._ends[tuple(tokens[last + 1 - self._key :])]
        places.append(last)
        return places

    def _drop(self) -> None:
        """Take the last token back."""
        key = tuple(self._tokens[-self._key :])
        if len(key) == self._key:
            places = self._ends[key]
            places.pop()
            if not places:
                del self._ends[key]
        self._tokens.pop()
        self._tail = None
        self._begins.pop()
        if self._alike:
            self._alike.pop()

    def _all_alike(self) -> dict[int, int]:
        """Return the entry of :attr:`_alike` for the last token, without that of the one before.

        The Z-function of the reversed sequence (D. Gusfield 1997): how long its beginning and
        what begins at each of its places are alike.
        """
        last = len(self._tokens) - 1
        size = min(len(self._tokens), self._window)
        if last + 1 - self._begins[last] < self._key:
            return {}
        tokens = self._tokens[: last - size : -1] if size <= last else self._tokens[::-1]
        alike: dict[int, int] = {}
        lengths = [0] * size
        left = right = 0
        for place in range(1, size):
            self.steps += 1
            length = min(lengths[place - left], right - place) if place < right else 0
            while place + length < size and tokens[length] == tokens[place + length]:
                length += 1
                self.steps += 1
            if place + length > right:
                left, right = place, place + length
            lengths[place] = length
            if length >= self._key:
                alike[last - place] = length
        return alike

    def _longest(self) -> dict[int, int]:
        tokens = self._tokens
        if not tokens:
            return {}
        most = len(tokens) - self._begins[-1]
        first = max(len(tokens) - self._window, 0)
        longest: dict[int, int] = {}
        for place, alike in self._alike[-1].items():
            length = min(alike, most, place + 1 - first)
            follower = tokens[place + 1]
            if length >= self._shortest and length > longest.get(follower, 0):
                longest[follower] = length
        return {
            token: length for token, length in longest.items() if not self._breakers.within(token)
        }
