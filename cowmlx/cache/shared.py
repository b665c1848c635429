"""Processed prompts that the contexts of one model share."""

from __future__ import annotations

from cowmlx.cache.points import Point, go_back, point_of
from cowmlx.cache.sequence import Snapshot, common_prefix, share
from cowmlx.cache.trimming import can_trim_all, trim

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    Known = Snapshot | Point
    _Found = tuple[tuple[Hashable, Known] | None, int, tuple[Hashable, Snapshot] | None]

# Tokens of the shortest prompt for which a lookup and a copy are quicker than processing.
WORTHWHILE = 32
TOKEN_BYTES = 40  # of a token in Python's list, which outweighs the state of a recurrence


class SharedPrefixes:
    """Snapshots of prompts and points inside them, the least recently used dropped first.

    A point brings a longer snapshot, or what a context holds, back to a position where its layers
    cannot be cut. Only those of the same ``kind`` (weights and type of cache) fit each other. They
    are few, and each is compared with a prompt: mlx-lm's ``PromptTrie`` takes quadratic time for a
    prompt whose beginning alone is known.

    Args:
        capacity: bytes that all snapshots may hold, their tokens included.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._recent: list[tuple[Hashable, Known]] = []

    def __len__(self) -> int:
        return len(self._recent)

    @property
    def nbytes(self) -> int:
        """Bytes of all snapshots and points."""
        return sum(_cost(snapshot.tokens, snapshot.nbytes) for _, snapshot in self._recent)

    def wants(self, tokens: list[int], nbytes: int) -> bool:
        """Whether :meth:`add` would keep that many tokens and bytes."""
        return len(tokens) >= WORTHWHILE and _cost(tokens, nbytes) <= self.capacity

    def add(self, kind: Hashable, snapshot: Snapshot, points: Sequence[Known] = ()) -> None:
        """Keep a snapshot, and no longer those that could be cut out of it.

        Args:
            kind: of weights and cache.
            snapshot: of a prompt.
            points: of the same prompt; the snapshot is dropped before they are.
        """
        if not self.wants(snapshot.tokens, snapshot.nbytes):
            return
        cuts = can_trim_all(snapshot.layers)
        kept: list[tuple[Hashable, Known]] = []
        for own, known in self._recent:
            begins = own == kind and snapshot.tokens[: len(known.tokens)] == known.tokens
            if not begins:
                kept.append((own, known))
            elif not cuts and len(known.tokens) < len(snapshot.tokens):
                kept.append((own, _less(known)))
        behind = [entry for entry in kept if any(entry[1] is point for point in points)]
        self._recent = [entry for entry in kept if entry not in behind]
        self._recent += [(kind, snapshot), *behind]
        self._drop_excess()

    def add_point(self, kind: Hashable, point: Known) -> None:
        """Keep a point inside a prompt."""
        if not self.wants(point.tokens, point.nbytes):
            return
        self._recent = [
            (own, known)
            for own, known in self._recent
            if own != kind or type(known) is not type(point) or known.tokens != point.tokens
        ]
        self._recent.append((kind, point))
        self._drop_excess()

    def _drop_excess(self) -> None:
        excess = self.nbytes - self.capacity
        while excess > 0:
            _, oldest = self._recent.pop(0)
            excess -= _cost(oldest.tokens, oldest.nbytes)

    def longest(
        self, kind: Hashable, prompt: list[int], more_than: int, held: int = 0
    ) -> Known | None:
        """Return the longest known beginning of a prompt, if longer than ``more_than``.

        Args:
            kind: of weights and cache.
            prompt: without the last token, which has to be processed.
            more_than: tokens that the context can keep by itself.
            held: tokens that the context holds of it; a point among these is returned as it is.
        """
        best, length, base = self._find(kind, prompt, more_than, held)
        if best is None:
            return None
        if isinstance(best[1], Snapshot):
            self._touch(best)
            return _cut(best[1], length)
        if length > held and base is not None:
            self._touch(base)
            self._touch(best)
            return back_to(base[1], best[1])
        self._touch(best)
        return best[1]

    def known(self, kind: Hashable, prompt: list[int], more_than: int, held: int) -> int:
        """Return how many tokens :meth:`longest` would know, or ``more_than``."""
        best, length, _ = self._find(kind, prompt, more_than, held)
        return more_than if best is None else length

    def _find(self, kind: Hashable, prompt: list[int], more_than: int, held: int) -> _Found:
        """Return the entry to use, the tokens to keep of it, and the base of a point."""
        length = max(more_than, WORTHWHILE - 1)
        best: tuple[Hashable, Known] | None = None
        base: tuple[Hashable, Snapshot] | None = None  # that has the most in common
        reach = held
        for entry in self._recent:
            known = entry[1]
            if not isinstance(known, Snapshot) or not _may_be_longer(entry, kind, prompt, length):
                continue
            common = common_prefix(known.tokens, prompt)
            if common > reach:
                base, reach = (kind, known), common
            if common > length and (common == len(known.tokens) or can_trim_all(known.layers)):
                best, length = entry, common
        for entry in self._recent:
            own, known = entry
            if own != kind or not isinstance(known, Point):
                continue
            size = len(known.tokens)
            if length < size <= reach and prompt[:size] == known.tokens:
                best, length = entry, size
        return best, length, base

    def _touch(self, entry: tuple[Hashable, Known]) -> None:
        """Make an entry the one that was used last."""
        index = next(i for i, own in enumerate(self._recent) if own[1] is entry[1])
        self._recent.append(self._recent.pop(index))

    def clear(self) -> None:
        """Forget every snapshot."""
        self._recent.clear()


def _cost(tokens: list[int], nbytes: int) -> int:
    return nbytes + TOKEN_BYTES * len(tokens)


def _may_be_longer(
    entry: tuple[Hashable, Known], kind: Hashable, prompt: list[int], length: int
) -> bool:
    """Whether an entry may have more than ``length`` tokens in common with a prompt."""
    next_token = slice(length, length + 1)
    return entry[0] == kind and entry[1].tokens[next_token] == prompt[next_token]


def _less(known: Known) -> Known:
    """Return the point that is left of a snapshot once a longer one has its keys and values."""
    if isinstance(known, Point):
        return known
    return point_of(known.tokens, known.layers) or known


def back_to(snapshot: Snapshot, point: Point) -> Snapshot | None:
    """Return a snapshot's beginning up to a point; None if its layers do not keep step."""
    layers = share(snapshot.layers)
    in_step = go_back(layers, len(snapshot.tokens), point)
    return Snapshot(list(point.tokens), layers) if in_step else None


def _cut(snapshot: Snapshot, length: int) -> Snapshot | None:
    """Return the first ``length`` tokens of a snapshot; None if its layers do not keep step."""
    excess = len(snapshot.tokens) - length
    if not excess:
        return snapshot
    layers = share(snapshot.layers)
    shift = 0 if snapshot.shift == 0 else None
    return Snapshot(snapshot.tokens[:length], layers, shift) if trim(layers, excess) else None
