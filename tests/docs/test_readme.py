"""README.md: short, with ten numbers that are those of the benchmarks, and no dead link."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

from benchmarks.support import tables

README = ROOT / "README.md"


def test_readme_can_be_read_at_once():
    assert len(README.read_text().splitlines()) <= 220


@pytest.mark.parametrize("page", tables.pages(), ids=lambda path: path.name)
def test_numbers_are_those_of_the_benchmarks(page):
    assert page.read_text() == tables.pages()[page], "run python -m benchmarks --tables"


def test_ten_numbers_and_one_picture():
    shown = README.read_text().split(tables.BEGIN)[1].split(tables.END)[0]
    assert shown.count("\n| ") - 1 == 10
    assert shown.count("![") == 1


def test_quotients_go_one_way():
    """Ours divided by the other's: never far from the quotient of the medians beside it.

    How far depends on how much the machine wavered between runs.
    """
    lines = list(tables.lines())
    assert len(lines) > 50
    for line in lines:
        assert line.ratio == pytest.approx(line.ours / line.beside, rel=0.4), line.what


def test_links_lead_somewhere():
    links = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", README.read_text())
    here = [link for link in links if not link.startswith("https:")]
    assert len(here) > 20
    assert [link for link in here if not (ROOT / link).exists()] == []
