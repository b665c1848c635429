"""Who has a turn when: generations and long work share the time, whatever a turn takes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cowmlx.scheduling import scheduler as module
from cowmlx.scheduling.scheduler import MOST_OWED, Scheduler


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
