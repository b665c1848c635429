"""The first cases of a fixed seed of the fuzzer: nothing is found."""

from __future__ import annotations

import pytest
from support.fuzz import cases
from support.fuzz.watch import Watched

COUNTS = {"operation": 250, "graph": 150, "runs": 60}


@pytest.mark.long
@pytest.mark.parametrize("kind", COUNTS)
def test_fuzzed_cases(kind):
    """Beside a generation, whose tokens stay right."""
    found: dict[str, list[str]] = {}
    with Watched() as child:
        for number in range(COUNTS[kind]):
            answer = child.carry_out(cases.draw(f"long/{number}", kind))
            if answer["findings"]:
                found[f"long/{number}"] = answer["findings"]
    assert found == {}
