"""A format of quantized weights is a row of a table in Python and one in C."""

from __future__ import annotations

import re

import pytest
from support.paths import ROOT

from cowmlx.quantized_formats import FORMATS

TABLES = ("cowmlx/quantized_formats.py", "csrc/kernels/formats.h")
# Examples of operations choose some formats; a new one needs none.
EXAMPLES = "cowmlx/programs/operations/quantized.py"


@pytest.mark.parametrize("mode", [mode for mode, known in FORMATS.items() if not known.affine])
def test_a_format_is_named_in_two_places(mode):
    files = [
        path
        for folder, kinds in (("cowmlx", (".py", ".pyx", ".pxi")), ("csrc", (".c", ".cpp", ".h")))
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and "generated" not in path.parts
    ]
    places = [
        path.relative_to(ROOT).as_posix()
        for path in sorted(files)
        for line in path.read_text().splitlines()
        if re.search(rf"\b{mode}\b", line, re.IGNORECASE) and "/*" not in line
    ]
    assert [place for place in places if place != EXAMPLES] == list(TABLES)


def test_both_tables_have_the_same_formats():
    row = re.compile(r'X\(\w+, "(\w+)", (\d+), (\d+), ')
    rows = row.findall((ROOT / TABLES[1]).read_text())
    assert {mode: (int(bits), int(group)) for mode, bits, group in rows} == {
        mode: (known.bits[0], known.groups[0])
        for mode, known in FORMATS.items()
        if not known.affine
    }
