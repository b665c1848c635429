"""What commands print: harmless text, and problems in one form with exit status 1."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys

from cowmlx.errors import CowMlxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# For terminals that cannot show the others.
_ASCII = str.maketrans({"→": "->", "←": "<-", "…": "...", "·": "-"})


class CommandError(Exception):
    """What a command tells before it ends.

    Attributes:
        status: with which the process ends.
    """

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


def write(text: str) -> None:
    """Print a text, harmless, in characters that the terminal has."""
    clear_progress()
    text = harmless(text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    sys.stdout.write(text)
    sys.stdout.flush()


def harmless(text: str) -> str:
    """Escape what a terminal would act on, or cannot show: a folder may come from anywhere."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


_progress: list[str] = []  # the line that is shown now, if one is


def show_progress(text: str) -> None:
    """Show the current step on standard error, in place of the previous progress line.

    Only a terminal gets it.
    """
    clear_progress()
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        _progress.append(f"{harmless(text)} ..."[: shutil.get_terminal_size().columns - 1])
        sys.stderr.write(_progress[0])
        sys.stderr.flush()


def clear_progress() -> None:
    """Take that line away, before anything else is written."""
    if _progress:
        sys.stderr.write("\r\x1b[K")
        sys.stderr.flush()
        _progress.clear()


def running(
    command: Callable[[argparse.Namespace], None], group: str = "", subject: str = ""
) -> Callable[[argparse.Namespace], int]:
    """Return what runs a command and gives its exit status, whatever it is given.

    Args:
        command: does it.
        group: the command that it belongs to, such as "wiring"; "" for one of its own.
        subject: the argument that names what it is about; "" if none does.
    """

    def run(arguments: argparse.Namespace) -> int:
        status = 1
        try:
            command(arguments)
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            clear_progress()
            return 128 + signal.SIGINT
        except CommandError as exc:
            problem, status = str(exc), exc.status
        except CowMlxError as exc:
            problem = str(exc)
        except OSError as exc:
            problem = f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc)
        except (MemoryError, RecursionError) as exc:
            what = getattr(arguments, subject) if subject else "it"
            problem = f"{what} is too large ({type(exc).__name__})"
        else:
            return 0
        clear_progress()
        name = " ".join(part for part in ("cowmlx", group, command.__name__) if part)
        lines = (f"{name}: {line}\n" for line in problem.split("\n"))
        sys.stderr.write(harmless("".join(lines)))
        return status

    return run
