"""Models asleep: their weights are left on disk, and contexts keep their tokens alone."""

from __future__ import annotations

import gc
from functools import partial
from weakref import WeakKeyDictionary, ref

from cowmlx import resources
from cowmlx.accelerate import rope
from cowmlx.errors import BadState, CowMlxError
from cowmlx.generated import constants
from cowmlx.models import fingerprint
from cowmlx.models.images import ImageStore
from cowmlx.scheduling.stepped import SteppedCall

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import Any

    from cowmlx.call import Call
    from cowmlx.generation.context import Context
    from cowmlx.models.model import Model
    from cowmlx.services.runtime import Runtime

    Load = Callable[[], Generator[tuple[float, str], None, Model]]


class FallingAsleep(SteppedCall):
    """Puts a model to sleep for a call."""


class Waking(SteppedCall):
    """Reads the weights of a model for a call, then starts its work.

    Args:
        call: continues with the work.
        model: that is on disk.
        start: starts the work; what it raises ends the call.
    """

    def __init__(self, call: Call, model: Model, start: Callable[[], None]) -> None:
        super().__init__(call, model.read_steps(), subject=model)
        self._start = start

    def _succeed(self, result: Any) -> None:
        self._start()


class Sleep:
    """Puts models to sleep: for calls, and to keep the weights of all within a bound.

    Args:
        runtime: shared by all services.
        clear_prefixes: forgets the processed prompts of a model.
    """

    def __init__(self, runtime: Runtime, clear_prefixes: Callable[[Model], None]) -> None:
        self._runtime = runtime
        self._clear_prefixes = clear_prefixes
        self._loads: WeakKeyDictionary[Model, Load] = WeakKeyDictionary()

    def note(self, model: Model, load: Load) -> None:
        """Take note of a model, and of what loads it again with its weights left on disk."""
        self._loads[model] = load
        model.make_room = self.make_room
        if isinstance(model.images, ImageStore):
            model.images.encoder.make_room = partial(self._make_room_for_tower, ref(model))

    def _make_room_for_tower(
        self, model: ref[Model], size: int, peak: int
    ) -> Generator[object, None, None]:
        reader = model()
        assert reader is not None  # a context works with it
        size += reader.bytes_in_memory
        return self.make_room(size, peak, reader, "the model's weights for images")

    def steps(self, model: Model) -> Generator[object, None, None]:
        """Put a model to sleep.

        Raises:
            BadState: something works with it, or keeps its weights.
            Unsupported: it runs on several machines.
        """
        self._require_idle(model)
        slept = None
        if model.is_read:
            known = yield from fingerprint.compute(model)
            slept = (yield from self._loads[model]()), known
            self._require_idle(model)
        self._drop_caches(model)
        if slept is not None:
            model.fall_asleep(*slept)
            del slept
        gc.collect()  # modules of mlx-lm refer to each other
        resources.give_back()
        self._runtime.note_memory()

    def _drop_caches(self, model: Model) -> None:
        """Keep the tokens of a model's contexts and checkpoints alone, and no processed prompts."""
        for context in self._contexts_of(model):
            context.drop_layers(model)
        for handle in self._handles("CHECKPOINT"):
            checkpoint: Any = self._runtime.handles.get(constants.KIND_CHECKPOINT, handle)
            if checkpoint.weights == model.weights_version:
                checkpoint.drop_layers()
        self._clear_prefixes(model)
        if self._runtime.prompt_cache is not None:
            self._runtime.prompt_cache.forget(model)
        rope.forget()

    def make_room(
        self, size: int, peak: int, reader: Model | None = None, what: str = "the model"
    ) -> Generator[object, None, None]:
        """Make room for weights that are to be read. Yields between the steps.

        Args:
            size: bytes of the weights.
            peak: bytes that reading them takes at its peak.
            reader: the model that they are of, if there is one yet.
            what: is read, for messages.

        Raises:
            OutOfMemory: there is too little memory.
        """
        yield from self._keep_bound(size, reader)
        self.require_room(peak, what)

    def require_room(self, size: int, what: str) -> None:
        """Make sure that weights may take so many bytes.

        Raises:
            OutOfMemory: they may not.
        """
        if self._runtime.memory_is_limited:  # mlx's own limit does not bound weights
            self._runtime.require_room(size, what)
        else:
            self._runtime.admission.require(size, what)

    def _keep_bound(self, size: int, reader: Model | None) -> Generator[object, None, None]:
        """Put the models to sleep that were not used for longest, for weights of so many bytes.

        Models that are in use stay awake, so the bound may be passed.
        """
        limit = self._runtime.model_memory
        if not limit:
            return
        awake = [model for model in self._models() if model.is_read and model is not reader]
        excess = sum(model.bytes_in_memory for model in awake) + size - limit
        for model in sorted(awake, key=lambda model: model.used):
            if excess <= 0:
                return
            held = model.bytes_in_memory
            try:
                yield from self.steps(model)
            except CowMlxError:
                continue
            excess -= held

    def _models(self) -> list[Model]:
        handles = self._runtime.handles
        open_models = {handles.get(constants.KIND_MODEL, h) for h in self._handles("MODEL")}
        return [model for model in self._loads if model in open_models]

    def _handles(self, kind: str) -> list[int]:
        return self._runtime.handles.handles(getattr(constants, f"KIND_{kind}"))

    def _contexts_of(self, model: Model) -> Iterator[Context]:
        """Yield the contexts that use a model, also to draft."""
        for handle in self._handles("CONTEXT"):
            context: Any = self._runtime.handles.get(constants.KIND_CONTEXT, handle)
            if context.uses(model):
                yield context

    def _require_idle(self, model: Model) -> None:
        """Raise unless nothing works with a model, or keeps its weights.

        Raises:
            BadState: something does.
            Unsupported: it runs on several machines.
        """
        model.require_one_machine("model_sleep")
        for unit in self._runtime.scheduler.units:
            works = isinstance(unit, SteppedCall) and unit.subject is model
            if works and not isinstance(unit, FallingAsleep):
                raise _busy("another call is running on this model; wait for it")
        for handle in self._handles("CONTEXT"):
            context: Any = self._runtime.handles.get(constants.KIND_CONTEXT, handle)
            if not context.uses(model):
                continue
            if context.has_work:
                raise _busy(
                    f"context {handle} has a generation that has not ended; wait for it, or cancel "
                    "it with context_cancel"
                )
            if context.model is not context.base:
                raise _busy(f"context {handle} uses an adapter of this model; set it to 0")
        for handle in self._handles("ADAPTER"):
            adapter: Any = self._runtime.handles.get(constants.KIND_ADAPTER, handle)
            if adapter.base is model:
                raise _busy(f"adapter {handle} of this model is open; free it")
        for handle in self._handles("TRAINING"):
            trainee: Any = self._runtime.handles.get(constants.KIND_TRAINING, handle)
            if getattr(trainee.training.objective, "model", None) is model:
                raise _busy(f"training {handle} of this model is open; free it")


def _busy(message: str) -> BadState:
    return BadState(message, reason="model_busy")
