"""OpenBLAS is lent to libmlx only after its products were compared with plain ones."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest
from support.compiler import compile_c, run
from support.paths import LIBRARY, ROOT

from cowmlx import blas

pytestmark = pytest.mark.skipif(not (LIBRARY.parent / blas.SHIM).exists(), reason="Linux only")

FAULTS = ["right", "one number", "not transposed", "not a number", "reads the result"]
WRONG = "its matrix products are wrong on this processor"


def stand_in(folder, fault: str):
    """A package like scipy-openblas32, whose products have a fault."""
    library = folder / blas.PACKAGE / "lib/libscipy_openblas.so"
    library.parent.mkdir(parents=True)
    (folder / blas.PACKAGE / "__init__.py").touch()
    options = ["-shared", "-fPIC", "-O2", f"-DFAULT={FAULTS.index(fault)}"]
    return compile_c([Path(__file__).parent / "stand_in_blas.c"], library, *options)


def problem_of(library) -> str | None:
    """Why a BLAS is not lent; None if it is."""
    open_blas = ctypes.CDLL(str(LIBRARY.parent / blas.SHIM)).cow_blas_open
    open_blas.restype = ctypes.c_char_p
    problem = open_blas(os.fsencode(library))
    return problem and problem.decode()


@pytest.mark.parametrize("fault", FAULTS)
def test_products_are_compared(tmp_path, fault):
    assert problem_of(stand_in(tmp_path, fault)) == (None if fault == "right" else WRONG)


HOST = """
import sys
sys.path.insert(0, {tests!r})
from support.library import Library
lib = Library()
lib.start(device="cpu")
info = lib.info()
print(info["blas"], info["blas_problem"], sep=": ")
lib.stop()
"""


def test_a_host_goes_on_with_the_reference_and_knows_why(tmp_path):
    stand_in(tmp_path, "one number")
    source = HOST.format(tests=str(ROOT / "tests"))
    paths = os.pathsep.join([str(tmp_path), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": paths, "COWMLX_BLAS": "openblas"}
    done = run([sys.executable, "-c", source], env=environment)
    assert (done.returncode, done.stdout) == (0, f"reference: {WRONG}\n"), done.stderr
