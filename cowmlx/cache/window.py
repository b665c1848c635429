"""How a sequence rolls through a window that is shorter than it."""

from __future__ import annotations


class RollingWindow:
    """Drops tokens behind the first ``keep``, a quarter of the rest at a time.

    What is dropped depends on the sequence's length alone, so the prompts of a conversation that
    grows keep their beginning in common, whoever cuts them: generation or the next begin.
    """

    def __init__(self, size: int, keep: int) -> None:
        self.size = size
        self.keep = keep
        self._step = max(1, (size - keep) // 4)

    def dropped(self, length: int) -> int:
        """Return how many of ``length`` tokens are out of the window."""
        excess = max(0, length - self.size)
        return -(-excess // self._step) * self._step

    def cut(self, tokens: list[int], dropped: int = 0) -> list[int]:
        """Return what stays of tokens, ``dropped`` of which are gone already."""
        more = self.dropped(len(tokens) + dropped) - dropped
        return tokens[: self.keep] + tokens[self.keep + more :]
