"""A C host that was written for CowMLX generates what the new API does."""

from __future__ import annotations

import re
from pathlib import Path

from support import signatures
from support.compiler import compile_c, run
from support.paths import INCLUDE, LIBRARY
from support.signatures import ADD_SPECIAL

SOURCE = Path(__file__).parent / "hosts" / "cowmlx_host.c"


def test_it_uses_the_17_names_and_no_other():
    used = set(re.findall(r"\b(cow_mlx_\w+)\(", SOURCE.read_text()))
    header = (INCLUDE / "cow_mlx_compat.h").read_text()
    declared = set(re.findall(r"^COW_MLX_API .*?\b(cow_mlx_\w+)\(", header, re.MULTILINE))
    assert len(declared) == 17
    assert used == declared
    assert declared <= set(signatures.FUNCTIONS)


def test_it_runs_to_its_end(lib, tiny, folder, open_context, tmp_path):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    program = compile_c([SOURCE], tmp_path / "host", str(LIBRARY), rpath)
    done = run([program, folder("llama")])
    assert done.returncode == 0, done.stderr

    model = tiny("llama")
    tokens = lib.tokenize(model, "The quick brown fox", ADD_SPECIAL)
    context = open_context(model, max_tokens=len(tokens) + 20)
    expected = lib.generate(context, tokens, max_tokens=2**64 - 1).text
    assert done.stdout == expected
