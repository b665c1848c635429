"""ARCHITECTURE.md: read in minutes; every path in it and in docs/extending.md exists."""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
STEPS = ROOT / "docs" / "extending.md"
FILES = re.compile(r"[\w./*-]+(/|\.(c|h|hpp|md|py|pyx|pxi))")


def paths() -> list[str]:
    """Names of files and folders in backticks, and those on the line that shows a call's path."""
    text = PAGE.read_text()
    road = re.search(r"^    host thread.*$", text, re.MULTILINE)[0]
    text += STEPS.read_text()
    words = re.findall(r"`([^`\n]+)`", text) + road.split()
    return [word for word in words if FILES.fullmatch(word)]


def test_every_path_is_there():
    assert len(paths()) > 50
    assert [path for path in paths() if not any(ROOT.glob(path.rstrip("/")))] == []


def test_it_is_read_in_minutes():
    assert len(PAGE.read_text().splitlines()) <= 120
