"""The exceptions of the engine, a class or more per status of the C API.

Code below the bridge raises these; the bridge alone turns them into statuses.
Any other exception that reaches the bridge is ``EINTERNAL``.
"""

from __future__ import annotations

from cowmlx.generated import status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from cowmlx.generated.reasons import Reason


class CowMlxError(Exception):
    """An error that a host can act on.

    Args:
        message: the error message.
        reason: why, for programs; that of the class if not given.
        details: what ``cow_mlx_error_details`` has with the reason; None is left out.
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
    """An argument with a value that is not accepted.

    Args:
        argument: its name.
        value: that it has.
        accepted: what it must be.
    """

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
    reason = "unsupported"


class BufferTooSmall(CowMlxError):
    """The host's buffer cannot hold the result; nothing was consumed."""

    status = status.EBUFFER
    reason = "buffer_too_small"


class ContextFull(CowMlxError):
    """The context window cannot hold what was asked for."""

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


class OutOfMemory(CowMlxError):
    """An allocation failed or a limit would be passed."""

    status = status.ENOMEM
    reason = "no_memory"


class InputOutput(CowMlxError):
    """The operating system failed a read or a write."""

    status = status.EIO
    reason = "read_failed"


class TimedOut(CowMlxError):
    """The call's own time limit has passed."""

    status = status.ETIMEDOUT
    reason = "timed_out"
