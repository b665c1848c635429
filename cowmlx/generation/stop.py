"""Stop texts, across the borders of tokens."""

from __future__ import annotations


class StopMatcher:
    """Lets text through up to the first stop text, which itself never comes out.

    Text that may be the beginning of a stop text is held back until the next
    text decides.
    """

    def __init__(self, stops: list[str]) -> None:
        self._stops = stops
        self._held = ""
        self.stopped = False

    def add(self, text: str) -> str:
        """Return the text that can be emitted now."""
        text = self._held + text
        self._held = ""
        found = [position for stop in self._stops if (position := text.find(stop)) >= 0]
        if found:
            self.stopped = True
            return text[: min(found)]
        border = len(text) - max(_overlap(text, stop) for stop in self._stops)
        self._held = text[border:]
        return text[:border]

    def finish(self) -> str:
        """Return what is held back: no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of ``text`` that begins ``stop``."""
    for length in range(min(len(text), len(stop) - 1), 0, -1):
        if stop.startswith(text[-length:]):
            return length
    return 0
