"""The page of operations, which is made from their table."""

from __future__ import annotations

from cowmlx.programs.operations import ROWS
from tools.docs.operations_page import page


def test_the_page_has_every_row_with_an_example_that_was_computed():
    text = page()
    for row in ROWS:
        assert f"\n### {row.name}\n" in text
    assert '{"name": "out", "op": "matmul", "inputs": ["x0", "x1"]}' in text
    assert "// float32(2, 3), float32(3, 4) → float32(2, 4)" in text
    assert "|**uint64**|" in text and "refused" in text
