"""ONNX's own cases of operators: those that are recorded as passing pass.

``python tests/programs/test_onnx_cases.py`` records them again.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.onnx_models import cases

RECORDED = Path(__file__).parents[1] / "fixtures" / "onnx_cases.txt"
# Of operators, and of their definitions as functions.
LEAST = {"operators": 1100, "definitions": 390}


def kind_of(name: str) -> str:
    return "definitions" if "_expanded" in name else "operators"


def outcomes() -> dict[str, str]:
    return {case.name: case.outcome() for case in cases()}


@pytest.mark.long
def test_cases_that_passed_pass(capsys):
    recorded = set(RECORDED.read_text().split())
    found = outcomes()
    passing = {name for name, reason in found.items() if not reason}
    counts = Counter(kind_of(name) for name in passing)
    totals = Counter(map(kind_of, found))
    with capsys.disabled():
        for kind, total in totals.items():
            print(f"\n{kind}: {counts[kind]} of {total} pass")
        for name, reason in found.items():
            if reason:
                print(f"  {name}: {reason[:160]}")
    broken = {name: found.get(name, "there is no such case") for name in recorded - passing}
    assert not broken
    assert all(counts[kind] >= least for kind, least in LEAST.items())


if __name__ == "__main__":
    kept = sorted(name for name, reason in outcomes().items() if not reason)
    RECORDED.write_text("\n".join(kept) + "\n")
    print(f"{len(kept)} cases recorded")
