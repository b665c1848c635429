"""The order of turns."""

from __future__ import annotations

from collections import deque
from math import inf
from time import perf_counter

MOST_OWED = 0.25
"""Seconds that generations get back at most when long work has had more than half of the time."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    class Unit(Protocol):
        """Work that takes turns, such as contexts that generate or a model being loaded."""

        @property
        def priority(self) -> int:
            """Below 0: it has a turn only when no other unit wants one."""

        @property
        def shares_time(self) -> bool:
            """Whether its turns may be long: all such units together have half of the time."""

        @property
        def patience(self) -> float:
            """Seconds that units before it must pause before its turn."""

        @property
        def due(self) -> float:
            """Deadline of its next turn, regardless of load, by ``perf_counter``; inf: none."""

        @property
        def wakes(self) -> float:
            """When it may want a turn although nothing has happened; inf: never."""

        @property
        def finished(self) -> bool:
            """Whether it never wants a turn again."""

        def attend(self) -> object:
            """Handle a cancel or a deadline while others have the turns. Never raises."""

        def turn(self) -> bool:
            """Do one bounded piece of work; false if there is none now. Never raises."""

        def block(self) -> bool:
            """Wait for a computation of mlx; false if there is none. Never raises.

            Called when no unit has other work.
            """


class Scheduler:
    """Gives units their turns, one after the other.

    Long work, such as programs, gets at most as much time as generations that have work.
    Background units have turns while others pause, or when they are due.

    A step starts the next before it reads the last one, so steps of different units overlap on
    their streams. Nothing here starts a thread or takes a lock.
    """

    def __init__(self) -> None:
        self._foreground: deque[Unit] = deque()
        self._background: deque[Unit] = deque()
        self._turning: Unit | None = None
        self._owed = 0.0  # seconds that long work has had more than generations
        self._worked = -inf  # when a foreground unit last had a turn

    @property
    def units(self) -> list[Unit]:
        """All units, with one whose turn has raised."""
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
        """Whether there are no units."""
        return not (self._foreground or self._background or self._turning)

    def begin(self, unit: Unit) -> None:
        """Give a unit its first turn at once, which may finish it, and others later."""
        unit.turn()
        if not unit.finished:
            self.add(unit)

    def remove(self, unit: Unit) -> None:
        """Take a unit out before it is finished, if it is in."""
        for queue in (self._foreground, self._background):
            if unit in queue:
                queue.remove(unit)

    def step(self) -> bool:
        """Give one unit its turn; false if none wants one.

        After an exception, such as of memory between the turns, the next step continues.
        """
        if self._turning is not None:
            self._put_back(self._turning)
        if self._background and self._take_due_turn():
            return True
        if self._take_turn(self._foreground):
            self._worked = perf_counter()
            self._attend_background()
            return True
        return self._take_background_turn() or self._block()

    @property
    def due(self) -> float | None:
        """Seconds until a unit may want a turn although nothing has happened; None: none will."""
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
        """Handle cancels and deadlines of background units; finished ones leave."""
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
        # No other unit has work. Finished ones leave in their turn.
        return any(self._turn_of(unit, queue, unit.turn) for unit in passed_over)

    def _put_back(self, unit: Unit) -> None:
        """Let the unit whose turn is over wait for the next one."""
        if not unit.finished:
            self.add(unit)
        self._turning = None

    def _turn_of(self, unit: Unit, queue: deque[Unit], turn: Callable[[], bool]) -> bool:
        if unit not in queue:  # another's turn has ended it
            return False
        queue.remove(unit)
        self._turning = unit
        began = perf_counter()
        worked = turn()
        self._put_back(unit)
        if worked and unit.priority >= 0:
            took = perf_counter() - began
            self._owed += took if unit.shares_time else -took
            self._owed = min(max(self._owed, 0.0), MOST_OWED)
        return worked
