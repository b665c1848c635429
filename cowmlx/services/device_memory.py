"""What mlx keeps of a device's memory: limits, freed buffers, wired arrays."""

from __future__ import annotations

from time import perf_counter

import mlx.core as mx

from cowmlx import memory
from cowmlx.errors import OutOfRange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The least limit: below it not even small arrays and their intermediate results fit.
LEAST_MEMORY = 16 << 20
# Freed buffers of a GPU: this part of its recommended working set, within bounds.
CACHED_PART, LEAST_CACHED, MOST_CACHED = 16, 256 << 20, 2 << 30
# Freed buffers of a CPU for programs and trainings: the same part of free memory, at most this.
MOST_KEPT = 256 << 20
IDLE = 2.0  # seconds without work until a GPU's memory is given back


class DeviceMemory:
    """Sets mlx's limits for a device, and gives a GPU's memory back when there is no work.

    Wired arrays are never paged out, so those of an idle process would be missing elsewhere. They
    are wired from the first step of work on. On a CPU nothing is wired, and mlx bounds the cache
    where there is no GPU.

    Args:
        device: the runtime's.
        params: the fields of ``cow_mlx_runtime_params``.

    Raises:
        OutOfRange: a limit is not accepted.
    """

    def __init__(self, device: mx.Device, params: dict[str, Any]) -> None:
        # Where there is Metal, its allocator serves the CPU too.
        about = mx.device_info(mx.Device(mx.gpu) if mx.metal.is_available() else device)
        recommended = int(about.get("max_recommended_working_set_size", 0))
        self._memory, self._cache = params["memory_limit"], params["cache_limit"]
        if 0 < self._memory < LEAST_MEMORY:
            accepted = f"0, which is mlx's default, or {LEAST_MEMORY} bytes or more"
            raise OutOfRange("memory_limit", self._memory, accepted)
        wires = recommended > 0 and device.type == mx.gpu
        self._wired = params["wired_limit"] if wires else 0
        if self._wired > recommended:
            raise OutOfRange("wired_limit", self._wired, f"-1, or 0 to {recommended} bytes here")
        if self._wired < 0:
            self._wired = recommended
        if recommended and not self._cache:
            part = recommended // CACHED_PART
            self._cache = max(LEAST_CACHED, min(part, MOST_CACHED))
        self._gives_back = recommended > 0 or device.type == mx.gpu
        self._before: dict[str, int] = {}  # mlx's own limits, restored at stop
        self._awake = False  # there was work since memory was given back
        self._rests_at: float | None = None  # when it is given back, if no work comes
        self._used = (0, 0)  # bytes of arrays and of freed buffers, when they were last read

    def start(self) -> None:
        """Set the limits."""
        if self._cache:
            self._before["cache"] = mx.set_cache_limit(self._cache)
        if self._memory:
            self._before["memory"] = mx.set_memory_limit(self._memory)

    def keep_more(self) -> None:
        """Keep more freed buffers on a CPU, unless the host has set a limit.

        mlx keeps 32 MiB there. What a step of a training frees beyond that goes back to the system,
        which clears each page again for the next step.
        """
        if self._cache or self._gives_back:
            return
        room = min((each.at_ease for each in memory.rooms(mx.Device(mx.cpu))), default=0)
        kept = min(room // CACHED_PART, MOST_KEPT)
        before = mx.set_cache_limit(kept)
        if kept > before:
            self._cache, self._before["cache"] = kept, before
        else:
            mx.set_cache_limit(before)

    def stop(self) -> None:
        """Give mlx its own limits back."""
        if self._awake:
            self._rest()
        if "memory" in self._before:
            mx.set_memory_limit(self._before["memory"])
        if "cache" in self._before:
            mx.set_cache_limit(self._before["cache"])
        self._before.clear()

    def note(self, worked: bool) -> None:
        """Note whether a step had work.

        Operations on arrays and short runs are no steps: their work shows in mlx's memory.
        """
        if not self._gives_back:
            return
        if worked:
            self._rests_at = None
            if not self._awake:
                self._wake()
            return
        used = (mx.get_active_memory(), mx.get_cache_memory())
        if self._awake or used[1]:
            if self._rests_at is None or used != self._used:
                self._rests_at = perf_counter() + IDLE
            elif perf_counter() >= self._rests_at:
                self._rest()
        self._used = used

    @property
    def due(self) -> float | None:
        """Seconds until memory is given back; None: there is none to give back."""
        return None if self._rests_at is None else max(0.0, self._rests_at - perf_counter())

    def limits(self) -> dict[str, int | None]:
        """Return the limits of ``runtime_info``."""
        return {
            "limit": mx.get_memory_limit(),
            "cache_limit": self._cache or None,
            "wired_limit": self._wired if self._awake else 0,
        }

    def _wake(self) -> None:
        self._awake = True
        if self._wired:
            self._before["wired"] = mx.set_wired_limit(self._wired)

    def _rest(self) -> None:
        self._awake, self._rests_at = False, None
        mx.clear_cache()
        if "wired" in self._before:
            mx.set_wired_limit(self._before.pop("wired"))
