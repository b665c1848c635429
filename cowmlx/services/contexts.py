"""The calls of contexts, and of checkpoints of them."""

from __future__ import annotations

from functools import partial

from cowmlx.cache.sequence import Snapshot
from cowmlx.cache.trimming import can_trim_all
from cowmlx.call import keeps_call
from cowmlx.errors import BadState, Canceled, InvalidArgument
from cowmlx.generated import constants
from cowmlx.generated import status as statuses
from cowmlx.generation.batched import known_why_not
from cowmlx.generation.context import Context
from cowmlx.generation.outlet import Outlet
from cowmlx.generation.params import OVERFLOWS, ContextParams
from cowmlx.generation.waiters import BeginWaiter
from cowmlx.models.image_tokens import host_ids, whole
from cowmlx.services.transfers import Preparing, Transfer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    import mlx.core as mx

    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.call import Call
    from cowmlx.models.model import Model
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.models import Adapters, Models
    from cowmlx.services.runtime import Runtime


class Contexts:
    """Owns the open contexts.

    Args:
        runtime: shared by all services.
        models: what contexts are of.
        adapters: what contexts can use.
        arrays: to save to and load from.
    """

    def __init__(
        self, runtime: Runtime, models: Models, adapters: Adapters, arrays: Arrays
    ) -> None:
        self._runtime = runtime
        self._models = models
        self._adapters = adapters
        self.arrays = arrays

    def get(self, handle: int) -> Context:
        """Return the context of an open handle, which knows what its host has taken.

        Raises:
            UnknownHandle: it is none.
        """
        context: Context = self._runtime.handles.get(constants.KIND_CONTEXT, handle)  # type: ignore[assignment]
        context.note_taken()
        return context

    def idle(self, handle: int) -> Context:
        """Return the context of an open handle, on which no call waits.

        Raises:
            UnknownHandle: it is none.
            BadState: one does.
        """
        context = self.get(handle)
        context.require_idle()
        return context

    def context_create(self, model_handle: int, fields: dict[str, Any]) -> int:
        """Open a context and return its handle."""
        model = self._models.get(model_handle)
        model.require_generation("context_create")
        params = ContextParams(fields, model)
        return self._open_context(model, params, self._models.prefixes(model))

    def _open_context(self, model: Model, params: ContextParams, prefixes: SharedPrefixes) -> int:
        handle = 0

        def cancel_epoch() -> int:
            return self._runtime.cancel_epoch(handle)

        outlet = Outlet(self._runtime.outlets, lambda: handle)
        runtime = self._runtime
        admit = runtime.admission.admit
        context = Context(model, params, runtime.lanes, cancel_epoch, prefixes, outlet, admit)
        if runtime.prompt_cache is not None:
            context.archive = runtime.prompt_cache.writer
        handle = self._runtime.handles.add(constants.KIND_CONTEXT, context)
        return handle

    def put_to_sleep(self, but: Context | None) -> bool:
        """Give back the cache of the idle context that was used least recently.

        Args:
            but: a context that keeps its cache.

        Returns:
            whether there was one.
        """
        idle = self._idle(but)
        if not idle:
            return False
        min(idle, key=lambda context: context.used_at).sleep()
        return True

    def idle_bytes(self, but: Context | None) -> int:
        """Return the bytes of the caches of idle contexts, those that they share counted often.

        Args:
            but: a context that keeps its cache.
        """
        return sum(context.cache_bytes for context in self._idle(but))

    def _idle(self, but: Context | None) -> list[Context]:
        handles = self._runtime.handles.handles(constants.KIND_CONTEXT)
        entries = map(self.get, handles)
        return [context for context in entries if context is not but and context.can_sleep]

    def context_free(self, handle: int) -> None:
        """Close a context; a call that waits on it is cancelled."""
        self.close(handle, Canceled("the context was freed", reason="freed"))

    def close(self, handle: int, error: BaseException) -> None:
        """Close a context and its checkpoints, and end with an error what works on it."""
        context = self.get(handle)
        for checkpoint in context.checkpoints:
            self._runtime.handles.remove(constants.KIND_CHECKPOINT, checkpoint)
        self._runtime.handles.remove(constants.KIND_CONTEXT, handle)
        self._runtime.abandon(error, context)
        context.abandon(error)

    def context_reset(self, handle: int) -> None:
        """Forget a context's tokens."""
        self.idle(handle).reset()

    def context_fork(self, handle: int) -> int:
        """Open a context that holds what another one holds."""
        context = self.idle(handle)
        snapshot = context.snapshot()
        forked = self._open_context(context.base, context.params, context.prefixes)
        try:
            self.get(forked).set_model(context.model)
            self.get(forked).adapter = context.adapter
            self.get(forked).restore(snapshot)
        except BaseException:  # no caller would learn of it
            self.context_free(forked)
            raise
        return forked

    @keeps_call
    def context_save(self, call: Call, handle: int, path: str) -> None:
        """Start writing what a context holds to a file."""
        from cowmlx.services import saving  # late: few hosts need it

        context = self.idle(handle)
        self._transfer(call, context, saving.save(context, path, self._runtime.require_room))

    @keeps_call
    def context_load(self, call: Call, handle: int, path: str) -> None:
        """Start making a context hold what a file says."""
        from cowmlx.cache.disk_reader import Reader
        from cowmlx.services import saving

        context = self.idle(handle)
        steps = saving.load(context, partial(Reader, path), self._runtime.require_room)
        self._transfer(call, context, steps)

    @keeps_call
    def context_save_array(self, call: Call, handle: int) -> None:
        """Start saving what a context holds to an array."""
        from cowmlx.services import saving  # late: few hosts need it

        context = self.idle(handle)
        steps = saving.save_array(context, self._runtime.require_room)
        saved = Preparing(call, context, steps, lambda array: call.succeed(self.arrays.add(array)))
        self._runtime.scheduler.add(saved)

    @keeps_call
    def context_load_array(self, call: Call, handle: int, array: int) -> None:
        """Start making a context hold what an array says."""
        from cowmlx.cache.disk_reader import MemoryReader
        from cowmlx.services import saving

        context = self.idle(handle)
        memory = self.arrays.bytes_of(array)
        opened = partial(MemoryReader, f"array {array}", memory)
        self._transfer(call, context, saving.load(context, opened, self._runtime.require_room))

    def _transfer(self, call: Call, context: Context, steps: Generator[None, None, Any]) -> None:
        self._runtime.scheduler.add(Transfer(call, context, steps))

    def context_set_adapter(self, handle: int, adapter: int) -> None:
        """Let a context use an adapter, or none (0)."""
        context = self.idle(handle)
        if not adapter:
            context.set_model(context.base)
            context.adapter = None
            return
        loaded = self._adapters.get(adapter)
        if loaded.base is not context.base:
            raise InvalidArgument(
                f"adapter {adapter} is of another model than context {handle}",
                reason="foreign_handle",
                handle=adapter,
                kind="adapter",
            )
        context.set_model(loaded.adapted)
        context.adapter = adapter

    def context_logits(self, handle: int) -> mx.array:
        """Return (V,) float32 behind the last token that a context holds."""
        return self.idle(handle).logits()

    def context_tokens(self, handle: int) -> list[int]:
        """Return the tokens that a context holds."""
        return host_ids(self.get(handle).tokens())

    @keeps_call
    def context_trim_end(self, call: Call, handle: int, count: int) -> None:
        """Drop a context's last tokens."""
        context = self.idle(handle)
        held = context.tokens()
        self._trim(call, context, held[: max(0, len(held) - count)])

    @keeps_call
    def context_trim_front(self, call: Call, handle: int, count: int) -> None:
        """Drop a context's first tokens; the others are processed again."""
        context = self.idle(handle)
        self._trim(call, context, context.tokens()[count:])

    def _trim(self, call: Call, context: Context, kept: list[int]) -> None:
        """Make a context hold ``kept``, in place if it can."""
        kept = whole(kept)
        trimmed = len(context.tokens()) - len(kept)
        if context.trim(kept, call.cancel_epoch):
            call.succeed(trimmed)
            return
        context.wait(BeginWaiter(call, trimmed))

    def context_info(self, handle: int) -> dict[str, Any]:
        """Return the fields of ``context_info``."""
        return _information(self.get(handle))

    def note_failure(
        self, handle: int, status: int, message: str, reason: str, details: dict[str, Any]
    ) -> None:
        """Record a failed call for ``context_info``, if its handle is an open context's."""
        context: Context | None = self._runtime.handles.find(constants.KIND_CONTEXT, handle)  # type: ignore[assignment]
        if context is not None:
            context.failure = {
                "status": statuses.NAMES[status],
                "message": message,
                "reason": reason,
                "details": details,
            }

    def context_wake_fd(self, handle: int) -> int:
        """Return a descriptor that is readable while a piece is there, or none will come."""
        context = self.get(handle)
        return context.wake_fd()


class Checkpoint:
    """What a context held, and with which weights.

    Attributes:
        context: the context's handle.
        weights: the version of its model's, adapter included.
    """

    __slots__ = ("context", "snapshot", "weights")

    def __init__(self, context: int, weights: int, snapshot: Snapshot) -> None:
        self.context = context
        self.weights = weights
        self.snapshot = snapshot

    def drop_layers(self) -> None:
        """Keep the tokens alone: the model falls asleep."""
        self.snapshot = Snapshot(self.snapshot.tokens, [])


class Checkpoints:
    """Owns the open checkpoints; they are closed with their contexts.

    Args:
        runtime: shared by all services.
        contexts: whose checkpoints they are.
    """

    def __init__(self, runtime: Runtime, contexts: Contexts) -> None:
        self._runtime = runtime
        self._contexts = contexts

    def get(self, handle: int) -> Checkpoint:
        """Return the checkpoint of an open handle.

        Raises:
            UnknownHandle: it is none.
        """
        return self._runtime.handles.get(constants.KIND_CHECKPOINT, handle)  # type: ignore[return-value]

    def context_checkpoint(self, handle: int) -> int:
        """Keep what a context holds."""
        context = self._contexts.idle(handle)
        checkpoint = Checkpoint(handle, context.model.weights_version, context.snapshot())
        kept = self._runtime.handles.add(constants.KIND_CHECKPOINT, checkpoint)
        context.checkpoints.append(kept)
        return kept

    def context_rewind(self, handle: int, checkpoint_handle: int) -> None:
        """Make a context hold what it held at a checkpoint."""
        context = self._contexts.idle(handle)
        checkpoint = self.get(checkpoint_handle)
        if checkpoint.context != handle:
            raise InvalidArgument(
                f"checkpoint {checkpoint_handle} is of context {checkpoint.context}, not of "
                f"{handle}",
                reason="foreign_handle",
                handle=checkpoint_handle,
                kind="checkpoint",
            )
        if checkpoint.weights != context.model.weights_version:
            raise BadState(
                "the context's adapter has changed since the checkpoint; set the one it had first",
                reason="adapter_changed",
            )
        context.restore(checkpoint.snapshot)

    def checkpoint_free(self, handle: int) -> None:
        """Close a checkpoint's handle."""
        checkpoint = self.get(handle)
        self._runtime.handles.remove(constants.KIND_CHECKPOINT, handle)
        self._contexts.get(checkpoint.context).checkpoints.remove(handle)


def _information(context: Context) -> dict[str, Any]:
    """Return the fields of ``context_info``."""
    params, reuse, generation = context.params, context.reuse, context.generation
    alone = context.alone
    drafts = generation is not None and generation.drafts is not None
    if alone is None and drafts and not can_trim_all(context.sequence.make_layers()):
        alone = "speculative decoding with a cache that cannot drop tokens"
    return {
        "max_tokens": params.max_tokens,
        "kv_bits": params.kv.bits,
        "kv_group_size": params.kv.group_size,
        "solo": params.solo,
        "priority": params.priority,
        "overflow": OVERFLOWS[params.overflow],
        "keep_tokens": params.keep_tokens,
        "share_prefix": params.share_prefix,
        "checkpoint_interval": params.checkpoint_interval,
        "alone": alone or known_why_not(context.model, params.kv),
        "adapter": context.adapter,
        "tokens": len(context.tokens()),
        "bytes": context.sequence.nbytes,
        "estimate": context.estimate,
        "generating": generation is not None and not generation.over,
        "prompt": generation.stats.prompt_tokens if generation else 0,
        "reused": generation.stats.reused_tokens if generation else 0,
        "shared": reuse.shared if generation else 0,
        "recomputed": generation.prompt.recomputed if generation else 0,
        "dropped": reuse.dropped + generation.prompt.rolled if generation else 0,
        "first_difference": reuse.first_difference if generation else None,
        "rebuilt": reuse.rebuilt if generation else None,
        "batched": generation.batched if generation else 0,
        "error": context.failure,
    }
