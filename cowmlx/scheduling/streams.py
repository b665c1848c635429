"""mlx streams: one per context that has work.

A stream belongs to the thread that made it and cannot be freed alone, so streams are used again.
"""

from __future__ import annotations

import mlx.core as mx

from cowmlx import resources
from cowmlx.errors import OutOfMemory, OutOfRange, Unsupported
from cowmlx.resources import BRANCHES

# Each stream of Apple's GPU has a command queue, and macOS makes 600 to 1,600 of them.
MOST_STREAMS = 256
_NO_QUEUE = "Failed to make new command queue"
_MOST_ERRORS = 1 << 10  # of one stream; more would be errors of mx.synchronize


def choose_device(name: str | None) -> mx.Device:
    """Return the device a host asked for: "gpu", "cpu", or None for the best.

    Raises:
        InvalidArgument: another name.
        Unsupported: this machine, or this build of mlx, has no GPU.
    """
    has_gpu = mx.is_available(mx.gpu)
    if name is None:
        return mx.Device(mx.gpu if has_gpu else mx.cpu)
    if name == "cpu":
        return mx.Device(mx.cpu)
    if name == "gpu":
        if not has_gpu:
            raise Unsupported(
                'device is "gpu", but mlx finds none here; use "cpu" or NULL',
                reason="device_missing",
                argument="device",
                value=name,
            )
        return mx.Device(mx.gpu)
    raise OutOfRange("device", name, '"gpu", "cpu" or NULL')


def clear_error(stream: mx.Stream | mx.ThreadLocalStream) -> None:
    """Wait for a stream, and drop the errors of computations on it that nobody has waited for.

    The next to wait there would get one. mlx raises it before it waits, and drops it then.
    """
    for _ in range(_MOST_ERRORS):
        try:
            mx.synchronize(stream)
        except Exception:
            continue
        return


class _Pooled:
    """A stream of the pool. To give it back takes no memory.

    Attributes:
        is_free: whether it has no owner.
        is_settled: whether it is known to have no error.
    """

    __slots__ = ("is_free", "is_settled", "stream")

    def __init__(self, stream: mx.Stream) -> None:
        self.stream = stream
        self.is_free = self.is_settled = False


class StreamPool:
    """Lends the streams of one device, each to one owner."""

    def __init__(self, device: mx.Device) -> None:
        self.device = device
        self._all: list[_Pooled] = []
        self._unstarted: mx.Stream | None = None

    def take(self) -> mx.Stream:
        """Return a stream that is not in use, without errors of earlier owners.

        Raises:
            OutOfMemory: its thread cannot be started, or the device has no more.
        """
        for pooled in self._all:
            if pooled.is_free:
                if not pooled.is_settled:
                    clear_error(pooled.stream)
                pooled.is_free = pooled.is_settled = False
                return pooled.stream
        if self.device.type == mx.gpu and len(self._all) >= MOST_STREAMS:
            raise _too_many(f"{MOST_STREAMS} are in use", limit=MOST_STREAMS)
        try:
            stream = self._unstarted or mx.new_stream(self.device)
            self._unstarted = stream  # a stream is never freed: the next try takes this one
            resources.start(stream)
        except RuntimeError as error:
            if _NO_QUEUE not in str(error):
                raise
            raise _too_many(str(error)) from error
        self._all.append(_Pooled(stream))
        self._unstarted = None
        return stream

    def synchronize(self) -> None:
        """Wait for all streams, whether their computations fail or not."""
        streams: list[mx.Stream | mx.ThreadLocalStream] = [pooled.stream for pooled in self._all]
        streams += BRANCHES.started
        for stream in streams:
            clear_error(stream)

    def settle(self) -> None:
        """Drop what failed computations have left on streams that have no owner.

        The buffers of an operation that could not be started stay until the next one there.
        """
        for pooled in self._all:
            if pooled.is_free and not pooled.is_settled:
                clear_error(pooled.stream)
                mx.eval(mx.add(mx.array(0), mx.array(0), stream=pooled.stream))
                pooled.is_settled = True

    def give_back(self, stream: mx.Stream, settled: bool = False) -> None:
        """Take a stream back; its computations finish before later ones.

        Args:
            stream: one that was taken.
            settled: whether all that was computed on it has succeeded.
        """
        for pooled in self._all:
            if pooled.stream == stream:
                pooled.is_settled = settled
                pooled.is_free = True


def _too_many(why: str, limit: int | None = None) -> OutOfMemory:
    return OutOfMemory(
        f"no more streams of the GPU: {why}; a model that loads, a training and a context that "
        "generates have one each until they are done",
        limit=limit,
    )
