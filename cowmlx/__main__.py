"""``python -m cowmlx``: what a host's developer needs besides the library."""

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
    parser = argparse.ArgumentParser(prog="python -m cowmlx", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    for command in COMMANDS:
        command.add(commands)
    arguments = parser.parse_args()
    try:
        status: int = arguments.run(arguments)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return status


if __name__ == "__main__":
    sys.exit(main())
