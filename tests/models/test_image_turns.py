"""How the work of towers is cut into parts and turns, by a clock of the test's own."""

from __future__ import annotations

import mlx.core as mx
import numpy as np
import pytest

from cowmlx.steps import finished
from cowmlx.vision import turns as module
from cowmlx.vision.turns import Turns, computed

ROWS = 1 << 40  # more than are done in a test


@pytest.fixture
def clock(monkeypatch):
    """Seconds, which stand still until a test lets them pass; all are the process's own."""
    clock = [0.0]
    monkeypatch.setattr(module, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(module, "process_time", lambda: clock[0])
    return clock


def sizes(turns, clock, seconds, count):
    """Do parts that take so many seconds, until there are ``count``; the rows of each."""
    seen = []

    def steps():
        for part in turns.parts(ROWS, 1):
            seen.append(part.stop - part.start)
            clock[0] += seconds
            yield

    own = steps()
    while len(seen) < count:
        turns.take(own)
    return seen[:count]


def test_slow_parts_become_smaller(clock):
    seen = sizes(Turns(), clock, 0.05, 40)
    assert seen[0] == 1 << 30
    assert seen[-1] < seen[0] // 8
    assert sorted(seen, reverse=True) == seen


def test_quick_parts_become_larger(clock):
    seen = sizes(Turns(), clock, 0.001, 40)
    assert seen[-1] > 8 * seen[0]
    assert sorted(seen) == seen


def test_parts_stay_as_they_are(clock):
    assert set(sizes(Turns(), clock, 0.01, 40)) == {1 << 30}


def test_sizes_are_kept_for_the_next_image(clock):
    turns = Turns()
    last = sizes(turns, clock, 0.05, 40)[-1]
    assert sizes(turns, clock, 0.01, 1) == [last]


def test_a_single_slow_part_changes_nothing(clock):
    """Another program had the processors."""
    turns = Turns()
    sizes(turns, clock, 0.01, 3)
    sizes(turns, clock, 1.0, 1)
    assert set(sizes(turns, clock, 0.01, 20)) == {1 << 30}


def test_other_programs_do_not_make_parts_smaller(clock, monkeypatch):
    monkeypatch.setattr(module, "process_time", lambda: clock[0] / 10)
    assert set(sizes(Turns(), clock, 0.1, 40)) == {1 << 30}


@pytest.mark.parametrize(("seconds", "count"), [(1.0, 1), (0.015, 1), (0.004, 5)])
def test_a_turn_ends_before_a_step_that_would_be_late(clock, seconds, count):
    done = []

    def steps():
        while True:
            done.append(clock[0])
            clock[0] += seconds
            yield

    Turns().take(steps())
    assert len(done) == count


def test_the_end_of_the_steps_ends_a_turn(clock):
    steps = computed([mx.zeros((1,)), [mx.zeros((1,))]])
    with pytest.raises(StopIteration):
        Turns().take(steps)


@pytest.mark.parametrize("count", [1, 7, 64])
def test_parts_give_what_the_whole_gives(count):
    x = mx.arange(count * 3).reshape(count, 3)
    work = (1 << 30) // 5  # five rows in a part
    made = finished(Turns().joined(lambda part: x[part] * 2, count, work))
    assert np.array_equal(np.array(made), 2 * np.array(x))
    both = finished(Turns().joined_all(lambda part: [x[part], x[part] + 1], count, work))
    assert [np.array(own).tolist() for own in both] == [x.tolist(), (x + 1).tolist()]
