"""Check machines that will run a model together: links, memory, and how it would be split."""

from __future__ import annotations

import argparse
import json
import socket
from pathlib import Path
from typing import Any

from cowmlx.commands import origin, terminal
from cowmlx.commands.terminal import CommandError, running, write
from cowmlx.errors import CowMlxError
from cowmlx.machines import handshake, measuring
from cowmlx.steps import finished

SECONDS = 10.0
ROOM = 1.3  # times its part of the weights that a rank takes while it loads


def _measured(workers: list[str], secret: bytes, seconds: float) -> dict[str, dict[str, Any]]:
    """Measure each worker; returns its facts or its problem by address."""
    rates: dict[str, dict[str, Any]] = {}
    for address in workers:
        others = [other for other in workers if other != address]
        try:
            host, _ = handshake.parse_address(address, "HOST:PORT")
            numeric = socket.gethostbyname(host)
            way = measuring.measure(address, numeric, secret, seconds, others)
        except (CowMlxError, OSError, UnicodeError) as error:
            rates[address] = {"problem": str(error)}
            continue
        rates[address] = {
            "milliseconds": round(way.milliseconds, 3),
            "megabytes_per_second": round(way.megabytes, 1),
            "free_memory": way.facts.get("memory"),
            "processors": way.facts.get("processors"),
            "reached": way.reached,
        }
    return rates


def _split(folder: Path, size: int) -> dict[str, Any]:
    """Return how a model would be split, and the bytes that a machine needs for its part."""
    from cowmlx.models import registry, split_models

    read = finished(registry.read_folder(str(folder), trust=False))
    kind = split_models.choose(read.network, read.config, "auto", size)
    weights = sum(Path(file).stat().st_size for file in read.files)
    return {"split": kind, "bytes": weights, "needed": int(weights / size * ROOM)}


def _bytes(count: object) -> str:
    return f"{count / 1e9:.1f} GB" if isinstance(count, int) and count else "an unknown amount"


def _print_report(found: dict[str, dict[str, Any]], model: dict[str, Any] | None) -> None:
    for address, facts in found.items():
        if "problem" in facts:
            write(f"{address}: {facts['problem']}\n")
            continue
        ways = f"{facts['milliseconds']} ms, {facts['megabytes_per_second']} MB/s"
        write(f"{address}: {ways} from here; {_bytes(facts['free_memory'])} of memory are free\n")
        for other, way in facts["reached"].items():
            good = f"{way.get('milliseconds', 0):.3f} ms, {way.get('megabytes', 0):.1f} MB/s"
            write(f"  to {other}: {way.get('problem', good)}\n")
    if model is None:
        return
    if "problem" in model:
        write(f"model: {model['problem']}\n")
        return
    needed = f"{_bytes(model['needed'])} on each machine"
    write(
        f"model: {_bytes(model['bytes'])}, as a {model['split']}: about {needed} while it loads\n"
    )


def check(arguments: argparse.Namespace) -> int:
    """Measure delay and speed between machines, and say whether a model fits."""
    if arguments.model is not None:
        origin.require_python()
    try:
        secret = handshake.read_secret(arguments.secret_file, "--secret-file", waits=True)
    except CowMlxError as error:
        raise CommandError(str(error), 2) from None
    rates = _measured(arguments.workers, secret, arguments.timeout)
    model: dict[str, Any] | None = None
    if arguments.model is not None:
        try:
            model = _split(arguments.model, len(arguments.workers) + 1)
        except CowMlxError as error:
            model = {"problem": str(error)}
    free = {"local": {"free_memory": measuring.free_memory()}, **rates}
    short = [
        name
        for name, facts in free.items()
        if model is not None and 0 < (facts.get("free_memory") or 0) < model.get("needed", 0)
    ]
    if arguments.json:
        write(json.dumps({"workers": rates, "model": model, "too_small": short}, indent=1) + "\n")
    else:
        _print_report(rates, model)
        for name in short:
            write(f"{name} has too little memory for its part\n")
    bad = any("problem" in facts for facts in rates.values()) or "problem" in (model or {})
    return 1 if bad or short else 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``machines``."""
    text = "Check the machines that are to run a model together."
    parser = commands.add_parser("machines", help=text, description=text)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="ACTION")
    parser = verbs.add_parser("check", help=check.__doc__, description=check.__doc__)
    option = parser.add_argument
    option("workers", nargs="+", metavar="HOST:PORT", help="address of a worker")
    text = "the secret that the workers have"
    option("--secret-file", required=True, metavar="FILE", help=text)
    text = "a model's folder or name: say how it would be split; default: none"
    option("--model", type=Path, metavar="FOLDER", help=text)
    text = f"limit for the answers of a worker; default: {SECONDS:g}"
    option("--timeout", type=terminal.seconds, default=SECONDS, metavar="SECONDS", help=text)
    option("--json", action="store_true", help="report as JSON; default: text")
    parser.set_defaults(run=running(check, "machines"))
