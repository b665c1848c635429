"""What to do about the messages of a start that fails."""

from __future__ import annotations

import re

from cowmlx.commands import origin

REPORT = "report this with the whole output of the doctor"
# Filled in when advice is given.
_AGAIN, _INSTALL, _REINSTALL = "{again}", "{install}", "{reinstall}"
_COPY = "copy the bundle again from where it was made, or make it again"

# By patterns of messages; the first one that is found decides.
_ADVICE = {
    r"did not end within": (
        f"on a slow machine give it longer with --timeout SECONDS; if it hangs, {REPORT}"
    ),
    r"has ABI \d+": f"the library and the bridge are of two builds: {_AGAIN}",
    r"COWMLX_PYTHON_HOME is": (
        "correct the variable COWMLX_PYTHON_HOME, or unset it: the library finds its own Python"
    ),
    r"no Python 3\.\d+ found": (
        f"if the Python that it was built for has gone or changed, {_AGAIN}; leave the library "
        "inside its package or bundle, or set COWMLX_PYTHON_HOME"
    ),
    r"(GLIBC|GLIBCXX|CXXABI)_[\d.]+. not found": (
        "this system is older than the one that the binaries are made for: build on the oldest "
        "system that you support"
    ),
    r"failed to map segment|Operation not permitted|cannot enable executable stack": (
        "the folder may not hold code that runs (a noexec mount, or a security policy): move it"
    ),
    r"image not found|code signature|not valid for use in process|incompatible architecture": (
        "the binary is signed wrongly or made for another processor: sign it again, or install "
        "a Python and packages for this processor (arm64)"
    ),
    r"No module named 'cowmlx\._bridge'": (
        f"the bridge is missing or made for another Python: {_AGAIN}"
    ),
    r"No module named 'cowmlx'": f"leave the library in the package's lib folder, or {_AGAIN}",
    r"has no package '(mlx|mlx_lm)'": (
        "install mlx and mlx-lm into the Python that is named, or correct COWMLX_PYTHON_HOME, or "
        "unset it: the library finds its own Python"
    ),
    r"No module named '(mlx|mlx_lm)'|mlx-lm is not installed": _INSTALL,
    r"lib(mlx|lapack|blas|gfortran|scipy_openblas)[^ ]*: cannot open shared object": (
        f"files of mlx or mlx-lm are damaged or missing: {_REINSTALL}"
    ),
    r"ended by SIG(BUS|SEGV)|(No such file|cannot read|No module named).*[/']mlx(_lm)?[/.]": (
        f"files of mlx or mlx-lm are damaged or missing: {_REINSTALL}"
    ),
    r"undefined symbol|symbol not found|cannot open shared object|ELF|too short|file data": (
        f"a file is missing, cut short, or of another build: {_AGAIN}"
    ),
    r"no such device|device": (
        "leave runtime_params.device at NULL, or name one that this machine has"
    ),
}


def for_message(message: str, *, bundled: bool) -> str:
    """Return what to do about a message of the library or of the dynamic linker."""
    found = next(
        (advice for pattern, advice in _ADVICE.items() if re.search(pattern, message)), REPORT
    )
    lacks = any(part in found for part in (_AGAIN, _INSTALL, _REINSTALL))
    if bundled and lacks:
        return _COPY
    return found.format(again=origin.again(), install=_packages(), reinstall=_packages(again=True))


def _packages(*, again: bool = False) -> str:
    """How to install the packages where the start looked for them."""
    python = origin.chosen_python()
    versions = origin.pins()
    options = []
    if again:
        versions = {name: version for name, version in versions.items() if "mlx" in name}
        options = ["--no-deps", "--force-reinstall"]
    if versions:
        text = f"run {origin.install(versions, python, *options)}"
    else:
        text = f"install the packages that pyproject.toml names{f' for {python}' if python else ''}"
    return f"unset COWMLX_PYTHON_HOME, or {text}" if python else text


def for_model(message: str, *, bundled: bool) -> str:
    """Return what to do about the refusal of a model, whose message may name any path."""
    if "cannot be imported" in message:
        return _COPY if bundled else "the check 'packages' says how to install it"
    if "no such directory" in message or "is not a directory" in message:
        return "name a model's folder, or a model that `python -m cowmlx models` lists"
    return "the message says what is wrong with the model"
