"""A training: an objective, its optimizer, and how far they are."""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import mlx.core as mx

from cowmlx.errors import CowMlxError, InvalidArgument
from cowmlx.programs.failure import shown
from cowmlx.training import seeds
from cowmlx.training.gradients import Sums, clipped
from cowmlx.training.objective import Batch, DataSource, Objective
from cowmlx.training.optimizers import Optimizer

Turns = Generator[list[mx.array], None, "Step"]


@dataclass(frozen=True)
class Settings:
    """What holds for all steps of a training.

    Args:
        optimizer: as JSON, see :class:`Optimizer`.
        seed: of all that is random.
        clip_value: bound of every element of the gradients; 0: none.
        clip_norm: bound of their norm; 0: none.
        skip_non_finite: whether a step whose loss or gradient is not finite is left out; else it
            is an error.
    """

    optimizer: str
    seed: int = 0
    clip_value: float = 0.0
    clip_norm: float = 0.0
    skip_non_finite: bool = False


@dataclass(frozen=True)
class Step:
    """What a step of the optimizer was like.

    Args:
        loss: the mean over targets, before the step.
        targets: how many there were.
        gradient_norm: before clipping.
        learning_rate: of the step.
        skipped: whether it was left out, since its loss or gradient was not finite.
    """

    loss: float
    targets: int
    gradient_norm: float
    learning_rate: float
    skipped: bool


@dataclass(frozen=True)
class Evaluation:
    """How good the parameters are on other data.

    Args:
        loss: the mean over targets.
        targets: how many there were.
        accuracy: the part of them that is predicted right; NaN if that is not told.
    """

    loss: float
    targets: int
    accuracy: float

    @property
    def perplexity(self) -> float:
        """The exponential of the loss; infinity where that is more than a number holds."""
        return math.exp(self.loss) if self.loss < 709 else self.loss + math.inf


@runtime_checkable
class Flagging(Protocol):
    """An objective that finds out with the values whether the data were good."""

    def flags(self) -> list[mx.array]:
        """Return what has to be evaluated with the last results."""

    def check(self) -> None:
        """Look at the flags, which are evaluated.

        Raises:
            CowMlxError: what they tell.
        """


@runtime_checkable
class Asking(Protocol):
    """A source whose batches somebody else makes: it has to be asked before it gives one."""

    def request(self, step: int) -> object:
        """Return what asks for the batch of a step.

        Who steps through the work sees it yielded; the next turn comes when it is answered.
        """


@dataclass
class Best:
    """The best evaluation so far, and what the parameters were then.

    Args:
        loss: its loss; infinity before the first.
        step: when that was.
        parameters: by name; empty before the first.
        since: how many evaluations there were after it.
    """

    loss: float = math.inf
    step: int = 0
    parameters: dict[str, mx.array] = field(default_factory=dict)
    since: int = 0


class Training:
    """Steps over an objective.

    Args:
        objective: what is minimised.
        settings: how.

    Attributes:
        step: how many steps were made, with those that were left out.
        skipped: how many were left out.
        place: where the next batch is in the data, as the source tells it; None before any.
        best: the best evaluation.
        evaluated: after which step the last evaluation was; -1 before any.

    Raises:
        InvalidArgument: options of the optimizer.
    """

    def __init__(self, objective: Objective, settings: Settings) -> None:
        self.objective = objective
        self.settings = settings
        self.optimizer = Optimizer(settings.optimizer, objective.parameters())
        self.step = 0
        self.skipped = 0
        self.place: dict[str, Any] | None = None
        self.best = Best()
        self.evaluated = -1

    def advance(self, batch: Batch) -> Turns:
        """Make a step, with a turn for each micro-batch; the last has the optimizer's, too.

        Closed or failing it leaves everything as it was.

        Raises:
            InvalidArgument: the batch has no target, or the loss is not finite.
        """
        sums = Sums(getattr(self.objective, "gives_means", False))
        last = len(batch.micro_batches) - 1
        for number, micro_batch in enumerate(batch.micro_batches):
            key = seeds.key_of(self.settings.seed, "step", self.step, number)
            loss, targets, gradients = self.objective.gradients(micro_batch, key)
            _require_as(self.objective.parameters(), gradients, "the gradient of")
            sums.add(loss, targets, gradients)
            del loss, targets, gradients
            if number < last:
                yield from self._computed(sums.arrays)
        before = self.optimizer.copy_of_state()
        try:
            step = yield from self._update(sums)
        except BaseException:
            self.optimizer.restore(before)
            raise
        if step.skipped:
            self.optimizer.restore(before)
            self.skipped += 1
        self.step += 1
        return step

    def _update(self, sums: Sums) -> Turns:
        """Compute the last micro-batch and the step at once; take it over if it is finite."""
        loss, gradients = sums.mean()
        gradients, norm = clipped(gradients, self.settings.clip_value, self.settings.clip_norm)
        updated = self.optimizer.updated(gradients, self.objective.parameters())
        _require_as(self.objective.parameters(), updated, "the optimizer's new value of")
        state = self.optimizer.state().values()
        del gradients
        yield from self._computed([loss, norm, sums.targets, *updated.values(), *state])
        targets = _count(sums.targets, "the batch")
        numbers = _number(loss), _number(norm)
        is_finite = all(math.isfinite(number) for number in numbers)
        if is_finite:
            self.objective.set_parameters(updated)
        elif not self.settings.skip_non_finite:
            raise self._not_finite(*numbers)
        return Step(numbers[0], targets, numbers[1], self.optimizer.learning_rate, not is_finite)

    def _computed(self, arrays: list[mx.array]) -> Generator[list[mx.array], None, None]:
        objective = self.objective
        waiting = [*arrays, *(objective.flags() if isinstance(objective, Flagging) else [])]
        mx.async_eval(waiting)
        yield waiting
        mx.eval(waiting)
        if isinstance(objective, Flagging):
            objective.check()

    def _not_finite(self, loss: float, norm: float) -> InvalidArgument:
        what, value = ("loss", loss) if not math.isfinite(loss) else ("gradient", norm)
        return InvalidArgument(
            f"the {what} of step {self.step} is {value}, must be finite: nothing was changed; a "
            "lower learning rate, clipping, or leaving such steps out (skip_non_finite) may help",
            reason="not_finite",
            argument=what,
            value=f"{value}",
        )

    def evaluate(self, data: DataSource) -> Generator[Any, None, Evaluation]:
        """Return how good the parameters are, with a turn for each micro-batch.

        Args:
            data: all of its next epoch is evaluated.

        Raises:
            InvalidArgument: the data have no target.
        """
        loss = correct = 0.0
        targets = number = 0
        is_told = True
        while True:
            if isinstance(data, Asking):
                yield data.request(number)
            batch = data.batch(number)
            if batch is None:
                break
            number += 1
            for micro_batch in batch.micro_batches:
                found = list(self.objective.evaluate(micro_batch))
                yield from self._computed(found)
                loss += _number(found[0])
                targets += int(_number(found[1]))
                right = _number(found[2])
                is_told = is_told and right >= 0
                correct += right
        if targets <= 0:
            raise _no_target("the data")
        return Evaluation(loss / targets, targets, correct / targets if is_told else math.nan)

    def note(self, evaluation: Evaluation, least: float = 0.0) -> None:
        """Remember an evaluation, and the parameters if it is the best.

        Args:
            evaluation: of the parameters as they are.
            least: how much lower its loss has to be.
        """
        self.evaluated = self.step
        if evaluation.loss < self.best.loss - least:
            parameters = dict(self.objective.parameters())
            self.best = Best(evaluation.loss, self.step, parameters)
        else:
            self.best.since += 1


def _require_as(
    parameters: Mapping[str, mx.array], values: Mapping[str, mx.array], what: str
) -> None:
    """Check that values by the names of parameters have their dtypes and shapes.

    Raises:
        CowMlxError: one has not. mlx would broadcast it, and the training would go wrong unseen.
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


def _count(targets: mx.array, what: str) -> int:
    number = int(_number(targets))
    if number <= 0:
        raise _no_target(what)
    return number


def _no_target(what: str) -> InvalidArgument:
    return InvalidArgument(
        f"{what} has no targets: there is nothing to predict", reason="missing", argument="targets"
    )
