"""Find out what is wrong with an installation, however broken it is.

Nothing here imports mlx or the engine: whatever may crash runs in a separate process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cowmlx.commands import origin, terminal
from cowmlx.commands.installed_files import LIBRARY
from cowmlx.commands.terminal import clear_progress

if TYPE_CHECKING:
    from cowmlx.commands.doctor.checks import Doctor

OK, NOTE, PROBLEM = "ok", "note", "problem"
# How long a start may take, and a start with a model.
SECONDS = 120
MODEL_SECONDS = 600


@dataclass(frozen=True)
class Finding:
    """The result of one check: ``note`` means that it works, but not as one would expect."""

    check: str
    state: str
    text: str
    advice: str = ""


def _library(path: Path) -> Path:
    """Return the library that a path means: itself, or that of a bundle."""
    return path / "lib" / LIBRARY if path.is_dir() else path


def _findings(doctor: Doctor) -> Iterator[Finding]:
    # The check 'packages' speaks of the package's own Python.
    lack = "" if doctor.bundle is not None or origin.is_own_python() else origin.python_lack()
    if lack:
        text = f"{lack}; the checks below describe the Python that a host boots"
        yield Finding("python", NOTE, text, f"for commands, {origin.right_python()}")
    yield from doctor.findings()


def _run(arguments: argparse.Namespace) -> int:
    from cowmlx.commands.doctor.checks import Doctor

    library = _library(arguments.library or origin.PACKAGE)
    limit = arguments.timeout or (MODEL_SECONDS if arguments.model else SECONDS)
    doctor = Doctor(library, arguments.model, limit, terminal.show_progress)
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
        rows = [asdict(finding) for finding in findings]
        print(json.dumps({"ok": not problems, "findings": rows, "runtime_info": info}, indent=1))
    elif problems:
        several = f"{problems} problems; begin with the first one"
        print(f"\n{several if problems > 1 else '1 problem'}")
    elif all(finding.state == OK for finding in findings):
        print("\nnothing is wrong")
    else:
        print("\nit works; the notes say what could be better")
    return 1 if problems else 0


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command ``doctor``."""
    text = "Check the installation, and say how to repair what is wrong."
    parser = commands.add_parser("doctor", help=text, description=text)
    option = parser.add_argument
    text = "a model to load and run: its folder, or its name in the cache; default: none"
    option("model", nargs="?", metavar="MODEL", help=text)
    text = "the library to check, or the folder of a bundle; default: this installation's"
    option("--library", type=Path, metavar="PATH", help=text)
    text = f"limit for the start; default: {SECONDS}, with a model {MODEL_SECONDS}"
    option("--timeout", type=terminal.seconds, metavar="SECONDS", help=text)
    option("--json", action="store_true", help="report as JSON; default: text")
    parser.set_defaults(run=_run)
