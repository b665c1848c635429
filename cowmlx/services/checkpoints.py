"""The calls of checkpoints: what a context held, to go back to."""

from __future__ import annotations

from cowmlx.errors import BadState, InvalidArgument
from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.cache.sequence import Snapshot
    from cowmlx.services.contexts import Contexts
    from cowmlx.services.runtime import Runtime


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
        runtime: what all calls work with.
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
