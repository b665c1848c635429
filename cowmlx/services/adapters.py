"""The calls of adapters."""

from __future__ import annotations

import mlx.core as mx

from cowmlx.generated import constants

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model
    from cowmlx.services.models import Models
    from cowmlx.services.runtime import Runtime


class Adapter:
    """An adapter of a model.

    Attributes:
        base: the model it was loaded for.
        adapted: the same with the adapter.
    """

    __slots__ = ("adapted", "base")

    def __init__(self, base: Model, adapted: Model) -> None:
        self.base = base
        self.adapted = adapted


class Adapters:
    """Owns the open adapters.

    Args:
        runtime: what all calls work with.
        models: those that adapters are for.
    """

    def __init__(self, runtime: Runtime, models: Models) -> None:
        self._runtime = runtime
        self._models = models

    def get(self, handle: int) -> Adapter:
        """Return the adapter of an open handle.

        Raises:
            UnknownHandle: it is none.
        """
        return self._runtime.handles.get(constants.KIND_ADAPTER, handle)  # type: ignore[return-value]

    def adapter_load(self, model_handle: int, path: str, scale: float) -> int:
        """Load an adapter for a model and return its handle."""
        from cowmlx.models import adapters  # late: few hosts need it

        model = self._models.get(model_handle)
        model.require_one_machine("adapter_load")
        stream = self._runtime.streams.take()
        try:
            with mx.stream(stream):
                adapted = adapters.adapted(model, path, scale)
        finally:
            self._runtime.streams.give_back(stream)
        return self._runtime.handles.add(constants.KIND_ADAPTER, Adapter(model, adapted))

    def adapter_free(self, handle: int) -> None:
        """Close an adapter's handle; the contexts that use it keep it."""
        self._runtime.handles.remove(constants.KIND_ADAPTER, handle)
