"""The exceptions of the engine, a class or more per status of the C API.

Code below the bridge raises these; the bridge alone turns them into statuses.
Any other exception that reaches the bridge is ``EINTERNAL``.
"""

from cowmlx import _status as status


class CowMlxError(Exception):
    """An error that a host can act on; its text becomes the error message."""

    status = status.EINTERNAL


class InvalidArgument(CowMlxError):
    """A bad argument: range, UTF-8, JSON, unknown option or key."""

    status = status.EINVAL


class UnknownHandle(CowMlxError):
    """An unknown, freed or wrong-kind handle."""

    status = status.EHANDLE


class BadState(CowMlxError):
    """Not valid now: nothing to generate, context busy, runtime stopped."""

    status = status.ESTATE


class NotFound(CowMlxError):
    """No such file or directory."""

    status = status.ENOENT


class BadFormat(CowMlxError):
    """A malformed or mismatched file."""

    status = status.EFORMAT


class WiringError(BadFormat):
    """A model's declaration that is none; the message names its blocks."""


class Unsupported(CowMlxError):
    """This model, cache or build cannot do that."""

    status = status.EUNSUPPORTED


class BufferTooSmall(CowMlxError):
    """The host's buffer cannot hold the result; nothing was consumed."""

    status = status.EBUFFER


class ContextFull(CowMlxError):
    """The context window cannot hold what was asked for."""

    status = status.ECONTEXT


class Canceled(CowMlxError):
    """The call was cancelled by its host or by a runtime stop."""

    status = status.ECANCELED


class OutOfMemory(CowMlxError):
    """An allocation failed or a limit would be passed."""

    status = status.ENOMEM


class InputOutput(CowMlxError):
    """The operating system failed a read or a write."""

    status = status.EIO


class TimedOut(CowMlxError):
    """The call's own time limit has passed."""

    status = status.ETIMEDOUT
