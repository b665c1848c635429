"""What is wrong with an installation, and what to do about it."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

from cowmlx.commands import pythons
from cowmlx.commands.terminal import clear_progress, show_progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from cowmlx.commands.doctor import Finding
    from cowmlx.commands.doctor.checks import Doctor

# How long a start may take, and a start with a model.
SECONDS = 120
MODEL_SECONDS = 600
MAX_SECONDS = 86400


def _library(path: Path) -> Path:
    """Return the library that a path means: itself, or that of a bundle."""
    from cowmlx.commands.doctor.checks import LIBRARY

    return path / "lib" / LIBRARY.name if path.is_dir() else path


def _seconds(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 < (seconds := float(text)) <= MAX_SECONDS:
            return seconds
    raise argparse.ArgumentTypeError(f"{text} is no number above 0 and up to {MAX_SECONDS}")


def _findings(doctor: Doctor) -> Iterator[Finding]:
    """What the doctor finds, and what is to say of the Python that runs it."""
    from cowmlx.commands.doctor import NOTE, Finding

    # The check 'packages' speaks of the package's own Python.
    lack = pythons.wrong() if doctor.bundle is None and not pythons.is_own() else ""
    if lack:
        text = f"{lack}; what follows is about the Python that a host boots"
        yield Finding("python", NOTE, text, f"for commands, {pythons.right()}")
    yield from doctor.findings()


def _run(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from cowmlx.commands.doctor import OK, PROBLEM
    from cowmlx.commands.doctor.checks import LIBRARY, Doctor

    library = _library(arguments.library) if arguments.library else LIBRARY
    limit = arguments.timeout or (MODEL_SECONDS if arguments.model else SECONDS)
    doctor = Doctor(library, arguments.model, limit, show_progress)
    findings = []
    for finding in _findings(doctor):
        findings.append(finding)
        clear_progress()
        if not arguments.json:
            print(f"{finding.state:<8} {finding.check}: {finding.text}", flush=True)
            if finding.advice:
                print(f"{'':<8} -> {finding.advice}")
    clear_progress()
    problems = sum(finding.state == PROBLEM for finding in findings)
    if arguments.json:
        info = doctor.probe.info if doctor.probe is not None else {}
        told = [asdict(finding) for finding in findings]
        print(json.dumps({"ok": not problems, "findings": told, "runtime_info": info}, indent=1))
    elif problems:
        print(f"\n{problems} problem{'s' * (problems > 1)}; begin with the first one")
    elif all(finding.state == OK for finding in findings):
        print("\nnothing is wrong")
    else:
        print("\nit works; the notes tell what could be better")
    return 1 if problems else 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``doctor``."""
    text = "Check the installation, and say how to repair what is wrong."
    parser = commands.add_parser("doctor", help=text, description=text)
    parser.add_argument(
        "model",
        nargs="?",
        metavar="MODEL",
        help="a model to load and run: its folder, or its name in the cache; default: none",
    )
    parser.add_argument(
        "--library",
        type=Path,
        metavar="PATH",
        help="the library to check, or the folder of a bundle; default: this installation's",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help=f"limit for the start; default: {SECONDS}, with a model {MODEL_SECONDS}",
    )
    parser.add_argument("--json", action="store_true", help="report as JSON; default: text")
    parser.set_defaults(run=_run)
