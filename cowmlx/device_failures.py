"""The texts of mlx's exceptions for devices: shortages, lost devices, missing devices.

mlx has no types for them. The texts are those of mlx 0.32 (``mlx/backend/metal``,
``mlx/backend/cuda``, ``mlx/backend/no_gpu``), of Metal's command buffers and of
``cudaGetErrorString``. A pattern matches from a text's beginning, so that a text which only quotes
one is not taken for it. The first match counts.
"""

from __future__ import annotations

import re

from cowmlx.errors import CowMlxError, DeviceLost, DeviceMissing, Shortage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_BUFFER = r"\[METAL\] Command buffer execution failed: "
# Of the CUDA runtime and driver: the call, then what cudaGetErrorString says of it.
_CUDA = r"cu\w+\(.*\) failed: "

_SHORTAGES = (
    r"\[metal::malloc\] Attempting to allocate (?P<needed>\d+) bytes which is greater than the "
    r"maximum allowed buffer size of (?P<limit>\d+) bytes",
    r"\[metal::malloc\] Resource limit \(\d+\) exceeded",
    r"\[malloc(?:_or_wait)?\] Unable to allocate (?P<needed>\d+) bytes",
    r"\[metal::CommandEncoder\] Failed to make new command queue",
    r"\[metal::Device\] Unable to construct residency set",
    r"\[Event::Event\] Failed to create Metal shared event",
    _BUFFER + r"Insufficient Memory",
    _BUFFER + r".*kIOGPUCommandBufferCallbackErrorOutOfMemory",
    _CUDA + r"out of memory",
    r"cublas\w+\(.*\) failed with code: 3\.",  # CUBLAS_STATUS_ALLOC_FAILED
    r"cublasLtCreate\(.*\) failed with code: 1\.",  # as it says where the device has no memory
    r"cufft\w+\(.*\) failed with code: 2\.",  # CUFFT_ALLOC_FAILED
    r".* failed: CUDNN_STATUS_\w*ALLOC(?:ATION)?_FAILED",
)

_LOST = (
    # Every other failure of a command buffer: a timeout, a hang, an address fault, a reset, work
    # ignored after errors.
    _BUFFER,
    _CUDA + r"an illegal memory access was encountered",
    _CUDA + r"an illegal instruction was encountered",
    _CUDA + r"unspecified launch failure",
    _CUDA + r"the launch timed out and was terminated",
    _CUDA + r"misaligned address",
    _CUDA + r"invalid program counter",
    _CUDA + r"hardware stack error",
    _CUDA + r"operation not supported on global/shared address space",
    _CUDA + r"device-side assert triggered",
    _CUDA + r"uncorrectable (?:ECC|NVLink) error",
    _CUDA + r"context is destroyed",
    _CUDA + r"driver shutting down",
    _CUDA + r"unknown error",
)

_MISSING = (
    r"\[metal::load_device\] No Metal device available",
    r"\[gpu::\w+\] GPU backend is not available",
    r"\[\w+\] Cannot (?:get|make|set) gpu (?:stream|device) without gpu backend",
    _CUDA + r"no CUDA-capable device is detected",
    _CUDA + r"all CUDA-capable devices are busy or unavailable",
    _CUDA + r"CUDA driver version is insufficient for CUDA runtime version",
    _CUDA + r"no kernel image is available for execution on the device",
    _CUDA + r"invalid device ordinal",
    _CUDA + r"initialization error",
    _CUDA + r"system not yet initialized",
)


_TABLE = (
    (_SHORTAGES, Shortage, "the device has not enough memory"),
    (
        _LOST,
        DeviceLost,
        "the device has failed or was reset; stop the runtime and start it again, or the process",
    ),
    (_MISSING, DeviceMissing, "mlx can use no GPU here"),
)


def of_text(text: str) -> CowMlxError | None:
    """Return the error for the text of one of mlx's exceptions, or None."""
    for patterns, kind, meaning in _TABLE:
        for pattern in patterns:  # compiled on first use: a start needs none
            match = re.match(pattern, text, re.DOTALL)
            if match is not None:
                numbers: dict[str, Any] = {
                    name: int(value) for name, value in match.groupdict().items()
                }
                return kind(f"{meaning} ({text.strip()})", **numbers)
    return None
