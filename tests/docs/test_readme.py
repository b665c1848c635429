"""README.md: short, with ten numbers that are those of the benchmarks, and no dead link."""

from __future__ import annotations

import json
import platform
import re

import pytest
from support.paths import ROOT

from benchmarks.support import cases, tables

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


@pytest.mark.parametrize(
    ("cpu", "folder"),
    [
        ("Intel(R) Xeon(R) Processor", "intel"),
        ("AMD EPYC 9R14", "amd"),
        ("Apple M2 Pro", "apple"),
        ("", platform.machine().lower()),
    ],
)
def test_makes_of_processors_keep_their_results(monkeypatch, tmp_path, cpu, folder):
    kept = {tmp_path / make / "decode.json": make for make in ("intel", "amd", "apple")}
    for path, text in kept.items():
        path.parent.mkdir()
        path.write_text(text)
    monkeypatch.setattr(cases, "RESULTS", tmp_path)
    monkeypatch.setattr(cases, "cpu", lambda: cpu)
    cases.publish("decode", "tokens/s", [{"rate": 1.0}])
    written = tmp_path / folder / "decode.json"
    assert json.loads(written.read_text())["cpu"] == cpu
    assert all(path.read_text() == text for path, text in kept.items() if path != written)


def test_kernels_beside_llama_cpp_are_shown_for_each_make(monkeypatch, tmp_path):
    row = {"model": "S", "format": "4bit", "side": "library", "workload": "decode", "ratio": 1.25}
    monkeypatch.setattr(cases, "RESULTS", tmp_path)
    monkeypatch.setattr(tables, "RESULTS", tmp_path)
    for cpu in ("Intel(R) Xeon(R) Processor", "AMD EPYC"):
        monkeypatch.setattr(cases, "cpu", lambda cpu=cpu: cpu)
        cases.publish("peers", "beside llama.cpp", [row])
    shown = tables.pages()[tables.PAGE].split(tables.PEERS_BEGIN)[1].split(tables.PEERS_END)[0]
    assert shown.count("| | decode |\n|---|---|\n| S 4bit | 1.25 |") == 2
    assert shown.index("AMD EPYC") < shown.index("Intel(R) Xeon(R) Processor")
