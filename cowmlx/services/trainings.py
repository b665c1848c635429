"""The calls of trainings: made, stepped, evaluated, described, saved, freed."""

from __future__ import annotations

import math
from time import perf_counter

import mlx.core as mx

from cowmlx.call import keeps_call
from cowmlx.errors import Canceled, InvalidArgument, OutOfRange
from cowmlx.generated.constants import KIND_ADAPTER, KIND_PROGRAM, KIND_TRAINING
from cowmlx.programs.failure import shown
from cowmlx.programs.program import Program
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services import training_files
from cowmlx.services.training_params import limits_of, require_unset, settings_of
from cowmlx.services.training_runs import (
    HostData,
    Making,
    Trainee,
    TrainingRun,
    computed,
    settled,
)
from cowmlx.training.array_data import ArrayData, Inputs, digest_of
from cowmlx.training.fit import Fit, Limits, of_evaluation, of_step
from cowmlx.training.program_objective import ProgramObjective
from cowmlx.training.training import Training

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.models.model import Model
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.models import Models
    from cowmlx.services.runtime import Runtime
    from cowmlx.training.fit import Report, Save
    from cowmlx.training.objective import DataSource, Objective


class Trainings:
    """Owns the trainings.

    Args:
        runtime: shared by all services.
        models: the models to train.
        arrays: the arrays of data.
    """

    def __init__(self, runtime: Runtime, models: Models, arrays: Arrays) -> None:
        self._runtime = runtime
        self._models = models
        self._arrays = arrays
        runtime.device_memory.keep_more()

    def get(self, handle: int) -> Trainee:
        """Return the training of a handle.

        Raises:
            UnknownHandle: it is not open.
        """
        return self._runtime.handles.get(KIND_TRAINING, handle)  # type: ignore[return-value]

    @keeps_call
    def training_create(self, call: Call, handle: int, params: dict[str, Any]) -> None:
        """Open a training of a program."""
        program: Program = self._runtime.handles.get(KIND_PROGRAM, handle)  # type: ignore[assignment]
        settings = settings_of(params)
        if params["fine_tune"] is not None:
            raise InvalidArgument(
                "fine_tune is set, but it is an option of models; train chooses the parameters of "
                "a program",
                reason="conflict",
                argument="fine_tune",
                other="train",
            )
        names, held = params["initial_names"], self._held(params["initial_arrays"])
        if len(set(names)) < len(names):
            raise InvalidArgument(
                "initial_names has a name twice", reason="conflict", argument="initial_names"
            )
        patterns = params["train"] or None

        def steps() -> Generator[Any, None, Trainee]:
            values = yield from settled(self._arrays, held)
            given = dict(zip(names, values, strict=True))
            objective = yield from ProgramObjective.steps(
                program, given, settings.seed, patterns, self._arrays.require_room
            )
            return Trainee.of(Training(objective, settings), Inputs(objective.inputs), params)

        making = Making(call, program, steps(), self._runtime.streams, self._open)
        self._runtime.scheduler.add(making)

    @keeps_call
    def training_create_for_model(self, call: Call, handle: int, params: dict[str, Any]) -> None:
        """Open a training of a language model."""
        from cowmlx.services import language_trainings as language  # late: few hosts need it

        model = self._models.get(handle)
        steps = language.make(model, params, settings_of(params), self._arrays.require_room)
        making = Making(call, model, steps, self._runtime.streams, self._open)
        self._runtime.scheduler.add(making)

    def _open(self, trainee: Trainee) -> int:
        return self._runtime.handles.add(KIND_TRAINING, trainee)

    def _held(self, handles: list[int]) -> list[Held]:
        return [self._arrays.held(handle) for handle in handles]

    # -------------------------------------------------------------- Runs

    @keeps_call
    def training_step(self, call: Call, handle: int, inputs: list[Held]) -> None:
        """Make a step on a batch."""
        trainee = self.get(handle)
        trainee.require_idle()
        began = perf_counter()

        def steps() -> Generator[Any, None, Report]:
            values = yield from computed(self._arrays, inputs)
            trainee.inputs.check(values)
            batch = trainee.inputs.batch(values, trainee.options["micro_batch"])
            del values
            step = yield from trainee.training.advance(batch)
            return of_step(trainee.training, step, perf_counter() - began)

        self._run(call, handle, trainee, steps())

    @keeps_call
    def training_fit(self, call: Call, handle: int, params: dict[str, Any]) -> None:
        """Make steps until an end."""
        trainee = self.get(handle)
        trainee.require_idle()
        folder = params["folder"]
        save = (lambda: training_files.save(trainee, folder)) if folder else None
        if self._is_on_lines(call, trainee, params):
            is_evaluated = not (params["validation_lines"] is params["validation_file"] is None)
            limits = limits_of(params, is_evaluated, False)
            self._run(call, handle, trainee, self._on_lines(trainee, params, limits, save))
            return
        _require_data(call, params)
        limits = limits_of(params, bool(params["validation"]), not params["inputs"])
        inputs, others = self._held(params["inputs"]), self._held(params["validation"])

        def steps() -> Generator[Any, None, None]:
            data = yield from self._data(call, trainee, params, inputs, is_hashed=True)
            validation = None
            if others:
                validation = yield from self._array_data(
                    trainee, params, "validation", others, None, is_hashed=True
                )
            yield from Fit(trainee.training, data, validation, limits, save).run()

        self._run(call, handle, trainee, steps())

    def _is_on_lines(self, call: Call, trainee: Trainee, params: dict[str, Any]) -> bool:
        """Whether the data are lines.

        Raises:
            InvalidArgument: there are no data, or both lines and arrays.
        """
        from cowmlx.services import language_trainings as language

        if not trainee.takes_lines or params["inputs"] or call.brings_batches:
            language.require_no_lines(params)
            return False
        language.require_lines(params)
        return True

    def _on_lines(
        self, trainee: Trainee, params: dict[str, Any], limits: Limits, save: Save | None
    ) -> Generator[Any, None, None]:
        """Read the lines, then fit."""
        from cowmlx.services import language_trainings as language

        require_room = self._arrays.require_room
        data = yield from language.read(trainee, params, require_room)
        validation = yield from language.read(trainee, params, require_room, is_validation=True)
        assert data is not None
        trainee.data = data.info()
        yield from Fit(trainee.training, data, validation, limits, save).run()

    @keeps_call
    def training_evaluate(self, call: Call, handle: int, params: dict[str, Any]) -> None:
        """Evaluate on data."""
        trainee = self.get(handle)
        trainee.require_idle()
        require_unset(params)
        params = {**params, "shuffle": False}
        began = perf_counter()
        is_on_lines = self._is_on_lines(call, trainee, params)
        if not is_on_lines:
            _require_data(call, params)
        inputs = self._held(params["inputs"])

        def steps() -> Generator[Any, None, Report]:
            data: DataSource | None
            if is_on_lines:
                from cowmlx.services import language_trainings as language

                data = yield from language.read(trainee, params, self._arrays.require_room)
                assert data is not None
            else:
                data = yield from self._data(call, trainee, params, inputs)
            result = yield from trainee.training.evaluate(data)
            return of_evaluation(trainee.training, result, perf_counter() - began)

        self._run(call, handle, trainee, steps())

    @keeps_call
    def training_load(self, call: Call, handle: int, folder: str) -> None:
        """Continue a saved training."""
        trainee = self.get(handle)
        trainee.require_idle()
        self._run(call, handle, trainee, training_files.load(trainee, folder))

    @keeps_call
    def training_save(self, call: Call, handle: int, folder: str) -> None:
        """Save a training as of its last step."""
        trainee = self.get(handle)
        with mx.stream(self._arrays.stream):
            steps = training_files.save(trainee, folder)
        self._runtime.scheduler.add(Saving(call, trainee, steps, self._arrays.stream))

    def _run(
        self, call: Call, handle: int, trainee: Trainee, steps: Generator[Any, None, Any]
    ) -> None:
        run = TrainingRun(
            call, trainee, steps, self._runtime.streams, self._is_canceled(call, handle, trainee)
        )
        self._runtime.scheduler.add(run)

    def _is_canceled(self, call: Call, handle: int, trainee: Trainee) -> Callable[[], bool]:
        epoch = call.cancel_epoch

        def is_canceled() -> bool:
            known = self._runtime.handles.find(KIND_TRAINING, handle)
            return known is trainee and self._runtime.cancel_epoch(handle) != epoch

        return is_canceled

    def _data(
        self,
        call: Call,
        trainee: Trainee,
        params: dict[str, Any],
        inputs: list[Held],
        is_hashed: bool = False,
    ) -> Generator[Any, None, DataSource]:
        """Return data of arrays, or that the host brings if there are none."""
        if not inputs:
            return HostData(call, self._arrays, trainee.inputs, trainee.options["micro_batch"])
        seed = trainee.training.settings.seed if params["shuffle"] else None
        return (yield from self._array_data(trainee, params, "inputs", inputs, seed, is_hashed))

    def _array_data(
        self,
        trainee: Trainee,
        params: dict[str, Any],
        name: str,
        held: list[Held],
        seed: int | None,
        is_hashed: bool,
    ) -> Generator[Any, None, ArrayData]:
        values = yield from computed(self._arrays, held)
        trainee.inputs.check(values, name)
        digest = (yield from digest_of(values)) if is_hashed else ""
        micro_batch = trainee.options["micro_batch"]
        return ArrayData(trainee.inputs, values, params["batch_size"], micro_batch, seed, digest)

    # ----------------------------------------------------------- Questions

    def training_parameter(self, handle: int, name: str) -> int:
        """Open an array of a parameter's current value."""
        objective = self.get(handle).training.objective
        known = _parameters(objective)
        if name not in known:
            accepted = ", ".join(list(known)[:16])
            raise OutOfRange("name", shown(name), f"one of {accepted}")
        return self._arrays.add(known[name])

    def training_info(self, handle: int) -> dict[str, Any]:
        """Return the contents of ``training_info``."""
        trainee = self.get(handle)
        training = trainee.training
        trained = training.objective.parameters()
        best = training.best
        rate = training.optimizer.learning_rate
        return {
            "step": training.step,
            "skipped": training.skipped,
            "epoch": (training.place or {}).get("epoch", 0),
            "learning_rate": None if math.isnan(rate) else rate,
            "optimizer": training.optimizer.described,
            "inputs": trainee.inputs.names,
            "parameters": [
                {
                    "name": name,
                    "dtype": str(array.dtype).removeprefix("mlx.core."),
                    "shape": list(array.shape),
                    "trained": name in trained,
                }
                for name, array in _parameters(training.objective).items()
            ],
            "best": {"step": best.step, "loss": best.loss} if math.isfinite(best.loss) else None,
            "seed": training.settings.seed,
            "running": trainee.run is not None,
            "data": trainee.data,
        }

    def training_free(self, handle: int) -> None:
        """Close a training, and end the call that runs on it."""
        trainee = self.get(handle)
        self._runtime.handles.remove(KIND_TRAINING, handle)
        freed = Canceled("the training was freed", reason="freed")
        self._runtime.abandon(freed, trainee)

    # --------------------------------------------------------- Language models

    @keeps_call
    def training_adapter(self, call: Call, handle: int) -> None:
        """Open the trained layers as an adapter."""
        from cowmlx.services import language_trainings as language
        from cowmlx.services.models import Adapter
        from cowmlx.training.language import export

        trainee = self.get(handle)
        objective = language.objective_of(trainee)
        steps = export.published_steps(objective, self._arrays.require_room)

        def opened(adapted: Model) -> int:
            return self._runtime.handles.add(KIND_ADAPTER, Adapter(objective.model, adapted))

        self._runtime.scheduler.add(Making(call, trainee, steps, self._runtime.streams, opened))

    @keeps_call
    def training_export(self, call: Call, handle: int, folder: str, options: str | None) -> None:
        """Write the trained layers or model in mlx-lm's format."""
        from cowmlx.services import language_trainings as language
        from cowmlx.training.language import export

        trainee = self.get(handle)
        objective = language.objective_of(trainee)
        steps = export.export(objective, folder, **language.export_options(options))
        self._runtime.scheduler.add(Saving(call, trainee, steps, self._arrays.stream))


class Saving(SteppedCall):
    """Writes a training while a call may run on it.

    Args:
        call: ends with it.
        trainee: the training.
        steps: write it; closed early, they leave the folder as it was.
        stream: to compute on.
    """

    def __init__(
        self, call: Call, trainee: Trainee, steps: Generator[None, None, None], stream: mx.Stream
    ) -> None:
        super().__init__(call, steps, stream, trainee)


def _require_data(call: Call, params: dict[str, Any]) -> None:
    """Check that data are arrays, or that the host brings them.

    Raises:
        InvalidArgument: there are none, or both.
    """
    if not params["inputs"] and not call.brings_batches:
        raise InvalidArgument(
            "there are no data: inputs_count is 0 and next_batch is NULL",
            reason="missing",
            argument="inputs",
        )
    if params["inputs"] and call.brings_batches:
        raise InvalidArgument(
            "inputs and next_batch exclude each other",
            reason="conflict",
            argument="inputs",
            other="next_batch",
        )


def _parameters(objective: Objective) -> dict[str, mx.array]:
    """Return the parameters, with those that are not trained if the objective reports them."""
    parameters: dict[str, mx.array] = (
        getattr(objective, "all_parameters", None) or objective.parameters()
    )
    return parameters
