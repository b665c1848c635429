"""The loop: steps over data, evaluations, checkpoints, an end, and events for the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import mlx.core as mx

from cowmlx.generated.constants import (
    FIT_DATA,
    FIT_EARLY,
    FIT_EPOCHS,
    FIT_NONE,
    FIT_STEPS,
    TRAINING_CHECKPOINT,
    TRAINING_END,
    TRAINING_EVALUATION,
    TRAINING_STEP,
)
from cowmlx.training.objective import Batch, DataSource
from cowmlx.training.training import Asking, Evaluation, Step, Training


@dataclass(frozen=True)
class Limits:
    """The end of a fit, and the intervals of its events, evaluations and checkpoints."""

    steps: int = 0  # of the training, not of this fit; 0: no limit
    epochs: int = 0  # of the data; 0: no limit
    report_every: int = 1  # steps between two events; 0: none
    evaluate_every: int = 0  # steps between two evaluations; 0: at the end of each epoch
    # Evaluations without a better one, after which it ends with the parameters of the best; 0: no
    # limit.
    patience: int = 0
    least: float = 0.0  # how much lower a better loss must be
    save_every: int = 0  # steps between two checkpoints; 0: none


@dataclass(frozen=True)
class Report:
    """An event for the host; see ``cow_mlx_training_event`` for the fields."""

    kind: int
    step: int
    steps: int = 0
    epoch: int = 0
    targets: int = 0
    skipped: int = 0
    loss: float = math.nan
    validation_loss: float = math.nan
    accuracy: float = math.nan
    perplexity: float = math.nan
    learning_rate: float = math.nan
    gradient_norm: float = math.nan
    tokens_per_second: float = math.nan
    elapsed: float = 0.0
    remaining: float = math.nan
    peak_memory: int = 0
    finish: int = FIT_NONE


def of_step(training: Training, step: Step, elapsed: float) -> Report:
    """Return the event of a single step."""
    known = _window([step], elapsed)
    return _report(training, TRAINING_STEP, elapsed, **known)


def of_evaluation(training: Training, found: Evaluation, elapsed: float) -> Report:
    """Return the event of an evaluation alone."""
    speed = found.targets / max(elapsed, 1e-9)
    known = _evaluated(found)
    return _report(training, TRAINING_EVALUATION, elapsed, tokens_per_second=speed, **known)


def _window(steps: list[Step], seconds: float) -> dict[str, Any]:
    """Return the fields of an event of some steps; the means leave out steps that were skipped."""
    made = [step for step in steps if not step.skipped] or steps
    targets, loss = sum(step.targets for step in made), made[-1].loss
    if len(made) > 1:
        loss = sum(step.loss * step.targets for step in made) / targets
    return {
        "targets": round(targets),
        "loss": loss,
        "perplexity": Evaluation(loss, targets, math.nan).perplexity,
        "learning_rate": steps[-1].learning_rate,
        "gradient_norm": steps[-1].gradient_norm,
        "tokens_per_second": targets / max(seconds, 1e-9),
    }


def _evaluated(found: Evaluation) -> dict[str, Any]:
    """Return the fields of an event with an evaluation."""
    return {
        "targets": round(found.targets),
        "validation_loss": found.loss,
        "accuracy": found.accuracy,
        "perplexity": found.perplexity,
    }


def _report(training: Training, kind: int, elapsed: float, **known: Any) -> Report:
    known |= {"skipped": training.skipped, "peak_memory": mx.get_peak_memory()}
    return Report(kind, training.step, elapsed=elapsed, **known)


Turns = Generator[Any, None, None]
Save = Callable[[], Generator[None, None, None]]


class Fit:
    """Steps until an end, as a generator that yields after each bounded piece of work.

    It yields a :class:`Report` for the host, arrays that must be computed before the next turn, a
    result of :meth:`Asking.request`, which may have such arrays, or None. The training's state
    decides what is due, so a saved training continues as if it had not been interrupted.
    """

    def __init__(
        self,
        training: Training,
        data: DataSource,
        validation: DataSource | None,
        limits: Limits,
        save: Save | None = None,
    ) -> None:
        self._training = training
        self._data = data
        self._asking = data if isinstance(data, Asking) else None
        self._validation = validation
        self._limits = limits
        self._save = save
        self._began = perf_counter()
        self._first = training.step
        self._window: list[Step] = []
        self._window_began = self._began
        self._saved = -1
        self._last: Evaluation | None = None
        self._best: Evaluation | None = None  # of this fit
        self._asked = -1
        self._continue()

    def _continue(self) -> None:
        """Go to the training's place in the same data; other data start at their beginning."""
        training, known = self._training, self._data.state()["data"]
        if self._validation is not None:
            training.measure_on(self._validation.state()["data"])
        if self._limits.patience:
            training.require_best_parameters()
        if not training.place:
            return
        if training.place.get("data") != known:
            training.best.since = 0
        elif known is not None:
            self._data.set_state(training.place)

    def run(self) -> Turns:
        """Run the fit; where it fails or is closed, the training stays after its last step.

        Raises:
            CowMlxError: of a step, an evaluation or a checkpoint.
        """
        training = self._training
        while True:
            yield from self._due()
            finish = self._end()
            batch = None
            if not finish:
                batch = yield from self._next_batch()
                if batch is None:
                    finish = yield from self._epoch_ended()
            if finish:
                break
            if batch is None:
                continue
            step = yield from self._advance(batch)
            training.place = self._data.state()
            self._window.append(step)
            every = self._limits.report_every
            is_reported = every and training.step % every == 0
            yield self._step_event() if is_reported else None  # the turn ends here
        yield from self._finish(finish)

    def _advance(self, batch: Batch) -> Generator[Any, None, Step]:
        """Make a step; while its first micro-batch is computed, the host makes the next batch."""
        is_asking = self._asking is not None
        turns = self._training.advance(batch, pauses=is_asking, in_turns=not is_asking)
        upcoming = self._training.step + 1
        limit = self._limits.steps
        wants_more = self._asking is not None and not (limit and upcoming >= limit)
        try:
            while True:
                computing: object = next(turns)
                if wants_more and self._asked < upcoming:
                    computing = self._ask(upcoming, computing)
                yield computing
                del computing
        except StopIteration as stop:
            step: Step = stop.value
            return step
        finally:
            turns.close()

    def _next_batch(self) -> Generator[Any, None, Batch | None]:
        step = self._training.step
        if self._asking is not None and self._asked < step:
            yield self._ask(step)
        yield from self._data.prepare(step)
        return self._data.batch(step)

    def _ask(self, step: int, computing: object = None) -> object:
        self._asked = step
        assert self._asking is not None
        return self._asking.request(step, computing)

    def _end(self) -> int:
        """Return why it ends here; FIT_NONE if it does not."""
        limits, training = self._limits, self._training
        if limits.patience and training.best.since >= limits.patience:
            return FIT_EARLY
        if limits.steps and training.step >= limits.steps:
            return FIT_STEPS
        if limits.epochs and self._data.state()["epoch"] >= limits.epochs:
            return FIT_EPOCHS
        return FIT_NONE

    def _due(self) -> Turns:
        """Evaluate and save after the steps of the limits."""
        training, limits = self._training, self._limits
        every = limits.evaluate_every
        if every and training.step and training.step % every == 0:
            yield from self._evaluate()
        every = limits.save_every
        if every and training.step != self._first and training.step % every == 0:
            yield from self._checkpoint()

    def _evaluate(self) -> Turns:
        """Evaluate once after a step."""
        training = self._training
        if self._validation is None or training.evaluated == training.step:
            return
        self._validation.set_state({**self._validation.state(), "epoch": 0, "index": 0})
        limits = self._limits
        self._last = yield from training.evaluate(self._validation)
        if training.note(self._last, limits.least, keeps=limits.patience > 0):
            self._best = self._last
        yield self._event(TRAINING_EVALUATION)

    def _checkpoint(self) -> Turns:
        if self._save is None or self._saved == self._training.step:
            return
        self._saved = self._training.step
        yield from self._save()
        yield self._event(TRAINING_CHECKPOINT)

    def _epoch_ended(self) -> Generator[Any, None, int]:
        if not self._limits.evaluate_every:
            yield from self._evaluate()
        self._training.place = self._data.state()
        return FIT_NONE if self._asking is None else FIT_DATA

    def _finish(self, finish: int) -> Turns:
        training, limits = self._training, self._limits
        if training.step:
            yield from self._evaluate()
        if finish == FIT_EARLY and training.best.parameters:
            training.objective.set_parameters(training.best.parameters)
            self._last = self._best or Evaluation(training.best.loss, 0.0, math.nan)
            self._saved = -1
        if limits.save_every and training.step != self._first:
            yield from self._checkpoint()
        yield self._event(TRAINING_END, finish)

    # ------------------------------------------------------------------ Events

    def _steps(self) -> int:
        """Return the last step; 0 if unknown."""
        known = [self._limits.steps] if self._limits.steps else []
        each, place = self._data.steps(), self._data.state()
        if self._limits.epochs and each:
            left = (self._limits.epochs - place["epoch"]) * each - place["index"]
            known.append(self._training.step + max(0, left))
        return min(known, default=0)

    def _step_event(self) -> Report:
        now = perf_counter()
        window, self._window = self._window, []
        seconds, self._window_began = now - self._window_began, now
        return self._event(TRAINING_STEP, **_window(window, seconds))

    def _event(self, kind: int, finish: int = FIT_NONE, **known: Any) -> Report:
        training = self._training
        elapsed = perf_counter() - self._began
        steps, made = self._steps(), training.step - self._first
        left = max(0, steps - training.step)
        if kind in (TRAINING_EVALUATION, TRAINING_END) and self._last is not None:
            known |= _evaluated(self._last)
        known |= {"steps": steps, "epoch": self._data.state()["epoch"], "finish": finish}
        known["remaining"] = elapsed / made * left if steps and made else math.nan
        return _report(training, kind, elapsed, **known)
