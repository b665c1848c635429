"""Cases that a fuzzer has found, each carried out again in a separate process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.fuzz import cases
from support.fuzz.compare import difference
from support.fuzz.inputs import array_of
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


def test_a_sum_that_cancels_may_have_the_rounding_of_its_terms():
    """Rows are compared so: their order of terms may be another than that of a row alone."""
    terms = np.array([1e4, 1e-3, -1e4], np.float32)
    one, other = (array_of("float32", part) for part in (terms[[0, 1, 2]], terms[[0, 2, 1]]))
    sums = [array_of("float32", np.add.accumulate(part.data)[-1:]) for part in (one, other)]
    size = float(np.abs(terms).sum())
    assert difference(*sums)
    assert not difference(*sums, least=size)
    assert difference(array_of("float32", np.ones(1)), sums[1], least=size)
