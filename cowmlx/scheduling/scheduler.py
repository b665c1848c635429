"""Who steps when."""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter

MOST_OWED = 0.25
"""Seconds that generations get back at most once long work has had more than its half."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Unit(Protocol):
        """Something that takes turns: contexts that generate, a model being loaded."""

        @property
        def priority(self) -> int:
            """Below 0: has a turn only when nobody else wants one."""

        @property
        def shares_time(self) -> bool:
            """Whether its turns may be long: all such units together have half of the time."""

        @property
        def patience(self) -> float:
            """Seconds that nobody before it has had a turn when it has one."""

        @property
        def due(self) -> float:
            """When it has one whoever else wants one, by ``perf_counter``; inf: it is not told."""

        @property
        def wakes(self) -> float:
            """When it may want a turn though nothing has happened; inf: that cannot be."""

        @property
        def finished(self) -> bool:
            """Whether it never wants a turn again."""

        def attend(self) -> object:
            """See to a cancel or a deadline while others have the turns. Never raises."""

        def turn(self) -> bool:
            """Do one bounded piece of work; false if there is none now. Never raises."""

        def block(self) -> bool:
            """Have a turn that waits for what mlx computes; false if nothing is. Never raises.

            Asked for when nobody has anything else to do.
            """


class Scheduler:
    """Gives units their turns, one after the other.

    Generations have a turn each, whatever it takes. Long work, such as programs, has had a turn of
    some length only if generations have had as long since, as far as they had anything to do. What
    is behind others has its turns while these pause, or when it is due.

    A step starts the next before it reads the last one, so those of different units overlap on
    their streams. Nothing here starts a thread or takes a lock.
    """

    def __init__(self) -> None:
        self._foreground: deque[Unit] = deque()
        self._background: deque[Unit] = deque()
        self._turning: Unit | None = None
        self._owed = 0.0  # seconds that long work has had, and generations not yet
        self._worked = -inf  # when somebody who is not behind others had a turn

    @property
    def units(self) -> list[Unit]:
        """All that take turns, with one whose turn has raised."""
        turning = [] if self._turning is None else [self._turning]
        return [*turning, *self._foreground, *self._background]

    def clear(self) -> None:
        """Take every unit out."""
        self._foreground.clear()
        self._background.clear()
        self._turning = None

    def add(self, unit: Unit) -> None:
        """Let a unit take turns until it is finished. Adding it again changes nothing."""
        queue = self._background if unit.priority < 0 else self._foreground
        if unit not in queue:
            queue.append(unit)

    @property
    def is_idle(self) -> bool:
        """Whether nobody takes turns."""
        return not (self._foreground or self._background or self._turning)

    def begin(self, unit: Unit) -> None:
        """Let a unit have its first turn at once, where short work ends, and others later."""
        unit.turn()
        if not unit.finished:
            self.add(unit)

    def remove(self, unit: Unit) -> None:
        """Take a unit out before it is finished, if it is in."""
        for queue in (self._foreground, self._background):
            if unit in queue:
                queue.remove(unit)

    def step(self) -> bool:
        """Give one unit its turn; false if none wants one."""
        if self._background and self._take_due_turn():
            return True
        if self._take_turn(self._foreground):
            self._worked = perf_counter()
            self._attend_background()
            return True
        return self._take_background_turn() or self._block()

    @property
    def due(self) -> float | None:
        """Seconds until a unit may want a turn though nothing has happened; None: none will."""
        at = min((self._wakes(unit) for unit in self._background), default=inf)
        return None if at == inf else max(0.0, at - perf_counter())

    def _wakes(self, unit: Unit) -> float:
        return max(unit.wakes, min(self._worked + unit.patience, unit.due))

    def _take_due_turn(self) -> bool:
        now = perf_counter()
        due = [unit for unit in self._background if unit.due <= now]
        return any(self._turn_of(unit, self._background, unit.turn) for unit in due)

    def _take_background_turn(self) -> bool:
        pause = perf_counter() - self._worked
        for unit in tuple(self._background):
            if unit.patience > pause:
                unit.attend()
                if unit.finished:
                    self.remove(unit)
            elif self._turn_of(unit, self._background, unit.turn):
                return True
        return False

    def _block(self) -> bool:
        for queue in (self._foreground, self._background):
            for unit in tuple(queue):
                if self._turn_of(unit, queue, unit.block):
                    if queue is self._foreground:
                        self._worked = perf_counter()
                    return True
        return False

    def _attend_background(self) -> None:
        """See to cancels and deadlines behind the foreground; what has ended leaves."""
        for unit in list(self._background):
            unit.attend()
            if unit.finished:
                self.remove(unit)

    def _take_turn(self, queue: deque[Unit]) -> bool:
        waiting = tuple(queue)
        passed_over: list[Unit] = []
        for unit in waiting:
            if unit.shares_time and self._owed > 0:
                unit.attend()
                passed_over.append(unit)
            elif self._turn_of(unit, queue, unit.turn):
                return True
        # Nobody else has anything to do. What has ended leaves in its turn.
        return any(self._turn_of(unit, queue, unit.turn) for unit in passed_over)

    def _turn_of(self, unit: Unit, queue: deque[Unit], turn: Callable[[], bool]) -> bool:
        if unit not in queue:  # another's turn has ended it
            return False
        queue.remove(unit)
        self._turning = unit
        began = perf_counter()
        worked = turn()
        self._turning = None
        if not unit.finished and unit not in queue:
            queue.append(unit)
        if worked and unit.priority >= 0:
            took = perf_counter() - began
            self._owed += took if unit.shares_time else -took
            self._owed = min(max(self._owed, 0.0), MOST_OWED)
        return worked
