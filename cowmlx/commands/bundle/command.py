"""A folder with the library and all that it needs, and the check that it is still whole."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

from cowmlx.commands import pythons
from cowmlx.commands.terminal import clear_progress, show_progress
from cowmlx.errors import CowMlxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import FrameType
    from typing import Any

MB = 1_000_000
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _report(folder: Path, manifest: dict[str, Any]) -> str:
    """Say how large a bundle is, what is in it, and what it needs."""
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
    """Let signals that end a process raise, so that a bundle half written is removed."""
    handled = [number for number in ENDING if signal.getsignal(number) != signal.SIG_IGN]  # nohup

    def end(number: int, frame: FrameType | None) -> None:
        for other in handled:
            signal.signal(other, signal.SIG_IGN)  # removing takes its time
        sys.exit(128 + number)

    for number in handled:
        signal.signal(number, end)


def _model(given: Path | None) -> Path | None:
    """Return the folder of a model that is named by its path, or as in Hugging Face's cache."""
    from cowmlx.folders import places

    return None if given is None else Path(places.resolved(str(given)))


def _bundle(arguments: argparse.Namespace) -> int:
    from cowmlx.commands.bundle import BundleError
    from cowmlx.commands.bundle.assemble import Options, assemble

    if lack := pythons.wrong():
        print(f"bundle: {lack}; {pythons.right()}", file=sys.stderr)
        return 1
    _end_cleanly()
    try:
        options = Options(
            without=frozenset(arguments.without),
            full=arguments.full,
            prune=arguments.prune,
            model=_model(arguments.with_model),
            replace=arguments.force,
        )
        manifest = assemble(arguments.folder, options, show_progress)
    except (BundleError, CowMlxError) as error:
        clear_progress()
        print(f"bundle: {error}", file=sys.stderr)
        return 1
    finally:
        clear_progress()
    if arguments.json:
        del manifest["files"]
        print(json.dumps(manifest, indent=1, ensure_ascii=False))
    else:
        print(_report(arguments.folder, manifest))
    return 0


def _verify(arguments: argparse.Namespace) -> int:
    from cowmlx.commands.bundle import BundleError, manifest

    try:
        show_progress(f"reading every file of {arguments.folder}")
        problems = manifest.verify(arguments.folder)
        clear_progress()
    except BundleError as error:
        clear_progress()
        print(f"verify: {error}", file=sys.stderr)
        return 1
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{arguments.folder} is what was written")
    return 1 if problems else 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands ``bundle`` and ``verify``."""
    text = "Write a folder with the library, Python and packages, which an application can ship."
    parser = commands.add_parser("bundle", help=text, description=text)
    parser.add_argument(
        "folder", type=Path, metavar="DIR", help="the folder to write: new or empty"
    )
    parser.add_argument(
        "--with-model",
        type=Path,
        metavar="DIR",
        help="copy this model into models/: its folder, or its name in the cache; default: none",
    )
    parser.add_argument(
        "--without",
        action="append",
        default=[],
        metavar="PART",
        help="leave out chat, grammar or openblas; may be repeated; default: all are in",
    )
    parser.add_argument(
        "--full",
        action="store_true",
        help="add transformers and what else mlx-lm's own loader needs; default: without",
    )
    parser.add_argument(
        "--prune",
        choices=("standard", "none"),
        default="standard",
        help="none keeps sources, symbols and the whole standard library; default: standard",
    )
    parser.add_argument(
        "--force", action="store_true", help="replace a bundle that is there; default: refuse"
    )
    parser.add_argument("--json", action="store_true", help="report as JSON; default: text")
    parser.set_defaults(run=_bundle)

    text = "Check that the files of a bundle are those that were written."
    parser = commands.add_parser("verify", help=text, description=text)
    parser.add_argument("folder", type=Path, metavar="DIR", help="the bundle's folder")
    parser.set_defaults(run=_verify)
