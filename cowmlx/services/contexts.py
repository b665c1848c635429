"""The calls of contexts, and of checkpoints of them."""

from __future__ import annotations

from cowmlx.call import keeps_call
from cowmlx.errors import BadState, Canceled, InvalidArgument, Unsupported
from cowmlx.generated import constants
from cowmlx.generated import status as statuses
from cowmlx.generation.context import Context
from cowmlx.generation.outlet import Outlet
from cowmlx.generation.params import ContextParams
from cowmlx.generation.waiters import BeginWaiter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    import mlx.core as mx

    from cowmlx.cache.sequence import Snapshot
    from cowmlx.cache.shared import SharedPrefixes
    from cowmlx.call import Call
    from cowmlx.models.model import Model
    from cowmlx.services.models import Adapters, Models
    from cowmlx.services.runtime import Runtime


class Contexts:
    """Owns the open contexts.

    Args:
        runtime: shared by all services.
        models: what contexts are of.
        adapters: what contexts can use.
    """

    def __init__(self, runtime: Runtime, models: Models, adapters: Adapters) -> None:
        self._runtime = runtime
        self._models = models
        self._adapters = adapters

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
        if model.labels is not None:
            raise Unsupported(
                "this model is a classifier: it has a head for labels and none for tokens, so it "
                "generates nothing; model_rank and model_embed take it",
                argument="model",
            )
        params = ContextParams(fields, model)
        return self._open_context(model, params, self._models.prefixes(model))

    def _open_context(self, model: Model, params: ContextParams, prefixes: SharedPrefixes) -> int:
        handle = 0

        def cancel_epoch() -> int:
            return self._runtime.cancel_epoch(handle)

        outlet = Outlet(self._runtime.outlets, lambda: handle)
        context = Context(model, params, self._runtime.lanes, cancel_epoch, prefixes, outlet)
        handle = self._runtime.handles.add(constants.KIND_CONTEXT, context)
        return handle

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
        self._transfer(call, context, saving.save(context, path))

    @keeps_call
    def context_load(self, call: Call, handle: int, path: str) -> None:
        """Start making a context hold what a file says."""
        from cowmlx.services import saving

        context = self.idle(handle)
        self._transfer(call, context, saving.load(context, path))

    def _transfer(self, call: Call, context: Context, steps: Generator[None, None, Any]) -> None:
        from cowmlx.services.saving import Transfer

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
        return self.get(handle).tokens()

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
        trimmed = len(context.tokens()) - len(kept)
        if context.trim(kept, call.cancel_epoch):
            call.succeed(trimmed)
            return
        context.wait(BeginWaiter(call, trimmed))

    def context_info(self, handle: int) -> dict[str, Any]:
        """Return the fields of ``context_info``."""
        return self.get(handle).information()

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
