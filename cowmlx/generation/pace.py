"""The sizes of a prompt's chunks.

Cancels, and contexts that decode meanwhile, wait for the chunk that is computing. The plan follows
from the model's size and is kept, so that a prompt is cut at the same places, and computed to the
same bits, regardless of load. It changes only when a chunk takes much more or less time than it
should.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model

PREFILL_CHUNK = 512  # tokens of the largest chunk
SMALL_CHUNK = 128  # of the largest while others decode
SECONDS = 0.1  # that a chunk should take
LIMIT = 0.2  # that a cancel may take: above, chunks become smaller
STRETCH = 2048  # tokens of context with chunks of one size: attention takes longer behind more
GROWTH = 4  # at most, from one chunk to the next
# Smaller chunks are not worth it if they take nearly the time of larger ones, unless only they let
# a cancel be in time, or if a token takes much longer in them.
_WORTH_IT = 0.75
_DEAR = 2.5
# A larger chunk that takes more than SECONDS is worth it if a token takes at most this share of its
# time in a smaller one.
_CHEAPER = 0.9
# Chunks until a larger one is tried again: another program may have slowed the last trial.
_PAUSE = 64


class Speed(NamedTuple):
    """The assumed speed of a model's device, until a chunk is measured.

    Attributes:
        rate: multiplications in a second.
        least: tokens of the smallest chunk, unless it is measured to be slow: smaller ones take
            hardly less time where weights are read once for all tokens of a chunk.
        patience: how many times as long as on a CPU a chunk may take.
        quick: seconds of a chunk below which chunks become larger: twice as large ones, which read
            weights once, too, take less than a cancel may.
    """

    rate: float
    least: int
    patience: float = 1.0
    quick: float = SECONDS


# With fewer tokens, a large part of a GPU's time goes to reading weights.
GPU = Speed(2e12, 256, patience=8.0, quick=0.03)
BLAS = Speed(5e10, 16)  # of float32, and the kernels of any weights
PLAIN = Speed(4e9, 1)  # mlx's products of quantized weights and of 16 bits without kernels


class Pace:
    """The plan of a model's chunks. Sizes are powers of two.

    Args:
        parameters: of the model, about the multiplications for a token.
        speed: of its device.
    """

    def __init__(self, parameters: int, speed: Speed = BLAS) -> None:
        self.parameters = parameters
        self.speed = speed
        self._sizes: dict[int, int] = {}  # by stretch
        # A stretch's size and seconds before it changed.
        self._slower: dict[int, tuple[int, float]] = {}
        self._quicker: dict[int, tuple[int, float]] = {}
        expected = self.speed.rate * SECONDS * self.speed.patience / max(self.parameters, 1)
        self._least = 1
        # By stretch, where larger chunks are not worth it: how many chunks are left until the next
        # trial, and how many there were when the pause began.
        self._pauses: dict[int, int] = {}
        self._waits: dict[int, int] = {}
        self._sizes[0] = max(self.speed.least, min(_power_of_two(expected), PREFILL_CHUNK))

    def size(self, position: int) -> int:
        """Return the tokens of a chunk behind ``position`` tokens."""
        stretch = position // STRETCH
        return self._sizes[max(known for known in self._sizes if known <= stretch)]

    @property
    def largest(self) -> int:
        """The tokens of the plan's largest chunk."""
        return max(self._sizes.values())

    def observe(self, size: int, position: int, seconds: float) -> None:
        """Change the plan if a chunk took much more or less time than it should.

        Args:
            size: tokens of the chunk; other sizes than the planned one are ignored.
            position: tokens before it.
            seconds: that it took, with nothing else to compute.
        """
        if size != self.size(position):
            return
        seconds /= self.speed.patience
        stretch = position // STRETCH
        pause = self._pauses.pop(stretch, 0)
        slower, quicker = self._slower.pop(stretch, None), self._quicker.pop(stretch, None)
        if slower is not None and not _is_worth_it(size, seconds, *slower):
            self._least = self._sizes[stretch] = slower[0]
        elif quicker is not None and not _is_cheaper(size, seconds, *quicker):
            self._sizes[stretch] = quicker[0]
            self._pauses[stretch] = self._waits[stretch] = 2 * self._waits.get(stretch, _PAUSE // 2)
        elif seconds > LIMIT and size > self._least:
            half = size // 2 if seconds <= 2 * LIMIT else size // GROWTH
            smaller = max(_power_of_two(size * SECONDS / seconds), half, self._least)
            self._sizes[stretch] = smaller
            self._slower[stretch] = size, seconds
        elif pause > 1:
            self._pauses[stretch] = pause - 1
        elif seconds < self.speed.quick and size < PREFILL_CHUNK:
            larger = max(2 * size, _power_of_two(size * SECONDS / max(seconds, 1e-9)))
            self._sizes[stretch] = min(larger, size * GROWTH, PREFILL_CHUNK)
            self._quicker[stretch] = size, seconds


def _is_worth_it(size: int, seconds: float, before: int, seconds_before: float) -> bool:
    """Whether smaller chunks are better than those before."""
    in_time = seconds <= LIMIT < seconds_before
    quicker = seconds <= _WORTH_IT * seconds_before
    return (quicker or in_time) and seconds / size <= _DEAR * seconds_before / before


def _is_cheaper(size: int, seconds: float, before: int, seconds_before: float) -> bool:
    """Whether larger chunks are better than those before."""
    return seconds <= SECONDS or seconds / size <= _CHEAPER * seconds_before / before


def pace_of(model: Model) -> Pace:
    """Return the plan of a model's chunks, which expires with its weights."""
    made: Pace = model.remembered.once("pace", lambda: Pace(model.parameters, _speed(model)))
    return made


def _speed(model: Model) -> Speed:
    form = model.form
    if not form.on_cpu:
        return GPU
    return PLAIN if form.is_slow else BLAS


def _power_of_two(number: float) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return 1 << (max(int(number), 1).bit_length() - 1)
