"""Run a part of other machines' models on this one."""

from __future__ import annotations

import argparse
import socket
import sys
from pathlib import Path

from cowmlx.errors import CowMlxError
from cowmlx.machines import addresses, handshake

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

PORT = 7707


def _refuse(text: str) -> NoReturn:
    print(f"cowmlx worker: {text}", file=sys.stderr)
    sys.exit(2)


def _numeric(host: str) -> str:
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        _refuse(f"cannot find the address of {host}: {error.strerror or error}")


def _listen(text: str, allow_public: bool) -> socket.socket:
    """Return a socket that listens; leaves where that may not or cannot be."""
    try:
        host, port = addresses.parse(text if ":" in text else f"{text}:{PORT}", "--listen", 0)
    except CowMlxError as error:
        _refuse(str(error))
    host = _numeric(host)
    if not allow_public and not addresses.is_private(host):
        _refuse(
            f"{host} can be reached from anywhere, and what ranks send each other is neither "
            "authenticated nor encrypted: listen on an address of a private network, or give "
            "--allow-public"
        )
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        _refuse(f"cannot listen on {host}:{port}: {error.strerror or error}")
    return listener


def _run(arguments: argparse.Namespace) -> int:
    from cowmlx.commands.worker import places, server

    try:
        secret = handshake.read_secret(str(arguments.secret_file))
    except CowMlxError as error:
        _refuse(str(error))
    if not arguments.models.is_dir():
        _refuse(f"no such folder: {arguments.models}")
    models = places.found(arguments.models)
    listener = _listen(arguments.listen, arguments.allow_public)
    host, port = listener.getsockname()
    if arguments.check:
        print(f"it can listen on {host}:{port}, and the secret has {len(secret)} bytes")
        for name, path in models.items():
            print(f"model {name}: {path}")
        print(f"{len(models)} models in {arguments.models}")
        return 0
    server.log(f"listens on {host}:{port}; {len(models)} models in {arguments.models}")
    server.Server(listener, secret, arguments.models, arguments.sessions, server.log).serve()
    server.log("ends")
    return 0


def _count(text: str) -> int:
    if text.isascii() and text.isdigit() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text} is no number of at least 1")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``worker``."""
    text = "Run a part of other machines' models on this machine, until it is ended."
    parser = commands.add_parser("worker", help=text, description=text)
    parser.add_argument(
        "--listen",
        required=True,
        metavar="ADDRESS[:PORT]",
        help=f"an address of this machine in a private network; the port is {PORT} if not given, "
        "and with 0 one that is free",
    )
    parser.add_argument(
        "--secret-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="the secret that hosts must have, too",
    )
    parser.add_argument(
        "--models", type=Path, required=True, metavar="FOLDER", help="the folder with the models"
    )
    parser.add_argument(
        "--sessions",
        type=_count,
        default=1,
        metavar="N",
        help="models that run at a time; default: 1",
    )
    parser.add_argument(
        "--allow-public",
        action="store_true",
        help="listen on a public address, too; default: refuse",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check address, secret and models, then end; default: run",
    )
    parser.set_defaults(run=_run)
