"""The reference is the headers: all of them, and nothing else."""

from __future__ import annotations

import re

import pytest
from support import signatures
from support.block_runner import Runner
from support.code_blocks import blocks_of
from support.compiler import compile_c
from support.headers import HEADERS
from support.paths import ROOT

from tools.docs.reference_pages import reference

PAGES = reference().pages()
TEXT = "\n".join(PAGES.values())


@pytest.mark.parametrize("name", sorted(signatures.FUNCTIONS))
def test_function_has_an_entry(name):
    assert TEXT.count(f"## `{name}` {{ #{name} }}") == 1


def test_index_lists_every_function():
    rows = re.findall(r"^\| \[`(\w+)`\]\(\S+\) \| (.+) \|$", PAGES["reference/index.md"], re.M)
    assert sorted(name for name, _ in rows) == sorted(signatures.FUNCTIONS)
    assert all(meaning.endswith(".") for _, meaning in rows)


@pytest.mark.parametrize("name", sorted(signatures.STRUCTS))
def test_struct_has_an_entry_with_every_member(name):
    [entry] = re.findall(rf"^## `{name}` .*?(?=^## |\Z)", TEXT, flags=re.S | re.M)
    members = re.findall(r"^\| `(\w+)` \|", entry, flags=re.M)
    assert members == [field for field, _ in signatures.STRUCTS[name]._fields_]


def test_every_constant_has_its_value():
    rows = dict(
        re.findall(r"^\| `COW_MLX_(\w+)`\{ #COW_MLX_\w+ \} \| (-?\d+) \|", TEXT, flags=re.M)
    )
    expected = {
        name: str(value)
        for name, value in vars(signatures).items()
        if name.isupper() and isinstance(value, int) and name not in ("NUL", "ABI_VERSION")
    }
    assert rows == expected


@pytest.mark.parametrize(
    ("tag", "head"), [("@param", "| parameter | meaning |"), ("@retval", "| returns | when |")]
)
def test_nothing_of_the_comments_is_lost(tag, head):
    said = sum(path.read_text().count(tag) for path in HEADERS)
    tables = re.findall(rf"^{re.escape(head)}\n\|.*\n((?:\|.*\n)+)", TEXT, flags=re.M)
    assert sum(table.count("\n") for table in tables) == said > 0


def test_declarations_are_those_of_the_headers(tmp_path):
    """A compiler takes them next to the headers, and there is one for each function."""
    shown = [
        block.code
        for page, text in PAGES.items()
        for block in blocks_of(text, page)
        if not block.note
    ]
    source = tmp_path / "declarations.c"
    source.write_text("\n".join(['#include "cow_mlx_compat.h"', *shown]))
    compile_c([source], tmp_path / "declarations.o", "-c")
    assert sum("typedef" not in code and "#define" not in code for code in shown) == len(
        signatures.FUNCTIONS
    )


def test_introduction_runs(workspace, environment):
    [block] = [b for b in blocks_of(PAGES["reference/index.md"], "introduction") if b.note]
    Runner(workspace, environment).run(block)


def test_introduction_has_every_convention():
    text = (ROOT / "include/cow_mlx.h").read_text()
    conventions = re.findall(r"^ \*  (\d+)\. ", text, flags=re.M)
    assert re.findall(r"^(\d+)\. ", PAGES["reference/index.md"], flags=re.M) == conventions
    assert len(conventions) >= 9
