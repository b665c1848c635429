"""The engine's façade, on the dispatch thread: every C call is a method of its noun's class."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property

import mlx.core as mx

from cowmlx import failures
from cowmlx.errors import Canceled, DeviceLost
from cowmlx.generated import constants
from cowmlx.services.arrays import Arrays
from cowmlx.services.contexts import Checkpoints, Contexts
from cowmlx.services.generations import Generations
from cowmlx.services.models import Adapters, Models
from cowmlx.services.runtime import Runtime

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.services.media import MediaCalls
    from cowmlx.services.operations import Operations
    from cowmlx.services.programs import Programs
    from cowmlx.services.scoring import Scores
    from cowmlx.services.trainings import Trainings

# Nouns whose first call makes them, by the prefixes of their calls: many hosts never make one, and
# their modules take as long to import as all others.
LATER = {
    "program_": "programs",
    "training_": "trainings",
    "operations_": "operations",
    "array_apply": "operations",
    "context_prompt_": "scores",
    "context_hidden_states": "scores",
    "context_perplexity": "scores",
    "media_": "media",
    "model_media_": "media",
}


class Engine:
    """Owns every model, context and stream between a runtime start and its stop.

    The bridge asks it for the method that has a call's name. Methods return their result or raise;
    those that take a ``call`` keep it and end it later. Nothing here starts a thread or takes a
    lock.

    Args:
        runtime: what its nouns share.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.models = Models(self.runtime)
        self.runtime.reclaim = self.models.memory_trim
        self.adapters = Adapters(self.runtime, self.models)
        self.arrays = Arrays(self.runtime)
        self.contexts = Contexts(self.runtime, self.models, self.adapters, self.arrays)
        self.runtime.put_to_sleep = self.contexts.put_to_sleep
        self.runtime.idle_bytes = self.contexts.idle_bytes
        self.checkpoints = Checkpoints(self.runtime, self.contexts)
        self.generations = Generations(self.runtime, self.models, self.contexts)
        nouns = (
            self.runtime,
            self.models,
            self.adapters,
            self.contexts,
            self.checkpoints,
            self.generations,
            self.arrays,
        )
        methods = [(name, noun) for noun in nouns for name in vars(type(noun))]
        # A call's name is a noun and a verb.
        self._owners: dict[str, Any] = {
            name: noun for name, noun in methods if "_" in name.strip("_")
        }

    def __getattr__(self, call: str) -> Callable[..., Any]:
        """Return the noun's method for a call, such as ``context_next``."""
        owners = vars(self).get("_owners", {})
        if call not in owners:
            later = [noun for start, noun in LATER.items() if call.startswith(start)]
            if not owners or not later or call not in vars(type(getattr(self, later[0]))):
                raise AttributeError(f"no noun of the engine has a method {call}")
            owners[call] = getattr(self, later[0])
        method: Callable[..., Any] = getattr(owners[call], call)
        vars(self)[call] = method  # found without this the next time
        return method

    @cached_property
    def programs(self) -> Programs:
        """The calls of programs."""
        from cowmlx.services.programs import Programs

        return Programs(self.runtime, self.arrays)

    @cached_property
    def trainings(self) -> Trainings:
        """The calls of trainings."""
        from cowmlx.services.trainings import Trainings

        return Trainings(self.runtime, self.models, self.arrays)

    @cached_property
    def operations(self) -> Operations:
        """The calls of operations."""
        from cowmlx.services.operations import Operations

        return Operations(self.runtime, self.arrays)

    @cached_property
    def scores(self) -> Scores:
        """The calls that score given tokens."""
        from cowmlx.services.scoring import Scores

        return Scores(self.runtime, self.contexts)

    @cached_property
    def media(self) -> MediaCalls:
        """The calls of images."""
        from cowmlx.services.media import MediaCalls

        return MediaCalls(self.runtime, self.models, self.arrays)

    def start(self, params: dict[str, Any], python_home: str) -> str:
        """Choose the device and set limits. Returns a log message.

        Args:
            params: the fields of ``cow_mlx_runtime_params``.
            python_home: that was booted; "" in a joined interpreter.
        """
        started = self.runtime.start(params, python_home)
        self.arrays.start()
        return started

    def stop(self) -> None:
        """Cancel all calls and free everything; prompts that wait for the disk are written."""
        if self.runtime.prompt_cache is not None:
            self.runtime.prompt_cache.finish()
        self.free_all(Canceled("the runtime was stopped", reason="runtime_stopped"))
        if "operations" in vars(self):
            self.operations.stop()
        self.arrays.stop()
        self.runtime.stop()

    def free_all(self, error: BaseException) -> None:
        """End every call with an error and close every handle; the runtime goes on."""
        handles = self.runtime.handles
        self.runtime.abandon(error)
        for handle in handles.handles(constants.KIND_CONTEXT):
            with suppress(BaseException):  # the other calls have to end too
                self.contexts.close(handle, error)
        kinds = (constants.KIND_ADAPTER, constants.KIND_MODEL, constants.KIND_MEDIA)
        for kind in (*kinds, constants.KIND_TRAINING, constants.KIND_PROGRAM):
            for handle in handles.handles(kind):
                handles.remove(kind, handle)
        self.models.end_ranks()
        self.runtime.scheduler.clear()
        self.arrays.free_all()
        mx.clear_cache()

    def rest(self) -> None:
        """Wait until mlx's threads are idle."""
        self.runtime.streams.synchronize()

    def recover(self) -> None:
        """Give back what is kept for later calls, after a shortage or a lost device.

        What is kept may also be a computation that has failed.
        """
        seen = set(failures.seen)
        failures.seen.clear()
        self.runtime.device_is_lost |= DeviceLost in seen
        with suppress(BaseException):  # there may be no memory for that either
            self.models.memory_trim()

    def step(self) -> bool:
        """Do one unit of work; false when there is none."""
        if failures.seen:
            self.recover()
        self.runtime.lanes.attend_untaken()
        worked = self.runtime.scheduler.step()
        self.runtime.device_memory.note(worked)
        if not worked:
            self.runtime.note_memory()  # hosts upload while this thread sleeps
        return worked

    @property
    def due(self) -> float | None:
        """Seconds until there may be work without a request; None: there will be none."""
        dues = (self.runtime.scheduler.due, self.runtime.device_memory.due)
        return min((due for due in dues if due is not None), default=None)
