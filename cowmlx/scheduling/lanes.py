"""Which lane a context is in: one per model, kind of cache and kind of priority."""

from __future__ import annotations

from weakref import WeakSet

import mlx.core as mx

from cowmlx.scheduling.lane import Lane

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from cowmlx.generation.context import Context
    from cowmlx.models.model import Model
    from cowmlx.scheduling.scheduler import Scheduler
    from cowmlx.scheduling.streams import StreamPool

    # A model, how keys and values are stored, and whether it is background work.
    Key = tuple[int, tuple[int, int], bool]


class Lanes:
    """All lanes: one per model (with its adapter), kind of cache and kind of priority.

    A context is in a lane and has a stream while it has work. Idle contexts have no stream, which
    would be a thread, and cost steps no time.

    Args:
        streams: of contexts and lanes.
        scheduler: gives lanes their turns.
    """

    def __init__(self, streams: StreamPool, scheduler: Scheduler) -> None:
        self._streams = streams
        self._scheduler = scheduler
        # Whether so many bytes can be taken at ease.
        self.has_room: Callable[[int], bool] = lambda size: True
        self._lanes: dict[Key, Lane] = {}
        self._of: dict[Context, Lane] = {}
        # Contexts that have left their lane while pieces wait for their hosts; others may be in it.
        self._untaken: WeakSet[Context] = WeakSet()

    @property
    def idle_stream(self) -> mx.Stream:
        """The stream of short computations for contexts that have none."""
        return mx.default_stream(self._streams.device)

    def enter(self, context: Context) -> mx.Stream:
        """Let a context work, and be batched with others of its model; returns its stream.

        Raises:
            OutOfMemory: a stream's thread cannot be started; nothing has changed.
        """
        stream, stream_of_lane, lane = self._streams.take(), None, None
        try:
            model, kv, priority = context.model, context.params.kv, context.priority
            key = model.weights_version, kv.key, priority < 0
            lane = self._lanes.get(key)
            if lane is None:
                kind = _kind(model)
                stream_of_lane = self._streams.take()
                lane = kind(model, kv, priority, stream_of_lane, self.has_room)
            self._scheduler.add(lane)
            self._of[context] = lane
            lane.contexts.append(context)
            self._lanes[key] = lane
        except BaseException:
            self._of.pop(context, None)
            if lane is not None and context in lane.contexts:
                lane.contexts.remove(context)
            if stream_of_lane is not None:
                if lane is not None:
                    self._scheduler.remove(lane)
                self._streams.give_back(stream_of_lane)
            self._streams.give_back(stream)
            raise
        return stream

    def exit(self, context: Context, stream: mx.Stream, settled: bool) -> None:
        """Take a context's stream back, once its layers are in no batch.

        Args:
            context: whose it is.
            stream: its stream.
            settled: whether all that was computed there has succeeded.

        Raises:
            MemoryError: nothing has changed.
        """
        lane = self._of[context]
        # All that may find no memory comes first. Not by its key: the weights may have another
        # version by now.
        others = {key: own for key, own in self._lanes.items() if own is not lane}
        if _has_untaken(context):
            self._untaken.add(context)
        del self._of[context]
        lane.contexts.remove(context)
        self._streams.give_back(stream, settled)
        if lane.finished:
            self._lanes = others
            self._scheduler.remove(lane)
            # With the layers that were in the batch.
            self._streams.give_back(lane.stream)

    def attend_untaken(self) -> None:
        """Let cancels take back pieces of contexts that have left their lane."""
        if not self._untaken:
            return
        for context in tuple(self._untaken):
            context.note_taken()
            if not _has_untaken(context):
                self._untaken.discard(context)
            elif context.cancel_epoch() != context.generation.cancel_epoch:  # type: ignore[union-attr]
                context.attend()

    def note_spoiled(self, context: Context) -> None:
        """Note that a step of a context's batch was not computed; its generation has the error."""
        lane = self._of.get(context)
        generation = context.generation
        if lane is not None and generation is not None and generation.error is not None:
            lane.spoil(generation.error)


def _has_untaken(context: Context) -> bool:
    """Whether the generation of a context has ended, with pieces that a cancel takes back."""
    return context.generation is not None and context.generation.can_be_taken_back


def _kind(model: Model) -> type[Lane]:
    """Return the kind of lanes that a model has."""
    if model.split is None:
        return Lane
    from cowmlx.scheduling.remote_lane import RemoteLane  # late: few hosts need it

    return RemoteLane
