"""What of a prompt need not be processed: the context holds it, or another one has shared it."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.cache.sequence import common_prefix
from cowmlx.cache.trimming import shorten

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Hashable

    from cowmlx.cache.sequence import Sequence
    from cowmlx.cache.shared import SharedPrefixes


class Reuse:
    """What a begin made of its prompt.

    Attributes:
        dropped: tokens that it lost at its front.
        shared: tokens that another context had processed.
        first_difference: index of the first token that was not as held, or None.
        rebuilt: why nothing held could be kept, or None.
    """

    def __init__(
        self,
        dropped: int = 0,
        shared: int = 0,
        first_difference: int | None = None,
        rebuilt: str | None = None,
    ) -> None:
        self.dropped = dropped
        self.shared = shared
        self.first_difference = first_difference
        self.rebuilt = rebuilt


def keep_known(
    sequence: Sequence,
    prompt: list[int],
    dropped: int,
    prefixes: SharedPrefixes | None,
    kind: Hashable,
) -> Reuse:
    """Let a sequence hold what is known of a prompt's beginning, and nothing else.

    Args:
        sequence: a context's.
        prompt: all tokens that are to be held.
        dropped: tokens that the host's prompt had in front of them.
        prefixes: what contexts have shared; None: nothing of it.
        kind: whose snapshots fit the sequence.
    """
    held = sequence.tokens
    common = common_prefix(held, prompt)
    difference = common if common < min(len(held), len(prompt)) else None
    if prefixes is not None:
        shared = prefixes.longest(kind, prompt[:-1], sequence.reusable(prompt))
        if shared is not None:
            sequence.restore(shared)
            return Reuse(dropped, len(shared.tokens), difference)
    return Reuse(dropped, 0, difference, sequence.keep_prefix(prompt))


def share(sequence: Sequence, prefixes: SharedPrefixes, kind: Hashable) -> None:
    """Leave what a sequence holds for the model's other contexts."""
    if prefixes.wants(sequence.tokens, 0):
        snapshot = sequence.snapshot()
        assert snapshot is not None
        for layer in snapshot.layers:
            shorten(layer)
        mx.async_eval([layer.state for layer in snapshot.layers])
        prefixes.add(kind, snapshot)
