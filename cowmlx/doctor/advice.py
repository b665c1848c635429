"""What to do about the messages of a start that fails."""

from __future__ import annotations

import re

REBUILD = "install the package again (pip install --force-reinstall cowmlx), or run make again"
_REPORT = "report this with the whole output of the doctor"

# The first pattern that is found in the message decides.
_ADVICE = [
    (
        r"has ABI \d+",
        f"the library and the bridge are of two builds: {REBUILD}",
    ),
    (
        r"COWMLX_PYTHON_HOME is",
        "correct the variable COWMLX_PYTHON_HOME, or unset it: the library finds its own Python",
    ),
    (
        r"no Python 3\.\d+ found",
        "leave the library inside the installed package or the bundle, build it again with the "
        "Python that is there now, or set COWMLX_PYTHON_HOME",
    ),
    (
        r"(GLIBC|GLIBCXX|CXXABI)_[\d.]+. not found",
        "this system is older than the one that the binaries are made for: build on the oldest "
        "system that you support",
    ),
    (
        r"failed to map segment|Operation not permitted|cannot enable executable stack",
        "the folder may not hold code that runs (a noexec mount, or a security policy): move it",
    ),
    (
        r"image not found|code signature|not valid for use in process|incompatible architecture",
        "the binary is signed wrongly or made for another processor: sign it again, or install "
        "a Python and packages for this processor (arm64)",
    ),
    (
        r"No module named 'cowmlx\._bridge'",
        f"the bridge is missing or made for another Python: {REBUILD}",
    ),
    (
        r"No module named 'cowmlx'",
        "install cowmlx into that Python, or leave the library in the package's lib folder",
    ),
    (
        r"No module named '(mlx|mlx_lm)\b|mlx-lm is not installed",
        "install the packages that cowmlx asks for (pip install cowmlx does): the check "
        "'packages' names them",
    ),
    (
        r"lib(mlx|lapack|blas|gfortran|scipy_openblas)[^ ]*: cannot open shared object",
        "a file of mlx is missing: pip install --force-reinstall mlx mlx-cpu",
    ),
    (
        r"undefined symbol|symbol not found|cannot open shared object|ELF|too short|file data",
        f"a file is missing, cut short, or of another build: {REBUILD}",
    ),
    (
        r"no such device|device",
        "leave runtime_params.device at NULL, or name one that this machine has",
    ),
]


def for_message(message: str) -> str:
    """Return what to do about a message of the library or of the dynamic linker."""
    for pattern, advice in _ADVICE:
        if re.search(pattern, message):
            return advice
    return _REPORT
