"""ARCHITECTURE.md: read in minutes, and every path in it is there."""

from __future__ import annotations

import re

from support.paths import ROOT

PAGE = ROOT / "ARCHITECTURE.md"
FILES = re.compile(r"[\w./*-]+(/|\.(c|h|hpp|md|py|pyx|pxi))")


def paths() -> list[str]:
    """What stands in backticks and is a folder or a file's name, and the line of a call."""
    text = PAGE.read_text()
    road = re.search(r"^    host thread.*$", text, re.MULTILINE)[0]
    words = re.findall(r"`([^`\n]+)`", text) + road.split()
    return [word for word in words if FILES.fullmatch(word)]


def test_every_path_is_there():
    assert len(paths()) > 50
    assert [path for path in paths() if not any(ROOT.glob(path.rstrip("/")))] == []


def test_it_is_read_in_minutes():
    assert len(PAGE.read_text().splitlines()) <= 150
