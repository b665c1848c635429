"""The work of a tower in bounded turns."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_PART = 1 << 29  # multiplications of a turn


def parts(count: int, each: int) -> Iterator[slice]:
    """Yield slices of ``count`` rows, of which each takes so many multiplications."""
    size = max(1, _PART // each)
    for begin in range(0, count, size):
        yield slice(begin, min(begin + size, count))
