"""Where the sources of hosts lie, and how they are linked."""

from __future__ import annotations

from pathlib import Path

from support.paths import ROOT

HOSTS = ROOT / "tests/boot/hosts"
PROMPT, LENGTH = "Once upon a time", 16  # those of hosts/host.h


def linked(library: Path) -> list[str]:
    """Options that link a library where it lies."""
    return [str(library), f"-Wl,-rpath,{library.parent}", "-pthread", "-D_DEFAULT_SOURCE"]
