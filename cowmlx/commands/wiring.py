"""The wiring of a model folder: shown as text, checked, or drawn."""

from __future__ import annotations

import argparse
import os
import shutil

from cowmlx.commands import origin, terminal
from cowmlx.commands.terminal import CommandError, running, write

_MAX_PROBLEMS = 100


def show(arguments: argparse.Namespace) -> None:
    """Print the wiring, stage by stage."""
    origin.require_python()
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.drawing import draw_text

    width = arguments.width or shutil.get_terminal_size().columns
    write(draw_text(wired_folder.read(_folder(arguments)), width))


def validate(arguments: argparse.Namespace) -> None:
    """Check the wiring, and names and shapes of the weights; they are not loaded."""
    origin.require_python()
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.outline import Outline

    folder = _folder(arguments)
    problems = wired_folder.problems(folder)
    if problems:
        rest = len(problems) - _MAX_PROBLEMS
        more = [f"and {rest} more problems"] if rest > 0 else []
        raise CommandError("\n".join(problems[:_MAX_PROBLEMS] + more))
    outline = Outline(wired_folder.read(folder))
    write(
        f"{folder}: {outline.blocks:,} blocks and {outline.parameters:,} parameters, "
        "wired and stored as they should be\n"
    )


def draw(arguments: argparse.Namespace) -> None:
    """Draw the wiring with Graphviz, or print its input."""
    origin.require_python()
    from cowmlx.models import wired_folder
    from cowmlx.networks.wiring.drawing import draw_dot

    terminal.require_ending(arguments.output)
    folder = _folder(arguments)
    title = os.path.basename(os.path.abspath(folder))
    terminal.save_drawing(draw_dot(wired_folder.read(folder), title), arguments.output)


def _folder(arguments: argparse.Namespace) -> str:
    """Return the folder that was named by its path, or by its name in Hugging Face's cache."""
    from cowmlx.folders import places

    return places.resolved(arguments.folder)


def _columns(text: str) -> int:
    number = int(text) if text.isdecimal() and len(text) < 9 else 0
    if not 40 <= number <= 10_000:
        raise argparse.ArgumentTypeError(f"{text} is no number from 40 to 10000")
    return number


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``wiring`` with its own three."""
    text = "Show, check or draw the network that a model's folder declares."
    parser = commands.add_parser("wiring", help=text, description=text)
    own = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    for command in (show, validate, draw):
        summary = command.__doc__
        action = own.add_parser(command.__name__, help=summary, description=summary)
        action.add_argument("folder", metavar="FOLDER", help="a model's folder")
        action.set_defaults(run=running(command, "wiring", "folder"))
        if command is show:
            text = "columns; default: the terminal's"
            action.add_argument("--width", type=_columns, metavar="N", help=text)
        if command is draw:
            text = f"{terminal.ENDINGS}; default: DOT on the standard output"
            action.add_argument("-o", "--output", metavar="FILE", help=text)
