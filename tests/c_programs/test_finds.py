"""Cases that a fuzzer has found, each carried out again in a separate process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.fuzz import cases
from support.fuzz.watch import Watched

FINDS = sorted((Path(__file__).parent / "finds").glob("*.json"))


@pytest.fixture(scope="module")
def child() -> Iterator[Watched]:
    with Watched(beside=False) as watched:
        yield watched


@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)
def test_what_was_found_before(child, path):
    assert child.carry_out(json.loads(path.read_text()))["findings"] == []


def test_a_seed_says_all_of_a_case():
    drawn = [json.dumps(cases.draw(f"same/{number}")) for number in range(60)]
    assert drawn == [json.dumps(cases.draw(f"same/{number}")) for number in range(60)]
    assert {json.loads(each)["kind"] for each in drawn} == set(cases.KINDS)
