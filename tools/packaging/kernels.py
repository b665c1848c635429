"""How the kernels of ``csrc/kernels/`` are compiled against mlx, for each kind of processor.

``setup.py`` builds them with the compiler of this machine. If that fails, mlx's own operations take
their place.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tools.packaging.programs import announce, compile_with
from tools.packaging.targets import WARNINGS, Target

SOURCES = Path("csrc/kernels")
NAME = f"_kernels{sysconfig.get_config_var('EXT_SUFFIX')}"
# Says why there are none, for the runtime's messages.
ABSENT = "kernels-absent.txt"

_AVX2 = ["-mavx2", "-mfma", "-mf16c"]
_AVX512 = [*_AVX2, "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"]
# Few processors need these, so they are small. GCC notes how it passes vectors to other files, and
# none are passed.
_PORTABLE = ["-Os", "-Wno-psabi"]
# The options of each instruction set's file, by kind of processor.
X86 = {
    "portable": _PORTABLE,
    "avx2": _AVX2,
    "avxvnni": [*_AVX2, "-mavxvnni"],
    "avx512": _AVX512,
    "avx512vnni": [*_AVX512, "-mavx512vnni"],
    "avx512bf16": [*_AVX512, "-mavx512vnni", "-mavx512bf16"],
}
ARM = {
    "portable": _PORTABLE,
    "neon": ["-march=armv8.2-a+dotprod"],
    "i8mm": ["-march=armv8.2-a+dotprod+i8mm"],
}
OTHER: dict[str, list[str]] = {"portable": ["-O3", "-Wno-psabi"]}

# A kernel's sums are rounded where its source says so, on every compiler. Nothing unwinds through
# one, and the tables for that are a tenth of the code.
EXACT = ["-ffp-contract=off", "-fno-exceptions", "-fno-rtti", "-fno-asynchronous-unwind-tables"]
COMMON = ["-std=c++20", "-O3", "-fPIC", "-fvisibility=hidden", "-DNDEBUG", "-pthread"]
# Nobody reads errno or flags of exceptions: loops with sqrt() or conditions become vectors.
COMMON += ["-fno-math-errno", "-fno-trapping-math"]
COMMON += ["-ffunction-sections", "-fdata-sections", "-ffp-contract=off"]
# Files that run once a call, between arguments and kernels, are compiled for size; files with loops
# over numbers are not.
_GLUE = ["-Os"]
_LOOPS = frozenset(
    [
        *("adam", "arrays", "convolution", "elementwise", "functions", "mlstm", "pack", "product"),
        *("sample_noise", "sample_row", "sums", "texts"),
    ]
)

_PROBE = """
#include <atomic>
#include <version>
std::atomic<int> word;
int main() { word.notify_one(); return __cplusplus < 202002L; }
"""


class NoKernelsError(Exception):
    """The kernels cannot be built here; the message says why."""


@dataclass(frozen=True)
class Object:
    """A file to compile: its source, its object file and the compiler's options."""

    source: Path
    output: Path
    options: list[str]

    def command(self, compiler: list[str]) -> list[str]:
        """Return the command that compiles it and lists the headers that it read."""
        return [*compiler, *self.options, "-MD", "-c", str(self.source), "-o", str(self.output)]

    def is_current(self, compiler: list[str]) -> bool:
        """Whether it was compiled by this command, from files that have not changed since."""
        listed, recorded = self.output.with_suffix(".d"), self.output.with_suffix(".command")
        if not _says(recorded, self.command(compiler)):
            return False
        try:
            made = self.output.stat().st_mtime_ns
            text = listed.read_text().partition(":")[2].replace("\\\n", " ")
            return all(Path(name).stat().st_mtime_ns <= made for name in shlex.split(text))
        except OSError:
            return False

    def compile(self, compiler: list[str]) -> None:
        """Compile it unless it is current."""
        if self.is_current(compiler):
            return
        compile_with(self.command(compiler))
        self.output.with_suffix(".command").write_text(shlex.join(self.command(compiler)))


def _is_glue(source: Path) -> bool:
    within = source.relative_to(SOURCES)
    return within.parts[0] in ("primitives", "module.cpp") and source.stem not in _LOOPS


def _says(path: Path, command: list[str]) -> bool:
    return path.exists() and path.read_text() == shlex.join(command)


def sets(machine: str) -> dict[str, list[str]]:
    """Return the instruction sets of a kind of processor with their options."""
    return {"x86_64": X86, "AMD64": X86, "arm64": ARM, "aarch64": ARM}.get(machine, OTHER)


def find_package(name: str) -> Path:
    """Return the folder of an installed package.

    Raises:
        NoKernelsError: it is not installed.
    """
    spec = importlib.util.find_spec(name)
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise NoKernelsError(f"{name} is not installed in {sys.prefix}")
    return Path(places[0])


class Build:
    """Builds the extension module.

    Args:
        target: the system that it is made for.
        compiler: the C++ compiler and its options; "" for ``c++``.
        scratch: a folder for object files.
        machine: the kind of processor that it is made for; "" for this one.
        include: the folder of Python.h; "" for that of the Python that runs this.
        mlx: the folder of mlx for that machine; None for the installed one.

    Raises:
        NoKernelsError: the build lacks a package or a compiler.
    """

    def __init__(
        self,
        target: Target,
        compiler: str,
        scratch: Path,
        machine: str = "",
        include: str = "",
        mlx: Path | None = None,
    ) -> None:
        if os.environ.get("COWMLX_KERNELS") == "off":
            raise NoKernelsError("COWMLX_KERNELS was off when it was built")
        self._target = target
        self._machine = machine or platform.machine()
        self._include = include or sysconfig.get_path("include")
        self._compiler = shlex.split(compiler or "c++")
        self._scratch = scratch
        self._mlx = mlx or find_package("mlx")
        self._nanobind = find_package("nanobind")
        if not (self._mlx / "include/mlx/mlx.h").is_file():
            raise NoKernelsError(f"mlx in {self._mlx} brings no headers")
        scratch.mkdir(parents=True, exist_ok=True)
        self._try_compiler()

    def _try_compiler(self) -> None:
        probe = self._scratch / "probe.cpp"
        probe.write_text(_PROBE)
        output = str(probe.with_suffix(".o"))
        command = [*self._compiler, "-std=c++20", "-c", str(probe), "-o", output]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            raise NoKernelsError(f"there is no C++ compiler {self._compiler[0]}") from error
        if done.returncode != 0:
            raise NoKernelsError(f"{self._compiler[0]} cannot compile C++20")

    def objects(self) -> list[Object]:
        """Return the files to compile, the slowest first."""
        system = [f"-isystem{self._mlx / 'include'}", f"-isystem{self._nanobind / 'include'}"]
        system += [f"-isystem{self._nanobind / 'ext/robin_map/include'}"]
        system += [f"-isystem{self._include}", "-DNB_DOMAIN=mlx"]
        own = [*COMMON, *self._target.minimum, *WARNINGS]
        objects = [
            self._object(SOURCES / f"isa_{name}.cpp", [*own, *EXACT, *options])
            for name, options in reversed(sets(self._machine).items())
            if (SOURCES / f"isa_{name}.cpp").exists()
        ]
        for source in sorted(SOURCES.rglob("*.cpp")):
            if not source.name.startswith("isa_"):
                small = _GLUE if _is_glue(source) else []
                objects.append(self._object(source, [*own, *small, f"-I{SOURCES}", *system]))
        binding = self._nanobind / "src/nb_combined.cpp"
        quiet = [*COMMON, *self._target.minimum, *_GLUE, "-fno-strict-aliasing", "-w"]
        return [*objects, self._object(binding, [*quiet, "-DNB_COMPACT_ASSERTIONS", *system])]

    def _object(self, source: Path, options: list[str]) -> Object:
        return Object(source, self._scratch / f"{source.parent.name}-{source.stem}.o", options)

    def write(self, output: Path, within: Path | None) -> None:
        """Compile all that has changed, side by side, and link the module.

        Args:
            output: the module.
            within: the source tree in which the module will run, or None if it will be installed
                beside mlx.
        """
        objects = self.objects()
        if stale := sum(not one.is_current(self._compiler) for one in objects):
            announce("compile", f"kernels: {stale} C++ files, for {', '.join(sets(self._machine))}")
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda one: one.compile(self._compiler), objects))
        command = [*self._compiler, *(str(one.output) for one in objects)]
        command += self._link(output, within)
        linked = self._scratch / "linked"
        newest = max(one.output.stat().st_mtime_ns for one in objects)
        if output.exists() and output.stat().st_mtime_ns > newest and _says(linked, command):
            return
        compile_with(command)
        linked.write_text(shlex.join(command))

    def _link(self, output: Path, within: Path | None) -> list[str]:
        beside = "@loader_path" if self._target.is_mac else "$ORIGIN"
        places = [f"{beside}/../../mlx/lib"]
        if within is not None:
            libraries = Path(os.path.abspath(self._mlx / "lib"))
            inside = libraries.is_relative_to(Path(os.path.abspath(within)))
            relative = os.path.relpath(libraries, within)
            places.insert(0, f"{beside}/../../{relative}" if inside else str(libraries))
        if self._target.is_mac:
            kind = ["-bundle", "-undefined", "dynamic_lookup", "-Wl,-dead_strip", "-Wl,-x"]
        else:
            kind = ["-shared", "-s", "-Wl,-O1,--gc-sections,--hash-style=gnu", "-Wl,-z,nodelete"]
        rpaths = [f"-Wl,-rpath,{place}" for place in places]
        library = [f"-L{self._mlx / 'lib'}", "-lmlx", "-pthread"]
        return [*self._target.minimum, *kind, "-o", str(output), *rpaths, *library]
