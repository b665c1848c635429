"""The memory that a process can still take: of its limits, control groups, device and system.

Nothing is kept: limits change while a process runs. A source that cannot be read bounds nothing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from typing import NamedTuple

from cowmlx import resources

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    import mlx.core as mx

RequireRoom = Callable[[int, str], None]
"""Raises where so many bytes may not be taken for a named purpose."""

PROC = "/proc"
GROUPS = "/sys/fs/cgroup"
_NO_LIMIT = 1 << 60  # a group of version 1 without a limit has nearly 2**63
# Lines of meminfo for pages that can only go to swap. File systems have caches that no line shows,
# so what is left of all memory is free or can be freed.
_OCCUPIED = ("AnonPages:", "Shmem:", "Hugetlb:", "KernelStack:", "PageTables:")


class Room(NamedTuple):
    """Bytes that can be taken.

    Attributes:
        available: the bytes; more cannot be had.
        bound: what bounds them, for messages.
        is_limit: whether a person has set the bound, so that all that may be needed has to fit.
            Otherwise only what is certain to be needed has to.
        at_ease: the bytes that can be taken before others lose theirs; at most ``available``.
    """

    available: int
    bound: str
    is_limit: bool
    at_ease: int


def limit(available: int, bound: str) -> Room:
    """Return what a limit leaves."""
    left = max(0, available)
    return Room(left, bound, True, left)


def rooms(device: mx.Device) -> Iterator[Room]:
    """Yield what each source leaves.

    Args:
        device: that computes.
    """
    import mlx.core as mx

    if device.type == mx.gpu:
        yield from _of_device(device)
    reusable = mx.get_cache_memory()
    for room in (*_of_system(), *_of_groups(), *_of_process()):
        yield room._replace(
            available=max(0, room.available) + reusable, at_ease=max(0, room.at_ease) + reusable
        )


def _of_device(device: mx.Device) -> Iterator[Room]:
    import mlx.core as mx

    info = mx.device_info(device)
    size = info.get("max_recommended_working_set_size") or info.get("total_memory")
    if isinstance(size, int):
        left = max(0, size - mx.get_active_memory())
        yield Room(left, "the device's recommended working set", False, left)
    free = info.get("free_memory")
    if isinstance(free, int):
        left = free + mx.get_cache_memory()
        yield Room(left, "the device's free memory", False, left)


def _of_system() -> Iterator[Room]:
    fields = _fields(f"{PROC}/meminfo")
    if "MemTotal:" in fields:
        swap = fields.get("SwapFree:", 0)
        most = fields["MemTotal:"] + swap - sum(fields.get(name, 0) for name in _OCCUPIED)
        easy = min(most, fields.get("MemAvailable:", most) + swap)
        yield Room(most << 10, "the system's memory", False, easy << 10)
    elif (known := resources.system_memory()) is not None:  # macOS, where swap has no bound
        yield Room(known[0], "the system's memory", False, min(known))


def _of_process() -> Iterator[Room]:
    sizes = _text(f"{PROC}/self/statm").split()
    if len(sizes) < 6:  # total, resident, shared, text, library, data and stack
        return
    page = resource.getpagesize()
    limits = (("AS", resource.RLIMIT_AS, 0), ("DATA", resource.RLIMIT_DATA, 5))
    for name, number, at in limits:
        most, _ = resource.getrlimit(number)
        if most != resource.RLIM_INFINITY:
            yield limit(most - int(sizes[at]) * page, f"RLIMIT_{name}")


class _Files(NamedTuple):
    """Names of the files of a control group, and of the fields of its statistics."""

    root: str
    limit: str
    usage: str
    reclaimable: tuple[str, ...]
    swap_limit: str
    swap_usage: str


_UNIFIED = _Files(
    "",
    "memory.max",
    "memory.current",
    ("inactive_file", "active_file", "slab_reclaimable"),
    "memory.swap.max",
    "memory.swap.current",
)
_VERSION_1 = _Files(
    "/memory",
    "memory.limit_in_bytes",
    "memory.usage_in_bytes",
    ("total_inactive_file", "total_active_file"),
    "memory.memsw.limit_in_bytes",
    "memory.memsw.usage_in_bytes",
)


def _of_groups() -> Iterator[Room]:
    """Yield what the control groups of the process leave, their parents' too."""
    for line in _text(f"{PROC}/self/cgroup").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers == "":
            yield from _up(path, _UNIFIED)
        elif "memory" in controllers.split(","):
            yield from _up(path, _VERSION_1)


def _up(path: str, files: _Files) -> Iterator[Room]:
    while True:
        folder = GROUPS + files.root + path.rstrip("/")
        most = _number(f"{folder}/{files.limit}")
        if most is not None and most < _NO_LIMIT:
            usage = _number(f"{folder}/{files.usage}") or 0
            fields = _fields(f"{folder}/memory.stat")
            # Pages of files go when others need the memory.
            usage -= sum(fields.get(name, 0) for name in files.reclaimable)
            yield limit(most - usage + _swap(folder, files), "the limit of the control group")
        if path in ("", "/"):
            return
        path = os.path.dirname(path)


def _swap(folder: str, files: _Files) -> int:
    """Return the bytes that a group may still have in swap."""
    free = _fields(f"{PROC}/meminfo").get("SwapFree:", 0) << 10
    most = _number(f"{folder}/{files.swap_limit}")
    if not free or most is None:  # "max" is no number
        return free
    return max(0, min(free, most - (_number(f"{folder}/{files.swap_usage}") or 0)))


def _text(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _number(path: str) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdigit() else None


def _fields(path: str) -> dict[str, int]:
    """Return the numbers of a file with a name and a number a line."""
    lines = (line.split() for line in _text(path).splitlines())
    return {line[0]: int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}
