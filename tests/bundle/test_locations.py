"""Lines of a bundle's bytecode: the same as before, without columns."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType

import pytest

import cowmlx
from cowmlx.commands.bundle.bytecode import without_columns

MODULES = sorted(Path(cowmlx.__file__).parent.rglob("*.py"))


def functions(code: CodeType) -> Iterator[CodeType]:
    yield code
    for value in code.co_consts:
        if isinstance(value, CodeType):
            yield from functions(value)


def test_every_instruction_keeps_its_line():
    smaller = 0
    for module in MODULES:
        code = compile(module.read_text(), str(module), "exec")
        for one, other in zip(functions(code), functions(without_columns(code)), strict=True):
            lines, positions = ([at[0] for at in each.co_positions()] for each in (one, other))
            assert lines == positions
            assert one.co_code == other.co_code
            assert all(at[2] is None for at in other.co_positions())
            smaller += len(one.co_linetable) - len(other.co_linetable)
    assert smaller > 0


def test_a_traceback_names_the_line():
    far = "\n" * 5000
    text = (
        f"def fail():\n  x = 1\n{far}  return (x +\n    None)\n\n\ndef call():\n  return fail()\n"
    )
    names: dict[str, object] = {}
    exec(without_columns(compile(text, "far.py", "exec")), names)
    call = names["call"]
    assert callable(call)
    with pytest.raises(TypeError) as caught:
        call()
    frames = traceback.extract_tb(caught.value.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == "far.py"]
    assert lines == [5008, 5003], sys.version
