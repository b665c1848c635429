"""Images as pixels, known by a hash of these."""

from __future__ import annotations

from hashlib import blake2b

from cowmlx.errors import InvalidArgument

TYPE_CHECKING = False
if TYPE_CHECKING:
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
        data: height * width * channels bytes, row-major.
        hash: 32 hexadecimal digits of its size and its pixels.
    """

    __slots__ = ("__weakref__", "_owner", "channels", "data", "hash", "height", "width")

    def __init__(
        self, owner: Any, data: memoryview, size: tuple[int, int, int], known_hash: str
    ) -> None:
        self._owner = owner  # of the memory
        self.data = data
        self.height, self.width, self.channels = size
        self.hash = known_hash

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
    state = blake2b(repr(size).encode(), digest_size=16)
    flat = data.cast("B")
    for at in range(0, flat.nbytes, _PART):
        if at:
            yield
        state.update(flat[at : at + _PART])
    return Pixels(owner, flat, size, state.hexdigest())
