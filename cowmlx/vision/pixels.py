"""Images as pixels, known by a hash of these."""

from __future__ import annotations

from cowmlx.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
    import hashlib
    from collections.abc import Generator
    from typing import Any

MAX_PIXELS = 1 << 26
MAX_SIDE = (1 << 16) - 1
"""The longest side of an image that a model takes: resizing needs memory by its length."""
_PART = 1 << 22  # bytes that are hashed in a turn


class Pixels:
    """The pixels of an image. Never changed.

    Attributes:
        width, height: its size.
        channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        data: their bytes, row-major; of a crop, with those beside it.
        hash: 32 hexadecimal digits of its size and its pixels.
    """

    __slots__ = (
        *("__weakref__", "_left", "_line", "_owner"),
        *("channels", "data", "hash", "height", "width"),
    )

    def __init__(
        self, owner: Any, data: memoryview, size: tuple[int, int, int], known_hash: str
    ) -> None:
        self._owner = owner  # of the memory
        self.data = data
        self.height, self.width, self.channels = size
        self.hash = known_hash
        self._left, self._line = 0, self.width

    def crop(self, top: int, left: int, height: int, width: int) -> Pixels:
        """Return a part of the image. It shares the memory; its hash tells whose part it is."""
        key = f"{self.hash} {top} {left} {height} {width}"
        digits = _hash(key).hexdigest()
        row = self._line * self.channels
        data = self.data[top * row : (top + height) * row]
        made = Pixels(self._owner, data, (height, width, self.channels), digits)
        made._left, made._line = self._left + left, self._line
        return made

    def contiguous(self) -> memoryview:
        """Return height * width * channels bytes, row-major; copied from a crop of part rows."""
        if self.width == self._line:
            return self.data
        row, size = self._line * self.channels, self.width * self.channels
        first = self._left * self.channels
        begins = range(first, first + self.height * row, row)
        return memoryview(b"".join(self.data[begin : begin + size] for begin in begins))

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.data.nbytes

    def info(self) -> dict[str, Any]:
        """Describe the image as JSON-ready values."""
        names = ("width", "height", "channels", "hash")
        return {name: getattr(self, name) for name in names}


def require_sides(width: int, height: int) -> None:
    """Refuse an image that is too long to be resized.

    Raises:
        InvalidArgument: a side is longer than :data:`MAX_SIDE`.
    """
    if max(width, height) > MAX_SIDE:
        raise InvalidArgument(
            f"an image of {width} x {height} is too long: models take sides of up to {MAX_SIDE}",
            reason="limit_exceeded",
            needed=max(width, height),
            limit=MAX_SIDE,
        )


def pixels_steps(
    owner: Any, data: memoryview, size: tuple[int, int, int]
) -> Generator[None, None, Pixels]:
    """Make an image of its bytes, yielding while they are hashed.

    Args:
        owner: of the memory, which is kept.
        data: contiguous bytes.
        size: height, width and channels.
    """
    state = _hash(repr(size))
    flat = data.cast("B")
    for at in range(0, flat.nbytes, _PART):
        if at:
            yield
        state.update(flat[at : at + _PART])
    return Pixels(owner, flat, size, state.hexdigest())


def _hash(text: str) -> hashlib.blake2b:
    """Return the hash of a text, to which more can be added."""
    import hashlib  # late: a start needs none of it

    return hashlib.blake2b(text.encode(), digest_size=16)
