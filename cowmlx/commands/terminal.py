"""Output of commands: harmless text, pictures of graphs, and problems with an exit status."""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable

from cowmlx.errors import CowMlxError

# For terminals that cannot show the others.
_ASCII = str.maketrans({"→": "->", "←": "<-", "…": "...", "·": "-"})
# Endings of files and what Graphviz calls their formats; DOT itself needs no Graphviz.
_PICTURES = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
_DOT = (".dot", ".gv")
ENDINGS = ", ".join((*_DOT, *_PICTURES))
MAX_SECONDS = 86400


class CommandError(Exception):
    """A problem that ends a command."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status  # the process's exit status


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
    """Escape control characters and others that a terminal cannot show: names may be hostile."""
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
    command: Callable[[argparse.Namespace], int | None], group: str = "", subject: str = ""
) -> Callable[[argparse.Namespace], int]:
    """Return a function that runs a command, reports its problem and returns its exit status.

    Args:
        command: returns the status, None for 0.
        group: the command that it belongs to, such as "wiring", or "".
        subject: the argument that names the file or folder of the command, or "".
    """

    def run(arguments: argparse.Namespace) -> int:
        status = 1
        try:
            return command(arguments) or 0
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
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
        finally:
            clear_progress()
        name = " ".join(part for part in ("cowmlx", group, command.__name__) if part)
        lines = (f"{name}: {line}\n" for line in problem.split("\n"))
        sys.stderr.write(harmless("".join(lines)))
        return status

    return run


def seconds(text: str) -> float:
    """Return the number of seconds that an option gives."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0 and up to {MAX_SECONDS}")
    return number


# ----------------------------------------------------------------------- Pictures


def require_ending(output: str | None) -> None:
    """Check the ending of a picture's name, before anything is drawn.

    Raises:
        CommandError: no picture has it.
    """
    if output is not None and _ending(output) not in (*_DOT, *_PICTURES):
        raise CommandError(f"cannot draw {output}: a name ends with {ENDINGS}")


def save_drawing(drawing: str, output: str | None) -> None:
    """Write a drawing in DOT to a file, in the format of its ending; print it without one.

    Raises:
        CommandError: Graphviz is missing, or cannot draw it.
    """
    if output is None:
        write(drawing)
        return
    data = drawing.encode("utf-8", "replace")
    if _ending(output) in _PICTURES:
        data = _rendered(data, _PICTURES[_ending(output)])
    with open(output, "wb") as file:
        file.write(data)


def _ending(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _rendered(drawing: bytes, kind: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise CommandError(
            f"Graphviz makes {kind} pictures, and its program dot is not installed; "
            "a .dot file needs none"
        )
    done = subprocess.run([program, f"-T{kind}"], input=drawing, capture_output=True)
    if done.returncode or not done.stdout:
        why = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise CommandError(f"{program} cannot draw this: {why}")
    return done.stdout
