"""``python -m cowmlx``: its commands."""

from __future__ import annotations

import argparse
import signal
import sys
from typing import NoReturn

from cowmlx.commands import (
    bundle,
    chat,
    convert,
    doctor,
    installation,
    machines,
    models,
    program,
    train,
    wiring,
    worker,
)

COMMANDS = (
    *(installation, models, chat, convert, wiring, program, train),
    *(worker, machines, doctor, bundle),
)


def main() -> int:
    """Run one command."""
    parser, given = make_parser(), sys.argv[1:]
    if near := _meant(parser, given):
        parser.error(f"there is no command {given[0]}; did you mean {near}?")
    arguments, rest = parser.parse_known_args(given)
    if rest:
        _refuse(_parsers(parser)[arguments.command], rest)
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
    names = list(_parsers(parser))
    return _nearest(given[0], names) if given and given[0] not in names else ""


def _refuse(command: argparse.ArgumentParser, rest: list[str]) -> NoReturn:
    """End with the usage of a command that does not know some arguments."""
    near = ""
    if rest[0].startswith("-"):
        near = _nearest(rest[0].partition("=")[0], list(command._option_string_actions))
    hint = f"; did you mean {near}?" if near else ""
    command.error(f"unrecognized arguments: {' '.join(rest)}{hint}")


def _parsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of the commands, by name."""
    [commands] = [each.choices for each in parser._actions if isinstance(each.choices, dict)]
    return commands


def _nearest(name: str, names: list[str]) -> str:
    from difflib import get_close_matches  # late: only for what is wrong

    return "".join(get_close_matches(name, names, 1, 0.7))


if __name__ == "__main__":
    sys.exit(main())
