"""The prompt of a generation: the reused part, the rolling window, and the rest in chunks."""

from __future__ import annotations

from time import perf_counter

import mlx.core as mx

from cowmlx.cache.sequence import Snapshot, common_prefix
from cowmlx.cache.shared import back_to
from cowmlx.cache.trimming import shorten
from cowmlx.errors import ContextFull
from cowmlx.models.image_tokens import advance, next_chunk, whole

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from cowmlx.cache.points import Point
    from cowmlx.cache.sequence import Sequence
    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.generation.drafting import Drafter
    from cowmlx.generation.sampling.samples import Sample
    from cowmlx.models.images import ImageSteps


class RollingWindow:
    """Drops tokens behind the first ``keep``, a quarter of the rest at a time.

    The number depends on the sequence's length alone, so the prompts of a conversation that grows
    keep their beginning in common, whether generation cuts them or the next begin.
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
        """Return the tokens that stay, after ``dropped`` earlier ones."""
        more = self.dropped(len(tokens) + dropped) - dropped
        return whole(tokens[: self.keep] + tokens[self.keep + more :]) if more else tokens

    def cut_prompt(self, tokens: list[int]) -> list[int]:
        """Return the tokens of a prompt that stay.

        Raises:
            ContextFull: an image at its end is too long for them.
        """
        kept = self.cut(tokens)
        if kept and kept[-1] == tokens[-1]:
            return kept
        image = len(tokens) - len(whole(tokens[:-1]))
        left = len(tokens) - self.dropped(len(tokens)) - self.keep
        raise ContextFull(
            f"the prompt ends with an image of {image} tokens, but this context has place for "
            f"{left} at its end",
            needed=image,
            available=left,
        )


class Reuse:
    """The reused and the dropped part of a prompt.

    Attributes:
        dropped: tokens at the front that did not fit the window.
        shared: tokens that another context had processed.
        first_difference: index of the first token that differs from the held one, or None.
        rebuilt: why no held token could be kept, or None.
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


# Tokens of the longest generation prompt that is looked for.
_GENERATION = 64


class Keeper:
    """Keeps a prompt's states for later prompts: at some positions inside, and at its end.

    Args:
        sequence: a context's, that processes the prompt.
        prefixes: processed prompts that the model's contexts share.
        kind: of snapshots that fit the sequence.
        positions: inside the prompt, in order.
        archive: takes the processed prompt, to keep it elsewhere; None: nothing does.
    """

    def __init__(
        self,
        sequence: Sequence,
        prefixes: SharedPrefixes,
        kind: Hashable,
        positions: list[int],
        archive: Callable[[Snapshot], None] | None = None,
    ) -> None:
        self._sequence = sequence
        self._prefixes = prefixes
        self._kind = kind
        self._positions = positions
        self._archive = archive
        self._points: list[Snapshot | Point] = []

    def room(self) -> int | None:
        """Return how many tokens there are before the next position; None: no position is left.

        The state is kept at a position that is reached.
        """
        held = len(self._sequence.tokens)
        while self._positions and self._positions[0] <= held:
            if self._positions.pop(0) == held and self._prefixes.wants(self._sequence.tokens, 0):
                point = self._sequence.point()
                self._prefixes.add_point(self._kind, point)
                self._points.append(point)
        return self._positions[0] - held if self._positions else None

    @property
    def has_positions(self) -> bool:
        """Whether there are positions before the end."""
        return bool(self._positions)

    def end(self) -> None:
        """Share the tokens that the sequence holds with the model's other contexts."""
        wanted = self._prefixes.wants(self._sequence.tokens, 0)
        if not wanted and self._archive is None:
            return
        snapshot = self._sequence.snapshot()
        assert snapshot is not None
        for layer in snapshot.layers:
            shorten(layer)
        mx.async_eval([layer.state for layer in snapshot.layers])
        if wanted:
            self._prefixes.add(self._kind, snapshot, self._points)
        if self._archive is not None:
            self._archive(self._before_generation(snapshot))

    def _before_generation(self, snapshot: Snapshot) -> Snapshot:
        """Return what the next prompt of a chat has in common with this one, if it was kept."""
        last = self._points[-1] if self._points else None
        if last is None or len(last.tokens) + _GENERATION < len(snapshot.tokens):
            return snapshot
        return last if isinstance(last, Snapshot) else back_to(snapshot, last) or snapshot


def keep_known(
    sequence: Sequence,
    prompt: list[int],
    dropped: int,
    prefixes: SharedPrefixes | None,
    kind: Hashable,
    known: Snapshot | None = None,
) -> Reuse:
    """Let a sequence hold the processed beginning of a prompt, and nothing else.

    Args:
        sequence: a context's.
        prompt: all tokens that are to be held.
        dropped: tokens that the host's prompt had in front of them.
        prefixes: of other contexts; None: the context does not share.
        kind: of snapshots that fit the sequence.
        known: another snapshot that fits it, which begins as the prompt does.
    """
    held = sequence.tokens
    common = common_prefix(held, prompt)
    difference = common if common < min(len(held), len(prompt)) else None
    if known is not None:
        sequence.restore(known)
        rebuilt = sequence.keep_prefix(prompt)
        return Reuse(dropped, len(sequence.tokens), difference, rebuilt)
    if prefixes is not None:
        begin = prompt[:-1]
        own = min(common, len(begin)) if sequence.has_layers else 0  # that a point may be of
        found = prefixes.longest(kind, begin, sequence.reusable(prompt), own)
        if isinstance(found, Snapshot):
            sequence.restore(found)
            return Reuse(dropped, len(found.tokens), difference)
        if found is not None:
            sequence.go_back(found)
            return Reuse(dropped, 0, difference)
    return Reuse(dropped, 0, difference, sequence.keep_prefix(prompt))


SHORT_PROMPT = 32  # tokens up to which a prompt is quicker together with others


class Prompt:
    """Tokens that go through the layers in chunks, which are timed.

    Args:
        tokens: all of the prompt.
        sequence: the context's, which holds the reused part.
        rolling: how the window rolls; None: it does not.
        drafter: drafts tokens.
        keeper: keeps states of the prompt, all but its last token.

    Attributes:
        processed: tokens of the prompt, reused ones included.
        recomputed: those of them that were not reused.
        rolled: tokens that left the window since begin.
    """

    def __init__(
        self,
        tokens: list[int],
        sequence: Sequence,
        rolling: RollingWindow | None,
        drafter: Drafter | None,
        keeper: Keeper | None,
    ) -> None:
        self.recomputed = 0
        self.processed = len(sequence.tokens)
        self.rolled = 0
        self._tokens = tokens
        self._rest = tokens[len(sequence.tokens) :]
        self._sequence = sequence
        self._roller = rolling
        self._rolling = False
        self._unplaced: int | None = None  # a token for which the window has no place
        self._drafter = drafter
        self._keeper = keeper
        self._has_rows = min(tokens) < 0  # of embeddings
        self._image_steps: set[ImageSteps] = set()  # that are under way
        self._chunk = 0  # tokens that are computing
        self._chunk_began = 0.0
        self._chunk_starting = 0.0  # seconds: mlx waits for some operations

    def held_tokens(self) -> list[int]:
        """Return the tokens that the sequence holds, without rows of embeddings."""
        held = self._sequence.tokens
        return [token for token in held if token >= 0] if self._has_rows else held

    @property
    def left(self) -> int:
        """Tokens that are still to be processed, without those that are computing."""
        return len(self._rest)

    @property
    def rolls(self) -> bool:
        """Whether the window rolls next."""
        return self._unplaced is not None

    # ---------------------------------------------------------------- Chunks

    def next_chunk(self, size: int) -> list[int]:
        """Return the tokens to process next, ``size`` at most; none if other work was done."""
        self._chunk_began = perf_counter()
        if self._unplaced is not None:
            self._roll(self._unplaced)
        if self._drafter is not None and self._drafter.prefill(self._tokens, size):
            return []
        if self._keeper is not None and not self._rolling:
            size = min(size, self._keeper.room() or size)
            if len(self._rest) == 1:
                self._keeper.end()
        size = max(1, min(size, len(self._rest) - 1))
        if not self._has_rows:
            return self._rest[:size]
        chunk = next_chunk(self._rest, size)
        return [] if advance(chunk, self._image_steps) else chunk

    def give_up(self) -> None:
        """Drop what has been computed of an image that is not complete."""
        self._image_steps.clear()

    def hold(self, chunk: list[int]) -> None:
        """Note tokens that the layers process or have processed."""
        self._sequence.append(chunk)
        del self._rest[: len(chunk)]
        self._chunk += len(chunk)

    def note_started(self) -> None:
        """Note that all of the chunk's operations are handed to mlx."""
        self._chunk_starting = perf_counter() - self._chunk_began

    def finish_chunk(self, first: Sample | None) -> tuple[int, int, float | None]:
        """Wait for the chunk that is computing, if one is.

        Args:
            first: the token behind all of them, if it is sampled.
        Returns:
            its tokens, those before it, and the seconds that it took; None if that is unknown.
        """
        size, position = self._chunk, len(self._sequence.tokens)
        if not size:
            return 0, position, None
        waits = perf_counter()
        if first is None:
            mx.eval(self._sequence.state)
        else:  # the layers may be in a batch, where they stay
            mx.eval(first.token)
        ends = perf_counter()
        if not self._rolling:
            self.processed += size
            self.recomputed += size
        self._chunk = 0
        # It may have been ready long before.
        seconds = ends - self._chunk_began
        known = 2 * (self._chunk_starting + ends - waits) >= seconds
        return size, position - size, seconds if known else None

    def finish(self) -> bool:
        """Note that no token is left; true if that was the prompt, and no window that rolled."""
        rolled, self._rolling = self._rolling, False
        return not rolled

    # ----------------------------------------------- A short one, together with others

    @property
    def short(self) -> int:
        """How many tokens are left that can be processed with other prompts; 0: none."""
        if self._chunk or self._rolling or self.rolls or self._drafter is not None:
            return 0
        if self._keeper is not None and self._keeper.has_positions:
            return 0
        if not 0 < len(self._rest) <= SHORT_PROMPT or min(self._rest) < 0:
            return 0
        return len(self._rest)

    def all_but_last(self) -> list[int]:
        """Return the remaining tokens but the last."""
        return self._rest[:-1]

    def last(self) -> int:
        """Return the last token, after all before it were fed."""
        self.hold(self._rest[:-1])
        if self._keeper is not None:
            self._keeper.end()
        return self._rest[0]

    # ---------------------------------------------------------------- Rolling

    def roll_for(self, token: int) -> None:
        """Let the window roll next: it has no place for a token."""
        self._unplaced = token

    def _roll(self, token: int) -> None:
        """Make place for a token: the tokens that stay are processed again, and then it."""
        assert self._roller is not None
        tokens = [*self._sequence.tokens, token]
        kept = self._roller.cut(tokens)
        self.rolled += len(tokens) - len(kept)
        self._sequence.keep_prefix(kept)
        self._tokens, self._rest = kept, kept[len(self._sequence.tokens) :]
        self._unplaced, self._rolling = None, True
