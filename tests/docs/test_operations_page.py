"""The page of operations, which is made from their table."""

from __future__ import annotations

import json

from support.code_blocks import blocks_of

from cowmlx.programs.control import CONTROL
from cowmlx.programs.operations import ROWS
from cowmlx.programs.program import Program
from tools.docs.operations_page import page


def test_the_page_has_every_row_with_an_example_that_was_computed():
    text = page()
    for row in ROWS:
        assert f"\n### {row.name}\n" in text
    assert '{"name": "out", "op": "matmul", "inputs": ["x0", "x1"]}' in text
    assert "// float32(2, 3), float32(3, 4) → float32(2, 4)" in text
    assert "|**uint64**|" in text and "refused" in text


def test_the_page_has_a_program_of_each_kind_of_control_flow():
    shown = {}
    for name in CONTROL:
        (program,) = (b for b in blocks_of(section_of(name), name) if b.language == "json")
        shown[name] = json.loads(program.code)
        assert Program.parse(program.code).outputs
        for attribute in CONTROL[name].attributes:
            assert f"- attribute `{attribute.name}`: " in section_of(name)
    assert shown == {name: row.example for name, row in CONTROL.items()}


def section_of(name):
    return page().split(f"\n### {name}\n")[1].split("\n### ")[0]


def test_the_page_says_how_accurate_float64_is():
    assert "errors of at most 1e-14" in page()
    assert "- errors with float64 up to 1e-06" in section_of("eig")
    assert "- no float64" in section_of("fft")
    assert "float64" not in section_of("exp")
