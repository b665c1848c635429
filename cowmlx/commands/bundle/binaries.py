"""Shared objects in a bundle: stripped, without paths of the building machine, and examined.

Linux needs no tool but ``strip``, and does without. macOS needs Xcode's command line tools.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from cowmlx.commands.bundle import BundleError
from cowmlx.commands.bundle.elf import Elf
from cowmlx.commands.bundle.macho import MachO, newest_minimum
from cowmlx.commands.origin import MAC

# Libraries of every Linux desktop, which a process must not load twice.
SYSTEM = frozenset(
    """
    libc.so.6 libm.so.6 libpthread.so.0 libdl.so.2 librt.so.1 libutil.so.1 libresolv.so.2
    libgcc_s.so.1 libstdc++.so.6 libz.so.1 libexpat.so.1
    """.split()  # noqa: SIM905
)

# C and Fortran that calls nothing of others: no exception passes, and its tables for that are 8 %.
# A backtrace that begins inside of one ends there.
_NO_UNWINDING = ("libscipy_openblas*.so",)
_TABLES = ("-R", ".eh_frame", "-R", ".eh_frame_hdr")

_MULTIARCH = sysconfig.get_config_var("MULTIARCH") or "."
_FOLDERS = [
    Path(root) / folder / part
    for root in ("/", "/usr", "/usr/local")
    for folder in ("lib", "lib64")
    for part in (_MULTIARCH, ".")
]


def is_binary(path: Path) -> bool:
    """Whether a file's name is that of a shared object."""
    return path.suffix in (".so", ".dylib") or ".so." in path.name


def strip(paths: list[Path]) -> bool:
    """Remove symbols that are unused at run time; false if there is no tool for it.

    A file that does not shrink, or that the tool refuses or breaks, stays as it is.
    """
    tool = shutil.which("strip")
    if tool is None:
        return False
    for path in paths:
        _strip(path, [tool, "-x" if MAC else "--strip-unneeded"])
        if not MAC and any(path.match(pattern) for pattern in _NO_UNWINDING):
            _strip(path, [tool, "--strip-unneeded", *_TABLES], without_tables=True)
    return True


def _strip(path: Path, command: list[str], *, without_tables: bool = False) -> None:
    smaller = path.with_name(path.name + ".stripped")
    done = subprocess.run([*command, "-o", smaller, path], capture_output=True)
    good = done.returncode == 0 and _improves(smaller, path)
    if good and (not without_tables or _mended(smaller, path)):
        smaller.chmod(path.stat().st_mode)
        smaller.replace(path)
    smaller.unlink(missing_ok=True)


def _improves(smaller: Path, path: Path) -> bool:
    if smaller.stat().st_size >= path.stat().st_size:
        return False
    if MAC:
        return True
    elf = Elf.read(smaller)
    return elf is not None and elf.loadable


def _mended(smaller: Path, path: Path) -> bool:
    """Whether a file without tables for unwinding could be repaired."""
    elf, whole = Elf.read(smaller), Elf.read(path)
    if elf is None or whole is None or not elf.mend(whole):
        return False
    smaller.write_bytes(elf.data)
    return True


def detach(paths: list[Path], libraries: Path) -> None:
    """Restrict the search paths of shared objects to the bundle and the system.

    Libraries that not every system has are added. A shared object without a search path that could
    be overwritten needs them of the system, and ``requirements`` lists them.

    Args:
        paths: all shared objects of the bundle; receives those that are brought in.
        libraries: its folder of libraries that belong to no package.

    Raises:
        BundleError: one needs a library that is not here, or has a search path of the building
            machine that cannot be changed.
    """
    if MAC:
        _detach_macho(paths, libraries)
        return
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        elf = Elf.read(path)
        if elf is None:
            continue
        here = "$ORIGIN/" + os.path.relpath(libraries, path.parent)
        foreign = [name for name in elf.needed if not _is_there(name, paths)]
        if any(not runpath.startswith("$ORIGIN") for runpath in elf.runpaths):
            own = [folder for folder in elf.runpaths if folder.startswith("$ORIGIN")]
            with_ours = ":".join(dict.fromkeys([*own, here]))
            if not elf.set_runpath(with_ours) and not elf.set_runpath(":".join(own) or here):
                raise BundleError(
                    f"{path.name} looks for libraries in {':'.join(elf.runpaths)}, and that cannot "
                    "be changed in place; build it without -rpath"
                )
            path.write_bytes(elf.data)
        if here not in elf.runpaths and path.parent != libraries:
            continue  # it has no other search path: the system has to have them
        for name in foreign:
            library = next((folder / name for folder in _FOLDERS if (folder / name).exists()), None)
            if library is None:
                raise BundleError(f"{path.name} needs {name}, which is not installed here")
            copied = libraries / name
            shutil.copyfile(library, copied)
            copied.chmod(0o755)
            paths.append(copied)
            waiting.append(copied)


def _is_there(name: str, paths: list[Path]) -> bool:
    """Whether a library is the system's, or in the bundle already."""
    return name in SYSTEM or name.startswith("ld-linux") or any(p.name == name for p in paths)


def requirements(paths: list[Path]) -> dict[str, object]:
    """Return the libraries that shared objects need of a system, with their newest versions.

    On a Mac the oldest macOS that starts all of them, and the files because of which it is that.
    """
    if MAC:
        minimum, names = newest_minimum(paths)
        return {"system": "macOS", "minimum": minimum, "because_of": names}
    present = {path.name for path in paths}
    needed: set[str] = set()
    versions: set[str] = set()
    for path in paths:
        elf = Elf.read(path)
        if elf is not None:
            needed |= set(elf.needed) - present
            versions |= elf.versions()
    newest = {}
    for family in ("GLIBC", "GLIBCXX", "CXXABI"):
        found = [
            tuple(map(int, version.split("_")[1].split(".")))
            for version in versions
            if version.startswith(family + "_") and version.split("_")[1][0].isdigit()
        ]
        if found:
            newest[family] = ".".join(map(str, max(found)))
    return {"libraries": sorted(needed), "versions": newest}


# ------------------------------------------------------------------------ macOS


def _run(*command: str | Path) -> str:
    try:
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    except FileNotFoundError:
        raise BundleError(
            f"{command[0]} is not installed; xcode-select --install brings it"
        ) from None
    if done.returncode:
        raise BundleError(f"{' '.join(map(str, command))} failed: {done.stderr.strip()}")
    return done.stdout


def _detach_macho(paths: list[Path], libraries: Path) -> None:
    """Add foreign libraries, name every library by ``@rpath``, drop absolute paths, sign all.

    Of files for several processors, the part for Apple Silicon is kept.
    """
    waiting = list(paths)
    while waiting:
        path = waiting.pop()
        file = MachO.read(path)
        if file is None:
            continue
        if file.is_part:  # the tools change all parts, and fail where one lacks a path
            _run("lipo", path, "-thin", "arm64", "-output", path)
        if path.parent == libraries and path.suffix == ".dylib":
            _run("install_name_tool", "-id", f"@rpath/{path.name}", path)
        for rpath in dict.fromkeys(file.rpaths):
            if rpath.startswith("/"):  # of the building machine
                _run("install_name_tool", "-delete_rpath", rpath, path)
        for name in file.needed:
            if name.startswith(("/usr/lib/", "/System/", "@")):
                continue
            copied = libraries / Path(name).name
            if "/Python.framework/" in name and copied.name == "Python":
                copied = next(libraries.glob("libpython3.*.dylib"))
            if not copied.exists():
                shutil.copyfile(name, copied)
                copied.chmod(0o755)
                paths.append(copied)
                waiting.append(copied)
            _run("install_name_tool", "-change", name, _loader_path(path, copied), path)
        # Every change broke the signature, and Apple Silicon runs nothing without one.
        _run("codesign", "--force", "--sign", "-", path)


def _loader_path(path: Path, library: Path) -> str:
    ups = len(path.parent.relative_to(library.parents[2]).parts)
    return "@loader_path/" + "../" * ups + str(library.relative_to(library.parents[2]))
