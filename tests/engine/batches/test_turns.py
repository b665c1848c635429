"""Who has a turn when: generations, long work and trainings share the time, whatever turns take."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import mlx.core as mx
import pytest

from cowmlx.errors import Canceled
from cowmlx.scheduling import scheduler as module
from cowmlx.scheduling.scheduler import MOST_OWED, Scheduler
from cowmlx.scheduling.streams import StreamPool
from cowmlx.services import training_runs
from cowmlx.services.computing import is_computed
from cowmlx.services.training_runs import SHARE, Trainee, TrainingRun
from cowmlx.training.array_data import Inputs
from cowmlx.training.training import Settings, Training


class Clock:
    """Time that passes when a unit says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """The scheduler's clock."""
    made = Clock()
    monkeypatch.setattr(module, "perf_counter", made)
    monkeypatch.setattr(training_runs, "perf_counter", made)
    return made


class Unit:
    """Takes turns of a length while it has work."""

    priority = 0
    finished = False

    def __init__(
        self,
        clock: Clock,
        length: float,
        shares_time: bool,
        has_work: Callable[[], bool] = lambda: True,
    ) -> None:
        self.shares_time = shares_time
        self.turns = 0
        self._clock, self._length, self._has_work = clock, length, has_work

    def attend(self) -> None:
        """Nothing ends it early."""

    def turn(self) -> bool:
        """Let time pass."""
        if not self._has_work():
            return False
        self.turns += 1
        self._clock.now += self._length
        return True

    def block(self) -> bool:
        """It computes nothing beside its turns."""
        return False

    @property
    def time(self) -> float:
        """What it has had."""
        return self.turns * self._length


def run(clock: Clock, units: list[Unit], until: float) -> None:
    """Let units take turns."""
    scheduler = Scheduler()
    for unit in units:
        scheduler.add(unit)
    while clock.now < until:
        assert scheduler.step()


def test_long_turns_are_paid_back(clock):
    context, program = Unit(clock, 0.001, False), Unit(clock, 0.05, True)
    run(clock, [context, program], 10)
    assert context.time == pytest.approx(5, abs=0.1)


def test_many_programs_have_one_half_together(clock):
    contexts = [Unit(clock, 0.001, False) for _ in range(2)]
    programs = [Unit(clock, 0.02, True) for _ in range(5)]
    run(clock, [*contexts, *programs], 20)
    assert sum(unit.time for unit in contexts) == pytest.approx(10, abs=0.2)
    for half in (contexts, programs):
        assert max(unit.turns for unit in half) - min(unit.turns for unit in half) <= 1


def test_short_turns_alternate(clock):
    context, program = Unit(clock, 2**-10, False), Unit(clock, 2**-10, True)
    run(clock, [context, program], 1)
    assert abs(context.turns - program.turns) <= 1


def test_programs_have_all_the_time_while_nobody_generates(clock):
    idle = Unit(clock, 0.001, False, lambda: False)
    programs = [Unit(clock, 0.01, True) for _ in range(2)]
    run(clock, [idle, *programs], 1)
    assert sum(unit.time for unit in programs) == pytest.approx(1, abs=0.02)
    assert abs(programs[0].turns - programs[1].turns) <= 1


def test_a_very_long_turn_does_not_stop_programs_for_long(clock):
    context, program = Unit(clock, 0.001, False), Unit(clock, 60, True)
    run(clock, [context, program], 200)
    assert program.turns >= 3
    assert context.time <= 4 * (MOST_OWED + 0.002)


class Micro:
    """A training whose micro-batches take a time, in a turn and behind it.

    Attributes:
        ends: when each was computed.
        error: what its call ended with.
    """

    ready, refused = True, False

    def __init__(self, clock: Clock, length: float, beside: float = 0.0) -> None:
        self.ends: list[float] = []
        self.error: BaseException | None = None
        self.is_canceled = False
        self._clock, self._length, self._beside = clock, length, beside
        trainee = Trainee(cast("Any", None), Inputs([]), {}, takes_lines=False)
        self.unit = TrainingRun(
            cast("Any", self),
            trainee,
            self._steps(),
            StreamPool(mx.Device(mx.cpu)),
            lambda: self.is_canceled,
        )

    def fail(self, error: BaseException) -> None:
        """Note how it ended."""
        self.error = error

    def computation(self) -> type:
        """A class in place of mlx's computations: in parts of 4 ms, or beside others' turns."""
        clock = self._clock

        class Ending:
            error = None

            def __init__(self, seconds: list[float]) -> None:
                self._left = seconds[0]
                self._end = math.inf

            def start(self) -> None:
                self._end = clock.now + self._left

            def finish(self) -> None:
                clock.now = max(clock.now, self._end)

            def advance(self, waits: bool = False) -> bool:
                part = min(0.004, self._left) if waits else 0.0
                self._left -= part
                clock.now += part
                return self._left <= 0 or clock.now >= self._end

        return Ending

    def _steps(self) -> Iterator[Any]:
        while True:
            self._clock.now += self._length
            yield [self._beside] if self._beside else None
            self.ends.append(self._clock.now)


@pytest.mark.parametrize(("length", "beside"), [(0.05, 0.0), (0.002, 0.05), (0.0001, 0.002)])
def test_a_training_has_its_share_while_others_never_pause(clock, monkeypatch, length, beside):
    context, training = Unit(clock, 0.001, False), Micro(clock, length, beside)
    monkeypatch.setattr(training_runs, "Computation", training.computation())
    run(clock, [context, training.unit], 20)
    share = len(training.ends) * (length + beside) / 20
    assert SHARE / 2 <= share <= SHARE * 1.05
    if beside >= 0.05:  # in parts, so the context has all the rest
        assert context.time == pytest.approx(20 * (1 - SHARE), rel=0.02)


def test_a_training_has_all_the_time_in_a_pause(clock, monkeypatch):
    has_work = SimpleNamespace(now=True)
    context = Unit(clock, 0.001, False, lambda: has_work.now)
    training = Micro(clock, 0.01, 0.1)
    monkeypatch.setattr(training_runs, "Computation", training.computation())
    scheduler = Scheduler()
    for unit in (context, training.unit):
        scheduler.add(unit)
    for _ in range(200):
        assert scheduler.step()
    has_work.now = False
    pause = clock.now
    while clock.now < pause + 10:
        if not scheduler.step():
            due = scheduler.due
            assert due is not None
            clock.now += max(due, 1e-6)  # the dispatch thread sleeps
    count = sum(end > pause for end in training.ends)
    assert count * 0.11 >= 9.5


def test_others_have_turns_between_the_parts_of_a_micro_batch(clock, monkeypatch):
    turns: list[int] = []  # of the other, before each part
    context, training = Unit(clock, 0.001, False), Micro(clock, 0.0, 0.1)

    class InParts:
        """A computation of 20 parts, each of which takes 4 ms."""

        error = None

        def __init__(self, _: list[float]) -> None:
            pass

        def advance(self, waits: bool = False) -> bool:
            turns.append(context.turns)
            clock.now += 0.004
            return len(turns) == 20

    monkeypatch.setattr(training_runs, "Computation", InParts)
    scheduler = Scheduler()
    scheduler.begin(training.unit)
    assert turns == [0]
    scheduler.add(context)
    while len(turns) < 20:
        assert scheduler.step()
    share = 0.004 / 0.001 * (1 / SHARE - 1)
    between = [later - before for before, later in pairwise(turns[:20])]
    assert between == pytest.approx([share] * 19, abs=2)


def test_a_step_of_a_training_starts_nothing_itself():
    """Else mlx would make the dispatch thread wait for nearly all of a long micro-batch."""
    values = {"w": mx.ones((2, 3))}
    objective = SimpleNamespace(
        parameters=lambda: dict(values),
        set_parameters=values.update,
        gradients=lambda batch, key: (mx.array(9.0), mx.array(1), {"w": 2 * values["w"]}),
        evaluate=lambda batch: (values["w"].sum(), mx.array(1), mx.array(-1)),
    )
    training = Training(cast("Any", objective), Settings('{"name": "sgd", "learning_rate": 0.1}'))
    batch = cast("Any", SimpleNamespace(micro_batches=[[], []]))
    batches = {0: batch}
    source = SimpleNamespace(batch=batches.get, prepare=lambda number: iter(()))
    for turns in (training.advance(batch), training.evaluate(cast("Any", source))):
        for arrays in turns:
            mx.synchronize()
            assert not is_computed(arrays)
    assert training.step == 1


def test_a_cancel_ends_a_training_that_others_leave_no_turn(clock, monkeypatch):
    context, training = Unit(clock, 0.001, False), Micro(clock, 0.0, 100)
    monkeypatch.setattr(training_runs, "Computation", training.computation())
    scheduler = Scheduler()
    for unit in (context, training.unit):
        scheduler.add(unit)
    for _ in range(9):
        assert scheduler.step()
    training.is_canceled = True
    assert scheduler.step()
    assert isinstance(training.error, Canceled)
    assert training.unit not in scheduler.units
    assert scheduler.due is None
