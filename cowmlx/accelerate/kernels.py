"""Kernels for processors: the extension module of ``csrc/kernels/``, or why there is none.

It is made against one version of mlx, and shares mlx's types only where both were made with the
same nanobind. Without it mlx's own operations compute.
"""

from __future__ import annotations

import importlib
import os
from functools import cache

import mlx.core as mx

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

SETTING = "COWMLX_KERNELS"
OFF = "off"
NAMES = ("portable", "avx2", "avxvnni", "avx512", "avx512vnni", "avx512bf16", "neon", "i8mm", OFF)
BFLOAT16 = ("avx512bf16",)
"""Names of the sets that multiply numbers of bfloat16."""
_MODULE = "cowmlx.accelerate._kernels"
# Written by the build where it made no kernels.
_ABSENT = os.path.join(os.path.dirname(__file__), "..", "lib", "kernels-absent.txt")


def available() -> bool:
    """Whether there are kernels that may be used."""
    return _found()[0] is not None


def usable() -> bool:
    """Whether there are kernels, and the default device is the CPU."""
    return mx.default_device().type == mx.cpu and available()


def reason() -> str:
    """Return why there are no kernels, a sentence without its full stop, or ""."""
    return _found()[1]


def module() -> ModuleType:
    """Return the extension module.

    Raises:
        RuntimeError: there are no kernels.
    """
    loaded, why = _found()
    if loaded is None:
        raise RuntimeError(f"there are no kernels: {why}")
    return loaded


def instruction_set() -> str | None:
    """Return the name of the instruction set in use, or None without kernels."""
    loaded = _found()[0]
    return None if loaded is None else loaded.instruction_set()


def threads() -> int | None:
    """Return how many threads kernels compute with, or None without kernels."""
    loaded = _found()[0]
    return None if loaded is None else loaded.threads()


def set_threads(count: int) -> None:
    """Bound the threads; 0: as many as processors the process may use."""
    loaded = _found()[0]
    if loaded is not None:
        loaded.set_threads(min(count, 2**31 - 1))


def helper() -> int:
    """Return the address of a ``cow_helper`` of ``csrc/helper.h``, or 0 without kernels."""
    loaded = _found()[0]
    return 0 if loaded is None else int(loaded.helper())


def mlx_types() -> tuple[type, ...]:
    """Return the types of mlx's objects and of the kernels': their objects hold mlx's memory."""
    modules = [mx, module()] if available() else [mx]
    values = [value for loaded in modules for value in vars(loaded).values()]
    return tuple(value for value in values if type(value) is type(mx.array))


def info() -> dict[str, Any]:
    """Return the kernels' part of ``runtime_info``."""
    return {"instruction_set": instruction_set(), "threads": threads(), "problem": reason() or None}


@cache
def _found() -> tuple[ModuleType | None, str]:
    chosen = os.environ.get(SETTING) or ""
    if chosen == OFF:
        return None, f"{SETTING} is {OFF}"
    if chosen and chosen not in NAMES:
        return None, f'{SETTING} is "{chosen}"; it can be {", ".join(NAMES[:-1])} or {OFF}'
    try:
        loaded = importlib.import_module(_MODULE)
    except ImportError as error:
        return None, _why_missing(error)
    version: str = mx.__version__  # type: ignore[attr-defined]
    if version != loaded.MLX_VERSION:
        return None, f"they were made for mlx {loaded.MLX_VERSION}, and mlx {version} is installed"
    if not loaded.takes(mx.array([])):
        return None, f"they were made with another nanobind than mlx {version}"
    loaded.guard_allocator()
    try:
        loaded.select(chosen)
    except ValueError as error:
        usable = ", ".join(loaded.instruction_sets())
        return None, f'{SETTING} is "{chosen}", but {error}; it can run {usable}'
    return loaded, ""


def _why_missing(error: ImportError) -> str:
    if error.name != _MODULE:
        return f"they cannot be loaded: {error}"
    try:
        with open(_ABSENT, encoding="utf-8") as file:
            why = file.read().strip()
    except OSError:
        return "the library was built without them"
    return f"the library was built without them: {why}"
