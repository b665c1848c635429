"""The build of the kernels: what it does again, and what it does without a compiler."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from support.compiler import require

from tools.packaging import kernels, programs
from tools.packaging.targets import Target


def made(scratch: Path, compiler: str = "") -> kernels.Build:
    return kernels.Build(Target(), compiler, scratch)


def test_no_compiler_is_told(tmp_path):
    with pytest.raises(kernels.NoKernelsError, match=r"there is no C\+\+ compiler no-such-one"):
        made(tmp_path, "no-such-one")
    refuses = tmp_path / "refuses"
    refuses.write_text("#!/bin/sh\nexit 1\n")
    refuses.chmod(0o755)
    with pytest.raises(kernels.NoKernelsError, match=r"refuses cannot compile C\+\+20"):
        made(tmp_path, str(refuses))


def test_no_mlx_is_told(tmp_path, monkeypatch):
    for name in ("mlx", "nanobind"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(kernels.NoKernelsError, match="brings no headers"):
        made(tmp_path / "scratch")
    monkeypatch.setattr(sys, "path", [])
    with pytest.raises(kernels.NoKernelsError, match="mlx is not installed"):
        made(tmp_path / "scratch")


def test_it_can_be_left_out(tmp_path, monkeypatch):
    monkeypatch.setenv("COWMLX_KERNELS", "off")
    with pytest.raises(kernels.NoKernelsError, match="COWMLX_KERNELS was off"):
        made(tmp_path)


def test_only_what_has_changed_is_compiled_again(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(programs, "VERBOSE", True)
    header, source = tmp_path / "one.h", tmp_path / "one.cpp"
    header.write_text("constexpr int one = 1;\n")
    source.write_text('#include "one.h"\nint value() { return one; }\n')
    compiler = [require("c++")]

    def compiled(*options: str) -> bool:
        kernels.Object(source, tmp_path / "one.o", list(options)).compile(compiler)
        return "one.cpp" in capfd.readouterr().out

    assert compiled()
    assert not compiled()
    assert compiled("-O1")
    assert not compiled("-O1")
    later = (tmp_path / "one.o").stat().st_mtime_ns + 10**9
    os.utime(header, ns=(later, later))
    assert compiled("-O1")
    (tmp_path / "one.d").unlink()
    assert compiled("-O1")
