"""How the C sources are compiled and linked, for each system.

``setup.py`` runs these commands with the compiler of this machine; tests run them with one that
compiles for another.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from tools.packaging.headers import FOLDERS, ROOT

WARNINGS = ["-Wall", "-Wextra", "-Werror"]
SHARED = ["-O2", "-fPIC", "-fvisibility=hidden"]

# The oldest macOS that mlx has wheels for. MACOSX_DEPLOYMENT_TARGET precedes it.
MACOS_MINIMUM = "14.0"

# The folders of csrc/ that the shared library is compiled from.
ROOMS = ("arrays", "base", "boot", "calls", "generated", "queue")

# Variables of the environment of zig: a cache in the tree's build folder.
ZIG_CACHE = str(ROOT / "build/zig")
ZIG_SETTINGS = {"ZIG_GLOBAL_CACHE_DIR": ZIG_CACHE, "ZIG_LOCAL_CACHE_DIR": ZIG_CACHE}


def c_sources(csrc: Path) -> list[Path]:
    """Return the C files of the shared library."""
    return sorted(path for room in ROOMS for path in (csrc / room).glob("*.c"))


@dataclass(frozen=True)
class Python:
    """The Python that a library is made for.

    Attributes:
        minor: of its version 3.
        prefix: the Python to boot if none is nearer, or "".
        include: the folder of its Python.h.
        multiarch: the folder below lib where Debian keeps libraries, or "".
    """

    minor: int
    prefix: str
    include: str
    multiarch: str = ""

    @classmethod
    def running(cls, prefix: str = "") -> Python:
        """Return the Python that runs this."""
        return cls(
            minor=sys.version_info.minor,
            prefix=prefix,
            include=sysconfig.get_path("include"),
            multiarch=sysconfig.get_config_var("MULTIARCH") or "",
        )

    def options(self) -> list[str]:
        """Return its definitions for csrc/boot/locate.c."""
        macros = {
            "COWMLX_BUILD_PREFIX": f'"{self.prefix}"',
            "COWMLX_PYTHON_MINOR": str(self.minor),
        }
        if self.multiarch:
            macros["COWMLX_MULTIARCH"] = f'"{self.multiarch}"'
        return [*(f"-D{name}={value}" for name, value in macros.items()), f"-I{self.include}"]


class Target:
    """A system that the library is made for.

    Args:
        platform: as ``sys.platform`` names it.
        macos: the oldest macOS that runs it; "" if the compiler takes it from the environment.

    Attributes:
        library: the name of the shared library, which the loader looks for.
        link: the name that linkers look for.
        minimum: the compiler's options for the oldest version of the system.
    """

    def __init__(self, platform: str = sys.platform, macos: str = MACOS_MINIMUM) -> None:
        self.is_mac = platform == "darwin"
        self.is_linux = platform.startswith("linux")
        self.library = "libcowmlx.1.dylib" if self.is_mac else "libcowmlx.so.1"
        self.link = "libcowmlx.dylib" if self.is_mac else "libcowmlx.so"
        self.minimum = [f"-mmacosx-version-min={macos}"] if self.is_mac and macos else []
        self._dl = [] if self.is_mac else ["-ldl"]

    def library_command(self, root: Path, output: Path, python: Python) -> list[str]:
        """Return the arguments that compile the shared library, which links no libpython."""
        if self.is_mac:
            kind = ["-dynamiclib", f"-Wl,-install_name,@rpath/{self.library}"]
        else:
            kind = ["-shared", f"-Wl,-soname,{self.library}", "-Wl,-z,defs", "-Wl,-z,nodelete"]
        return [
            *["-std=c11", "-g", *SHARED, "-pthread", *WARNINGS, *self.minimum],
            *[f"-I{root / 'include'}", f"-I{root / 'csrc'}", *python.options()],
            *map(str, c_sources(root / "csrc")),
            *[*kind, *self._dl, "-o", str(output)],
        ]

    def shared_command(self, source: Path, output: Path, *link: str) -> list[str]:
        """Return the arguments that make a shared library of one file."""
        return ["-std=c11", *SHARED, *WARNINGS, str(source), "-shared", *link, "-o", str(output)]

    def probe_command(self, root: Path, output: Path) -> list[str]:
        """Return the arguments that make the host of ``python -m cowmlx doctor``."""
        return self.host_command(root, [root / "csrc/probe/probe.c"], output, *self._dl)

    def host_command(
        self, root: Path, sources: list[Path], output: Path, *link: str, std: str = "c11"
    ) -> list[str]:
        """Return the arguments that make a host."""
        return [
            *[f"-std={std}", "-O2", *WARNINGS, *self.minimum],
            *(f"-I{root / folder}" for folder in FOLDERS),
            *[*map(str, sources), *link, "-o", str(output)],
        ]


def headers_of_python(folder: Path, include: Path | None = None) -> Path:
    """Copy a Python's headers into a folder, fit for other systems, and return their place.

    They are those of ``include``, or of this Python.

    Only ``pyconfig.h`` is of one system. What the headers ask it for differs in sizes, and
    ``pymacconfig.h`` sets those for Apple's. Debian's chooses one by system: the chosen one is put
    in its place.
    """
    include = include or Path(sysconfig.get_path("include"))
    copy = folder / include.name
    shutil.copytree(include, copy)
    multiarch = sysconfig.get_config_var("MULTIARCH") or "."
    chosen = include.parent / multiarch / include.name / "pyconfig.h"
    if chosen.is_file():
        (copy / "pyconfig.h").unlink()
        shutil.copyfile(chosen, copy / "pyconfig.h")
    return copy


def zig_command(triple: str, compiler: str = "cc") -> list[str]:
    """Return the beginning of a command of the compiler for other systems, the package ziglang."""
    return [sys.executable, "-m", "ziglang", compiler, "-target", triple]


def zig_environment() -> dict[str, str]:
    """Return this process's environment with zig's settings."""
    return {**os.environ, **ZIG_SETTINGS}


def bridge_arguments(source: Path, output: Path, includes: list[Path]) -> list[str]:
    """Return what makes an extension module for a Mac, linked as CPython links them there."""
    options = ["-O2", "-fPIC", "-shared", "-undefined", "dynamic_lookup"]
    return [*options, *(f"-I{path}" for path in includes), str(source), "-o", str(output)]
