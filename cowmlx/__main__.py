"""``python -m cowmlx``: its commands."""

from __future__ import annotations

import argparse
import signal
import sys

from cowmlx.commands import (
    bundle,
    chat,
    doctor,
    installation,
    machines,
    models,
    program,
    train,
    wiring,
    worker,
)

COMMANDS = (installation, models, chat, wiring, program, train, worker, machines, doctor, bundle)


def main() -> int:
    """Run one command."""
    parser, given = make_parser(), sys.argv[1:]
    if near := _meant(parser, given):
        parser.error(f"there is no command {given[0]}; did you mean {near}?")
    arguments = parser.parse_args(given)
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m cowmlx",
        description="Tools of libcowmlx. COMMAND --help lists the options of a command.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    return parser


def _meant(parser: argparse.ArgumentParser, given: list[str]) -> str:
    """Return the command that a mistyped one is near to, or ""."""
    names = [name for action in parser._actions for name in action.choices or ()]
    if not given or given[0] in names:
        return ""
    from difflib import get_close_matches  # late: only for what is wrong

    return "".join(get_close_matches(given[0], names, 1))


if __name__ == "__main__":
    sys.exit(main())
