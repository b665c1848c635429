"""How many tokens of a prompt are processed at a time, so that none of it takes long.

A cancel, and whoever decodes beside a prompt, waits for the chunk that is computing. The plan of a
model's chunks follows from its size, and is kept: the same prompt is cut at the same places, and
so computed to the same bits, whatever else runs. Only where a chunk is found to take much more or
much less time than it should is the plan changed.
"""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from cowmlx.models.model import Model

PREFILL_CHUNK = 512  # tokens of a prompt that are processed at a time: the most
SMALL_CHUNK = 128  # while others decode
SECONDS = 0.1  # that a chunk should take
SLOW = 0.15  # from here on chunks become smaller
LIMIT = 0.2  # that a cancel should take, and what it waits for
QUICK = 0.03  # up to here they become larger
STRETCH = 2048  # tokens of context that have a size of their own, since attention takes longer
GROWTH = 4  # at most, from one chunk to the next
# Smaller chunks that take nearly the time of larger ones cost more than they help, unless a cancel
# is in time with them; and so do those in which a token takes much longer.
_WORTH_IT = 0.75
_DEAR = 2.5


class Speed(NamedTuple):
    """What is assumed of a model's device until it is measured.

    Attributes:
        rate: multiplications in a second.
        least: tokens of a chunk at least, until it is measured: below, chunks take hardly less
            time where weights are read, or unpacked, once for all tokens of a chunk.
    """

    rate: float
    least: int


GPU = Speed(2e12, 64)
KERNELS = Speed(5e10, 16)  # of any weights
BLAS = Speed(5e10, 16)  # float32
UNPACKED = Speed(5e10, 64)  # packed weights that are unpacked for each chunk
SIXTEEN_BITS = Speed(4e9, 1)  # mlx's own products of 16 bits, number by number


class Pace:
    """The plan of a model's chunks. Sizes are powers of two.

    Args:
        parameters: of the model, about as many as multiplications for a token.
        speed: of its device.
    """

    def __init__(self, parameters: int, speed: Speed = BLAS) -> None:
        self.parameters = parameters
        self.speed = speed
        self._sizes: dict[int, int] = {}  # by stretch
        self._slower: dict[int, tuple[int, float]] = {}  # what a stretch had before
        expected = self.speed.rate * SECONDS / max(self.parameters, 1)
        self._least = 1
        self._sizes[0] = max(self.speed.least, min(_power_of_two(expected), PREFILL_CHUNK))

    def size(self, position: int) -> int:
        """Return how many tokens to process at a time behind ``position`` tokens."""
        stretch = position // STRETCH
        return self._sizes[max(known for known in self._sizes if known <= stretch)]

    def observe(self, size: int, position: int, seconds: float) -> None:
        """Change the plan if a chunk took much longer, or less long, than it should.

        Args:
            size: tokens of the chunk; nothing is learned of one that is not as planned.
            position: tokens before it.
            seconds: that it took, with nothing else to compute.
        """
        if size != self.size(position):
            return
        stretch = position // STRETCH
        before = self._slower.pop(stretch, None)
        if before is not None and not _is_worth_it(size, seconds, *before):
            self._least = self._sizes[stretch] = before[0]
        elif seconds > SLOW and size > self._least:
            half = size // 2 if seconds <= 2 * SLOW else size // GROWTH
            smaller = max(_power_of_two(size * SECONDS / seconds), half, self._least)
            self._sizes[stretch] = smaller
            self._slower[stretch] = size, seconds
        elif seconds < QUICK and size < PREFILL_CHUNK:
            larger = _power_of_two(size * SECONDS / max(seconds, 1e-9))
            self._sizes[stretch] = min(larger, size * GROWTH, PREFILL_CHUNK)


def _is_worth_it(size: int, seconds: float, before: int, seconds_before: float) -> bool:
    """Whether smaller chunks are better than those before."""
    in_time = seconds <= LIMIT < seconds_before
    quicker = seconds <= _WORTH_IT * seconds_before
    return (quicker or in_time) and seconds / size <= _DEAR * seconds_before / before


def pace_of(model: Model) -> Pace:
    """Return the plan of a model's chunks, which is kept with what is known of its weights."""
    made: Pace = model.remembered.once("pace", lambda: Pace(model.parameters, _speed(model)))
    return made


def _speed(model: Model) -> Speed:
    form = model.form
    if not form.on_cpu:
        return GPU
    if not form.why_not:
        return KERNELS
    if form.is_slow:
        return SIXTEEN_BITS
    return UNPACKED if form.quantized else BLAS


def _power_of_two(number: float) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return 1 << (max(int(number), 1).bit_length() - 1)
