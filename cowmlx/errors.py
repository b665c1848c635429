"""The exceptions of the engine, a class or more per status of the C API.

Code below the bridge raises these; the bridge alone turns them into statuses. Any other exception
that reaches the bridge is ``EINTERNAL``.
"""

from __future__ import annotations

import json
import math

from cowmlx.generated import status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generated.reasons import Reason


class CowMlxError(Exception):
    """An error that a host can act on.

    Args:
        message: the error message.
        reason: for programs; the class's if not given.
        details: for ``cow_mlx_error_details``; None is left out.
    """

    status = status.EINTERNAL
    reason: Reason = "internal"

    def __init__(self, message: str, *, reason: Reason | None = None, **details: Any) -> None:
        super().__init__(message)
        if reason is not None:
            self.reason = reason
        self.details = {key: value for key, value in details.items() if value is not None}


class InvalidArgument(CowMlxError):
    """A bad argument: range, UTF-8, JSON, unknown option or key."""

    status = status.EINVAL
    reason = "out_of_range"


class OutOfRange(InvalidArgument):
    """An argument with a value that is not accepted."""

    def __init__(self, argument: str, value: object, accepted: str) -> None:
        shown = f"{value:g}" if isinstance(value, float) else f"{value}"
        if isinstance(value, float):  # 0.1, not the number that a float32 holds
            value = float(shown)
        super().__init__(
            f"{argument} is {shown}, must be {accepted}",
            argument=argument,
            value=value,
            accepted=accepted,
        )


class UnknownHandle(CowMlxError):
    """An unknown, freed or wrong-kind handle."""

    status = status.EHANDLE
    reason = "unknown_handle"


class BadState(CowMlxError):
    """Not valid now: nothing to generate, context busy, runtime stopped."""

    status = status.ESTATE
    reason = "nothing_there"


class NotFound(CowMlxError):
    """No such file or directory."""

    status = status.ENOENT
    reason = "file_not_found"


class BadFormat(CowMlxError):
    """A malformed or mismatched file."""

    status = status.EFORMAT
    reason: Reason = "malformed_file"


class WiringError(BadFormat):
    """A model's declaration that is none; the message names its blocks."""

    reason = "invalid_wiring"


class Unsupported(CowMlxError):
    """This model, cache or build cannot do that."""

    status = status.EUNSUPPORTED
    reason: Reason = "unsupported"


class BufferTooSmall(CowMlxError):
    """The host's buffer cannot hold the result; nothing was consumed."""

    status = status.EBUFFER
    reason = "buffer_too_small"


class ContextFull(CowMlxError):
    """The context window cannot hold the requested tokens."""

    status = status.ECONTEXT
    reason = "context_full"


class Canceled(CowMlxError):
    """The call was cancelled by its host or by a runtime stop."""

    status = status.ECANCELED
    reason = "canceled"


class Lost(CowMlxError):
    """A machine that a model runs on is gone, or was never there."""

    status = status.ELOST
    reason = "machine_lost"


class DeviceLost(CowMlxError):
    """The device that mlx computes on has failed; a stop and a start may recover it."""

    status = status.ELOST
    reason = "device_lost"


class DeviceMissing(Unsupported):
    """mlx finds no device of the kind, or cannot use it."""

    reason: Reason = "device_missing"


class OutOfMemory(CowMlxError):
    """An allocation failed or a limit would be passed."""

    status = status.ENOMEM
    reason = "no_memory"


class Shortage(OutOfMemory):
    """An allocation failed: what the engine keeps for later calls is given back."""


class InputOutput(CowMlxError):
    """The operating system failed a read or a write."""

    status = status.EIO
    reason = "read_failed"


class TimedOut(CowMlxError):
    """The call's own time limit has passed."""

    status = status.ETIMEDOUT
    reason = "timed_out"


def reason_of(error: BaseException) -> Reason:
    """Return the reason of any exception."""
    return error.reason if isinstance(error, CowMlxError) else "internal"


def details_of(error: BaseException) -> dict[str, Any]:
    """Return the details of any exception: texts and numbers."""
    details = error.details if isinstance(error, CowMlxError) else {}
    return {key: _value(value) for key, value in details.items()}


def encode_details(
    operation: str, reason: str, details: dict[str, Any], size: int
) -> tuple[bytes, dict[str, Any]]:
    """Return the JSON of ``cow_mlx_error_details`` in ``size`` bytes, and the details that fit."""
    fitting: dict[str, Any] = {}
    text = _encoded(operation, reason, fitting)
    for key, value in details.items():
        longer = _encoded(operation, reason, {**fitting, key: value})
        if len(longer) <= size:
            fitting[key] = value
            text = longer
    return text, fitting


def _encoded(operation: str, reason: str, details: dict[str, Any]) -> bytes:
    value = {"operation": operation, "reason": reason, "details": details}
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")


def _value(value: object) -> str | int | float:
    """Return a value for JSON: no infinity, and nothing nested of an untrusted file."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value:g}"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{value}"
    return value if isinstance(value, str | int | float) else repr(value)
