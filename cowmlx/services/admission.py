"""Refuses work that does not fit into memory, before anything is taken for it."""

from __future__ import annotations

from time import monotonic
from typing import NamedTuple
from weakref import WeakKeyDictionary

from cowmlx import memory
from cowmlx.cache.footprint import footprint_of, most_needed
from cowmlx.errors import OutOfMemory
from cowmlx.generation.pace import PREFILL_CHUNK, pace_of
from cowmlx.generation.params import expected_tokens
from cowmlx.resources import RESERVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.generation.context import Context
    from cowmlx.generation.params import GenerationParams
    from cowmlx.models.model import Model
    from cowmlx.services.runtime import Runtime

LEAST_CHUNK = 16
"""Tokens of a prompt's smallest chunk when memory is short."""
CERTAIN = 256
"""Tokens that a generation is sure to generate, unless a person has set a limit of memory."""

FRESH = 0.05
"""Seconds for which a reading of the free memory counts, less what was asked for since. A reading
takes half a millisecond."""


class Promise(NamedTuple):
    """The bytes of the caches of a generation.

    Attributes:
        certain: with the first generated tokens.
        whole: with all of ``max_tokens``.
    """

    certain: int
    whole: int

    def for_(self, room: memory.Room) -> int:
        """Return those that count where there is so much room."""
        return self.whole if room.is_limit else self.certain


class Admission:
    """Compares estimates with the memory that there is.

    Work below ``RESERVE``, which every call can rely on, is not looked at unless the host has set
    a limit: to read what there is takes longer than to begin with a short prompt.

    Args:
        runtime: with the limit and the device.
        reclaim: gives back what is kept for later calls.
        put_to_sleep: gives back the cache of one idle context; false if there is none. Its
            argument is a context that keeps its cache, or None.
        idle_bytes: returns the most bytes that it can give back, for the same argument.
    """

    def __init__(
        self,
        runtime: Runtime,
        reclaim: Callable[[], None],
        put_to_sleep: Callable[[Context | None], bool],
        idle_bytes: Callable[[Context | None], int],
    ) -> None:
        self._runtime = runtime
        self._reclaim = reclaim
        self._put_to_sleep = put_to_sleep
        self._idle_bytes = idle_bytes
        self._promised: WeakKeyDictionary[Context, Promise] = WeakKeyDictionary()
        self._read = float("-inf")
        self._free = 0

    def require(self, size: int, what: str) -> None:
        """Make sure that there are so many bytes.

        Raises:
            OutOfMemory: there are not, even once all that is kept for later calls is given back.
        """
        if size <= RESERVE and not self._runtime.memory_is_limited:
            return
        now = monotonic()
        if now - self._read < FRESH and size <= self._free and not self._runtime.memory_is_limited:
            self._free -= size
            return
        free = min((room.at_ease for room in self._rooms()), default=size)
        if size > free:
            self._reclaim()
            self._require(lambda room: size, what, None)
        self._read, self._free = now, free - size

    def has_room(self, size: int) -> bool:
        """Whether so many bytes can be taken at ease; nothing is given back for them."""
        if size <= RESERVE and not self._runtime.memory_is_limited:
            return True
        return all(size <= room.at_ease for room in self._rooms())

    def at_once(
        self, count: int, chunk: int, size_of: Callable[[int, int], int], what: str
    ) -> tuple[int, int]:
        """Return how many items, and tokens of each, may be processed at once.

        They are fewer where memory is short. What is kept for later calls is given back before one
        item is processed in smaller chunks.

        Args:
            count: all items.
            chunk: the most tokens of each.
            size_of: returns the bytes that so many of the first take, with chunks of so many.
            what: that is processed, for messages.

        Raises:
            OutOfMemory: there is too little even for the smallest chunk of one.
        """
        while count > 1 and not self.has_room(size_of(count, chunk)):
            count //= 2
        if count == 1 and not self.has_room(size_of(count, chunk)):
            self._reclaim()
            while chunk > LEAST_CHUNK and not self.has_room(size_of(count, chunk)):
                chunk //= 2
            self.require(size_of(count, chunk), what)
        return count, chunk

    def admit(
        self,
        context: Context,
        prompt: int,
        params: GenerationParams,
        draft: Model | None,
        held: int,
    ) -> int:
        """Make sure that there is memory for a generation.

        Args:
            context: that begins.
            prompt: its tokens.
            params: of the generation.
            draft: the draft model.
            held: bytes that are taken for its cache already, beside those of the context.

        Returns:
            how many tokens of the prompt may be processed at once.

        Raises:
            OutOfMemory: there is too little even for the smallest chunks.
        """
        model = context.model
        if model.split is not None:  # its ranks have the caches
            return PREFILL_CHUNK
        planned = max(1, min(pace_of(model).largest, prompt))
        tokens = expected_tokens(prompt, params, context.params)
        models = [model] if draft is None else [model, draft]
        certain = self._runtime.memory_is_limited or params.draft_heads
        if not certain and not any(one.unread_bytes for one in models):
            bounds = [most_needed(one, tokens, planned) for one in models]
            if all(bounds) and sum(bounds) <= RESERVE:
                self._promised.pop(context, None)
                return PREFILL_CHUNK
        needs = _Needs(context, models, prompt, tokens, held)
        if params.draft_heads:
            needs.add_head(model)

        def need(room: memory.Room, chunk: int) -> int:
            return needs.bytes_of(chunk, room.is_limit) + self._outstanding(context, room)

        def bound(room: memory.Room) -> int:
            # Small chunks are slow, and no help where the rest alone is too much.
            return room.at_ease if need(room, LEAST_CHUNK) <= room.at_ease else room.available

        rooms = self._rooms()
        if any(need(room, planned) > room.at_ease for room in rooms):
            self._reclaim()
            rooms = self._rooms()
        chunk = planned
        while chunk > LEAST_CHUNK and any(need(room, chunk) > bound(room) for room in rooms):
            chunk //= 2
        self._require(lambda room: need(room, chunk), "the generation", context)
        self._promised[context] = needs.promise
        return chunk if chunk < planned else PREFILL_CHUNK

    def _require(self, need: Callable[[memory.Room], int], what: str, but: Context | None) -> None:
        """Make sure that every source has what is needed of it.

        Idle contexts lose their caches, if that can be enough.

        Raises:
            OutOfMemory: one has not.
        """
        while True:
            short = [room for room in self._rooms() if need(room) > room.available]
            if not short:
                return
            idle = self._idle_bytes(but)
            if any(need(room) > room.available + idle for room in short):
                break
            if not self._put_to_sleep(but):
                break
        room = min(short, key=lambda room: room.available)
        needed = need(room)
        raise OutOfMemory(
            f"{what} needs {needed} bytes of memory, and {room.bound} leaves {room.available}",
            needed=needed,
            available=room.available,
        )

    def _outstanding(self, but: Context, room: memory.Room) -> int:
        """Return the bytes that other contexts, which still generate, were promised and lack."""
        return sum(
            max(0, promise.for_(room) - context.sequence.nbytes)
            for context, promise in list(self._promised.items())
            if context is not but
            and context.generation is not None
            and not context.generation.ended
        )

    def _rooms(self) -> list[memory.Room]:
        return [*self._runtime.limits(), *memory.rooms(self._runtime.streams.device)]


class _Needs:
    """The bytes that a generation takes beside those that its context holds.

    Args:
        context: that begins.
        models: its model, and the draft model if there is one.
        prompt: tokens of the prompt.
        tokens: at the end, of all of ``max_tokens``.
        held: bytes that are taken for its cache already.
    """

    def __init__(
        self, context: Context, models: list[Model], prompt: int, tokens: int, held: int
    ) -> None:
        kinds = [context.params.kv, None]
        made = [footprint_of(model, kv) for model, kv in zip(models, kinds, strict=False)]
        self._footprints = [one for one in made if one is not None]
        self._lengths = min(tokens, prompt + CERTAIN), tokens
        self._held = context.cache_bytes + held
        self._unread = sum(model.unread_bytes for model in models)
        self.promise = Promise(*map(self._cache, self._lengths))

    def _cache(self, tokens: int) -> int:
        return sum(footprint.cache(tokens) for footprint in self._footprints)

    def add_head(self, model: Model) -> None:
        """Count the head that drafts: its weights, if they are not read yet, and its cache."""
        from cowmlx.models import mtp  # late: few generations need it

        self._unread += mtp.unread_bytes(model)
        for footprint in self._footprints[:1]:
            more = (footprint.layer(tokens) for tokens in self._lengths)
            self.promise = Promise(*map(sum, zip(self.promise, more, strict=True)))

    def bytes_of(self, chunk: int, of_whole: bool) -> int:
        """Return the bytes with chunks of this size.

        Args:
            chunk: tokens of the largest.
            of_whole: whether all of ``max_tokens`` counts.
        """
        tokens = self._lengths[of_whole]
        moments = [
            footprint.growing(tokens) + footprint.activations(chunk, tokens)
            for footprint in self._footprints
        ]
        more = max(0, self.promise[of_whole] - self._held)
        return more + max(moments, default=0) + self._unread
