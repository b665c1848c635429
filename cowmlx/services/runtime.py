"""The runtime: device and limits, and what all calls work with."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache

import mlx.core as mx

from cowmlx import memory, resources
from cowmlx.accelerate import kernels
from cowmlx.errors import OutOfMemory
from cowmlx.generated import constants
from cowmlx.generated.defaults import RUNTIME
from cowmlx.handles import NOUNS, HandleTable
from cowmlx.scheduling.lanes import Lanes
from cowmlx.scheduling.scheduler import Scheduler
from cowmlx.scheduling.stepped import SteppedCall
from cowmlx.scheduling.streams import StreamPool, choose_device
from cowmlx.services.admission import Admission
from cowmlx.services.device_memory import DeviceMemory
from cowmlx.text import tokenizer_cache

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from cowmlx.arrays.table import ArrayTable
    from cowmlx.generation.context import Context
    from cowmlx.generation.outlet import Outlets
    from cowmlx.services.prompt_cache import PromptCache

MLX_VERSION: str = mx.__version__  # type: ignore[attr-defined]


class Runtime:
    """Owns the handles, the scheduler and the streams between a start and its stop.

    Args:
        cancel_epoch: returns how often a context, program or training (its handle) was cancelled.
        open_handle, close_handle: return a new handle of a kind, and free one.
        blas: the name of the library for matrix products on the CPU.
        blas_problem: why that is not the optimized one, if it is wanted.
        libpython: the file with the interpreter's code, if known.
        arrays: the open arrays.
        outlets: where hosts take what contexts generate; None: no host does.
    """

    def __init__(
        self,
        cancel_epoch: Callable[[int], int],
        open_handle: Callable[[int], int],
        close_handle: Callable[[int], None],
        blas: str,
        blas_problem: str | None,
        libpython: str | None,
        arrays: ArrayTable,
        outlets: Outlets | None = None,
    ) -> None:
        self.cancel_epoch = cancel_epoch
        self.outlets = outlets
        self.arrays = arrays
        self.handles = HandleTable(open_handle, close_handle)
        self.scheduler = Scheduler()
        self.streams = StreamPool(mx.Device(mx.cpu))
        self.lanes = Lanes(self.streams, self.scheduler)
        self._blas = blas
        self._blas_problem = blas_problem
        self._libpython = libpython
        self.threads = 0  # that kernels compute with; 0: as many as there are processors
        self._python_home = ""
        self.device_memory = DeviceMemory(self.streams.device, RUNTIME)
        self.prompt_cache: PromptCache | None = None  # on disk
        self.model_memory = 0  # bytes that the weights of all models may take; 0: no bound
        self.memory_is_limited = False  # by the host
        self.reclaim: Callable[[], None] = lambda: None  # gives back what is kept for later calls
        # Gives back the cache of an idle context, but not of this one; false if there is none.
        self.put_to_sleep: Callable[[Context | None], bool] = lambda context: False
        # Returns the most bytes that it can give back.
        self.idle_bytes: Callable[[Context | None], int] = lambda context: 0
        self.admission = Admission(
            self,
            lambda: self.reclaim(),
            lambda context: self.put_to_sleep(context),
            lambda context: self.idle_bytes(context),
        )
        self.lanes.has_room = self.admission.has_room
        self.device_is_lost = False  # so its streams are not used again

    def start(self, params: dict[str, Any], python_home: str) -> str:
        """Choose the device and set limits. Returns a log message.

        Args:
            params: the fields of ``cow_mlx_runtime_params``.
            python_home: that was booted; "" in a joined interpreter.
        """
        chosen = choose_device(params["device"])
        device_memory = DeviceMemory(chosen, params)
        if self.streams.device != chosen or self.device_is_lost:
            self.device_is_lost = False
            self.streams = StreamPool(chosen)
            self.lanes = Lanes(self.streams, self.scheduler)
            self.lanes.has_room = self.admission.has_room
        if chosen.type == mx.cpu:
            mx.disable_compile()  # it would run a compiler, in a folder with a predictable name
        if python_home:  # no other code of this Python has arrays
            mx.set_default_device(chosen)
        resources.start_default_stream()
        resources.start_readers()
        self.prompt_cache = self._opened_prompt_cache(params)
        self._python_home = python_home
        device_memory.start()
        self.device_memory = device_memory
        self.memory_is_limited = bool(params["memory_limit"])
        self.model_memory = params["model_memory"]
        self.threads = params["threads"]
        kernels.set_threads(self.threads)
        tokenizer_cache.CACHE.use(params["cache_dir"] or "")
        started = f"runtime started: mlx {MLX_VERSION} on {self._device_name}, BLAS {self._blas}"
        if self._blas_problem:
            started += f" ({self._blas_problem})"
        return f"{started}, {_kernels_in_use()}" if chosen.type == mx.cpu else started

    def _opened_prompt_cache(self, params: dict[str, Any]) -> PromptCache | None:
        if params["prompt_cache_dir"] is None:
            return None
        from cowmlx.services.prompt_cache import PromptCache  # late: few hosts need it

        folder, capacity = params["prompt_cache_dir"], params["prompt_cache_bytes"]
        return PromptCache(folder, capacity, self.scheduler, self.require_room)

    @property
    def own_python(self) -> bool:
        """Whether the interpreter was booted for this, so that the host has none."""
        return bool(self._python_home)

    def stop(self) -> None:
        """Give mlx its own limits back."""
        self.prompt_cache = None
        self.device_memory.stop()

    def note_memory(self) -> None:
        """Bound what hosts upload by the memory limit, less what mlx has."""
        self.arrays.bound_memory(mx.get_memory_limit(), mx.get_active_memory())

    def require_room(self, size: int, what: str) -> None:
        """Make sure that memory may be taken within the runtime's limit, and that it is there.

        What is kept for later calls is given back before a refusal; caches of idle contexts only
        where that is enough.

        Raises:
            OutOfMemory: it may not, or is not there.
        """
        limit = mx.get_memory_limit()
        self.arrays.bound_memory(limit, mx.get_active_memory())
        if size > limit - self.arrays.memory_in_use():
            self.reclaim()
        while size > limit - (used := self.arrays.memory_in_use()):
            hopeless = size > limit - used + self.idle_bytes(None)
            if hopeless or not self.put_to_sleep(None):
                raise OutOfMemory(
                    f"{what} needs {size} bytes of memory, and there are fewer; {used} of at most "
                    f"{limit}, runtime_params.memory_limit, are in use",
                    needed=size,
                    available=max(0, limit - used),
                    limit=limit,
                )
            self.note_memory()
        self.admission.require(size, what)

    def limits(self) -> list[memory.Room]:
        """Return what the host's limit leaves; nothing without one."""
        if not self.memory_is_limited:
            return []
        self.note_memory()
        left = mx.get_memory_limit() - self.arrays.memory_in_use()
        return [memory.limit(left, "runtime_params.memory_limit")]

    def abandon(self, error: BaseException, subject: object = None) -> None:
        """End the calls of long work with an error: all, or those that work on ``subject``."""
        for unit in self.scheduler.units:
            if isinstance(unit, SteppedCall) and (subject is None or unit.subject is subject):
                self.scheduler.remove(unit)
                with suppress(BaseException):  # the other calls have to end too
                    unit.abandon(error)

    def runtime_info(self) -> dict[str, Any]:
        """Return the result of ``runtime_info``."""
        return {
            "library": constants.VERSION,
            "abi": constants.ABI_VERSION,
            "python": sys.version.split()[0],
            "mlx": MLX_VERSION,
            "interpreter": "booted" if self._python_home else "joined",
            "python_home": self._python_home or None,
            "libpython": self._libpython,
            "mlx_path": mx.__file__,
            "device": self._device_name,
            "blas": self._blas,
            "blas_problem": self._blas_problem,
            "kernels": kernels.info(),
            "cache_dir": tokenizer_cache.CACHE.info(),
            **_mlx_lm(),
            "memory": {
                "active": mx.get_active_memory(),
                "cache": mx.get_cache_memory(),
                "peak": mx.get_peak_memory(),
                **self.device_memory.limits(),
            },
            "prompt_cache": None if self.prompt_cache is None else self.prompt_cache.info(),
            "handles": {
                **{noun: len(self.handles.handles(kind)) for kind, noun in NOUNS.items()},
                "array": self.arrays.count(),
            },
        }

    @property
    def _device_name(self) -> str:
        return "gpu" if self.streams.device.type == mx.gpu else "cpu"


def _kernels_in_use() -> str:
    if not kernels.available():
        return f"no kernels ({kernels.reason()})"
    return f"kernels for {kernels.instruction_set()} with {kernels.threads()} threads"


@cache
def _mlx_lm() -> dict[str, Any]:
    """Return what ``runtime_info`` reads in mlx-lm's files, which takes tens of milliseconds."""
    from cowmlx.networks import architectures, light_route

    return {
        "mlx_lm": light_route.version(),
        "mlx_lm_path": light_route.package_folder(),
        "architectures": architectures.supported(),
    }
