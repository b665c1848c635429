"""A folder with the library and all that it needs, for an application to ship.

``assemble`` writes one, ``manifest`` verifies one, ``parts`` and ``python`` declare what goes in.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

from cowmlx.commands import origin
from cowmlx.commands.terminal import CommandError, clear_progress, running, show_progress

MB = 1_000_000
MAC_MINIMUM = "14.0"  # the oldest macOS that mlx has wheels for
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class BundleError(CommandError):
    """A bundle cannot be made or read; the message says why, and what to do."""


def _report(folder: Path, manifest: dict[str, Any]) -> str:
    """Return a text with a bundle's size, contents and requirements."""
    lines = [f"{folder}: {manifest['bytes'] / MB:.1f} MB in {len(manifest['files'])} files", ""]
    lines.append(f"{'part':<11}{'MB':>6}  components and their licences")
    for name, part in manifest["parts"].items():
        components = [
            f"{c['name']} {c['version']} ({c['licence']})" for c in part["components"]
        ] or [part["purpose"]]
        lines.append(f"{name:<11}{part['bytes'] / MB:>6.1f}  {components[0]}")
        lines += [f"{'':<19}{component}" for component in components[1:]]
    lines.append("")
    needs = manifest["requires"]
    if "versions" in needs:
        versions = ", ".join(f"{name} {version}" for name, version in needs["versions"].items())
        lines.append(f"It needs of a system: {versions}; {', '.join(needs['libraries'])}")
    if "minimum" in needs:
        lines.append(f"It needs macOS {needs['minimum']} or newer")
        if needs["minimum"] != MAC_MINIMUM:
            names = ", ".join(needs["because_of"][:3])
            lines.append(
                f"warning: it does not start on older ones, because of {names}. pip took the "
                f"packages of this Mac's own macOS; pip install --platform "
                f"macosx_{MAC_MINIMUM.replace('.', '_')}_arm64 takes those of macOS {MAC_MINIMUM} "
                "(docs/bundling.md)"
            )
    if not manifest["options"]["stripped"]:
        lines.append("Symbols were not stripped: there is no strip here, or --prune none was asked")
    bare = [
        component["name"]
        for part in manifest["parts"].values()
        for component in part["components"]
        if not component["licence_files"]
    ]
    if bare:
        lines.append(f"No licence text came with: {', '.join(bare)}; add theirs")
    return "\n".join(lines)


def _end_cleanly() -> None:
    """Let signals that end the process raise, so that an incomplete bundle is removed."""
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup

    def end(number: int, frame: FrameType | None) -> None:
        for other in handled:
            signal.signal(other, signal.SIG_IGN)  # removing takes its time
        sys.exit(128 + number)

    for number in handled:
        signal.signal(number, end)


def bundle(arguments: argparse.Namespace) -> None:
    """Write a folder with the library, Python and packages, which an application can ship."""
    from cowmlx.commands.bundle.assemble import Options, assemble
    from cowmlx.folders import places

    origin.require_python()
    _end_cleanly()
    model = arguments.with_model
    options = Options(
        without=frozenset(arguments.without),
        full=arguments.full,
        prune=arguments.prune,
        model=None if model is None else Path(places.resolved(model)),
        swift=arguments.swift,
        replace=arguments.force,
    )
    manifest = assemble(arguments.folder, options, show_progress)
    clear_progress()
    if arguments.json:
        del manifest["files"]
        print(json.dumps(manifest, indent=1, ensure_ascii=False))
    else:
        print(_report(arguments.folder, manifest))


def verify(arguments: argparse.Namespace) -> int:
    """Check that the files of a bundle are those that were written."""
    from cowmlx.commands.bundle import manifest

    show_progress(f"reading every file of {arguments.folder}")
    problems = manifest.verify(arguments.folder)
    clear_progress()
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{arguments.folder} is what was written")
    return 1 if problems else 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands ``bundle`` and ``verify``."""
    parser = commands.add_parser("bundle", help=bundle.__doc__, description=bundle.__doc__)
    option = parser.add_argument
    option("folder", type=Path, metavar="DIR", help="the folder to write: new or empty")
    text = "copy this model into models/: its folder, or its name in the cache; default: none"
    option("--with-model", metavar="DIR", help=text)
    text = "leave out chat, grammar or openblas; may be repeated; default: all are in"
    option("--without", action="append", default=[], metavar="PART", help=text)
    text = "add transformers and what else mlx-lm's own loader needs; default: without"
    option("--full", action="store_true", help=text)
    text = "none keeps sources, symbols and the whole standard library; default: standard"
    option("--prune", choices=("standard", "none"), default="standard", help=text)
    text = "make it a Swift package, too, with the library as a resource; default: none"
    option("--swift", action="store_true", help=text)
    text = "replace a bundle that is there; default: refuse"
    option("--force", action="store_true", help=text)
    option("--json", action="store_true", help="report as JSON; default: text")
    parser.set_defaults(run=running(bundle))

    parser = commands.add_parser("verify", help=verify.__doc__, description=verify.__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="the bundle's folder")
    parser.set_defaults(run=running(verify))
