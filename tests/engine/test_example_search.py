"""The example of search prints the lines of a file that are nearest to a query."""

from __future__ import annotations

import numpy as np
import pytest
from support import tiny_encoders
from support.compiler import compile_c, run
from support.paths import LIBRARY, ROOT

LINES = ["ba be bi", "ka ke", "zu zo za ze", "ma mi"]
QUERY = "ba bi"


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    rpath = f"-Wl,-rpath,{LIBRARY.parent}"
    place = tmp_path_factory.mktemp("search") / "search"
    options = [str(LIBRARY), rpath]
    pattern = "-ftrivial-auto-var-init=pattern"  # no zeros by luck; GCC 11 lacks it
    if run(["cc", pattern, "-fsyntax-only", "-xc", "/dev/null"]).returncode == 0:
        options.append(pattern)
    return compile_c([ROOT / "examples/c/search.c"], place, *options)


def test_the_nearest_lines_come_first(lib, program, tmp_path):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
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


def test_equal_lines_are_all_shown(program, tmp_path):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    file = tmp_path / "lines.txt"
    file.write_text("ba bi\nka ke\nba bi\n")
    lines = run([program, folder, file, QUERY]).stdout.splitlines()
    assert [line.split("  ")[-1] for line in lines[1:]] == ["ba bi", "ba bi", "ka ke"]


def test_a_refused_embedding_is_reported(program, tmp_path):
    folder = tiny_encoders.make(tmp_path / "bert", "bert")
    file = tmp_path / "lines.txt"
    file.write_bytes(b"caf\xe9\n")
    done = run([program, folder, file, QUERY])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("EINVAL: ")
