"""Look at machines that are to run a model together: ways, memory, and how it would be split."""

from __future__ import annotations

import argparse
import json
import socket
import sys
from pathlib import Path

from cowmlx.errors import CowMlxError
from cowmlx.machines import addresses, handshake, measuring

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECONDS = 10.0
ROOM = 1.3  # times its part of the weights that a rank takes while it loads


def _looked_at(workers: list[str], secret: bytes, seconds: float) -> dict[str, dict[str, Any]]:
    """What each worker is like, or what is wrong with it, by address."""
    found: dict[str, dict[str, Any]] = {}
    for address in workers:
        others = [other for other in workers if other != address]
        try:
            host, _ = addresses.parse(address, "HOST:PORT")
            numeric = socket.gethostbyname(host)
            way = measuring.measure(address, numeric, secret, seconds, others)
        except (CowMlxError, OSError) as error:
            found[address] = {"problem": str(error)}
            continue
        found[address] = {
            "milliseconds": round(way.milliseconds, 3),
            "megabytes_per_second": round(way.megabytes, 1),
            "free_memory": way.told.get("memory"),
            "processors": way.told.get("processors"),
            "reached": way.reached,
        }
    return found


def _split(folder: Path, size: int) -> dict[str, Any]:
    """How a model would be split, and what a machine needs for its part."""
    from cowmlx.models import registry, split_models

    steps = registry.read_folder(str(folder), trust=False)
    try:
        while True:
            next(steps)
    except StopIteration as stop:
        read = stop.value
    kind = split_models.choose(read.network, read.config, "auto", size)
    weights = sum(Path(file).stat().st_size for file in read.files)
    return {"split": kind, "bytes": weights, "needed": int(weights / size * ROOM)}


def _bytes(count: object) -> str:
    return f"{count / 1e9:.1f} GB" if isinstance(count, int) and count else "an unknown amount"


def _say(found: dict[str, dict[str, Any]], model: dict[str, Any] | None) -> None:
    for address, told in found.items():
        if "problem" in told:
            print(f"{address}: {told['problem']}")
            continue
        ways = f"{told['milliseconds']} ms, {told['megabytes_per_second']} MB/s"
        print(f"{address}: {ways} from here; {_bytes(told['free_memory'])} of memory are free")
        for other, way in told["reached"].items():
            way = way if isinstance(way, dict) else {"problem": "it does not say"}
            good = f"{way.get('milliseconds', 0):.3f} ms, {way.get('megabytes', 0):.1f} MB/s"
            print(f"  to {other}: {way.get('problem', good)}")
    if model is None:
        return
    if "problem" in model:
        print(f"model: {model['problem']}")
        return
    needed = f"{_bytes(model['needed'])} on each machine"
    print(f"model: {_bytes(model['bytes'])}, as a {model['split']}: about {needed} while it loads")


def _check(arguments: argparse.Namespace) -> int:
    try:
        secret = handshake.read_secret(str(arguments.secret_file))
    except CowMlxError as error:
        print(f"cowmlx machines check: {error}", file=sys.stderr)
        return 2
    found = _looked_at(arguments.workers, secret, arguments.timeout)
    model: dict[str, Any] | None = None
    if arguments.model is not None:
        try:
            model = _split(arguments.model, len(arguments.workers) + 1)
        except CowMlxError as error:
            model = {"problem": str(error)}
    free = {"local": {"free_memory": measuring.free_memory()}, **found}
    short = [
        name
        for name, told in free.items()
        if model is not None and 0 < (told.get("free_memory") or 0) < model.get("needed", 0)
    ]
    if arguments.json:
        print(json.dumps({"workers": found, "model": model, "too_small": short}, indent=1))
    else:
        _say(found, model)
        for name in short:
            print(f"{name} has too little memory for its part")
    bad = any("problem" in told for told in found.values()) or "problem" in (model or {})
    return 1 if bad or short else 0


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0
    if not 0 < seconds < 86400:
        raise argparse.ArgumentTypeError(f"{text} is no number above 0")
    return seconds


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``machines``."""
    text = "Check the machines that are to run a model together."
    parser = commands.add_parser("machines", help=text, description=text)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="ACTION")
    text = "Measure delay and speed between machines, and say whether a model fits."
    check = verbs.add_parser("check", help=text, description=text)
    check.add_argument("workers", nargs="+", metavar="HOST:PORT", help="address of a worker")
    check.add_argument(
        "--secret-file",
        type=Path,
        required=True,
        metavar="FILE",
        help="the secret that the workers have",
    )
    check.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="a model's folder or name: say how it would be split; default: none",
    )
    check.add_argument(
        "--timeout",
        type=_seconds,
        default=SECONDS,
        metavar="SECONDS",
        help=f"limit for the answer of a worker; default: {SECONDS:g}",
    )
    check.add_argument("--json", action="store_true", help="report as JSON; default: text")
    check.set_defaults(run=_check)
