"""What to do about the messages of a start that fails."""

from __future__ import annotations

import re

REBUILD = "install the package again (pip install --force-reinstall cowmlx), or run make again"
REPORT = "report this with the whole output of the doctor"
_REINSTALL = (
    "files of mlx or mlx-lm are damaged or missing: install the packages again (pip install "
    "--force-reinstall mlx mlx-lm, on Linux also mlx-cpu; or make install)"
)
_COPY = "copy the bundle again from where it was made, or make it again"

# The first pattern that is found in the message decides.
_ADVICE = [
    (
        r"did not end within",
        f"on a slow machine give it longer with --timeout SECONDS; if it hangs, {REPORT}",
    ),
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
        r"No module named '(mlx|mlx_lm)'|mlx-lm is not installed",
        "install the packages that cowmlx asks for (pip install cowmlx does): the check "
        "'packages' names them",
    ),
    (
        r"lib(mlx|lapack|blas|gfortran|scipy_openblas)[^ ]*: cannot open shared object",
        _REINSTALL,
    ),
    (
        r"ended by SIG(BUS|SEGV)|(No such file|cannot read|No module named).*[/']mlx(_lm)?[/.]",
        _REINSTALL,
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


def for_message(message: str, *, bundled: bool) -> str:
    """Return what to do about a message of the library or of the dynamic linker.

    Args:
        message: as it was told.
        bundled: whether it is about a bundle, into which nothing can be installed.
    """
    for pattern, advice in _ADVICE:
        if re.search(pattern, message):
            return _COPY if bundled and "install the package" in advice else advice
    return REPORT


def for_model(message: str, *, bundled: bool) -> str:
    """Return what to do about the refusal of a model, whose message may name any path."""
    if "cannot be imported" in message:
        return _COPY if bundled else "the check 'packages' tells how to install it"
    return "the message says what the folder lacks"
