"""The wiring of a model folder: shown as text, checked, or drawn."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys

from cowmlx.errors import CowMlxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Endings of files and what Graphviz calls their formats; DOT itself needs no Graphviz.
PICTURES = {".svg": "svg", ".png": "png", ".pdf": "pdf"}
DOT = (".dot", ".gv")
_MAX_PROBLEMS = 100
# For terminals that cannot show the others.
_ASCII = str.maketrans({"→": "->", "←": "<-", "…": "...", "·": "-"})


class CommandError(Exception):
    """What a command tells before it ends with status 1."""


def show(arguments: argparse.Namespace) -> None:
    """Print the wiring, stage by stage."""
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.drawing import draw_text

    width = arguments.width or shutil.get_terminal_size().columns
    _print(draw_text(wired_folder.read(arguments.folder), width))


def validate(arguments: argparse.Namespace) -> None:
    """Check the wiring, and names and shapes of the weights; they are not loaded."""
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.outline import Outline

    found = wired_folder.problems(arguments.folder)
    if found:
        rest = len(found) - _MAX_PROBLEMS
        more = [f"and {rest} more problems"] if rest > 0 else []
        raise CommandError("\n".join(found[:_MAX_PROBLEMS] + more))
    outline = Outline(wired_folder.read(arguments.folder))
    _print(
        f"{arguments.folder}: {outline.blocks:,} blocks and {outline.parameters:,} parameters, "
        "wired and stored as they should be\n"
    )


def draw(arguments: argparse.Namespace) -> None:
    """Draw the wiring with Graphviz, or print what it would draw."""
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.drawing import draw_dot

    output = arguments.output
    ending = "" if output is None else os.path.splitext(output)[1].lower()
    if output is not None and ending not in (*DOT, *PICTURES):
        raise CommandError(f"cannot draw {output}: a name ends with {', '.join((*DOT, *PICTURES))}")
    title = os.path.basename(os.path.abspath(arguments.folder))
    drawing = draw_dot(wired_folder.read(arguments.folder), title)
    if output is None:
        _print(drawing)
        return
    data = drawing.encode("utf-8", "replace")
    if ending in PICTURES:
        data = _rendered(data, PICTURES[ending])
    with open(output, "wb") as file:
        file.write(data)


def _rendered(drawing: bytes, kind: str) -> bytes:
    program = shutil.which("dot")
    if program is None:
        raise CommandError(
            f"Graphviz makes {kind} pictures, and its program dot is not installed; "
            "a .dot file needs none"
        )
    done = subprocess.run([program, f"-T{kind}"], input=drawing, capture_output=True)
    if done.returncode or not done.stdout:
        told = done.stderr.decode(errors="replace").strip() or f"exit status {done.returncode}"
        raise CommandError(f"{program} cannot draw this: {told}")
    return done.stdout


def _print(text: str) -> None:
    text = _harmless(text)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode("ascii", "backslashreplace").decode()
    sys.stdout.write(text)
    sys.stdout.flush()


def _harmless(text: str) -> str:
    """Escape what a terminal would act on, or cannot show: a folder may come from anywhere."""
    return "".join(
        char if char.isprintable() or char == "\n" else char.encode("unicode_escape").decode()
        for char in text
    )


def _running(command: Callable[[argparse.Namespace], None]) -> Callable[..., int]:
    """Return what runs a command and gives its exit status, whatever the folder holds."""

    def run(arguments: argparse.Namespace) -> int:
        try:
            command(arguments)
        except BrokenPipeError:  # the reader has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 1
        except KeyboardInterrupt:
            return 130
        except (CowMlxError, CommandError) as exc:
            problem = str(exc)
        except OSError as exc:
            problem = f"{exc.filename}: {exc.strerror}" if exc.filename else str(exc)
        except (MemoryError, RecursionError) as exc:
            problem = f"{arguments.folder} is too large ({type(exc).__name__})"
        else:
            return 0
        lines = (f"cowmlx wiring {command.__name__}: {line}\n" for line in problem.split("\n"))
        sys.stderr.write(_harmless("".join(lines)))
        return 1

    return run


def _columns(text: str) -> int:
    number = int(text)
    if not 40 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"{number} is not within 40 to 10000")
    return number


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``wiring`` with its own three."""
    parser = commands.add_parser("wiring", help=__doc__, description=__doc__)
    own = parser.add_subparsers(dest="action", required=True, metavar="action")
    for command in (show, validate, draw):
        summary = command.__doc__
        action = own.add_parser(command.__name__, help=summary, description=summary)
        action.add_argument("folder", metavar="FOLDER", help="of a model")
        action.set_defaults(run=_running(command))
        if command is show:
            action.add_argument(
                "--width", type=_columns, metavar="N", help="columns; default: the terminal's"
            )
        if command is draw:
            action.add_argument(
                "-o",
                "--output",
                metavar="FILE",
                help=f"{', '.join((*DOT, *PICTURES))}; default: DOT on the standard output",
            )
