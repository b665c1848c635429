"""The work of a tower in bounded turns.

Other contexts wait while a turn is computed. Products of many rows are faster than of few, so parts
are as large as a turn allows. Their size is kept from image to image, as the sizes of a prompt's
chunks are (:mod:`cowmlx.generation.pace`), and changes only when parts take much more or less time
than they should. Other programs that have the processors do not make them smaller.
"""

from __future__ import annotations

from time import perf_counter, process_time

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any

_SECONDS = 0.02  # of a turn
_FIRST, _LEAST, _MOST = 1 << 30, 1 << 26, 1 << 34  # multiplications of a part
_SLOW, _QUICK = 0.02, 0.004  # seconds: above, parts become smaller; below, larger
_SEEN = 8  # parts behind each other, of which the quickest decides


class Turns:
    """Cuts work into parts, and gives them turns."""

    def __init__(self) -> None:
        self._size = _FIRST
        self._is_whole = False  # whether the part that computes has the full size
        self._seen: list[float] = []

    def parts(self, count: int, work: int) -> Iterator[slice]:
        """Yield slices of rows.

        Args:
            count: of the rows.
            work: multiplications for each.
        """
        begin = 0
        while begin < count:
            size = max(1, self._size // work)
            end = min(begin + size, count)
            self._is_whole = end - begin == size
            yield slice(begin, end)
            begin = end

    def joined(
        self, function: Callable[[slice], mx.array], count: int, work: int
    ) -> Generator[None, None, mx.array]:
        """Return what a function makes of slices of rows, one behind the other, in parts.

        Args:
            function: gives an array, lazily, whose first axis follows the slice's rows.
            count: of the rows.
            work: multiplications for each.
        """
        return (yield from self.joined_all(lambda part: [function(part)], count, work))[0]

    def joined_all(
        self, function: Callable[[slice], list[mx.array]], count: int, work: int
    ) -> Generator[None, None, list[mx.array]]:
        """Do the same for a function that gives several arrays."""
        parts = []
        for part in self.parts(count, work):
            parts.append(function(part))
            mx.eval(parts[-1])
            yield
        if len(parts) == 1:
            return parts[0]
        made = []
        for own in zip(*parts, strict=True):
            made.append(mx.concatenate(list(own)))
            mx.eval(made[-1])
            yield
        return made

    def take(self, steps: Iterator[None]) -> None:
        """Do steps for the time of a turn: the next one is expected to take as long as the last.

        Raises:
            StopIteration: from the last step.
        """
        began = now = perf_counter()
        took = 0.0
        while took == 0.0 or now - began + took <= _SECONDS:
            self._is_whole = False
            worked = process_time()
            next(steps)
            before, now = now, perf_counter()
            took = now - before
            if self._is_whole:
                on_cpu = mx.default_device().type == mx.cpu
                self._observe(min(took, process_time() - worked) if on_cpu else took)

    def _observe(self, seconds: float) -> None:
        """Change the size if whole parts took much more or less time than they should."""
        self._seen.append(seconds)
        if len(self._seen) < _SEEN:
            return
        quickest = min(self._seen)
        self._seen.clear()
        if quickest > _SLOW:
            self._size = max(self._size // 2, _LEAST)
        elif quickest < _QUICK:
            self._size = min(self._size * 2, _MOST)


def computed(arrays: Iterable[Any]) -> Iterator[None]:
    """Compute arrays, or trees of them, one after the other."""
    for array in arrays:
        mx.eval(array)
        yield
