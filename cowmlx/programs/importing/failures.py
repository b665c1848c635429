"""Errors that importers share: packages that are missing, files, and where in a file."""

from __future__ import annotations

import os
from typing import Any

from cowmlx.errors import (
    BadFormat,
    CowMlxError,
    InputOutput,
    InvalidArgument,
    NotFound,
    Unsupported,
)

ODD = (
    *(ArithmeticError, AssertionError, AttributeError, IndexError, KeyError),
    *(TypeError, ValueError),
)
"""The exceptions of code that reads a value which is missing, or of another type."""


def missing(what: str, package: str, error: ImportError, requirement: str = "") -> NotFound:
    """Return the error for a Python package that is not installed.

    Args:
        what: what needs it.
        package: its name.
        error: what its import has raised.
        requirement: what pip is given, if that is not the name.
    """
    return NotFound(
        f"{what} need the Python package {package}, which is not installed: "
        f"pip install {requirement or package} ({error})",
        reason="package_not_found",
        package=package,
    )


def unreadable(path: str, error: OSError) -> InputOutput:
    """Return the error for a file that cannot be read."""
    return InputOutput(f"cannot read {path}: {error.strerror or error}", file=path)


def require_file(path: str) -> None:
    """Refuse a pipe or a device, which could keep its reader for ever.

    Raises:
        InputOutput: it is one.
    """
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise InputOutput(f"cannot read {path}: it is no regular file", file=path)


def shortened(path: str) -> BadFormat:
    """Return the error for a file that has lost bytes since its lengths were checked."""
    return BadFormat(f"{path} has become shorter while it was read", file=path)


def placed(error: CowMlxError, place: str, **details: Any) -> CowMlxError:
    """Return an error of a converter with its place in the file."""
    message, details = f"{place}: {error}", {**error.details, **details}
    if isinstance(error, BadFormat):
        return BadFormat(message, **details)
    if isinstance(error, InvalidArgument | Unsupported):
        return Unsupported(message, **details)
    error.args, error.details = (message,), details
    return error
