"""A C compiler for other systems: that of the package ``ziglang``."""

from __future__ import annotations

import importlib.util
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.compiler import require, run
from support.paths import ROOT

from tools.packaging import targets
from tools.packaging.targets import MACOS_MINIMUM, Python, Target

GLIBC = "2.35"  # that of mlx's wheels for aarch64
MACS = [f"aarch64-macos.{MACOS_MINIMUM}", f"x86_64-macos.{MACOS_MINIMUM}"]
LINUX_ARM = f"aarch64-linux-gnu.{GLIBC}"
# zig's names of what other compilers call -march=armv8.2-a+dotprod and so on.
ARM_OPTIONS = {
    "neon": ["-mcpu=generic+v8_2a+dotprod"],
    "i8mm": ["-mcpu=generic+v8_2a+dotprod+i8mm"],
}


@dataclass(frozen=True)
class Cross:
    """A compiler for one other system.

    Attributes:
        triple: the system, as zig names it.
        headers: Python's.
        folder: where what it makes goes.
    """

    triple: str
    headers: Path
    folder: Path

    @property
    def target(self) -> Target:
        """How things are made for it."""
        return Target("darwin" if "macos" in self.triple else "linux")

    @property
    def python(self) -> Python:
        """The Python that the library is made for: of this version, elsewhere."""
        multiarch = "" if self.target.is_mac else "aarch64-linux-gnu"
        return Python(sys.version_info.minor, "/opt/python", str(self.headers), multiarch)

    @property
    def library(self) -> Path:
        """Where the shared library for it is."""
        return self.folder / self.target.library

    def compile(self, output: Path, arguments: list[str], compiler: str = "cc") -> Path:
        """Run the compiler; not a word from it is expected."""
        if importlib.util.find_spec("ziglang") is None:
            pytest.skip("ziglang is not installed: tools/requirements/tools.txt brings it")
        command = [*targets.zig_command(self.triple, compiler), *arguments]
        done = run(command, cwd=ROOT, env=targets.zig_environment(), timeout=600)
        said = done.stdout + done.stderr
        assert (done.returncode, said) == (0, ""), f"{' '.join(command)}\n{said}"
        return output

    def host(self, source: Path, *options: str) -> Path:
        """A host linked with the library, as an application ships it: the library beside it."""
        here = "@loader_path" if self.target.is_mac else "$ORIGIN"
        output = self.folder / f"{source.parent.name}-{source.stem}"
        link = [str(self.library), f"-Wl,-rpath,{here}", "-pthread", *options]
        if source.suffix == ".cpp":
            # Without C++'s own library, which zig would first compile for a minute.
            source = self.object(source, *options)
            link.append("-Wl,-undefined,dynamic_lookup")
        return self.compile(output, self.target.host_command(ROOT, [source], output, *link))

    def object(self, source: Path, *options: str) -> Path:
        """A source in C++, compiled."""
        output = self.folder / f"{source.parent.name}-{source.stem}.o"
        arguments = self.target.host_command(ROOT, [source], output, "-c", *options, std="c++17")
        return self.compile(output, arguments, "c++")


def emulator() -> str:
    """The emulator of ARM processors, whose static build has another name; skips without one."""
    static = shutil.which("qemu-aarch64-static")
    return static or require("qemu-aarch64")


def made(triple: str, folder: Path) -> Cross:
    """A compiler, and the shared library made with it."""
    cross = Cross(triple, targets.headers_of_python(folder), folder)
    cross.compile(cross.library, cross.target.library_command(ROOT, cross.library, cross.python))
    return cross
