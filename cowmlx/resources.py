"""Threads and memory for libraries that take them without a check.

Where one of mlx's pools of threads cannot start, mlx ends the process or waits for ever; so do
others without memory. So both are checked first, and threads are started where a failure can still
be reported.
"""

from __future__ import annotations

import io
import os

from cowmlx import blas, failures
from cowmlx.errors import OutOfMemory, Shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    import mlx.core as mx

RESERVE = 32 << 20  # bytes that must be free for a call
MAX_PROCESSORS = 8  # of the branches of one network
_POOL = 4  # threads of each of mlx's two pools that read files
# How a file of NumPy's format begins that has so many numbers of four bytes.
_HEADER = "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }"
# A read of so many bytes uses the second pool.
LARGE_READ = 1 << 25

# Whether so many threads can be started now; set by the bridge, from C.
_can_start: Callable[[int], bool] = lambda count: True  # noqa: E731
# Whether so many bytes can be mapped now.
_can_map: Callable[[int], bool] = lambda size: True  # noqa: E731
# Returns freed memory to the system.
_give_back: Callable[[], None] = lambda: None  # noqa: E731
# The bytes of a Mac's memory that are not wired, and those that are free or can be freed at once.
_system_memory: Callable[[], tuple[int, int] | None] = lambda: None  # noqa: E731
_read_pools: set[str] = set()


def ask(
    can_start: Callable[[int], bool],
    can_map: Callable[[int], bool],
    give_back: Callable[[], None],
    system_memory: Callable[[], tuple[int, int] | None],
) -> None:
    """Set the functions of C: whether so many threads can start, bytes be mapped; free memory."""
    global _can_start, _can_map, _give_back, _system_memory
    _can_start, _can_map, _give_back = can_start, can_map, give_back
    _system_memory = system_memory


def system_memory() -> tuple[int, int] | None:
    """Return the bytes of a Mac's memory: not wired, and free without paging; or None."""
    return _system_memory()


def give_back() -> None:
    """Return freed memory of mlx and the C library to the system."""
    import mlx.core as mx

    mx.clear_cache()
    _give_back()


def trim() -> None:
    """Return freed memory of the C library alone, so that no computation loses its buffers."""
    _give_back()


def require_memory(size: int, what: str) -> None:
    """Check that ``size`` bytes can be mapped.

    Raises:
        OutOfMemory: they cannot.
    """
    if not _can_map(size):
        raise Shortage(
            f"{what} needs {max(size >> 20, 1)} MiB of memory, and there is less; raise the "
            "process's limits (RLIMIT_AS, RLIMIT_DATA)",
            needed=size,
        )


def require_threads(count: int, what: str) -> None:
    """Check that so many threads can be started.

    Raises:
        OutOfMemory: they cannot.
    """
    if not _can_start(count):
        message = (
            f"{what} needs {count} more threads, but the system starts fewer; raise the process's "
            "limits of threads (RLIMIT_NPROC, a cgroup's pids.max) or of memory (RLIMIT_AS)"
        )
        raise OutOfMemory(message, reason="no_threads", needed=count)


def start_default_stream() -> None:
    """Start the thread of mlx's default CPU stream."""
    import mlx.core as mx

    start(mx.default_stream(mx.Device(mx.cpu)))


def start(stream: mx.Stream | mx.ThreadLocalStream) -> None:
    """Start a stream's thread; mlx would do it in the first computation.

    Raises:
        OutOfMemory: it cannot be started.
    """
    import mlx.core as mx

    try:
        mx.synchronize(stream)
    except Exception as error:
        failures.reraise_shortage(error)
        raise


def start_readers() -> None:
    """Start the pool that reads the arrays of files.

    Raises:
        OutOfMemory: it cannot be started.
    """
    _start_pool("small", _read_one_number)


def large_readers_run() -> bool:
    """Whether the pool that reads large arrays runs."""
    return "large" in _read_pools


def start_large_readers(read: Callable[[], object]) -> None:
    """Start the pool that reads large arrays.

    Args:
        read: reads a large array; called where no file of zeros can be made.

    Raises:
        OutOfMemory: it cannot be started.
    """
    _start_pool("large", lambda: _read_zeros(LARGE_READ // 4) or read())


def _start_pool(name: str, use: Callable[[], object]) -> None:
    if name in _read_pools:
        return
    require_threads(_POOL, "reading files with mlx")
    use()
    _read_pools.add(name)


def _read_one_number() -> None:
    """Read a file, by a path in memory if possible: without one mlx imports pathlib, for ms."""
    import mlx.core as mx

    if not _read_zeros(1):
        mx.eval(mx.load(io.BytesIO(_header(1) + bytes(4)), format="npy"))


def _read_zeros(count: int) -> bool:
    """Read a file of zeros that takes no memory; returns whether there is such a file."""
    import mlx.core as mx

    try:
        descriptor = os.memfd_create("cowmlx")  # type: ignore[attr-defined,unused-ignore]
    except (AttributeError, OSError):  # another system, or it has no more descriptors
        return False
    try:
        begin = _header(count)
        os.write(descriptor, begin)
        os.ftruncate(descriptor, len(begin) + 4 * count)
        mx.eval(mx.load(f"/proc/self/fd/{descriptor}", format="npy"))
    except (OSError, RuntimeError):  # there is no /proc
        return False
    finally:
        os.close(descriptor)
    return True


def _header(count: int) -> bytes:
    text = (_HEADER % count).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00\x76\x00" + text.encode()


class Branches:
    """CPU streams for parallel branches of networks, shared by all; mlx cannot free them."""

    def __init__(self) -> None:
        self.started: list[mx.ThreadLocalStream] = []

    def stream(self, index: int) -> mx.ThreadLocalStream:
        """Return the stream of an index, started on demand; indices above the processors share.

        Raises:
            OutOfMemory: its thread cannot be started.
        """
        index %= max(1, min(blas.processors(), MAX_PROCESSORS) - 1)
        while index >= len(self.started):
            import mlx.core as mx

            stream = mx.new_thread_local_stream(mx.Device(mx.cpu))
            start(stream)
            self.started.append(stream)
        return self.started[index]


# One for the process, as its streams are.
BRANCHES = Branches()
