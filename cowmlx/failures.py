"""Failures of the system and its devices as exceptions: no memory, thread, descriptor or device.

They occur anywhere, under many names, and other code wraps them as faults of its operation. So
they are recognized here alone, also in the causes of an exception.
"""

from __future__ import annotations

import errno
import os
import re
import resource  # now: a process without descriptors could not import it
import sys
from contextlib import suppress

from cowmlx import device_failures
from cowmlx.errors import (
    CowMlxError,
    DeviceLost,
    DeviceMissing,
    InputOutput,
    NotFound,
    OutOfMemory,
    Shortage,
    Unsupported,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_MEMORY_NUMBERS = (errno.ENOMEM, errno.EAGAIN)
_FILE_NUMBERS = (errno.EMFILE, errno.ENFILE)
# Without memory for a frame, CPython loses the exception that it raises, and raises a SystemError.
_LOST = ("return without exception set", "without setting an exception")
# Words in the messages of Python, of libraries in C++ and Rust, and of the dynamic linker.
_MEMORY_WORDS = (
    "bad_alloc",
    "[malloc",
    "unable to allocate",
    "failed to map segment",
    "cannot map zero-fill pages",
    "failed to spawn thread",
    "can't start new thread",
    "can't allocate",
    "pyobject pointer is null",  # where Python gave PyO3 no object
    *_LOST,
    os.strerror(errno.ENOMEM).lower(),
    os.strerror(errno.EAGAIN).lower(),
)
_FILE_WORDS = tuple(os.strerror(number).lower() for number in _FILE_NUMBERS)
# The driver, and what pip installs beside mlx's build for NVIDIA GPUs.
_CUDA_LIBRARY = r"\blib(?:cuda|cudnn|cudart|cublas|cufft|cusolver|nvrtc|nccl)\w*\.so"
# Types with texts of libraries, not of users.
_SPEAKING = (RuntimeError, ImportError, OSError, SystemError)
# What mlx raises.
_OF_MLX = (RuntimeError, ValueError)
# Failures of the system that say nothing about the operation that met them.
_SYSTEM = (OutOfMemory, InputOutput, DeviceLost, DeviceMissing)
# Of an exception's text, which a chat template may make long.
_MAX_TEXT = 4096
# Those after which the engine has to recover.
_NOTED = (Shortage, DeviceLost)
# Already translated.
_KEPT = (OutOfMemory, DeviceLost, DeviceMissing)
# The kinds of failures that were translated since the engine last recovered from them.
seen: set[type[CowMlxError]] = set()
# The error where there is no memory for another.
_NO_MEMORY = Shortage("not enough memory")
# The attribute of a foreign exception with its text and its place.
_PLACE = "_cowmlx_place"


def translate(error: BaseException) -> BaseException:
    """Return the error to report for an exception: a failure of the system, if one caused it."""
    for link in _chain(error):
        failure = link if isinstance(link, _KEPT) else of_system(link)
        if failure is not None:
            if isinstance(failure, _NOTED):
                seen.add(type(failure))
            return failure
    if isinstance(error, OSError):  # unforeseen, but of the system
        return InputOutput(_text(error))
    return error


def spoils(error: BaseException | None) -> bool:
    """Whether an exception leaves all work unknown that was under way on its stream.

    mlx reports the failure of a computation once, to the first who waits on the stream. Others find
    elements that were never computed.
    """
    try:
        return error is not None and isinstance(translate(error), _NOTED)
    except MemoryError:
        return True


def of_system(error: BaseException) -> CowMlxError | None:
    """Return the failure of the system or the device that an exception reports, or None."""
    if isinstance(error, CowMlxError):
        return None
    text = _text(error)
    if isinstance(error, _OF_MLX) or type(error) is Exception:
        failure = device_failures.of_text(text.partition(": ")[2])
        if failure is not None:
            return failure
    lowered = text.lower()
    number = getattr(error, "errno", None)
    speaks = isinstance(error, _SPEAKING) or type(error) is Exception or _is_panic(error)
    if number in _FILE_NUMBERS or (speaks and any(word in lowered for word in _FILE_WORDS)):
        return _descriptors(number, lowered, text)
    if (
        isinstance(error, MemoryError)
        or number in _MEMORY_NUMBERS
        or (speaks and any(word in lowered for word in _MEMORY_WORDS))
    ):
        return Shortage(f"not enough memory, or no more threads ({text})")
    return None


def place(error: BaseException) -> str:
    """Return the type, text and place of an error, for our own errors."""
    known: str | None = getattr(error, _PLACE, None)
    if known is not None:
        return known
    text = _text(error)
    trace = error.__traceback__
    if trace is None:
        return text
    while trace.tb_next is not None:
        trace = trace.tb_next
    return f"{text} ({trace.tb_frame.f_code.co_filename}:{trace.tb_lineno})"


def kept(error: BaseException) -> CowMlxError:
    """Return a copy of an error to keep, which holds no frames.

    To raise a kept error, raise another copy of it: raising adds frames. The given error drops its
    frames, too.
    """
    try:
        made = _copy(translate(error))
    except MemoryError:
        made = _NO_MEMORY
    except BaseException:  # its own text fails
        made = CowMlxError(type(error).__name__)
    with suppress(BaseException):  # the same
        forget_frames(error)
    return made


def _copy(error: BaseException) -> CowMlxError:
    if not isinstance(error, CowMlxError):
        return CowMlxError(place(error))
    made = type(error).__new__(type(error))
    made.args = error.args
    made.__dict__.update(error.__dict__)
    return made


def forget_frames(error: BaseException) -> None:
    """Drop the frames of an exception and its causes, and so their values.

    Values may be arrays that only C counts, so Python's search for cycles would not free them.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if link.__traceback__ is not None and not isinstance(link, CowMlxError):
            with suppress(BaseException):  # its own text fails, or it takes no attributes
                setattr(link, _PLACE, place(link))
        link.__traceback__ = None
        waiting += [link.__cause__, link.__context__]


def reraise_shortage(error: BaseException) -> None:
    """Raise the failure of the system that caused an exception, if one did.

    Another try may succeed.
    """
    failure = translate(error)
    if isinstance(failure, _SYSTEM):
        raise failure from error


def is_of_system(error: BaseException) -> bool:
    """Whether a failure of the system caused an exception, so that another try may succeed."""
    return isinstance(translate(error), _SYSTEM)


def of_import(error: ImportError, what: str) -> CowMlxError:
    """Return the error for a required package, or for software made of it."""
    failure = translate(error)
    if isinstance(failure, (OutOfMemory, InputOutput)):
        return failure
    if isinstance(error, ModuleNotFoundError):
        message = (
            f"the Python in {sys.prefix} has no package {error.name!r}; install {what} there, or "
            "name another Python in runtime_params.python_home or COWMLX_PYTHON_HOME"
        )
        return NotFound(message, reason="package_not_found", package=error.name)
    advice = ""
    if "GLIBCXX" in str(error) or "CXXABI" in str(error):
        advice = (
            "; the process has loaded an older libstdc++ than mlx needs: let the host bring a "
            "newer one, or start the runtime before it loads the old one"
        )
    if re.search(_CUDA_LIBRARY, str(error)):
        advice = (
            "; mlx's build for NVIDIA GPUs needs their driver and libraries: install them, or "
            "mlx-cpu in its place"
        )
    message = f"{what} cannot be loaded into this process ({error}){advice}"
    return Unsupported(message, reason="package_unusable", package=error.name)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _descriptors(number: int | None, lowered: str, text: str) -> InputOutput:
    many = "has too many open files"
    if number == errno.ENFILE or (number is None and _FILE_WORDS[1] in lowered):
        return InputOutput(f"the system {many} ({text})", reason="no_descriptors")
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    message = f"the process {many}: its limit (RLIMIT_NOFILE) is {limit} ({text})"
    return InputOutput(message, reason="no_descriptors", limit=limit)


def _is_panic(error: BaseException) -> bool:
    """Whether a library in Rust gave up."""
    return type(error).__name__ == "PanicException"


def _text(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {str(error)[:_MAX_TEXT]}"
    except Exception:  # its own text fails
        return type(error).__name__
