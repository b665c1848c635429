"""Run a part of other machines' models on this one."""

from __future__ import annotations

import argparse
import socket
from pathlib import Path

from cowmlx.commands.terminal import CommandError, running
from cowmlx.errors import CowMlxError
from cowmlx.machines import handshake

PORT = 7707
_USAGE = 2  # the exit status of a wrong option


def _listen(text: str, allow_public: bool) -> socket.socket:
    """Return a socket that listens.

    Raises:
        CommandError: it may not or cannot listen there.
    """
    host, port = handshake.parse_address(text if ":" in text else f"{text}:{PORT}", "--listen", 0)
    try:
        host = socket.gethostbyname(host)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CommandError(f"cannot find the address of {host}: {why}", _USAGE) from None
    if not allow_public and not handshake.is_private(host):
        raise CommandError(
            f"{host} can be reached from anywhere, and what ranks send each other is neither "
            "authenticated nor encrypted: listen on an address of a private network, or give "
            "--allow-public",
            _USAGE,
        )
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        why = error.strerror or error
        raise CommandError(f"cannot listen on {host}:{port}: {why}", _USAGE) from None
    return listener


def worker(arguments: argparse.Namespace) -> None:
    """Run a part of other machines' models on this machine, until it is ended."""
    from cowmlx.commands.worker import server

    try:
        secret = handshake.read_secret(arguments.secret_file, "--secret-file", waits=True)
        if not arguments.models.is_dir():
            raise CommandError(f"no such folder: {arguments.models}", _USAGE)
        models = server.models_in(arguments.models)
        listener = _listen(arguments.listen, arguments.allow_public)
    except CowMlxError as error:
        raise CommandError(str(error), _USAGE) from None
    host, port = listener.getsockname()
    if arguments.check:
        print(f"it can listen on {host}:{port}, and the secret has {len(secret)} bytes")
        for name, path in models.items():
            print(f"model {name}: {path}")
        print(f"{len(models)} models in {arguments.models}")
        return
    server.log(f"listens on {host}:{port}; {len(models)} models in {arguments.models}")
    server.Server(listener, secret, arguments.models, arguments.sessions, server.log).serve()
    server.log("ends")


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no number of at least 1")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``worker``."""
    parser = commands.add_parser("worker", help=worker.__doc__, description=worker.__doc__)
    option = parser.add_argument
    text = (
        f"an address of this machine in a private network; the port is {PORT} if not given, "
        "and with 0 one that is free"
    )
    option("--listen", required=True, metavar="ADDRESS[:PORT]", help=text)
    text = "the secret that hosts must have, too"
    option("--secret-file", required=True, metavar="FILE", help=text)
    text = "the folder with the models"
    option("--models", type=Path, required=True, metavar="FOLDER", help=text)
    text = "models that run at a time; default: 1"
    option("--sessions", type=_count, default=1, metavar="N", help=text)
    text = "listen on a public address, too; default: refuse"
    option("--allow-public", action="store_true", help=text)
    text = "check address, secret and models, then end; default: run"
    option("--check", action="store_true", help=text)
    parser.set_defaults(run=running(worker))
