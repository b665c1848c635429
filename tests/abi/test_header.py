"""The headers stand alone, in C11 and in C++17, and every generated file is current."""

from __future__ import annotations

import re
import shutil
import sys

import pytest
from support.compiler import compile_c, run
from support.headers import HEADERS
from support.paths import INCLUDE, ROOT

COMPILERS = [("cc", "c11"), ("c++", "c++17"), ("clang", "c11"), ("clang++", "c++17")]
STANDARD = {"stdbool.h", "stddef.h", "stdint.h"}


@pytest.mark.parametrize("header", HEADERS, ids=lambda path: path.name)
@pytest.mark.parametrize(("compiler", "std"), COMPILERS)
def test_header_compiles_alone(tmp_path, header, compiler, std):
    source = tmp_path / ("host.c" if std == "c11" else "host.cpp")
    name = header.relative_to(INCLUDE).as_posix()
    source.write_text(f'#include "{name}"\n#include "{name}"\n')
    compile_c([source], tmp_path / "host.o", "-pedantic", "-c", compiler=compiler, std=std)


def test_headers_include_no_more_than_three_standard_ones():
    for header in HEADERS:
        included = re.findall(r"#include <(.*)>", header.read_text())
        assert set(included) <= STANDARD


def test_generated_files_are_current():
    pytest.importorskip("pycparser")
    done = run([sys.executable, ROOT / "tools/bindings/generate.py", "--check"])
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_names_a_stale_file(tmp_path):
    pytest.importorskip("pycparser")
    for folder in ("tools", "include", "csrc", "cowmlx", "tests/support"):
        shutil.copytree(
            ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("*.so*", "__pycache__")
        )
    about = (ROOT / "pyproject.toml").read_text()
    (tmp_path / "pyproject.toml").write_text(re.sub(r'"mlx==[\d.]+"', '"mlx==0.1.0"', about))
    for header in (tmp_path / "include").rglob("*.h"):
        header.write_text(header.read_text().replace('X(EIO, -11, "input', 'X(EIO, -14, "input'))
    done = run([sys.executable, tmp_path / "tools/bindings/generate.py", "--check"])
    assert done.returncode == 1
    stale = {"bindings/go/constants.go", "bindings/rust/cowmlx-sys/src/declarations.rs"}
    stale |= {f"tools/requirements/{name}.txt" for name in ("runtime", "constraints")}
    assert stale <= set(done.stdout.split())
