"""Calls that run on a training: units of the scheduler, which get the remaining turns."""

from __future__ import annotations

from contextlib import suppress
from math import inf
from time import perf_counter

import mlx.core as mx

from cowmlx.arrays.table import Submitted
from cowmlx.errors import BadState, Canceled, InvalidArgument
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.services.computing import Computation, is_computed
from cowmlx.training.fit import Report

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.scheduling.streams import StreamPool
    from cowmlx.services.arrays import Arrays
    from cowmlx.training.array_data import Inputs, Rows
    from cowmlx.training.training import Training

PRIORITY = -1
SHARE = 0.1
"""A training's part of the time while others never pause."""
PATIENCE = 0.02
"""Seconds without turns of others that count as a pause."""
# Micro-batches of so many seconds are started whole and waited for; longer ones are computed in
# parts of some milliseconds, between which others have their turns.
_SHORT = 0.016
_OPTIONS = ("seed", "clip_value", "clip_norm", "micro_batch", "skip_non_finite")


class Trainee:
    """An open training, and the state that its calls share.

    Args:
        training: the training.
        inputs: the arrays of a batch.
        takes_lines: whether its data can be lines, as for language models.
        options: all options of its creation; a saved training has the same.

    Attributes:
        run: the unit that runs on it.
        data: counts of the last fit's lines.
    """

    def __init__(
        self, training: Training, inputs: Inputs, options: Mapping[str, Any], takes_lines: bool
    ) -> None:
        self.training = training
        self.inputs = inputs
        self.takes_lines = takes_lines
        self.options = options
        self.run: TrainingRun | None = None
        self.data: dict[str, int] | None = None

    @classmethod
    def of(
        cls,
        training: Training,
        inputs: Inputs,
        params: Mapping[str, Any],
        takes_lines: bool = False,
    ) -> Trainee:
        """Return the state of a training made with params."""
        options = {name: params[name] for name in _OPTIONS}
        options["optimizer"] = training.optimizer.described
        return cls(training, inputs, options, takes_lines)

    def require_idle(self) -> None:
        """Check that no call runs on it.

        Raises:
            BadState: one does.
        """
        if self.run is not None:
            raise BadState("another call is running on the training", reason="training_busy")


class AwaitingCall(SteppedCall):
    """Steps that yield a :class:`Submitted`, and continue once it is settled."""

    _submitted: Submitted | None = None

    @property
    def _is_awaiting(self) -> bool:
        if self._submitted is not None and self._submitted.is_settled:
            self._submitted = None
        return self._submitted is not None

    def _may_step(self) -> bool:
        return not self._is_awaiting

    def _receive(self, value: Any) -> None:
        if isinstance(value, Submitted):
            self._submitted = value


class Making(AwaitingCall):
    """Makes a training of a program or model, or an adapter of a training.

    Args:
        call: ends with its handle.
        subject: the program, model or training.
        steps: make it.
        streams: has the stream of the work.
        opened: returns a handle.
    """

    def __init__(
        self,
        call: Call,
        subject: object,
        steps: Generator[Any, None, Any],
        streams: StreamPool,
        opened: Callable[[Any], int],
    ) -> None:
        super().__init__(call, steps, streams.take(), subject)
        self._streams = streams
        self._opened = opened

    def _release(self) -> None:
        self._streams.give_back(self._stream)

    def _succeed(self, result: Any) -> None:
        self._call.succeed(self._opened(result))


class TrainingRun(AwaitingCall):
    """A step, a fit, an evaluation or a load; the host receives what a step yields.

    Args:
        call: ends with it.
        trainee: the training; no other call runs on it meanwhile.
        steps: do the work; closed early, they leave the training after its last step.
        streams: has the stream of the work.
        is_canceled: whether the host has cancelled it.
        result: makes the call's result of that of the steps.
    """

    priority = PRIORITY
    patience = PATIENCE

    def __init__(
        self,
        call: Call,
        trainee: Trainee,
        steps: Generator[Any, None, Any],
        streams: StreamPool,
        is_canceled: Callable[[], bool],
    ) -> None:
        trainee.require_idle()
        super().__init__(call, steps, streams.take(), trainee)
        self._trainee = trainee
        self._streams = streams
        self._is_canceled = is_canceled
        self._computing: Computation | None = None
        self._error: Exception | None = None
        self._began = 0.0
        self._took = inf  # seconds of the last micro-batch
        self._spent = 0.0  # seconds of this one so far
        self._is_whole = False  # whether what is computed was started whole
        self.due = -inf
        trainee.run = self

    @property
    def wakes(self) -> float:
        """When it may want a turn without a request."""
        if self._computing is not None:
            return -inf
        return -inf if self._call.ready and not self._is_awaiting else inf

    def turn(self) -> bool:
        """Do one step, or compute some milliseconds of it; false if there is none now."""
        if self._computing is not None and not self._is_broken_off():
            if self._is_whole:
                if not self._looked():
                    return False
            elif not self._advanced():
                return True
        self._began = perf_counter()
        if self._error is not None:
            self.abandon(self._error)
            return True
        worked = super().turn()
        if worked and not (self._is_whole and self._computing is not None):
            self._rest()
        return worked

    def block(self) -> bool:
        """Wait for a short micro-batch, and go on."""
        if self._computing is None or not self._is_whole:
            return False
        self._computing.finish()
        return self.turn()

    def attend(self) -> None:
        """End if the host asks for it; look whether a short micro-batch is computed."""
        super().attend()
        if not self.finished and self._computing is not None and self._is_whole:
            self._looked()

    def _looked(self) -> bool:
        """Return whether a micro-batch that was started whole is computed."""
        assert self._computing is not None
        if not self._computing.advance():
            return False
        self._end_computing(perf_counter() - self._began)
        self._rest()
        return True

    def _advanced(self) -> bool:
        """Compute a micro-batch for some milliseconds; return whether all of it is."""
        assert self._computing is not None
        self._began = perf_counter()
        is_computed = self._computing.advance(waits=True)
        self._spent += perf_counter() - self._began
        if is_computed:
            self._end_computing(self._spent)
        else:
            self._rest()
        return is_computed

    def _end_computing(self, seconds: float) -> None:
        assert self._computing is not None
        self._error = self._computing.error
        self._computing = None
        self._took = seconds

    def _rest(self) -> None:
        """Leave others their part of the time."""
        now = perf_counter()
        self.due = now + (now - self._began) * (1 / SHARE - 1)

    def _is_broken_off(self) -> bool:
        return self._call.refused or self._is_canceled()

    def _may_step(self) -> bool:
        return self._is_broken_off() or (self._call.ready and super()._may_step())

    def _broken_off(self) -> Canceled | None:
        if self._is_canceled():
            return Canceled("the training was cancelled; it is as after its last step")
        if self._call.refused:
            return Canceled(
                "on_event returned false; the training is as after its last step",
                reason="callback_refused",
            )
        return None

    def _receive(self, value: Any) -> None:
        if isinstance(value, list | Computation):
            self._compute(value)
        elif isinstance(value, Report):
            self._call.post_training(value)
        elif isinstance(value, Request):
            self._call.ask_batch(value.step, value.count)
            if value.computing is not None:
                self._compute(value.computing)
        else:
            super()._receive(value)

    def _compute(self, value: list[mx.array] | Computation) -> None:
        """Start to compute arrays: whole if they are short work, else a part."""
        self._computing = value if isinstance(value, Computation) else Computation(value)
        self._is_whole = isinstance(value, list) and self._took <= _SHORT
        if self._is_whole:
            self.due = inf
            self._computing.start()
        else:
            self._computing.advance()
        self._spent = perf_counter() - self._began

    def _release(self) -> None:
        if self._computing is not None:
            self._release_arrays()
        self._computing = None
        self._trainee.run = None
        self._streams.give_back(self._stream)

    def _release_arrays(self) -> None:
        """Replace the last task of mlx's thread, which keeps its arrays alive."""
        with suppress(Exception), mx.stream(self._stream):
            mx.async_eval(mx.negative(mx.array(0.0)))


class Request:
    """Asks the host for a batch.

    Args:
        step: the batch's step.
        count: the arrays of a batch.
        computing: arrays of the step before, to compute while the host makes the batch.
    """

    def __init__(self, step: int, count: int, computing: list[mx.array] | None) -> None:
        self.step = step
        self.count = count
        self.computing = computing


class HostData:
    """Batches that the host makes; a missing one ends the epoch and the data.

    Args:
        call: asks the host.
        arrays: the host's arrays; those of a batch are closed once they are taken.
        inputs: the arrays of a batch.
        micro_batch: rows that are computed at once; 0: all.
    """

    def __init__(self, call: Call, arrays: Arrays, inputs: Inputs, micro_batch: int) -> None:
        self._call = call
        self._arrays = arrays
        self._inputs = inputs
        self._micro_batch = micro_batch
        self._values: list[mx.array] | None = None
        self._index = self._epoch = 0

    def request(self, step: int, computing: Any = None) -> Request:
        """Return the request for the batch of a step, with arrays to compute meanwhile."""
        return Request(step, len(self._inputs.names), computing)

    def prepare(self, step: int) -> Generator[Submitted | Computation, None, None]:
        """Take the host's batch; yields what has to end before it is there."""
        handles = self._call.take_batch()
        if handles is not None:
            held = taken(self._arrays, handles, f"the batch of step {step}")
            self._values = yield from computed(self._arrays, held)

    def batch(self, step: int) -> Rows | None:
        """Return the host's batch."""
        values, self._values = self._values, None
        if values is None:
            self._epoch, self._index = self._epoch + 1, 0
            return None
        self._inputs.check(values, f"the batch of step {step}: inputs")
        self._index += 1
        return self._inputs.batch(values, self._micro_batch)

    def steps(self) -> None:
        """Return None: the number is unknown."""

    def state(self) -> dict[str, Any]:
        """Return the place; the data are unknown, so no fit continues there."""
        return {"epoch": self._epoch, "index": self._index, "data": None}

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Go to a place, which is only reported: the host is asked by the step."""
        self._epoch, self._index = int(state["epoch"]), int(state["index"])


def taken(arrays: Arrays, handles: list[int], what: str) -> list[Held]:
    """Return arrays and close their handles, also on an error.

    Raises:
        InvalidArgument: one is no open array.
    """
    try:
        if 0 in handles:
            at = handles.index(0)
            raise InvalidArgument(
                f"{what} has no array as inputs[{at}]", reason="missing", argument=f"inputs[{at}]"
            )
        return [arrays.held(handle) for handle in handles]
    finally:
        for handle in handles:
            arrays.close(handle)


def settled(arrays: Arrays, held: list[Held]) -> Generator[Submitted, None, list[mx.array]]:
    """Return the values of arrays, which may be lazy, and empty the list.

    Yields those that a run or an upload still has to make.
    """
    with mx.stream(arrays.stream):
        values = [arrays.value_of(each) for each in held]
    held.clear()
    for value in values:
        if isinstance(value, Submitted) and not value.is_settled:
            yield value
    return [value.get() if isinstance(value, Submitted) else value for value in values]


def computed(
    arrays: Arrays, held: list[Held]
) -> Generator[Submitted | Computation, None, list[mx.array]]:
    """Return the computed values of arrays, and empty the list, while others have turns."""
    values = yield from settled(arrays, held)
    if not is_computed(values):
        computation = Computation(values)
        yield computation
        if computation.error is not None:
            raise computation.error
    return values
