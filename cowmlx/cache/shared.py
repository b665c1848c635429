"""Processed prompts that the contexts of one model share."""

from __future__ import annotations

from cowmlx.cache.sequence import Snapshot, common_prefix, share
from cowmlx.cache.trimming import can_trim_all, trim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

# Tokens of the shortest prompt for which a lookup and a copy are quicker than processing.
WORTHWHILE = 32
TOKEN_BYTES = 40  # of a token in Python's list, which outweighs the state of a recurrence


class SharedPrefixes:
    """Snapshots of prompts, the least recently used dropped first.

    Only snapshots of the same ``kind`` (weights and type of cache) fit each other. They are few,
    and each is compared with a prompt: mlx-lm's ``PromptTrie`` takes quadratic time for a prompt
    whose beginning alone is known.

    Args:
        capacity: bytes that all snapshots may hold, their tokens included.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._recent: list[tuple[Hashable, Snapshot]] = []

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots."""
        return sum(_cost(snapshot.tokens, snapshot.nbytes) for _, snapshot in self._recent)

    def wants(self, tokens: list[int], nbytes: int) -> bool:
        """Whether :meth:`add` would keep that many tokens and bytes."""
        return len(tokens) >= WORTHWHILE and _cost(tokens, nbytes) <= self.capacity

    def add(self, kind: Hashable, snapshot: Snapshot) -> None:
        """Keep a snapshot, and no longer those that could be cut out of it."""
        if not self.wants(snapshot.tokens, snapshot.nbytes):
            return
        cuts = can_trim_all(snapshot.layers)

        def contained(other: list[int]) -> bool:
            begins = snapshot.tokens[: len(other)] == other
            return begins and (cuts or len(other) == len(snapshot.tokens))

        self._recent = [
            entry for entry in self._recent if entry[0] != kind or not contained(entry[1].tokens)
        ]
        self._recent.append((kind, snapshot))
        excess = self.nbytes - self.capacity
        while excess > 0:
            _, oldest = self._recent.pop(0)
            excess -= _cost(oldest.tokens, oldest.nbytes)

    def longest(self, kind: Hashable, prompt: list[int], more_than: int) -> Snapshot | None:
        """Return the longest known beginning of a prompt, if longer than ``more_than``.

        Args:
            kind: of weights and cache.
            prompt: without the last token, which has to be processed.
            more_than: tokens that the context holds itself.
        """
        best, length = None, max(more_than, WORTHWHILE - 1)
        for entry in self._recent:
            tokens, layers = entry[1].tokens, entry[1].layers
            if entry[0] != kind or tokens[length : length + 1] != prompt[length : length + 1]:
                continue
            common = common_prefix(tokens, prompt)
            if common > length and (common == len(tokens) or can_trim_all(layers)):
                best, length = entry, common
        if best is None:
            return None
        self._recent.remove(best)
        self._recent.append(best)
        return _cut(best[1], length)

    def clear(self) -> None:
        """Forget every snapshot."""
        self._recent.clear()


def _cost(tokens: list[int], nbytes: int) -> int:
    return nbytes + TOKEN_BYTES * len(tokens)


def _cut(snapshot: Snapshot, length: int) -> Snapshot | None:
    """Return the first ``length`` tokens of a snapshot; None if its layers do not keep step."""
    excess = len(snapshot.tokens) - length
    if not excess:
        return snapshot
    layers = share(snapshot.layers)
    return Snapshot(snapshot.tokens[:length], layers) if trim(layers, excess) else None
