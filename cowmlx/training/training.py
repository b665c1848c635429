"""A training: an objective, its optimizer, sums of gradients, and the state of both."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import mlx.core as mx

from cowmlx.errors import CowMlxError, InvalidArgument, OutOfRange
from cowmlx.programs.failure import shown
from cowmlx.programs.operations.half import widened
from cowmlx.training.objective import (
    Batch,
    DataSource,
    Gradients,
    MicroBatch,
    Objective,
    key_of,
    weighted,
)
from cowmlx.training.optimizers import Optimizer
from cowmlx.training.updating import Update

Turns = Generator[list[mx.array] | None, None, "Step"]


class Sums:
    """Loss, targets and gradients of a batch, summed over its micro-batches.

    The mean is over the targets of the whole batch, not a mean of means. A micro-batch without
    targets adds nothing. Sums of 16 bits are kept in float32.

    Args:
        of_means: whether losses and gradients are means over targets: they are weighted with these,
            unless there is one micro-batch, whose mean stays the same to the bit.
    """

    def __init__(self, of_means: bool) -> None:
        self._of_means = of_means
        self._loss: mx.array | None = None
        self._targets: mx.array | None = None
        self._gradients: dict[str, mx.array] = {}
        self._dtypes: dict[str, mx.Dtype] = {}
        self._first: tuple[mx.array, dict[str, mx.array]] | None = None

    def add(self, loss: mx.array, targets: mx.array, gradients: Mapping[str, mx.array]) -> None:
        """Add a micro-batch, lazily."""
        number = targets.astype(mx.float32)
        if self._of_means and self._targets is None:
            self._first = loss, dict(gradients)
        elif self._of_means:
            if self._first is not None:
                before, first = self._first
                self._first = None
                self._add(before, first, self._targets)
            self._add(loss, gradients, number)
        else:
            self._add(loss, gradients, None)
        self._targets = number if self._targets is None else self._targets + number

    def _add(
        self, loss: mx.array, gradients: Mapping[str, mx.array], weight: mx.array | None
    ) -> None:
        wide = widened(loss)
        if weight is not None:
            wide = weighted(wide, weight)
        self._loss = wide if self._loss is None else self._loss + wide
        for name, gradient in gradients.items():
            self._dtypes[name] = gradient.dtype
            wide = widened(gradient)
            if weight is not None:
                wide = weighted(wide, weight)
            known = self._gradients.get(name)
            self._gradients[name] = wide if known is None else known + wide

    @property
    def arrays(self) -> list[mx.array]:
        """All arrays that are not computed yet."""
        loss, gradients = self._first or (self._loss, self._gradients)
        assert loss is not None
        return [loss, self.targets, *gradients.values()]

    @property
    def targets(self) -> mx.array:
        """The number of targets so far."""
        assert self._targets is not None
        return self._targets

    def mean(self) -> tuple[mx.array, dict[str, mx.array]]:
        """Return the mean loss, float32 or wider, and gradients in the parameters' dtypes; lazy."""
        if self._first is not None:
            loss, first = self._first
            return widened(loss), first
        means = {
            name: (gradient / self.targets.astype(gradient.dtype)).astype(self._dtypes[name])
            for name, gradient in self._gradients.items()
        }
        assert self._loss is not None
        return self._loss / self.targets, means


@dataclass(frozen=True)
class Settings:
    """Settings of all steps of a training.

    Raises:
        OutOfRange: clip_value or clip_norm is negative or not finite.
    """

    optimizer: str  # as JSON, see :class:`Optimizer`
    seed: int = 0  # of all random numbers
    clip_value: float = 0.0  # bound of every element of the gradients; 0: none
    clip_norm: float = 0.0  # bound of their norm; 0: none
    # Leave out a step whose loss or gradient is not finite; else it is an error.
    skip_non_finite: bool = False

    def __post_init__(self) -> None:
        for name in ("clip_value", "clip_norm"):
            bound = getattr(self, name)
            if not (math.isfinite(bound) and bound >= 0):
                raise OutOfRange(name, bound, "0 or more")


@dataclass(frozen=True)
class Step:
    """The result of a step of the optimizer."""

    loss: float  # the mean over targets, before the step
    targets: float  # their number, or the sum of their weights
    gradient_norm: float  # before clipping
    learning_rate: float  # of the step
    skipped: bool  # whether it was left out, since its loss or gradient was not finite


@dataclass(frozen=True)
class Evaluation:
    """The quality of the parameters on other data."""

    loss: float  # the mean over targets
    targets: float  # their number, or the sum of their weights
    accuracy: float  # the fraction that is predicted right; NaN if unknown

    @property
    def perplexity(self) -> float:
        """The exponential of the loss; infinity where a float overflows."""
        return math.exp(self.loss) if self.loss < 709 else self.loss + math.inf


@runtime_checkable
class Flagging(Protocol):
    """An objective that checks its data with its results."""

    def flags(self) -> list[mx.array]:
        """Return arrays to evaluate with the last results."""

    def check(self) -> None:
        """Check the evaluated flags.

        Raises:
            CowMlxError: the data were bad.
        """

    def forget(self) -> None:
        """Drop the last results, if they were not checked."""


@runtime_checkable
class InTurns(Protocol):
    """An objective that can compute gradients on this thread, in several turns."""

    def gradients_in_turns(
        self, batch: MicroBatch, key: mx.array | None
    ) -> Generator[list[mx.array] | None, None, Gradients]:
        """Return the results of :meth:`Objective.gradients`; each turn yields None."""


@runtime_checkable
class Asking(Protocol):
    """A source whose batches the host makes: it is asked before it gives one."""

    def request(self, step: int, computing: Any = None) -> object:
        """Return the request for the batch of a step.

        The work yields it. The next turn comes when the host has answered, and when the arrays
        ``computing``, if any, are computed.
        """


@dataclass
class Best:
    """The best evaluation so far, and its parameters."""

    loss: float = math.inf  # infinity before the first evaluation
    step: int = 0  # after which it was
    # By name; empty before the first evaluation, and if the fit has no patience.
    parameters: dict[str, mx.array] = field(default_factory=dict)
    since: int = 0  # the number of later evaluations
    data: str | None = None  # a hash of the data that it was evaluated on


class Training:
    """Steps over an objective.

    Raises:
        InvalidArgument: options of the optimizer.
    """

    def __init__(self, objective: Objective, settings: Settings) -> None:
        self.objective = objective
        self._flagging = objective if isinstance(objective, Flagging) else None
        self._in_turns = objective if isinstance(objective, InTurns) else None
        self.settings = settings
        parameters = objective.parameters()
        self.optimizer = Optimizer(settings.optimizer, parameters)
        bounds = settings.clip_value, settings.clip_norm
        self._updated = Update(self.optimizer, *bounds, parameters)
        self.step = 0  # the number of steps, with those that were left out
        self.skipped = 0  # the number of steps that were left out
        # Of the next batch, the source's state; None before any.
        self.place: dict[str, Any] | None = None
        self.best = Best()  # the best evaluation
        self.evaluated = -1  # the step before the last evaluation; -1 before any

    def advance(self, batch: Batch, pauses: bool = True, in_turns: bool = True) -> Turns:
        """Make a step, with a turn for each micro-batch; the last has the optimizer's, too.

        Where it fails or is closed, nothing is changed.

        Args:
            batch: the data.
            pauses: whether to yield also where nothing is left to be computed.
            in_turns: whether this thread may compute gradients in turns, which yield None. If not,
                long computations are yielded as arrays, which mlx's threads compute.

        Raises:
            InvalidArgument: the batch has no target, or the loss is not finite.
        """
        with self._forgetting():
            sums = Sums(getattr(self.objective, "gives_means", False))
            last = len(batch.micro_batches) - 1
            takes_keys = getattr(self.objective, "takes_keys", True)
            for number, micro_batch in enumerate(batch.micro_batches):
                key = key_of(self.settings.seed, "step", self.step, number) if takes_keys else None
                if in_turns and self._in_turns is not None:
                    found = yield from self._in_turns.gradients_in_turns(micro_batch, key)
                else:
                    found = self.objective.gradients(micro_batch, key)
                loss, targets, gradients = found
                _require_as(self.objective.parameters(), gradients, "the gradient of")
                sums.add(loss, targets, gradients)
                del found, loss, targets, gradients
                if number < last:
                    yield from self._computed(sums.arrays)
            step = yield from self._update(sums, pauses)
        self.skipped += step.skipped
        self.step += 1
        return step

    def _update(self, sums: Sums, pauses: bool) -> Turns:
        """Compute the last micro-batch and the step at once; keep the result if it is finite."""
        loss, gradients = sums.mean()
        before = self.optimizer.copy_of_state()
        try:
            updated, norm = self._updated(gradients, self.objective.parameters())
            waiting: list[mx.array] = []
            if not self._updated.is_computed:
                _require_as(self.objective.parameters(), updated, "the optimizer's new value of")
                waiting = [loss, norm, sums.targets, *updated.values(), *self.optimizer.arrays()]
            after = self.optimizer.copy_of_state()
        finally:
            self.optimizer.restore(before)  # others may save the training before the step ends
        yield from self._computed(waiting, pauses)
        targets = _count(sums.targets, "the batch")
        numbers = _number(loss), _number(norm)
        is_finite = all(math.isfinite(number) for number in numbers)
        if not (is_finite or self.settings.skip_non_finite):
            raise self._not_finite(*numbers)
        self.optimizer.restore(after)
        rate = self.optimizer.learning_rate
        if is_finite:
            self.objective.set_parameters(updated)
        else:
            self.optimizer.restore(before)
        return Step(numbers[0], targets, numbers[1], rate, not is_finite)

    @contextmanager
    def _forgetting(self) -> Iterator[None]:
        """Let the objective forget its results at the end, also where work was broken off."""
        try:
            yield
        finally:
            if self._flagging is not None:
                self._flagging.forget()

    def _computed(
        self, arrays: list[mx.array], pauses: bool = True
    ) -> Generator[list[mx.array], None, None]:
        flagging = self._flagging
        waiting = arrays if flagging is None else [*arrays, *flagging.flags()]
        if waiting or pauses:
            yield waiting
            mx.eval(waiting)
        if flagging is not None:
            flagging.check()

    def _not_finite(self, loss: float, norm: float) -> InvalidArgument:
        name, value = ("loss", loss) if not math.isfinite(loss) else ("gradient", norm)
        message = (
            f"the {name} of step {self.step} is {value}, must be finite: nothing was changed; a "
            "lower learning rate, clipping, or leaving such steps out (skip_non_finite) may help"
        )
        return InvalidArgument(message, reason="not_finite", argument=name, value=f"{value}")

    def evaluate(self, data: DataSource) -> Generator[Any, None, Evaluation]:
        """Evaluate the parameters on the next epoch, with a turn for each micro-batch.

        Raises:
            InvalidArgument: the data have no target.
        """
        loss = correct = targets = 0.0
        number = 0
        is_known = True
        while True:
            if isinstance(data, Asking):
                yield data.request(number)
            yield from data.prepare(number)
            batch = data.batch(number)
            if batch is None:
                break
            number += 1
            for micro_batch in batch.micro_batches:
                with self._forgetting():
                    sums = list(self.objective.evaluate(micro_batch))
                    yield from self._computed(sums)
                loss += _number(sums[0])
                targets += _number(sums[1])
                right = _number(sums[2])
                is_known = is_known and right >= 0
                correct += right
        if not 0 < targets < math.inf:
            raise _no_target("the data")
        return Evaluation(loss / targets, targets, correct / targets if is_known else math.nan)

    def measure_on(self, data: str | None) -> None:
        """Begin without a best evaluation, unless it was on the same data, by their hash."""
        if self.best.data != data:
            self.best, self.evaluated = Best(data=data), -1

    def require_best_parameters(self) -> None:
        """Begin without a best evaluation, unless its parameters are kept."""
        if math.isfinite(self.best.loss) and not self.best.parameters:
            self.best, self.evaluated = Best(data=self.best.data), -1

    def note(self, evaluation: Evaluation, least: float = 0.0, keeps: bool = True) -> bool:
        """Note an evaluation, and return whether it is the best: lower by more than ``least``.

        Args:
            evaluation: of the parameters.
            least: of a loss that is better.
            keeps: whether to keep the parameters of the best, which take as much memory again.
        """
        self.evaluated = self.step
        if evaluation.loss < self.best.loss - least:
            parameters = dict(self.objective.parameters()) if keeps else {}
            self.best = Best(evaluation.loss, self.step, parameters, data=self.best.data)
            return True
        self.best.since += 1
        return False


def _require_as(
    parameters: Mapping[str, mx.array], values: Mapping[str, mx.array], what: str
) -> None:
    """Check that values by the names of parameters have their dtypes and shapes.

    Raises:
        CowMlxError: one has not. mlx would broadcast it, and the error would stay unseen.
    """
    for name, value in values.items():
        own = parameters[name]
        if value.shape != own.shape or value.dtype != own.dtype:
            raise CowMlxError(
                f"{what} {shown(name)} is {value.dtype} of {list(value.shape)}, must be "
                f"{own.dtype} of {list(own.shape)}"
            )


def _number(array: mx.array) -> float:
    value: Any = array.item()
    return float(value)


def _count(targets: mx.array, what: str) -> float:
    number = _number(targets)
    if not 0 < number < math.inf:
        raise _no_target(what)
    return number


def _no_target(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{what} has no targets: there is nothing to predict", reason="missing", argument="targets"
    )
