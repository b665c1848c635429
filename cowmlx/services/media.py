"""The calls of images."""

from __future__ import annotations

from cowmlx.call import keeps_call
from cowmlx.errors import InvalidArgument, OutOfMemory, OutOfRange
from cowmlx.generated.constants import KIND_MEDIA
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.vision.pixels import MAX_PIXELS, pixels_steps, require_sides

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any

    from cowmlx.arrays.table import Held
    from cowmlx.call import Call
    from cowmlx.services.arrays import Arrays
    from cowmlx.services.models import Models
    from cowmlx.services.runtime import Runtime
    from cowmlx.vision.pixels import Pixels


def decode_steps(
    runtime: Runtime, file: memoryview, name: str = "bytes"
) -> Generator[None, None, Pixels]:
    """Decode a file in memory. The pixels count for the runtime's memory limit.

    Args:
        runtime: bounds the memory.
        file: the bytes.
        name: of these in messages.

    Raises:
        NotFound, BadFormat, InvalidArgument, OutOfMemory: see
            :func:`cowmlx.vision.decoding.decode`.
    """
    from cowmlx.vision import decoding  # late: hosts usually have pixels

    data, size = decoding.decode(file, name, runtime.require_room)
    yield
    memory = runtime.arrays.memory(len(data))
    if memory is None:
        raise OutOfMemory(f"{name} needs {len(data)} bytes of memory, and there are fewer")
    kept = memory.bytes()
    kept[:] = data
    del data
    yield
    return (yield from pixels_steps(memory, kept, size))


class MediaCalls:
    """Owns the open images.

    Args:
        runtime: shared by all services.
        models: that see them.
        arrays: bytes of hosts.
    """

    def __init__(self, runtime: Runtime, models: Models, arrays: Arrays) -> None:
        self._runtime = runtime
        self._models = models
        self._arrays = arrays

    def get(self, handle: int) -> Pixels:
        """Return the image of an open handle.

        Raises:
            UnknownHandle: it is none.
        """
        return self._runtime.handles.get(KIND_MEDIA, handle)  # type: ignore[return-value]

    @keeps_call
    def media_create(self, call: Call, array: int, channels: int) -> None:
        """Start making an image of bytes; the call ends with its handle.

        Args:
            call: the call.
            array: pixels, (H, W, channels), or a file.
            channels: 0 for a file.
        """
        steps = self._steps(self._arrays.held(array), channels)
        self._runtime.scheduler.add(SteppedCall(call, steps))

    def _steps(self, held: Held, channels: int) -> Generator[None, None, int]:
        if channels:
            height, width, _ = held.shape
            size = height, width, channels
            pixels = yield from pixels_steps(held, held.memory(), size)
        else:
            pixels = yield from decode_steps(self._runtime, held.memory())
        return self._runtime.handles.add(KIND_MEDIA, pixels)

    def media_info(self, handle: int) -> dict[str, Any]:
        """Return the result of ``media_info``."""
        return self.get(handle).info()

    def media_free(self, handle: int) -> None:
        """Close an image's handle."""
        self._runtime.handles.remove(KIND_MEDIA, handle)

    def model_media_tokens(self, handle: int, width: int, height: int, detail: int) -> int:
        """Return how many tokens an image takes in a model's prompts."""
        model = self._models.get(handle)
        if detail:
            raise OutOfRange("detail", detail, "0")
        for name, value in (("width", width), ("height", height)):
            if value < 1:
                raise OutOfRange(name, value, "at least 1")
        if width * height > MAX_PIXELS:
            raise InvalidArgument(
                f"width is {width} and height {height}: {width * height} pixels, which can be at "
                f"most {MAX_PIXELS}",
                reason="limit_exceeded",
                argument="width",
                needed=width * height,
                limit=MAX_PIXELS,
            )
        encoder = model.require_image_encoder()
        require_sides(width, height)
        return encoder.tokens(width, height)
