"""What ``cow_mlx_runtime_info`` says, asked as any host would."""

from __future__ import annotations

import json

from cowmlx.commands import installation, pythons
from cowmlx.commands.terminal import CommandError, running, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def info(arguments: argparse.Namespace) -> None:
    """Start the library and print its versions, device, architectures and memory as JSON."""
    if lack := pythons.wrong():
        raise CommandError(f"{lack}; {pythons.right()}")
    from cowmlx.host.library import HostError, Library

    try:
        with Library(installation.library()) as library:
            told = library.described("runtime_info")
    except HostError as error:
        raise CommandError(str(error)) from None
    write(json.dumps(told, ensure_ascii=False) + "\n")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``info``."""
    parser = commands.add_parser("info", help=info.__doc__, description=info.__doc__)
    parser.set_defaults(run=running(info))
