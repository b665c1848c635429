"""The example of search prints the lines of a file that are nearest to a query."""

from __future__ import annotations

import numpy as np
from support import tiny_encoders
from support.compiler import compile_c, run
from support.paths import LIBRARY, ROOT

LINES = ["ba be bi", "ka ke", "zu zo za ze", "ma mi"]
QUERY = "ba bi"


def test_the_nearest_lines_come_first(lib, tmp_path):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    program = compile_c([ROOT / "examples/c/search.c"], tmp_path / "search", str(LIBRARY), rpath)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(LINES) + "\n")
    done = run([program, folder, file, QUERY])
    assert (done.returncode, done.stderr) == (0, "")
    model = lib.load(folder)
    *vectors, wanted = np.array(lib.embed(model, [*LINES, QUERY]))
    lib.free_model(model)
    similar = sorted(((own @ wanted, line) for own, line in zip(vectors, LINES, strict=True)))
    expected = [f"  {value:.4f}  {line}\n" for value, line in similar[:0:-1]]
    assert done.stdout == f"{QUERY}\n{''.join(expected)}"
    assert run([program, folder]).returncode == 2
