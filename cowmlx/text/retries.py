r"""How much of a text the patterns of a tokenizer search in one turn.

A pattern such as ``\s+$`` searches a run of spaces from every place in it and fails at its end, so
its time grows with the square of the run. The sum of such squares is bounded for each turn.
"""

from __future__ import annotations

from functools import lru_cache
from math import isqrt

from cowmlx.text.cuts import pattern_of, state_of
from cowmlx.text.patterns.characters import Unreadable
from cowmlx.text.patterns.pattern import Pattern
from cowmlx.text.tokenizer_bounds import leaves

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

MAX_STEPS = 1 << 23
"""Squares of runs, in characters, for each turn: about 30 ms."""
MAX_RETRIED = 1 << 15
"""Characters of a turn."""
_CHANGING = ("ByteLevel", "Metaspace")
"""Pre-tokenizers behind which patterns see other characters."""


class Retries:
    """The patterns of one tokenizer that may search a run again from every place in it.

    Args:
        backend: a tokenizer of the library.
        growth: bytes that it may make of one before it is split into tokens.
    """

    def __init__(self, backend: Any, growth: int) -> None:
        self._normalizer = backend.normalizer
        self._growth = growth
        self._unknown = 0  # patterns whose runs are not known
        self._classes: list[Callable[[str], bool]] = []
        for _, part in leaves("", state_of(backend.normalizer)):
            self._unknown += _retrying(part) is not None
        changed = False
        for _, part in leaves("", state_of(backend.pre_tokenizer)):
            found = _retrying(part)
            if changed or found is _UNREADABLE:
                self._unknown += found is not None
            elif isinstance(found, Pattern):
                self._classes += found.runs()
            changed = changed or part["type"] in _CHANGING
        self._classes_of = lru_cache(1 << 14)(
            lambda character: tuple(belongs(character) for belongs in self._classes)
        )

    def __bool__(self) -> bool:
        return bool(self._unknown or self._classes)

    def end(self, text: str, begin: int, limit: int) -> int:
        """Return up to where one turn may search a text from ``begin`` on, one character at least.

        Args:
            text: the text.
            begin: where the turn begins.
            limit: the largest result.
        """
        size = min(limit, len(text), begin + MAX_RETRIED) - begin
        if self._unknown:  # all characters may be one run
            most = isqrt(MAX_STEPS // (self._unknown + len(self._classes))) // self._growth
            return begin + max(1, min(size, most))
        while size > 1:
            part = text[begin : begin + size]
            seen = part if self._normalizer is None else self._normalizer.normalize_str(part)
            affordable = self._affordable(seen)
            if affordable == len(seen):
                break
            size = max(1, min(size * affordable // len(seen), size * 7 // 8))
        return begin + size

    def _affordable(self, text: str) -> int:
        """Return how many characters may be searched."""
        lengths = [0] * len(self._classes)
        steps = 0
        for at, character in enumerate(text):
            for place, belongs in enumerate(self._classes_of(character)):
                if belongs:
                    # The square of one more is larger by twice the length, and 1.
                    steps += 2 * lengths[place] + 1
                    lengths[place] += 1
                else:
                    lengths[place] = 0
            if steps > MAX_STEPS:
                return at
        return len(text)


_UNREADABLE = object()


def _retrying(state: dict[str, Any]) -> object:
    """Return the pattern of a component if it retries, :data:`_UNREADABLE`, or None."""
    if state.get("pattern") is None:
        return None
    pattern = pattern_of(state["pattern"])
    if pattern is None:
        return _UNREADABLE
    try:
        return pattern if pattern.retries else None
    except Unreadable:
        return _UNREADABLE
