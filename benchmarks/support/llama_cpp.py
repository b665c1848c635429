"""llama.cpp, built of llama-cpp-python's source package as it builds itself best for this machine.

All of it lies in a folder outside of the tree, and is built once, in some minutes. That takes pip
and its package index, cmake and a C++ compiler.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.compiler import compile_program
from benchmarks.support.peers import Peer

NAME, VERSION = "llama-cpp-python", "0.3.36"

# Programs, tests and a server that nobody asks for, and downloads at run time.
LEFT_OUT = ("CURL", "BUILD_COMMON", "BUILD_TESTS", "BUILD_EXAMPLES", "BUILD_TOOLS", "BUILD_SERVER")
# Its own GGML_NATIVE, written out: what it says of the processor would come behind, and win.
NATIVE_WITHOUT_AMX = "-march=native -mno-amx-tile -mno-amx-int8 -mno-amx-bf16"


def cache_folder() -> Path:
    """Where it is kept if nobody says otherwise: a folder of the user's caches."""
    if sys.platform == "darwin":
        caches = Path.home() / "Library" / "Caches"
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return caches / "cowmlx" / "peers"


@dataclass(frozen=True)
class LlamaCpp:
    """One that is built.

    Attributes:
        program: hosts/peers/llama_cpp.c, linked with it.
        gguf_package: the folder of its package that writes models.
        threads: how many it computes with.
    """

    program: Path
    gguf_package: Path
    threads: int

    def start(self, model: Path, sequences: int, length: int) -> Peer:
        """Start a host with a model; each sequence may have so many tokens."""
        return Peer([self.program, model, self.threads, sequences, length])


def llama_cpp(folder: Path, threads: int, amx: bool = True) -> LlamaCpp:
    """Return llama.cpp, built in a folder if it is not there.

    Args:
        folder: where it is, or will be.
        threads: how many it computes with.
        amx: whether to use AMX where the processor has it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    package = folder / f"llama_cpp_python-{VERSION}"
    source = package / "vendor" / "llama.cpp"
    if not (source / "CMakeLists.txt").exists():
        _unpack(folder)
    build = folder / ("build" if amx else "build-without-amx")
    finished = build / "finished"
    if not finished.exists() or finished.read_text() != VERSION:
        _build(source, build, amx)
        finished.write_text(VERSION)
    libraries = build / "bin"
    program = compile_program(
        "peers/llama_cpp",
        build,
        [
            *[f"-I{source / 'include'}", f"-I{source / 'ggml/include'}"],
            *[f"-L{libraries}", "-lllama", "-lggml", "-lggml-base", f"-Wl,-rpath,{libraries}"],
        ],
    )
    return LlamaCpp(program, source / "gguf-py", threads)


def _unpack(folder: Path) -> None:
    package = f"{NAME}=={VERSION}"
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary", NAME]
    command = [*pip, "--disable-pip-version-check", "--dest", str(folder), package]
    subprocess.run(command, check=True)
    (archive,) = folder.glob(f"llama_cpp_python-{VERSION}.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")


def _build(source: Path, build: Path, amx: bool) -> None:
    if not shutil.which("cmake"):
        raise RuntimeError("llama.cpp is built with cmake, which is not on the PATH")
    options = {"CMAKE_BUILD_TYPE": "Release", "BUILD_SHARED_LIBS": "ON"}
    options |= {f"LLAMA_{part}": "OFF" for part in LEFT_OUT}
    if amx:
        options["GGML_NATIVE"] = "ON"
    else:
        options["GGML_NATIVE"] = "OFF"
        options |= {f"CMAKE_{language}_FLAGS": NATIVE_WITHOUT_AMX for language in ("C", "CXX")}
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    given = [f"-D{name}={value}" for name, value in options.items()]
    subprocess.run(
        ["cmake", "-S", str(source), "-B", str(build), *generator, *given],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    command = ["cmake", "--build", str(build), "--target", "llama", "--parallel"]
    subprocess.run([*command, str(os.cpu_count() or 1)], check=True)
