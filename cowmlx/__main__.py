"""``python -m cowmlx``: its commands."""

from __future__ import annotations

import argparse
import signal
import sys

from cowmlx.commands import info, installation, machines, models, program, uninstall, wiring
from cowmlx.commands.bundle import command as bundle
from cowmlx.commands.chat import command as chat
from cowmlx.commands.doctor import command as doctor
from cowmlx.commands.train import command as train
from cowmlx.commands.worker import command as worker

COMMANDS = (
    installation,
    info,
    models,
    chat,
    wiring,
    program,
    train,
    worker,
    machines,
    doctor,
    bundle,
    uninstall,
)


def main() -> int:
    """Run one command."""
    parser = make_parser()
    arguments = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
