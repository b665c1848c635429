"""ProgramBuilder and the operators of Array in C++, over the library."""

from __future__ import annotations

import re

from support.compiler import compile_c, run
from support.hosts import linked
from support.paths import INCLUDE, LIBRARY, ROOT

HOST = ROOT / "tests/bindings/hosts/builder.cpp"
STRICT = ["-Wpedantic", "-Wshadow", "-Wconversion", "-I", str(INCLUDE)]


def test_the_scenarios_hold(tmp_path):
    host = compile_c(
        [HOST], tmp_path / "host", *STRICT, *linked(LIBRARY), compiler="c++", std="c++17"
    )
    done = run([host])
    assert (done.returncode, done.stderr) == (0, "")
    wanted = re.findall(r"^  SCENARIO\((\w+)\)", HOST.read_text(), flags=re.M)
    assert (done.stdout.split(), len(wanted) > 8) == (wanted, True)


def test_clang_has_no_warning(tmp_path):
    compile_c([HOST], tmp_path / "host.o", "-c", *STRICT, compiler="clang++", std="c++20")
